//! The real path: RDMA over Thunderbolt 5 through the system's verbs provider
//!
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
//! # What it is not
//!
//! **The verbs are not there yet.** The crate will load `librdma.dylib` on macOS and `libibverbs.so.1` on Linux at run
//! time and implement the traits of `rdma_core` over it. Until then programs run on `rdma-sim`.
//!
//! No Mac was at hand when this was written: see [`discover`] for what that means.

pub mod discover;
pub mod preflight;
