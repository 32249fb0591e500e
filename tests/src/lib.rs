//! What the tests and benchmarks share: pairs of simulated Macs

mod pair;

pub use pair::{DEVICE, Pair, connected, endpoint, endpoints};
