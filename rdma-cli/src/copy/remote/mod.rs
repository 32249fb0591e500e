//! `tb5 copy` between two machines: one serves, the other one sends

mod outcome;
mod receive;
mod request;
mod send;

pub(crate) use self::receive::{Incoming, receive};
pub(super) use self::send::send;
