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
    /// Names of its devices, in the order of their ports.
    pub(crate) ports: Vec<String>,
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
        let ports = (0..ports).map(|port| format!("rdma_en{}", port + FIRST_INTERFACE)).collect();
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
}
