//! The Macs and cables that an argument names

use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rdma_sim::topology::Topology;
use rdma_sim_verbs::shared::{SettingsError, topology, topology_in};

use crate::failure::{Failure, at};
use crate::file::is_standard;
use crate::mac;

/// A shape, a file, or standard input, which holds TOML or JSON
pub(crate) fn read(text: &str, hosts: Option<usize>) -> Result<Topology> {
    let topology = read_any(text, hosts)?;
    if topology.hosts().is_empty() {
        bail!(at(words(text), "describes no hosts"));
    }
    Ok(topology)
}

/// What messages call the text
fn words(text: &str) -> &Path {
    Path::new(if is_standard(text) { "standard input" } else { text })
}

fn read_any(text: &str, hosts: Option<usize>) -> Result<Topology> {
    if !is_standard(text) {
        return topology(text, hosts).map_err(explain);
    }
    let content = io::read_to_string(io::stdin().take(MAX_LEN));
    let content = content.context("standard input: cannot be read")?;
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&content).is_ok();
    topology_in("standard input", &content, is_json, hosts).map_err(explain)
}

/// The failure of arguments that describe a fabric: what is wrong with a file is no wrong argument
pub(crate) fn explain(error: SettingsError) -> anyhow::Error {
    match error {
        SettingsError::Profile(error) => mac::explain(error),
        // Its text says all that its sources say.
        SettingsError::File(..) | SettingsError::Read(..) => anyhow::Error::msg(error.to_string()),
        _ => Failure::usage(error).into(),
    }
}

/// More than the largest topology has, in bytes.
const MAX_LEN: u64 = 16 << 20;
