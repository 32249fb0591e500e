//! The real path: RDMA over Thunderbolt 5 through the system's verbs provider
//!
//! * [`VerbsDevice`]: a device of `librdma.dylib` on macOS, of `libibverbs` on Linux, or of any library with the same ABI,
//!   loaded at run time, behind the traits of [`rdma_core`];
//! * [`discover`]: what a host has and how it is set up, as data that can be recorded there and read anywhere;
//! * [`preflight`]: what of that will keep RDMA from working, and what to do about it.
//!
//! ```
//! use rdma_tb5::discover::HostReport;
//! use rdma_tb5::preflight::{self, Host, Verdict};
//!
//! let report: HostReport = serde_json::from_str(r#"{"platform": "macos", "rdma_ctl": "disabled"}"#).unwrap();
//! let diagnosis = preflight::diagnose(&[Host::new("left", report)]);
//! assert_eq!(diagnosis.verdict(), Verdict::Fail);
//! ```
//!
//! # What was observed where
//!
//! **No Mac was at hand when this was written.** The verbs were run over the simulated provider of `rdma-sim-verbs`, and over
//! genuine libibverbs with Soft-RoCE in a virtual machine; the code for macOS was type-checked only; what the parsers read was
//! composed from public reports, see [`discover`]. `MACS.md` beside this crate has a table by claim, and what to run on Macs.

#[cfg(unix)]
mod account;
#[cfg(unix)]
mod device;
pub mod discover;
#[cfg(unix)]
mod modify;
pub mod preflight;
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
pub use queue::{PollPolicy, VerbsCompletionQueue, VerbsQueuePair};
#[cfg(unix)]
pub use verbs::{LoadError, Provider};
