//! The simulator as a verbs provider
//!
//! A library called `librdma.so` (`librdma.dylib`) with the functions of libibverbs, over simulated devices. What the devices
//! do comes from `rdma_sim`; the structures are those of `rdma_tb5`. Programs that speak the C ABI find, within one process,
//! the devices of all simulated hosts, named `rdma_en2@a` for device `rdma_en2` of host `a`.
//!
//! Environment: `RDMA_SIM_PROFILE` (`tb5`, `tb5-macos-26.2`, `roce`), `RDMA_SIM_SEED`, `RDMA_SIM_FAULTS` (a fault plan), and
//! `RDMA_SIM_CLOCK`: with `virtual`, each look at an empty completion queue lets time jump to the next event, so that runs are
//! equal; otherwise time is that of the clock on the wall.
//!
//! No function panics across the ABI: misuse is an error number.

mod channel;
mod engine;
mod exports;
mod objects;
mod progress;
pub mod shared;

pub use exports::*;

#[expect(clippy::print_stderr, reason = "programs in C are told in no other way")]
fn complain(why: &str) {
    eprintln!("librdma: {why}");
}
