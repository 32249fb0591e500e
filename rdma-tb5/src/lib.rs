#![doc = include_str!("../README.md")]
#![cfg(unix)]

mod backoff;
mod completion_queue;
mod context;
mod device;
mod errno;
mod inspect;
mod memory_region;
mod open_error;
mod options;
mod polled_cq;
mod port_watch;
mod posted_frames;
mod provider;
mod queue_pair;
mod shared;
mod sync;
#[cfg(test)]
mod tests;
mod transition;

pub use backoff::PollPolicy;
pub use completion_queue::VerbsCompletionQueue;
pub use device::VerbsDevice;
pub use inspect::DeviceInfo;
pub use memory_region::VerbsMemoryRegion;
pub use open_error::OpenError;
pub use options::OpenOptions;
pub use provider::{ListError, LoadError, Provider};
pub use queue_pair::VerbsQueuePair;
