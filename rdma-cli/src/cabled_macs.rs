//! The Macs and cables that an argument names

use std::fmt;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use rdma_sim::topology::{Shape, Topology};
use rdma_sim_verbs::shared::{MAX_TOPOLOGY, SettingsError, topology, topology_in};

use crate::failure::{Failure, at, is_standard};
use crate::input::read_named;

/// A shape, a file, or standard input, which holds TOML or JSON
pub(crate) fn read(text: &str, hosts: Option<usize>) -> Result<Topology> {
    let topology = read_any(text, hosts)?;
    if topology.hosts().is_empty() {
        bail!(at(Path::new(text), "describes no hosts"));
    }
    Ok(topology)
}

fn read_any(text: &str, hosts: Option<usize>) -> Result<Topology> {
    if !is_standard(text) {
        return topology(text, hosts).map_err(explain);
    }
    let content = read_named(Path::new(text), MAX_TOPOLOGY)?;
    topology_in("standard input", &content, hosts).map_err(explain)
}

/// The error of the topology that `text` names: an invalid shape is a usage error, an invalid file a failure
pub(crate) fn refused(text: &str, why: &dyn fmt::Display) -> anyhow::Error {
    let shape = text.split_once(':').map_or(text, |(shape, _)| shape);
    match shape.parse::<Shape>() {
        Ok(_) => Failure::usage(why).into(),
        Err(_) => anyhow!(at(Path::new(text), why)),
    }
}

/// The error of an argument that names a topology: an invalid file is a failure, not a usage error
fn explain(error: SettingsError) -> anyhow::Error {
    match error {
        // Its text says all that its sources say.
        SettingsError::File(..) | SettingsError::Read(..) => anyhow::Error::msg(error.to_string()),
        _ => Failure::usage(error).into(),
    }
}
