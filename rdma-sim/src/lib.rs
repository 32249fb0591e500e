//! A deterministic simulator of RDMA over Thunderbolt 5
//!
//! Simulated Macs, their devices and the cables between them, in virtual nanoseconds. What runs on it sees the verbs
//! traits of `rdma_core`, so that the same program runs on the real path later.
//!
//! ```
//! use rdma_sim::Sim;
//!
//! let once = Sim::new().seed(3).run(|net| async move { net.now() });
//! let again = Sim::new().seed(3).run(|net| async move { net.now() });
//! assert_eq!(once.digest, again.digest);
//! ```
//!
//! # What it is
//!
//! * a [link model](LineRate): frames of 4 KiB, a credit per posted receive frame, queue pairs in order and in turn, both
//!   directions at once, propagation, line rate and a cost per message ([`Timing`]);
//! * an executor that jumps from event to event: no time passes on the clock on the wall;
//! * one source of [`Choices`]: equal seeds give equal runs, as the [`Digest`] proves.
//!
//! # What it is not
//!
//! It is not Apple's driver. It models what is publicly known of it; nothing in it was compared with hardware by this
//! project. The CPU takes no time: what a program computes between two verbs happens in no virtual time at all.
//!
//! `MODEL.md` lists every rule with its source, every fault, and the limits of the model; it is made from the [`catalogue`].

pub mod catalogue;
pub mod check;
mod choices;
mod device;
pub mod driver;
mod executor;
mod fabric;
pub mod fault;
mod host;
mod model;
mod net;
pub mod remote;
pub mod rules;
mod session;
mod shared;
mod sim;
mod tcp;
pub mod topology;
mod trace;

pub use check::{Check, Replay, ReplayError, check};
pub use choices::{Bytes, Choices, Recorded, Seeded};
pub use device::{SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};
pub use driver::Driver;
pub use executor::Stalled;
pub use fabric::{CableStats, Finding, FindingKind};
pub use fault::{Fault, FaultError, FaultKind, FaultPlan, Target, Trigger};
pub use host::SimHost;
pub use model::{LineRate, Model, Timing};
pub use net::{Leaks, Net};
pub use rules::Rules;
pub use sim::{Run, RunError, Sim};
pub use tcp::SimStream;
pub use topology::{MacModel, Topology, TopologyError};
pub use trace::{Digest, Record, RecordKind, chrome_json};
