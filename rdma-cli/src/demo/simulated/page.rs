//! The report: one page of HTML, which needs nothing else

use rdma_sim::History;

use super::super::chart::{self, Line};
use super::super::comparison::Comparison;
use super::super::page::fill;
use super::cluster;
use super::findings::Findings;
use super::unplug::Unplugged;
use crate::bw::{BwResult, Row};
use crate::devices;
use crate::html::{escaped, html_table};
use crate::report::{duration, gigabytes};
use crate::topo::svg;

const PAGE: &str = include_str!("page.html");

/// The cable between `a` and `b`, which is pulled: the first one of a mesh.
const PULLED: usize = 0;

pub(super) fn page(found: &Findings, results: &[Comparison], seed: u64) -> String {
    let head: Vec<_> = std::iter::once("Mac").chain(devices::COLUMNS).collect();
    let timeline = |history: &History, title: &str| escaped(&history.to_html(title));
    fill(PAGE, |name| match name {
        "seed" => seed.to_string().into(),
        "results" => Comparison::html(results).into(),
        "machine" => machine(found).into(),
        "cluster" => svg(&found.topology, Some(PULLED)).into(),
        "devices" => html_table(&head, &cluster::rows(&found.devices).collect::<Vec<_>>()).into(),
        "latency" => chart::latency(&found.ping.samples, &found.ping.rtt_ns).into(),
        "goodput" => goodput(found).into(),
        "sizes" => sizes(found).into(),
        "copy-unplugged" => sentence(&found.copy_unplugged.0).into(),
        "copy-timeline" => timeline(&found.copy_unplugged.1, "copy · cable a – b unplugged for 2 ms").into(),
        "all-reduce-unplugged" => sentence(&found.all_reduce_unplugged.0).into(),
        "all-reduce-timeline" => {
            timeline(&found.all_reduce_unplugged.1, "all_reduce · cable a – b unplugged").into()
        }
        _ => unreachable!("the page has no part {name}"),
    })
}

/// Goodput by the size of messages, with the ceiling, and TCP
fn goodput(found: &Findings) -> String {
    let [one, several] = &found.bw;
    let rates = |result: &BwResult, of: fn(&Row) -> f64| {
        result.rows.iter().map(|row| (row.size_bytes, of(row))).collect()
    };
    let lines = [
        Line { class: "tcp", rates: rates(several, |row| row.tcp_bytes_per_second) },
        Line { class: "one", rates: rates(one, |row| row.goodput_bytes_per_second) },
        Line { class: "several", rates: rates(several, |row| row.goodput_bytes_per_second) },
    ];
    chart::goodput(&lines, several.ceiling_bytes_per_second)
}

/// Sentence about the devices of this machine
fn machine(found: &Findings) -> &'static str {
    match found.machine.rdma {
        Some(true) => "This machine has RDMA devices; what needs a peer was simulated.",
        Some(false) => "This machine has no RDMA device; the Macs are simulated.",
        None => "The RDMA devices of this machine could not be listed; the Macs are simulated.",
    }
}

fn sentence(unplugged: &Unplugged) -> String {
    let Unplugged { time_ns, undisturbed_ns, outage_ns, .. } = unplugged;
    let more = duration(time_ns.saturating_sub(unplugged.limit_ns()));
    format!(
        "{} without a fault, {} with the cable out {}.",
        duration(*undisturbed_ns),
        duration(*time_ns),
        match outage_ns {
            Some(outage_ns) => format!("for {}: {more} more than both together", duration(*outage_ns)),
            None => format!("from the middle on, and never back: {more} more"),
        }
    )
}

/// The figures of the lines
fn sizes(found: &Findings) -> String {
    let [one, several] = &found.bw;
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
