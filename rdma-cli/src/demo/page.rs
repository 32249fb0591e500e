//! The report: one page of HTML, which needs nothing else

use super::findings::{Beside, Findings};
use super::unplug::Unplugged;
use super::{chart, cluster};
use crate::devices;
use crate::html::{escaped, html_table};
use crate::report::duration;
use crate::topo::svg;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");

/// The cable between `a` and `b`, which is pulled: the first one of a mesh.
const PULLED: usize = 0;

pub(super) fn page(found: &Findings, results: &[Beside], seed: u64) -> String {
    let rows: Vec<_> = results.iter().map(|beside| beside.cells().to_vec()).collect();
    let results = html_table(&["", "result", "limit", ""], &rows);
    let head: Vec<_> = std::iter::once("Mac").chain(devices::COLUMNS).collect();
    let devices = html_table(&head, &cluster::rows(&found.devices).collect::<Vec<_>>());
    let mut page = String::new();
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let Some((name, after)) = after.split_once("}}") else { break };
        match name {
            "style" => page.push_str(STYLE),
            "seed" => page.push_str(&seed.to_string()),
            "results" => page.push_str(&results),
            "machine" => page.push_str(machine(found)),
            "cluster" => page.push_str(&svg(&found.topology, Some(PULLED))),
            "devices" => page.push_str(&devices),
            "latency" => page.push_str(&chart::latency(&found.ping)),
            "goodput" => page.push_str(&chart::goodput(&found.bw)),
            "sizes" => page.push_str(&sizes(found)),
            "copy-unplugged" => page.push_str(&sentence(&found.copy_unplugged.0)),
            "copy-timeline" => {
                let run = found.copy_unplugged.1.to_html("copy · cable a – b unplugged for 2 ms");
                page.push_str(&escaped(&run));
            }
            "all-reduce-unplugged" => page.push_str(&sentence(&found.all_reduce_unplugged.0)),
            "all-reduce-timeline" => {
                let run = found.all_reduce_unplugged.1.to_html("all_reduce · cable a – b unplugged for 2 ms");
                page.push_str(&escaped(&run));
            }
            _ => unreachable!("the page has no part {name}"),
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// What this machine has
fn machine(found: &Findings) -> &'static str {
    match found.machine.rdma {
        Some(true) => "This machine has RDMA devices; what needs a peer was simulated.",
        Some(false) => "This machine has no RDMA device; the Macs are simulated.",
        None => "The RDMA devices of this machine could not be listed; the Macs are simulated.",
    }
}

fn sentence(unplugged: &Unplugged) -> String {
    let Unplugged { time_ns, undisturbed_ns, outage_ns, .. } = unplugged;
    format!(
        "{} without a fault, {} with the cable out for {}: {} more than both together.",
        duration(*undisturbed_ns),
        duration(*time_ns),
        duration(*outage_ns),
        duration(time_ns.saturating_sub(unplugged.limit_ns()))
    )
}

/// The figures of the lines
fn sizes(found: &Findings) -> String {
    let [one, several] = &found.bw;
    let gigabytes = |rate: f64| format!("{:.2}", rate / 1e9);
    let rows = one.rows.iter().zip(&several.rows).map(|(one, several)| {
        vec![
            one.size_bytes.to_string(),
            gigabytes(one.goodput_bytes_per_second),
            gigabytes(several.goodput_bytes_per_second),
            gigabytes(several.tcp_bytes_per_second),
        ]
    });
    html_table(
        &["bytes of a message", "1 in flight (GB/s)", "8 in flight (GB/s)", "TCP (GB/s)"],
        &rows.collect::<Vec<_>>(),
    )
}
