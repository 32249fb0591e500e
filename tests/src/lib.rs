//! Support for tests and benchmarks: pairs of simulated Macs, processes of a fabric, conformance and fuzz bodies

pub mod conformance;
mod drop_after;
pub mod fuzz;
pub mod hosts;
pub mod oracle;
mod pair;
mod raw;
pub mod remote;
#[cfg(unix)]
pub mod stub;

pub use drop_after::DropAfter;
pub use pair::{DEVICE, Pair, connected, endpoint, endpoints, zeros};
pub use raw::Raw;

#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
struct Readme;
