//! What will keep RDMA from working, before anything is connected
//!
//! A table of [checks](CHECKS), each of which looks at one thing in one [`HostReport`], or compares the reports of several
//! hosts. [`diagnose`] runs them all. Every finding shows what was observed; where something could not be observed it says
//! so instead of guessing.
//!
//! The checks come from failures that people have reported, F1 to F83 in the project's catalogue. Those of its sections A
//! (discovery), B (addressing) and C (limits), and of F73 to F77 and F80, are seen here as far as they can be seen before
//! connecting; [`Check::faults`] says which check sees which. [`NOT_VISIBLE`] lists the others, with the reason.
//!
//! No Mac was at hand: the checks were tried on composed reports only.
//!
//! [`HostReport`]: crate::discover::HostReport

mod addresses;
mod cables;
mod check;
mod enablement;
mod hosts;
mod kernel;
mod ports;
mod table;

pub use check::{Check, Diagnosis, Finding, Host, Verdict};
pub use table::{CHECKS, NOT_VISIBLE};

/// Runs all checks on the reports of one host or of several
///
/// A check that does not apply, such as one about macOS on another system, finds nothing.
pub fn diagnose(hosts: &[Host]) -> Diagnosis {
    Diagnosis { findings: CHECKS.iter().flat_map(|check| check.run(hosts)).collect() }
}
