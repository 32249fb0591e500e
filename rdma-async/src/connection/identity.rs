use std::fmt;

use rdma_core::protocol::Hello;
use rdma_core::{Gid, Qpn};

/// Number of a connection, for logs: unique among the connections of its endpoint, and never used again
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
