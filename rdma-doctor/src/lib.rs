#![doc = include_str!("../README.md")]

mod checks;
pub mod discover;
pub mod parse;
pub mod report;

pub use checks::{
    CHECKS, Check, Diagnosis, FIELD_FAILURES, FieldFailure, Finding, Host, NOT_VISIBLE, Verdict, diagnose,
};
pub use discover::collect;
pub use report::HostReport;
