//! The knowledge behind the model: rules of the device and failures from the field, each with its source and its test
//!
//! ```
//! use rdma_sim::catalogue;
//!
//! let rule = catalogue::rules().find(|rule| rule.name == "max-qp").unwrap();
//! assert_eq!(rule.source, "mlx#3162; mlx#4209; the number also in Apple TN3205");
//! assert_eq!(rule.switch.name(), "Caps::max_qp");
//! ```
//!
//! `MODEL.md` is this catalogue for people, made by [`model_md`].

mod failures;
mod model_md;
mod numbers;
mod rules;
mod switches;

pub use self::failures::{FAILURES, Failure, Modelled};
pub use self::model_md::model_md;
pub(crate) use self::numbers::{RULES, number, rule};
pub use self::rules::{Rule, RuleStatus, SECTIONS, Switch, rules};
