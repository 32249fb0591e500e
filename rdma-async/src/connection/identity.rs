use std::fmt;

use rdma_core::protocol::Hello;
use rdma_core::{Gid, Qpn};

/// Number of a connection, for logs: unique among the connections of its endpoint, and never used again
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// println!("connection {} to {}", connection.id(), connection.peer());
/// assert_eq!(connection.id(), connection.clone().id());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnectionId(u32);

impl ConnectionId {
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The peer of a connection, as it introduced itself
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// use rdma_async::Device as _;
///
/// assert!(other.device().gids()?.contains(&connection.peer().gid));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Peer {
    /// Address of its port
    pub gid: Gid,
    /// Number of its queue pair for small messages and for the protocol
    pub eager: Qpn,
    /// Number of its queue pair for longer messages
    pub bulk: Qpn,
}

impl Peer {
    pub(crate) fn new(hello: &Hello) -> Self {
        Self { gid: hello.eager.gid, eager: hello.eager.qpn, bulk: hello.bulk.qpn }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (queue pairs {} and {})", self.gid, self.eager.0, self.bulk.0)
    }
}
