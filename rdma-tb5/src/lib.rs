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
#![cfg(unix)]

mod backoff;
mod call_watch;
mod completion_channel;
mod completion_events;
mod completion_queue;
mod context;
mod device;
mod errno;
mod inspect;
mod memory_region;
mod open_error;
mod options;
mod polled_cq;
mod port_query;
mod port_watch;
mod posted_frames;
mod provider;
mod queue_pair;
mod shared;
mod sync;
#[cfg(test)]
mod tests;
mod transition;

pub use backoff::PollPolicy;
pub use completion_events::CompletionEvents;
pub use completion_queue::VerbsCompletionQueue;
pub use device::VerbsDevice;
pub use inspect::DeviceInfo;
pub use memory_region::VerbsMemoryRegion;
pub use open_error::OpenError;
pub use options::OpenOptions;
pub use provider::{ListError, LoadError, Provider};
pub use queue_pair::VerbsQueuePair;
