//! `tb5 topo draw`: a cabling as text, for Graphviz, and as a picture

mod dot;
mod layout;
mod rates;
mod svg;
mod text;

use anyhow::Result;
use rdma_sim::topology::Topology;
use serde::Serialize;

pub(crate) use self::svg::svg;
pub(super) use self::text::text;
use super::cabling::read;
use crate::args::{Drawing, TopoDraw};
use crate::failure::is_standard;
use crate::file::{require_other, write_all};
use crate::report::Output;

/// A drawing as JSON: what it shows
#[derive(Debug, Serialize)]
struct Drawn<'a> {
    hosts: Vec<&'a str>,
    cables: Vec<CableDrawn<'a>>,
    drawing: String,
}

#[derive(Debug, Serialize)]
struct CableDrawn<'a> {
    ends: [[&'a str; 2]; 2],
    bits_per_second: u64,
}

pub(crate) fn run(args: &TopoDraw, output: Output) -> Result<()> {
    require_other(&args.out, [&args.topology.topology])?;
    let topology = read(&args.topology)?;
    let drawing = match args.format {
        Drawing::Dot => dot::dot(&topology),
        Drawing::Svg => svg(&topology, None),
        Drawing::Text => text(&topology),
    };
    if output == Output::Text || !is_standard(&args.out) {
        write_all(&args.out, &drawing)?;
    }
    output.print_json(|| drawn(&topology, drawing))
}

fn drawn(topology: &Topology, drawing: String) -> Drawn<'_> {
    let cables = topology.links().map(|link| CableDrawn {
        ends: link.ends.map(|end| [end.host, end.device]),
        bits_per_second: link.rate.bits_per_second,
    });
    Drawn {
        hosts: topology.hosts().iter().map(|host| host.name()).collect(),
        cables: cables.collect(),
        drawing,
    }
}
