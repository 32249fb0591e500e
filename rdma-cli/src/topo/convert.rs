//! `tb5 topo convert`: a cabling in another format

use anyhow::Result;
use rdma_sim::topology::Topology;
use serde::Serialize;

use super::cabling::read;
use crate::args::{Format, TopoConvert, Written};
use crate::failure::is_standard;
use crate::file::{require_other, write_all};
use crate::report::Output;

#[derive(Debug, Serialize)]
struct Converted<'a> {
    hosts: Vec<&'a str>,
    cables: usize,
    text: String,
}

pub(crate) fn run(args: &TopoConvert, output: Output) -> Result<()> {
    require_other(&args.written.out, [&args.topology.topology])?;
    write(&read(&args.topology)?, &args.written, output)
}

/// Writes a cabling as the arguments say
pub(super) fn write(topology: &Topology, to: &Written, output: Output) -> Result<()> {
    let text = match to.to {
        Format::Hostfile => topology.to_hostfile(),
        Format::Matrix => topology.to_matrix(),
        Format::Toml => topology.to_toml(),
    };
    if output == Output::Text || !is_standard(&to.out) {
        write_all(&to.out, &text)?;
    }
    let hosts = topology.hosts().iter().map(|host| host.name()).collect();
    output.print_json(|| Converted { hosts, cables: topology.links().len(), text })
}
