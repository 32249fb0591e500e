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

mod arp;
mod bounds;
mod firewall;
mod ibv_devices;
mod ibv_devinfo;
mod ifconfig;
mod incident;
mod ioclasscount;
mod kernel_log;
mod launchctl;
mod ndp;
mod network_settings;
mod networksetup;
mod pmset;
mod port_owners;
mod ps;
mod rdma_ctl;
mod route_get;
mod services;
mod sw_vers;
mod system_profiler;
mod uptime;
mod vm_stat;

pub use arp::arp;
pub use bounds::{MAX_INPUT, MAX_ITEMS, ParseError};
pub use firewall::firewall;
pub use ibv_devices::ibv_devices;
pub use ibv_devinfo::ibv_devinfo;
pub use ifconfig::ifconfig;
pub use incident::incident;
pub use ioclasscount::ioclasscount;
pub use kernel_log::kernel_log;
pub use launchctl::launchctl;
pub use ndp::ndp;
pub use network_settings::network_settings;
pub use networksetup::networksetup;
pub use pmset::pmset;
pub use port_owners::port_owners;
pub use ps::ps;
pub use rdma_ctl::rdma_ctl;
pub use route_get::route_get;
pub use services::{PeerServices, services};
pub use sw_vers::{MacosVersion, sw_vers};
pub use system_profiler::system_profiler;
pub use uptime::uptime;
pub use vm_stat::vm_stat;

pub(crate) use bounds::short;
