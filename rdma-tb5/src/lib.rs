//! The real path: RDMA over Thunderbolt 5 through the system's verbs provider

mod account;
mod device;
mod modify;
mod queue;
pub mod verbs;
mod wait;

pub use device::{OpenError, OpenOptions, VerbsDevice, VerbsMemoryRegion};
pub use queue::{PollPolicy, VerbsCompletionQueue, VerbsQueuePair};
pub use verbs::{LoadError, Provider};
