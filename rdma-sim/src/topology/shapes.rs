use super::shape::Shape;
use super::{MacModel, Topology, TopologyError};
use crate::LineRate;

impl Topology {
    /// Two Macs, `a` and `b`, joined by one Thunderbolt 5 cable between their ports `rdma_en2`
    pub fn pair() -> Self {
        Self::new().host("a", 3).host("b", 3).cable(("a", 0), ("b", 0), LineRate::TB5)
    }

    /// So many Macs in a line, called `a`, `b`, …; `mac` is their model, or how many ports each has
    ///
    /// # Errors
    ///
    /// Those of [`shaped`](Self::shaped).
    pub fn line(hosts: usize, mac: impl Into<MacModel>) -> Result<Self, TopologyError> {
        Self::shaped(Shape::Line, hosts, mac, 1, LineRate::TB5)
    }

    /// So many Macs, called `a`, `b`, …, each joined to each other one; `mac` is their model, or how many ports each has
    ///
    /// The ports of each Mac, from `rdma_en2` on, lead to the other Macs in the order in which these were added; further ports are free:
    ///
    /// ```
    /// use rdma_sim::Topology;
    ///
    /// // Three Macs with three ports each.
    /// let mesh = Topology::mesh(3, 3)?;
    /// let cables: Vec<_> = mesh.links().map(|link| link.ends.map(|end| (end.host, end.device))).collect();
    /// assert_eq!(cables, [
    ///     [("a", "rdma_en2"), ("b", "rdma_en2")],
    ///     [("a", "rdma_en3"), ("c", "rdma_en2")],
    ///     [("b", "rdma_en3"), ("c", "rdma_en3")],
    /// ]);
    /// // To dial from `b` to `c`:
    /// let port = cables.iter().find_map(|ends| match ends {
    ///     [("b", device), ("c", _)] | [("c", _), ("b", device)] => Some(*device),
    ///     _ => None,
    /// });
    /// assert_eq!(port, Some("rdma_en3"));
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`shaped`](Self::shaped).
    pub fn mesh(hosts: usize, mac: impl Into<MacModel>) -> Result<Self, TopologyError> {
        Self::shaped(Shape::Mesh, hosts, mac, 1, LineRate::TB5)
    }

    /// So many Macs in a ring, called `a`, `b`, …; `mac` is their model, or how many ports each has
    ///
    /// ```
    /// use rdma_sim::Topology;
    ///
    /// // Three Macs with four ports each: two have cables, and two are free.
    /// let ring = Topology::ring(3, 4)?;
    /// assert_eq!((ring.hosts().len(), ring.hosts()[0].ports().len(), ring.links().len()), (3, 4, 3));
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`shaped`](Self::shaped).
    pub fn ring(hosts: usize, mac: impl Into<MacModel>) -> Result<Self, TopologyError> {
        Self::shaped(Shape::Ring, hosts, mac, 1, LineRate::TB5)
    }

    /// So many Macs, called `a`, `b`, …, of which `a` is joined to each other one; `mac` is their model, or how many ports each has
    ///
    /// # Errors
    ///
    /// Those of [`shaped`](Self::shaped).
    pub fn star(hosts: usize, mac: impl Into<MacModel>) -> Result<Self, TopologyError> {
        Self::shaped(Shape::Star, hosts, mac, 1, LineRate::TB5)
    }

    /// Macs called `a`, `b`, … in a shape, with so many cables between those that it joins
    ///
    /// ```
    /// use rdma_sim::topology::{MacModel, Shape};
    /// use rdma_sim::{LineRate, Topology};
    ///
    /// let ring = Topology::shaped(Shape::Ring, 4, MacModel::MacStudioM3Ultra, 3, LineRate::TB5)?;
    /// assert_eq!(ring.links().len(), 12);
    /// # Ok::<(), rdma_sim::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TopologyError::ShapeHosts`], [`TooFewPorts`](TopologyError::TooFewPorts),
    /// [`PortCount`](TopologyError::PortCount), [`TooManyHosts`](TopologyError::TooManyHosts),
    /// [`UnusableRate`](TopologyError::UnusableRate).
    pub fn shaped(
        shape: Shape,
        hosts: usize,
        mac: impl Into<MacModel>,
        cables: usize,
        rate: LineRate,
    ) -> Result<Self, TopologyError> {
        if hosts < shape.min_hosts() || (shape == Shape::Pair && hosts != 2) {
            return Err(TopologyError::ShapeHosts { shape, hosts });
        }
        // A text may ask for any number: the edges of a shape that is too large are not built.
        let edges = if hosts <= Self::MAX_HOSTS { shape.edges(hosts) } else { Vec::new() };
        Self::cabled(shape.name(), hosts, mac.into(), &edges, cables, rate)
    }

    /// Macs called `a`, `b`, …, with a Thunderbolt 5 cable for each pair of positions
    ///
    /// A pair that is there twice has two cables. Each cable takes the first free port of both Macs.
    ///
    /// # Errors
    ///
    /// [`TopologyError::UnknownHost`] for a position that is none; [`CableToItself`](TopologyError::CableToItself);
    /// those of [`shaped`](Self::shaped).
    pub fn graph(
        hosts: usize,
        mac: impl Into<MacModel>,
        edges: &[(usize, usize)],
    ) -> Result<Self, TopologyError> {
        Self::cabled("graph", hosts, mac.into(), edges, 1, LineRate::TB5)
    }

    fn cabled(
        graph: &str,
        hosts: usize,
        mac: MacModel,
        edges: &[(usize, usize)],
        cables: usize,
        rate: LineRate,
    ) -> Result<Self, TopologyError> {
        let mut topology = Self::new();
        for index in 0..hosts {
            topology.add_host(&host_name(index), mac)?;
        }
        let mut degrees = vec![0_usize; hosts];
        for index in edges.iter().flat_map(|(a, b)| [*a, *b]) {
            let Some(degree) = degrees.get_mut(index) else {
                let hosts = (0..hosts).map(host_name).collect();
                return Err(TopologyError::UnknownHost { host: host_name(index), hosts });
            };
            *degree += 1;
        }
        for (index, degree) in degrees.iter().enumerate() {
            let needed = degree.saturating_mul(cables);
            if needed > mac.ports() {
                let (graph, host) = (graph.to_owned(), host_name(index));
                return Err(TopologyError::TooFewPorts { graph, hosts, host, mac, needed });
            }
        }
        let mut next = vec![0; hosts];
        for &(a, b) in edges {
            for _ in 0..cables {
                let names = [host_name(a), host_name(b)];
                topology.add_cable((&*names[0], next[a]), (&*names[1], next[b]), rate)?;
                next[a] += 1;
                next[b] += 1;
            }
        }
        Ok(topology)
    }
}

/// `a` to `z`, then `aa` and on
pub(super) fn host_name(index: usize) -> String {
    let letter = char::from(b'a' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        more => host_name(more - 1) + letter.encode_utf8(&mut [0; 4]),
    }
}
