#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod all_reduce;
mod arborescences;
mod cabling;
mod cut;
mod flow;
mod forest;
mod network;
mod paths;
mod plan;
mod ratio;
mod shapes;
mod strength;
mod tree;
mod verify;

pub use all_reduce::all_reduce;
pub use cabling::{Cable, Cabling, CablingError, Fingerprint, MAX_CABLES, MAX_HOSTS, MAX_RATE};
pub use forest::{all_gather, broadcast, reduce, reduce_scatter};
pub use paths::{gather, scatter};
pub use plan::{Certificate, Operation, Plan, PlanError, Price};
pub use ratio::{Ratio, RatioError};
pub use tree::Tree;
pub use verify::{VerifyError, verify};
