//! Systems without network namespaces

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use rdma_sim::Topology;
use rdma_sim_verbs::shared::SharedFabric;

/// A network, which this system does not have
pub(super) enum Hosts {}

impl Hosts {
    pub(super) fn set(&self, _: &mut Command, _: usize) {
        match *self {}
    }
}

/// Network of hosts, which this system does not have
pub(super) struct Wires<'a>(Infallible, PhantomData<&'a SharedFabric>);

impl Wires<'_> {
    pub(super) fn update(&mut self) -> Result<()> {
        match self.0 {}
    }
}

pub(super) fn enter(_: &Topology, _: &Path) -> Result<()> {
    refuse()
}

fn refuse<T>() -> Result<T> {
    bail!("--net needs network namespaces, which only Linux has: leave it out, or run tb5 on Linux")
}

pub(super) fn make(_: &SharedFabric) -> Result<(Hosts, Wires<'_>)> {
    refuse()
}

pub(super) fn coordinator() -> String {
    String::new()
}
