#![doc = include_str!("../README.md")]
//!
//! # The crates
//!
//! ```text
//! programs   your program       tb5 (rdma-cli) ─────┐         a program in C
//!                 │                  │              │            │
//!                 ▼                  ▼              ▼            ▼
//! on top     rdma-collectives   rdma-calibrate  rdma-doctor   librdma
//!                 │                  │              │            │
//!                 ▼                  │              │            ▼
//! sessions   rdma-async ◀────────────┘              │     rdma-sim-verbs
//!                 │                                 │            │
//!                 ▼ over any of                     ▼            ▼
//! devices    rdma-tcp (TCP)                 rdma-tb5 (real)   rdma-sim (simulated)
//!                 │                                 │            │
//!                 ▼                                 ▼            ▼
//! base       rdma-core (verbs as traits, the protocol), rdma-arena, rdma-verbs-abi, rdma-bare
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod catalogue;
mod caught;
pub mod check;
mod choices;
mod cpu;
mod device;
pub mod driver;
mod executor;
mod fabric;
pub mod fault;
mod host;
mod marking;
mod model;
mod near;
mod net;
mod open_error;
mod port_wakers;
pub mod profile;
pub mod remote;
pub mod rules;
mod scheduler;
mod session;
mod shared;
mod sim;
mod sync;
mod tcp;
mod text_error;
pub mod topology;
mod trace;
mod verb_time;
mod wall_clock;

pub use check::{Check, CheckFailure, FailureKind, Outcome, Replay, ReplayError, Report, check, try_check};
pub use choices::{Bytes, Choices, Recorded, Seeded, Step};
pub use device::{SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};
pub use driver::Driver;
pub use executor::{Stalled, Wait, Waits};
pub use fabric::{CableStats, Finding, FindingKind};
pub use fault::{
    Fault, FaultError, FaultKind, FaultPlan, RandomFaults, SlowVerb, SlowableVerb, Target, Trigger,
};
pub use host::SimHost;
pub use model::{LineRate, Model, Timing};
pub use net::{IpInterface, Leaks, Net};
pub use open_error::OpenError;
pub use rdma_core::{Time, always, sometimes, state};
pub use rules::Rules;
pub use scheduler::{Scheduler, SchedulerError};
pub use sim::{Run, RunError, Sim};
pub use tcp::{SimListener, SimStream};
pub use topology::{MacModel, Topology, TopologyError};
pub use trace::{Digest, History, Record, RecordKind};
