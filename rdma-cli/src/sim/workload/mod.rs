//! The programs of scenarios, one file for each kind
//!
//! A program runs at each end of each link. It checks that messages arrive unchanged, in order and once, and reports every
//! violation.

mod exchange;
mod idle;
mod message;
mod ping;
mod program;
mod stream;
mod verbs;

pub(super) use self::exchange::Exchange;
pub(super) use self::idle::Idle;
pub(super) use self::ping::Ping;
pub(super) use self::program::{Kind, Program, Workload};
pub(super) use self::stream::Stream;
pub(super) use self::verbs::Verbs;
