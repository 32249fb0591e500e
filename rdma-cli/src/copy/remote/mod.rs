//! `tb5 copy` between two machines: one listens, the other one sends

mod carriers;
mod listen;
mod request;
mod send;
mod sides;

pub(super) use self::listen::listen;
pub(super) use self::send::send;
