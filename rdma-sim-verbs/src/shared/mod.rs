//! Fabrics in shared memory: each process simulates one host, alone or beside others, and messages between hosts pass rings in the
//! memory

mod clock;
mod codec;
mod error;
mod fabric;
mod files;
mod host;
mod interfaces;
mod objects;
mod process;
#[allow(unsafe_code, reason = "records lie in mapped memory")]
mod ring;
#[allow(unsafe_code, reason = "maps memory and leads to the values in it")]
mod segment;
mod senders;
mod settings;
mod sleep_flag;
mod sync;
#[allow(unsafe_code, reason = "makes named pipes")]
mod wake_pipe;

pub use self::error::FabricError;
pub use self::fabric::{Lateness, SharedFabric};
pub(crate) use self::host::LocalHost;
pub use self::interfaces::Interfaces;
pub use self::settings::{MAX_TOPOLOGY, Settings, SettingsError, topology, topology_in};
