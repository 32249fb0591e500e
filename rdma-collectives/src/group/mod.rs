//! Ranks that carry out collective operations together

mod beside;
mod block;
mod blocks;
mod buffer;
mod cabling_plans;
mod call;
mod cause;
mod counts;
mod dispatch;
mod element;
mod error;
mod exchange;
mod execution;
mod join;
mod kernels;
mod link;
mod membership;
mod monitor;
mod neighbour;
mod operations;
mod options;
mod plans;
mod ranks;
mod recent;
mod reduction;
mod relay;
mod replan;
mod schedule;
mod shrink;
mod state;
#[cfg(test)]
mod tests;
mod varying;
mod wire;

pub use self::call::{Call, OperationKind};
pub use self::element::{Complex64, Element, ElementType};
pub use self::error::{GroupError, JoinError, ShrinkError};
pub use self::monitor::{Monitor, Wait, WaitReason, Waits};
pub use self::options::GroupOptions;
pub use self::reduction::Reduction;
pub use self::state::Group;
