//! Faults as data: when, to which host or port, and what happens
//!
//! A [`FaultPlan`] is a list that a shrinker can shorten and that people can read and write:
//!
//! ```
//! use rdma_sim::FaultPlan;
//!
//! let text = "at 5ms a:rdma_en2 unplug; at 2s a:rdma_en2 replug; after 100 frames b:rdma_en2 corrupt 3";
//! let plan: FaultPlan = text.parse()?;
//! assert_eq!(plan.0.len(), 3);
//! assert_eq!(plan.to_string(), text);
//! # Ok::<(), rdma_sim::FaultError>(())
//! ```
//!
//! [`FAULTS`] lists every kind of fault, and [`catalogue`](crate::catalogue) the failures from the field that each stands for.

mod argument;
mod error;
#[cfg(any(feature = "proptest", feature = "arbitrary"))]
mod generate;
mod kind;
mod plan;
mod random;
mod span;
mod verb;

pub(crate) use self::argument::TIME;
pub use self::error::{FaultError, FaultReason, suggestion};
#[cfg(feature = "proptest")]
pub use self::generate::strategies;
pub use self::kind::{FAULTS, FaultInfo, FaultKind, TargetKind};
pub use self::plan::{Fault, FaultPlan, Target, Trigger};
pub use self::random::RandomFaults;
pub(crate) use self::random::Traffic;
pub use self::verb::{SlowVerb, SlowableVerb};
