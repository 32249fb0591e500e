//! The Macs and cables that an argument names

use std::io::{self, Read as _};

use rdma_sim::topology::Topology;
use rdma_sim_verbs::shared::{topology, topology_in};

use crate::failure::Failure;
use crate::file::is_standard;

/// A shape, a file, or standard input, which holds TOML or JSON
pub(crate) fn read(text: &str, hosts: Option<usize>) -> Result<Topology, Failure> {
    if !is_standard(text) {
        return topology(text, hosts).map_err(Failure::usage);
    }
    let content = io::read_to_string(io::stdin().take(MAX_LEN));
    let content = content.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&content).is_ok();
    topology_in("standard input", &content, is_json, hosts).map_err(Failure::usage)
}

/// More than the largest topology has, in bytes.
const MAX_LEN: u64 = 16 << 20;
