use std::net::IpAddr;

use super::cable::PortName;
use super::{Cable, Host, MacModel, Port, PortIndex, PortRef, Topology, TopologyError};
use crate::LineRate;

impl Topology {
    /// Adds a Mac, whose devices are named as its model has them: a [`MacModel`], or a number of ports
    ///
    /// # Panics
    ///
    /// Where [`add_host`](Self::add_host) fails.
    #[must_use]
    #[track_caller]
    pub fn host(mut self, name: &str, mac: impl Into<MacModel>) -> Self {
        self.add_host(name, mac).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Joins two ports, each given by its host and its position from zero, or by its host and device
    ///
    /// # Panics
    ///
    /// Where [`add_cable`](Self::add_cable) fails.
    #[must_use]
    #[track_caller]
    pub fn cable<'a>(mut self, a: impl Into<PortRef<'a>>, b: impl Into<PortRef<'a>>, rate: LineRate) -> Self {
        self.add_cable(a, b, rate).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Adds a Mac, whose devices are named as its model has them: a [`MacModel`], or a number of ports
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnusableName`], [`DuplicateHost`](TopologyError::DuplicateHost),
    /// [`PortCount`](TopologyError::PortCount), [`TooManyHosts`](TopologyError::TooManyHosts).
    pub fn add_host(&mut self, name: &str, mac: impl Into<MacModel>) -> Result<&mut Self, TopologyError> {
        let mac = mac.into();
        self.add_host_from(name, mac, mac.first_interface())
    }

    /// As [`add_host`](Self::add_host), with devices named from `rdma_en<first_interface>`
    ///
    /// Macs number their interfaces anew after a change of their configuration (reported: issue 3207 of MLX).
    ///
    /// # Errors
    ///
    /// Those of [`add_host`](Self::add_host).
    pub fn add_host_from(
        &mut self,
        name: &str,
        mac: impl Into<MacModel>,
        first_interface: u16,
    ) -> Result<&mut Self, TopologyError> {
        let (host, mac) = (name.to_owned(), mac.into());
        // Faults, the ends of cables and replay lines are written with names.
        let is_separator = |c: char| c.is_whitespace() || c.is_control() || "\"':;".contains(c);
        if name.is_empty() || name.contains(is_separator) {
            return Err(TopologyError::UnusableName { host });
        }
        if self.find_host(name).is_some() {
            return Err(TopologyError::DuplicateHost { host });
        }
        if self.hosts.len() == Self::MAX_HOSTS {
            return Err(TopologyError::TooManyHosts { host });
        }
        if !(1..=MacModel::MAX_PORTS).contains(&mac.ports()) {
            return Err(TopologyError::PortCount { host, ports: mac.ports() });
        }
        let index = self.hosts.len();
        let ports =
            (0..mac.ports()).map(|position| Port::new(index, position, first_interface, mac)).collect();
        self.hosts.push(Host { name: host, mac, first_interface, ports, cap: None });
        Ok(self)
    }

    /// Joins two ports by a cable that carries up to `rate`
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownHost`], [`NoSuchPort`](TopologyError::NoSuchPort),
    /// [`CableToItself`](TopologyError::CableToItself), [`SameHost`](TopologyError::SameHost),
    /// [`PortInUse`](TopologyError::PortInUse), [`UnusableRate`](TopologyError::UnusableRate).
    pub fn add_cable<'a>(
        &mut self,
        a: impl Into<PortRef<'a>>,
        b: impl Into<PortRef<'a>>,
        rate: LineRate,
    ) -> Result<&mut Self, TopologyError> {
        let ends = [self.find_port(a.into())?, self.find_port(b.into())?];
        let [a, b] = ends;
        let [[host, device], [_, other]] = ends.map(|end| self.names(end));
        if a == b {
            return Err(TopologyError::CableToItself { host, device });
        }
        if a.host == b.host {
            return Err(TopologyError::SameHost { host, devices: [device, other] });
        }
        if !(1..=MAX_RATE).contains(&rate.bits_per_second) {
            let bits_per_second = rate.bits_per_second;
            return Err(TopologyError::UnusableRate { end: [host, device], bits_per_second });
        }
        for end in ends {
            let Some(peer) = self.peer(end) else { continue };
            let [host, device] = self.names(end);
            let (peer, free) = (self.names(peer), self.free_ports(end.host));
            return Err(TopologyError::PortInUse { host, device, peer, free });
        }
        self.cables.push(Cable { ends, rate });
        Ok(self)
    }

    /// Replaces the addresses of a port's interface, and with them its GID table
    ///
    /// They are not compared with those of other ports, so that a misconfigured cluster can be described.
    ///
    /// ```
    /// # use rdma_sim::Topology;
    /// let mut pair = Topology::pair();
    /// let port = pair.hosts()[0].port("rdma_en2").unwrap();
    /// let (link_local, ipv4) = (port.addresses()[0], port.addresses()[1]);
    /// // A second link-local address moves the IPv4 address to another index.
    /// pair.set_addresses(("a", "rdma_en2"), [link_local, "fe80::c0de".parse().unwrap(), ipv4])?;
    /// assert!(pair.hosts()[0].ports()[0].gids()[2].ipv4().is_some());
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownHost`], [`NoSuchPort`](TopologyError::NoSuchPort),
    /// [`AddressTwice`](TopologyError::AddressTwice).
    pub fn set_addresses<'a>(
        &mut self,
        port: impl Into<PortRef<'a>>,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) -> Result<&mut Self, TopologyError> {
        let index = self.find_port(port.into())?;
        let mut list: Vec<IpAddr> = Vec::new();
        for address in addresses {
            let address = address.to_canonical();
            if list.contains(&address) && !address.is_unspecified() {
                let [host, device] = self.names(index);
                return Err(TopologyError::AddressTwice { host, device, address });
            }
            list.push(address);
        }
        self.hosts[index.host].ports[index.port].addresses = list;
        Ok(self)
    }

    pub(super) fn find_port(&self, wanted: PortRef<'_>) -> Result<PortIndex, TopologyError> {
        let Some(host) = self.hosts.iter().position(|host| host.name == wanted.host) else {
            let hosts = self.hosts.iter().map(|host| host.name.clone()).collect();
            return Err(TopologyError::UnknownHost { host: wanted.host.to_owned(), hosts });
        };
        let Host { name, ports, .. } = &self.hosts[host];
        let port = match wanted.port {
            PortName::Device(device) => ports.iter().position(|port| port.device == device),
            PortName::Position(position) => (position < ports.len()).then_some(position),
        };
        port.map(|port| PortIndex { host, port }).ok_or_else(|| TopologyError::NoSuchPort {
            host: name.clone(),
            port: match wanted.port {
                PortName::Device(device) => device.to_owned(),
                PortName::Position(position) => position.to_string(),
            },
            ports: ports.iter().map(|port| port.device.clone()).collect(),
            free: self.free_ports(host),
        })
    }

    /// The port at the other end of the cable in `end`
    fn peer(&self, end: PortIndex) -> Option<PortIndex> {
        self.cables.iter().find_map(|cable| match cable.ends {
            [a, b] if a == end => Some(b),
            [a, b] if b == end => Some(a),
            _ => None,
        })
    }

    pub(super) fn free_ports(&self, host: usize) -> Vec<String> {
        let ports = self.hosts[host].ports.iter().enumerate();
        let free = ports.filter(|(port, _)| self.peer(PortIndex { host, port: *port }).is_none());
        free.map(|(_, port)| port.device.clone()).collect()
    }

    /// Host and device
    fn names(&self, index: PortIndex) -> [String; 2] {
        let host = &self.hosts[index.host];
        [host.name.clone(), host.ports[index.port].device.clone()]
    }
}

/// The fastest cable; beyond it, rates would not survive the way through text.
pub(super) const MAX_RATE: u64 = 1_000_000_000_000;
