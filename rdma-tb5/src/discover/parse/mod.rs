//! Readers for what the tools print
//!
//! Pure functions from text to values, on every platform. They read what they understand, leave out what they do not, and
//! never panic. Only JSON can be wrong as a whole. However long an output is, at most [`MAX_INPUT`] bytes of it are read,
//! and at most [`MAX_ITEMS`] entries of anything kept.
//!
//! All shapes are composed from public reports and from the parsers of other projects; none was recorded by this one.

mod bounds;
mod ibv_devices;
mod ibv_devinfo;
mod ifconfig;
mod ioclasscount;
mod networksetup;
mod pmset;
mod rdma_ctl;
mod services;
mod sw_vers;
mod system_profiler;

pub use bounds::{MAX_INPUT, MAX_ITEMS, ParseError};
pub use ibv_devices::ibv_devices;
pub use ibv_devinfo::ibv_devinfo;
pub use ifconfig::ifconfig;
pub use ioclasscount::ioclasscount;
pub use networksetup::networksetup;
pub use pmset::pmset;
pub use rdma_ctl::rdma_ctl;
pub use services::{PeerServices, services};
pub use sw_vers::{MacosVersion, sw_vers};
pub use system_profiler::system_profiler;

pub(crate) use bounds::short;
