//! Parsers of the tools' outputs
//!
//! Pure functions from text to values of [`report`](crate::report), on every platform. They skip lines that they do not understand and
//! never panic; only JSON can be wrong as a whole. At most [`MAX_INPUT`] bytes of an output are read, and at most [`MAX_ITEMS`]
//! entries of a list are kept.
//!
//! ```
//! use rdma_doctor::parse;
//!
//! let devices = parse::ibv_devinfo("hca_id: rdma_en4\n  max_qp: 11\n  port: 1\n    state: PORT_ACTIVE (4)\n");
//! assert_eq!(devices[0].name, "rdma_en4");
//! assert_eq!(devices[0].max_qp, Some(11));
//! assert!(devices[0].ports[0].is_active());
//! ```
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
