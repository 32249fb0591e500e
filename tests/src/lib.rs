//! What the tests and benchmarks share: pairs of simulated Macs, raw and connected

mod pair;
mod raw;

pub use pair::{DEVICE, Pair, connected, endpoint, endpoints};
pub use raw::{RawPair, RawSide};
