//! `tb5 topo convert`: a cabling in another format

use std::collections::BTreeMap;

use anyhow::Result;
use rdma_sim::LineRate;
use rdma_sim::topology::Topology;
use serde::Serialize;

use super::cabling::read;
use crate::args::{Format, TopoConvert, Written};
use crate::failure::is_standard;
use crate::file::{require_other, write_all};
use crate::report::{Output, line_rate, note};

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
    if matches!(to.to, Format::Hostfile | Format::Matrix) {
        lost_rates(topology).iter().for_each(|lost| note(lost));
        if topology.hosts().iter().any(|host| host.cap().is_some()) {
            note("formats of MLX have no caps: Macs are read without");
        }
    }
    if output == Output::Text || !is_standard(&to.out) {
        write_all(&to.out, &text)?;
    }
    let hosts = topology.hosts().iter().map(|host| host.name()).collect();
    output.print_json(|| Converted { hosts, cables: topology.links().len(), text })
}

/// The remark that a format of MLX loses the rates of cables, unless all have the rate with which it is read
fn lost_rates(topology: &Topology) -> Option<String> {
    let mut counts = BTreeMap::<u64, usize>::new();
    for link in topology.links().filter(|link| link.rate != LineRate::TB5) {
        *counts.entry(link.rate.bits_per_second).or_default() += 1;
    }
    let counts: Vec<_> =
        counts.iter().map(|(rate, count)| format!("{count} with {}", line_rate(*rate))).collect();
    let read = line_rate(LineRate::TB5.bits_per_second);
    (!counts.is_empty()).then(|| {
        format!(
            "formats of MLX have no rates: cables of another rate are read with {read} ({})",
            counts.join(", ")
        )
    })
}
