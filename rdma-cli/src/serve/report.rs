//! Report of an answered request

use std::net::SocketAddr;

use anyhow::Result;
use serde::Serialize;

use crate::machines::Carried;
use crate::report::{Output, bytes};

/// A measurement of a peer that is over
#[derive(Debug, Serialize)]
pub(super) struct Served {
    /// Carrier of the session at its end: `rdma` or `tcp`
    backend: &'static str,
    role: &'static str,
    /// `ping`, `bw` or `all_reduce`
    command: &'static str,
    peer: String,
    /// That came from the peer
    bytes: u64,
    wall_seconds: f64,
    #[serde(flatten)]
    carried: Carried,
}

impl Served {
    pub(super) fn new(
        command: &'static str,
        peer: SocketAddr,
        bytes: u64,
        wall_seconds: f64,
        carried: Carried,
    ) -> Self {
        let (backend, peer) = (carried.backend(), peer.to_string());
        Self { backend, role: "server", command, peer, bytes, wall_seconds, carried }
    }

    pub(super) fn print(&self, output: Output) -> Result<()> {
        let rows = [
            ("answered", format!("{} of {}", self.command, self.peer)),
            ("size", format!("{} ({} bytes)", bytes(self.bytes), self.bytes)),
            ("wall", format!("{:.3} s", self.wall_seconds)),
            ("paths at the end", self.carried.devices.join(", ")),
            ("repairs", self.carried.describe()),
        ];
        output.outcome(self, rows)
    }
}
