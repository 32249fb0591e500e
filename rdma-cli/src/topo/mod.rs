//! `tb5 topo`: what a cabling is good for

mod cabling;
mod check;
mod plan;

pub(crate) use self::check::run as check;
pub(crate) use self::plan::run as plan;
