//! The Macs, their ports, and the cables between the ports
//!
//! A [`Topology`] is made in one of five ways: port by port ([`Topology::add_host`], [`Topology::add_cable`]), as a
//! [`Shape`], from TOML ([`Topology::from_toml`]), or from the device matrix or the hostfile of an MLX cluster
//! ([`Topology::from_matrix`], [`Topology::from_hostfile`]). However it is made, each port has at most one cable and each cable two Macs.
//!
//! ```
//! use rdma_sim::topology::{MacModel, Topology};
//!
//! let ring = Topology::ring(4, MacModel::MacMiniM4Pro)?;
//! assert_eq!(ring, Topology::from_toml(r#"shape = "ring"
//!                                         hosts = 4
//!                                         mac = "mac-mini-m4-pro""#)?);
//! for link in ring.links() {
//!     let [a, b] = link.ends;
//!     println!("{}:{} - {}:{}", a.host, a.device, b.host, b.device);
//! }
//! # Ok::<(), rdma_sim::TopologyError>(())
//! ```

mod build;
mod cable;
mod error;
mod generate;
mod hostfile;
mod mac;
mod matrix;
mod names;
mod port;
mod shape;
mod shapes;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use self::cable::{Cable, PortIndex};
pub use self::cable::{Link, LinkEnd, PortRef};
pub use self::error::TopologyError;
#[cfg(any(test, feature = "proptest"))]
pub use self::generate::strategies;
pub use self::mac::MacModel;
pub use self::port::{Guid, MacAddress, Port};
pub(crate) use self::port::{gids_under, readdressed};
pub use self::shape::Shape;
pub use self::text::{TopologyTable, toml_message};
pub use rdma_core::MatrixError;

use crate::LineRate;

/// The Macs, and the cables between their ports
///
/// Macs and cables are kept in the order in which they were added. The numbers of a port (GUID, hardware address,
/// self-assigned address) follow from the positions of its Mac and of the port, and are different for each port.
///
/// ```
/// use rdma_sim::{LineRate, Topology};
///
/// let topology = Topology::new().host("a", 3).host("b", 3).cable(("a", 0), ("b", 2), LineRate::TB5);
/// let link = topology.links().next().expect("one cable");
/// assert_eq!(link.ends.map(|end| end.device), ["rdma_en2", "rdma_en4"]);
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Topology {
    pub(crate) hosts: Vec<Host>,
    pub(crate) cables: Vec<Cable>,
}

/// A Mac and its ports
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    pub(crate) name: String,
    mac: MacModel,
    first_interface: u16,
    pub(crate) ports: Vec<Port>,
    cap: Option<LineRate>,
}

impl Topology {
    /// The most hosts that a topology has room for
    pub const MAX_HOSTS: usize = port::MAX_HOSTS;

    /// The first Thunderbolt interface of the Macs in Apple's documentation is `en2`
    pub const FIRST_INTERFACE: u16 = 2;

    /// No Macs and no cables
    pub fn new() -> Self {
        Self::default()
    }

    /// The Macs, in the order in which they were added
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The Mac called `name`
    pub fn find_host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The cables, in the order in which they were added
    pub fn links(&self) -> impl ExactSizeIterator<Item = Link<'_>> + DoubleEndedIterator {
        self.cables.iter().map(|cable| {
            let ends = cable.ends.map(|PortIndex { host, port }| {
                let host = &self.hosts[host];
                LinkEnd { host: &host.name, device: &host.ports[port].device }
            });
            Link { ends, cable_rate: cable.rate, rate: self.link_rate(cable) }
        })
    }

    /// The rate of a cable between its ports
    pub(crate) fn link_rate(&self, cable: &Cable) -> LineRate {
        let ports = cable.ends.map(|end| self.hosts[end.host].mac.line_rate().bits_per_second);
        LineRate { bits_per_second: ports.into_iter().fold(cable.rate.bits_per_second, u64::min) }
    }
}

impl Host {
    /// Its name
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The model of the Mac
    pub fn mac(&self) -> MacModel {
        self.mac
    }

    /// What all of its cables carry together at most, in each direction
    ///
    /// `cap_gbps` of a text, for programs that plan with it; the simulator does not slow the Mac down.
    pub fn cap(&self) -> Option<LineRate> {
        self.cap
    }

    /// Its ports, in the order of their devices
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// The port with this device
    pub fn port(&self, device: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.device == device)
    }
}
