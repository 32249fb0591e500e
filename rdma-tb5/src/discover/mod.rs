//! What a host has, and how it is set up
//!
//! [`collect()`] asks the machine it runs on. What it learns is a [`HostReport`], plain data that is written to a file on
//! one machine and diagnosed on another. On macOS the source is the output of Apple's tools, read by [`parse`] and put
//! together by [`Outputs::report`], and the I/O Registry for what is live; on Linux it is `/sys/class/infiniband`.
//!
//! [`collect`] opens no device, so it can wedge none; [`provider`] does, in a process of its own. A tool that hangs is itself a
//! finding (F53): each runs with a timeout.
//!
//! # What was observed, and what was not
//!
//! The shapes of the outputs are **composed** from field names and lines in public reports and in the parsers of other
//! projects. No Mac was at hand: none was recorded by this project, and the code that runs on macOS only was type-checked
//! and never run. The parsers are lenient for that reason. Missing keys, another order, new keys, empty output and garbage
//! give less knowledge, never a panic.
//!
//! Numbers such as F53 count the failures that people have reported of these clusters; [`crate::preflight`] has the list.

mod collect;
mod outputs;
pub mod parse;
#[cfg(unix)]
pub mod provider;
mod report;
mod tool;

#[cfg(target_os = "macos")]
mod iokit;
#[cfg(any(target_os = "linux", test))]
mod linux;

pub use collect::collect;
pub use outputs::Outputs;
pub use report::{
    Address, Bus, Gid, HardwarePort, HostReport, Interface, IpLink, KernelObjects, LinkSpeed, LiveLinks,
    Outcome, Peer, Platform, Port, Provider, RdmaCtl, ToolRun, VerbsDevice,
};
pub use tool::{Captured, Tool};
