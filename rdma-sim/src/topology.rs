use rdma_core::Gid;

use crate::LineRate;

/// Which Macs there are, and which ports the cables join
#[derive(Clone, Debug, Default)]
pub struct Topology {
    pub(crate) hosts: Vec<Host>,
    pub(crate) cables: Vec<Cable>,
}

#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) ports: Vec<Port>,
}

#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) device: String,
    pub(crate) rate: LineRate,
    gids: Vec<Gid>,
}

impl Port {
    pub(crate) fn gids(&self) -> Vec<Gid> {
        self.gids.clone()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cable {
    pub(crate) ends: [PortIndex; 2],
    pub(crate) rate: LineRate,
}

/// A port by the position of its host and its own
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PortIndex {
    pub(crate) host: usize,
    pub(crate) port: usize,
}

/// The first Thunderbolt interface of the Macs in Apple's documentation is `en2`.
const FIRST_INTERFACE: usize = 2;

impl Topology {
    /// Nothing yet
    pub fn new() -> Self {
        Self::default()
    }

    /// Two Macs, `a` and `b`, joined by one Thunderbolt 5 cable between their ports `rdma_en2`
    pub fn pair() -> Self {
        Self::new().host("a", 3).host("b", 3).cable(("a", 0), ("b", 0), LineRate::TB5)
    }

    /// Adds a Mac with `ports` Thunderbolt ports, whose devices are named from `rdma_en2`
    #[must_use]
    pub fn host(mut self, name: &str, ports: usize) -> Self {
        let host = self.hosts.len();
        let ports = (0..ports)
            .map(|port| {
                let [_, h2, h1, h0] = (host as u32).to_be_bytes();
                let p = port as u8;
                let mut link_local = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, h2, h1, 0xff, 0xfe, h0, 0, p]);
                link_local.0[8] |= p << 2;
                let ipv4 = Gid::from_ipv4([169, 254, (host % 254) as u8 + 1, p + 1].into());
                Port {
                    device: format!("rdma_en{}", port + FIRST_INTERFACE),
                    rate: LineRate::TB5,
                    gids: vec![link_local, ipv4],
                }
            })
            .collect();
        self.hosts.push(Host { name: name.to_owned(), ports });
        self
    }

    /// Joins two ports, each given by its host and its position from zero
    ///
    /// # Panics
    ///
    /// If there is no such port, or if it has a cable already.
    #[must_use]
    pub fn cable(mut self, a: (&str, usize), b: (&str, usize), rate: LineRate) -> Self {
        let ends = [a, b].map(|(name, port)| {
            let host = self.hosts.iter().position(|host| host.name == name);
            let host = host.unwrap_or_else(|| panic!("no host is called {name:?}"));
            assert!(port < self.hosts[host].ports.len(), "{name} has no port {port}");
            let end = PortIndex { host, port };
            let is_free = self.cables.iter().all(|cable| !cable.ends.contains(&end));
            assert!(is_free, "port {port} of {name} has a cable already");
            end
        });
        assert_ne!(ends[0], ends[1], "a cable has two ends");
        self.cables.push(Cable { ends, rate });
        self
    }

    pub(crate) fn has_host(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host.name == name)
    }

    /// The devices of a host
    pub(crate) fn devices(&self, host: &str) -> impl Iterator<Item = &str> {
        let host = self.hosts.iter().find(|found| found.name == host);
        host.into_iter().flat_map(|host| &host.ports).map(|port| port.device.as_str())
    }

    /// All devices, as names of hosts and devices
    pub fn device_names(&self) -> impl Iterator<Item = (String, String)> {
        let devices = |host: &Host| {
            host.ports.iter().map(|port| (host.name.clone(), port.device.clone())).collect::<Vec<_>>()
        };
        self.hosts.iter().flat_map(devices)
    }

    /// The ports with a cable, as names of hosts and devices
    pub(crate) fn cabled_ports(&self) -> impl Iterator<Item = (String, String)> {
        self.cables.iter().flat_map(|cable| cable.ends).map(|end| {
            let host = &self.hosts[end.host];
            (host.name.clone(), host.ports[end.port].device.clone())
        })
    }
}
