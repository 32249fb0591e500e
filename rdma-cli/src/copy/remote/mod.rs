//! `tb5 copy` between two machines: one serves, the other one sends

mod outcome;
mod receive;
mod request;
mod send;

pub(crate) use self::outcome::Outcome;
pub(crate) use self::receive::{Incoming, receive};
pub(crate) use self::send::Sending;
pub(super) use self::send::send;
