//! `tb5 topo`: what a cabling is good for

mod best;
mod cabling;
mod check;
mod convert;
mod discover;
mod draw;
mod moves;
mod operation;
mod plan;
mod ports;

pub(crate) use self::cabling::{cabling, unplanned};
pub(crate) use self::check::run as check;
pub(crate) use self::convert::run as convert;
pub(crate) use self::discover::run as discover;
pub(crate) use self::draw::{run as draw, svg};
pub(crate) use self::operation::operation;
pub(crate) use self::plan::run as plan;
