//! The simulator as a verbs provider
//!
//! The functions of libibverbs over simulated devices, as the package `librdma` puts them into a library called `librdma.so`
//! (`librdma.dylib`). `rdma_sim` simulates the devices; the structures are those of `rdma_verbs_abi`. Programs that speak the C ABI
//! run unmodified: with the library preloaded, or loaded by name. `tb5 run` sets all of this up.
//!
//! # Several processes
//!
//! With `RDMA_SIM_FABRIC` (a name) and `RDMA_SIM_HOST` (the name of a host, or its number), a process is one of up to four of a host
//! of a fabric in [shared memory](shared), and sees the devices of that host: `rdma_en2` and so on. The first process makes the
//! fabric, by `RDMA_SIM_TOPOLOGY` (`mesh:3`, `ring:4`, `line:2`, `star:5`, `pair`, or a file in TOML or a device matrix in JSON), `RDMA_SIM_PROFILE`,
//! `RDMA_SIM_SEED` and `RDMA_SIM_PACE` (`tb5`: cables as slow as modelled; `none`). The fabric is gone with its last process. Faults of
//! `RDMA_SIM_FAULTS`, or that `tb5 fabric` adds, apply to all processes alike; faults of hosts stop, continue and kill processes.
//!
//! Data is copied into the shared memory and out of it. A thread beside the program does what a device does while the program does
//! not call: it fills receives, answers one-sided operations, raises completion events. While the program polls, it sleeps.
//!
//! Processes of one host share the limits of its devices; their queue pairs have different numbers. When one is killed, the others go on.
//!
//! In a child that was forked from a process that has used verbs, every verb fails with `ENODEV` (19), and the parent goes on.
//!
//! # One process
//!
//! Without `RDMA_SIM_FABRIC`, the devices of all hosts are in the process, named `rdma_en2@a` for device `rdma_en2` of host `a`. With
//! `RDMA_SIM_CLOCK=virtual`, time jumps to the next event at each poll of an empty completion queue, so that runs are equal. With
//! `RDMA_SIM_CLOCK=stepped`, it passes only in `rdma_sim_step`, `rdma_sim_rest` and, by 1 ns, `rdma_sim_inject`: for a program that plays
//! several hosts at once, in exact nanoseconds. With both, a verb that blocks, because the profile or a fault says that it takes time,
//! advances time by as long as it blocks. Otherwise it is the time of the clock on the wall.
//!
//! # Everywhere
//!
//! `RDMA_SIM_PROFILE` is `tb5`, `tb5-cpu` (as `tb5` for programs in C, which run on a real processor), `tb5-strict` (the strict side of every
//! disputed rule), `tb5-macos-26.2`, `tb5-lenient` (with the room of other adapters), `roce` or a profile file, as `tb5 calibrate` writes it;
//! `RDMA_SIM_LINK_LAYER` is the link layer that ports report: `thunderbolt`, or `ethernet` or `infiniband`
//! for programs that know no other.
//!
//! No function panics across the ABI: misuse is an error number. With `RDMA_SIM_CRASHES=1`, and under `tb5-strict`, the process ends
//! instead where Apple's provider was seen to crash, and standard error names the call: memory registered with a NULL protection domain,
//! and a post after the cable was pulled.
//!
//! ```
//! use rdma_sim_verbs::{ibv_free_device_list, ibv_get_device_list, rdma_sim_configure};
//!
//! // SAFETY: the text ends with a zero.
//! let configured = unsafe { rdma_sim_configure(c"RDMA_SIM_TOPOLOGY=pair,RDMA_SIM_CLOCK=virtual".as_ptr()) };
//! assert_eq!(configured, 0);
//! let mut count = 0;
//! // SAFETY: the pointer leads to a number.
//! let list = unsafe { ibv_get_device_list(&raw mut count) };
//! assert_eq!(count, 6);
//! // SAFETY: the list came from the provider and is freed once.
//! unsafe { ibv_free_device_list(list) };
//! ```

mod completion_channel;
mod devices;
mod engine;
mod environment;
mod errno;
#[allow(unsafe_code, reason = "the C ABI: its functions take and return pointers")]
mod exports;
#[allow(unsafe_code, reason = "handlers of the system are registered by address")]
mod lifetime;
mod log;
#[allow(unsafe_code, reason = "promises the layout of objects to `slots`")]
mod objects;
mod progress;
pub mod shared;
mod silent_outcomes;
#[allow(unsafe_code, reason = "leads from the pointers of the ABI to objects")]
mod slots;

pub use exports::*;
