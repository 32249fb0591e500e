//! The real path: RDMA over Thunderbolt 5 through the system's verbs provider
//!
//! * [`VerbsDevice`]: a device of `librdma.dylib` on macOS, of `libibverbs` on Linux, or of any library with the same ABI,
//!   loaded at run time, behind the traits of [`rdma_core`];
//! What a host has for RDMA, and what keeps it from working, is the subject of `rdma-doctor`; opening a device does not need it.
//!
//! # What was observed where
//!
//! **No Mac was at hand when this was written.** The verbs were run over the simulated provider of `rdma-sim-verbs`, and over
//! genuine libibverbs with Soft-RoCE in a virtual machine; the code for macOS was type-checked only.
//! `MACS.md` beside this crate has a table by claim, and what to run on Macs.

#[cfg(unix)]
mod account;
#[cfg(unix)]
mod device;
#[cfg(unix)]
mod inspect;
#[cfg(unix)]
mod modify;
#[cfg(unix)]
mod queue;
#[cfg(unix)]
mod verbs;
#[cfg(unix)]
mod wait;
#[cfg(unix)]
mod watch;

#[cfg(unix)]
pub use device::{OpenError, OpenOptions, VerbsDevice, VerbsMemoryRegion};
#[cfg(unix)]
pub use inspect::DeviceInfo;
#[cfg(unix)]
pub use queue::{PollPolicy, VerbsCompletionQueue, VerbsQueuePair};
#[cfg(unix)]
pub use verbs::{ListError, LoadError, Provider};
