//! Collecting a report: the tools of macOS, the I/O Registry, sysfs of Linux, and the verbs provider
//!
//! [`collect()`] opens no device, so it cannot wedge one. [`provider_probe`] and [`peer_probe`] do, each in a process of its own. A tool
//! that hangs is itself a finding (F53): each runs with a bound on its time and on its output.

mod collect;
#[cfg(any(target_os = "macos", test))]
mod gather;
#[cfg(any(target_os = "macos", test))]
mod incidents;
mod outputs;
#[cfg(unix)]
pub mod peer_probe;
#[cfg(unix)]
pub mod provider_probe;
#[cfg(unix)]
mod run;
mod tool;

#[cfg(target_os = "macos")]
mod iokit;
#[cfg(any(target_os = "linux", test))]
mod linux;

pub use collect::collect;
#[cfg(target_os = "macos")]
use gather::gather;
pub use outputs::Outputs;
pub use tool::{Captured, Tool};
