//! The checks: questions to reports, each with a verdict, evidence and a remedy
//!
//! The checks come from failures that users have reported, F1 to F83 in the catalogue of the simulator. Those of its sections A
//! (discovery), B (addressing) and C (limits), and of F73 to F77 and F80, are detected here as far as a report shows them;
//! [`Check::faults`] says which check detects which. [`NOT_VISIBLE`] lists the others, with the reason.
//!
//! No Mac was at hand: the checks were tried on composed reports only.

mod addresses;
mod cables;
mod catalogue;
mod check;
mod enablement;
mod field;
mod hosts;
mod kernel;
mod neighbours;
mod peers;
mod ports;
mod settings;
mod wear;

pub use catalogue::{CHECKS, NOT_VISIBLE, diagnose};
pub use check::{Check, Diagnosis, Finding, Host, Verdict};
pub use field::{FIELD_FAILURES, FieldFailure};
