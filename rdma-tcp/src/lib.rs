#![doc = include_str!("../README.md")]
#![cfg(unix)]

mod bind_error;
mod completion_queue;
mod completions;
mod device;
mod endpoint;
mod engine;
mod frame_counts;
mod handle;
mod handshake;
mod mailbox;
mod memory_region;
mod options;
mod queue_pair;
mod regions;
mod shared;
mod sync;
mod transfer;
mod wire;
mod work;

pub use bind_error::BindError;
pub use completion_queue::TcpCompletionQueue;
pub use device::TcpDevice;
pub use memory_region::TcpMemoryRegion;
pub use options::TcpOptions;
pub use queue_pair::TcpQueuePair;
