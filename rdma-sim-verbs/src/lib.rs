//! The simulator as a verbs provider
//!
//! A library called `librdma.so` (`librdma.dylib`) with the functions of libibverbs, over simulated devices. What the devices
//! do comes from `rdma_sim`; the structures are those of `rdma_verbs_abi`. Programs that speak the C ABI run unmodified: preloaded, or
//! loaded by name. `tb5 run` sets all of this up.
//!
//! # Several processes
//!
//! With `RDMA_SIM_FABRIC` (a name) and `RDMA_SIM_HOST` (the name of a host, or its number), a process is one of the hosts of a
//! fabric in [shared memory](shared), and sees the devices of that host: `rdma_en2` and so on. The first process makes the fabric, by
//! `RDMA_SIM_TOPOLOGY` (`mesh:3`, `ring:4`, `line:2`, `star:5`, `pair`, or a file in TOML or a device matrix in JSON), `RDMA_SIM_PROFILE`,
//! `RDMA_SIM_SEED` and `RDMA_SIM_PACE` (`tb5`: cables as slow as modelled; `none`). It is gone with the last one. Faults of
//! `RDMA_SIM_FAULTS`, or that `tb5 fabric` adds, happen to all processes alike; those of hosts stop, continue and kill processes.
//!
//! Data is copied into the shared memory and out of it. A thread beside the program does what a device does while nobody calls:
//! it fills receives, answers one-sided operations, raises completion events. While the program polls, it rests.
//!
//! # One process
//!
//! Without `RDMA_SIM_FABRIC`, the devices of all hosts are in the process, named `rdma_en2@a` for device `rdma_en2` of host `a`. With
//! `RDMA_SIM_CLOCK=virtual`, each look at an empty completion queue lets time jump to the next event, so that runs are equal;
//! otherwise time is that of the clock on the wall.
//!
//! # Everywhere
//!
//! `RDMA_SIM_PROFILE` is `tb5`, `tb5-macos-26.2`, `tb5-lenient` (with the room of other adapters) or `roce`; `RDMA_SIM_LINK_LAYER` is
//! what ports say of their link: `thunderbolt`, or `ethernet` or `infiniband` for programs that know no other.
//!
//! No function panics across the ABI: misuse is an error number.
#![allow(unsafe_code, reason = "the C ABI: every exported function is unsafe, and names objects by address")]

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
