//! The report: one page of HTML, which needs nothing else

use super::super::chart::{self, Line};
use super::super::comparison::Comparison;
use super::super::page::fill;
use super::cables;
use super::findings::{Findings, beside};
use crate::devices;
use crate::html::{escaped, html_table};
use crate::measure::RemoteBw;
use crate::report::{duration, gigabytes, or_dash};

const PAGE: &str = include_str!("page.html");

pub(super) fn page(found: &Findings, results: &[Comparison]) -> String {
    fill(PAGE, |name| match name {
        "peer" => escaped(&found.peer).into(),
        "carrier" => escaped(&found.carrier).into(),
        "results" => Comparison::html(results).into(),
        "machines" => cables::svg(&found.peer, &found.ping.carried.devices).into(),
        "devices" => {
            html_table(&devices::COLUMNS, &found.machine.cells().map(|row| row.to_vec()).collect::<Vec<_>>())
                .into()
        }
        "latency" => chart::latency(&found.ping.samples, &found.ping.rtt_ns).into(),
        "tcp-latency" => found
            .tcp_ping
            .as_ref()
            .map_or_else(String::new, |tcp| format!("Over TCP, the median is {}.", duration(tcp.rtt_ns.p50)))
            .into(),
        "goodput" => chart::goodput(&lines(found), found.ceiling()).into(),
        "sizes" => sizes(found).into(),
        "copy" => sentence(nanos(found.copy.wall_seconds), nanos(found.copy_drill.wall_seconds)).into(),
        "all-reduce" => sentence(found.all_reduce.time_ns, found.all_reduce.drill_ns).into(),
        _ => unreachable!("the page has no part {name}"),
    })
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn rates(bw: &RemoteBw) -> Vec<(u64, f64)> {
    bw.rows.iter().map(|row| (row.size_bytes, row.goodput_bytes_per_second)).collect()
}

fn lines(found: &Findings) -> Vec<Line> {
    let [one, several] = &found.bw;
    let tcp = found.tcp_bw.as_ref().map(|tcp| Line { class: "tcp", rates: rates(tcp) });
    let messages = [("one", one), ("several", several)];
    let messages = messages.map(|(class, bw)| Line { class, rates: rates(bw) });
    tcp.into_iter().chain(messages).collect()
}

fn sentence(undisturbed_ns: u64, drill_ns: u64) -> String {
    format!(
        "{} undisturbed, {} with all paths broken in the middle: {}.",
        duration(undisturbed_ns),
        duration(drill_ns),
        beside(drill_ns, undisturbed_ns)
    )
}

/// The figures of the lines
fn sizes(found: &Findings) -> String {
    let [one, several] = &found.bw;
    let goodput = |bw: &RemoteBw, row: usize| gigabytes(bw.rows[row].goodput_bytes_per_second);
    let rows = (0..one.rows.len()).map(|row| {
        vec![
            one.rows[row].size_bytes.to_string(),
            goodput(one, row),
            goodput(several, row),
            or_dash(found.tcp_bw.as_ref().map(|tcp| goodput(tcp, row))),
        ]
    });
    html_table(
        &["bytes of a message", "1 in flight (GB/s)", "8 in flight (GB/s)", "TCP, 8 in flight (GB/s)"],
        &rows.collect::<Vec<_>>(),
    )
}
