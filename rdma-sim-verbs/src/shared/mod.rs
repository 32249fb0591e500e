//! Fabrics in shared memory: each process simulates one host, and what crosses a cable crosses the memory

mod bell;
pub(crate) mod clock;
mod codec;
mod lane;
mod member;
mod outlets;
mod place;
mod segment;
mod settings;

pub(crate) use self::member::Member;
pub use self::place::{FabricError, Sent, SharedFabric};
pub use self::settings::{Settings, SettingsError, topology};
