//! Drawings of figures: bars for a distribution, lines for rates by size

use std::fmt::Write as _;

use crate::bw::BwResult;
use crate::html::escaped;
use crate::ping::PingResult;
use crate::report::{bytes, micros};

/// Width and height of a drawing.
const SIZE: [f64; 2] = [720.0, 300.0];
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;
/// Bars of a distribution, at most.
const BARS: usize = 36;

/// A drawing that is not complete
struct Chart {
    out: String,
}

impl Chart {
    fn new(label: &str) -> Self {
        let [width, height] = SIZE;
        let label = escaped(label);
        Self {
            out: format!(
                "<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {width} {height}\">"
            ),
        }
    }

    fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        // Writing to a string does not fail.
        let _ = write!(
            self.out,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    fn text(&mut self, class: &str, [x, y]: [f64; 2], text: &str) {
        let _ =
            write!(self.out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
    }

    /// Level lines with their values
    fn scale(&mut self, values: impl Iterator<Item = f64>, y: impl Fn(f64) -> f64, unit: &str) {
        for value in values {
            self.line("grid", [LEFT, y(value)], [SIZE[0] - RIGHT, y(value)]);
            self.text("end", [LEFT - 7.0, y(value)], &format!("{value:.0}"));
        }
        self.text("start", [2.0, TOP - 20.0], unit);
    }

    fn finish(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}

/// How many round trips took how long
pub(super) fn latency(ping: &PingResult) -> String {
    let [width, height] = SIZE;
    let (first, last) = (ping.rtt_ns.min, ping.rtt_ns.max.max(ping.rtt_ns.min + 1));
    let step = (last - first + 1).div_ceil(BARS as u64);
    let mut counts = vec![0_usize; ((last - first) / step + 1) as usize];
    ping.samples.iter().for_each(|sample| counts[((sample - first) / step) as usize] += 1);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let (inner, bottom) = (width - LEFT - RIGHT, height - BOTTOM);
    let bar = inner / counts.len() as f64;
    let y = |count: f64| bottom - (bottom - TOP) * count / most as f64;
    let mut chart = Chart::new("Distribution of the round trips");
    chart.scale([0.0, most as f64 / 2.0, most as f64].into_iter(), y, "pings");
    for (number, count) in counts.iter().enumerate() {
        let (x, top) = (LEFT + number as f64 * bar, y(*count as f64));
        let from = first + number as u64 * step;
        let _ = write!(
            chart.out,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{count} from {} on</title></rect>",
            x + 0.5,
            (bar - 1.0).max(1.0),
            bottom - top,
            micros(from)
        );
    }
    let x = |ns: u64| LEFT + inner * (ns.saturating_sub(first)) as f64 / (step * counts.len() as u64) as f64;
    for (name, ns) in [("median", ping.rtt_ns.p50), ("99 %", ping.rtt_ns.p99)] {
        chart.line("mark", [x(ns), TOP - 8.0], [x(ns), bottom]);
        chart.text("middle", [x(ns).min(width - 34.0), TOP - 20.0], name);
    }
    chart.text("start", [LEFT, bottom + 18.0], &micros(first));
    chart.text("end", [width - RIGHT, bottom + 18.0], &micros(last));
    chart.finish()
}

/// Goodput by the size of messages, with the ceiling, and TCP
pub(super) fn goodput(results: &[BwResult; 2]) -> String {
    let [one, several] = results;
    let [width, height] = SIZE;
    let (inner, bottom) = (width - LEFT - RIGHT, height - BOTTOM);
    let most = (several.ceiling_bytes_per_second / 1e9).ceil();
    let count = several.rows.len().max(2);
    let x = |number: usize| LEFT + inner * number as f64 / (count - 1) as f64;
    let y = |gigabytes: f64| bottom - (bottom - TOP) * gigabytes / most;
    let mut chart = Chart::new("Goodput by the size of messages");
    chart.scale((0..=most as u32).step_by(2).map(f64::from), y, "GB/s");
    let ceiling = y(several.ceiling_bytes_per_second / 1e9);
    chart.line("ceiling", [LEFT, ceiling], [width - RIGHT, ceiling]);
    let tcp: Vec<_> = several.rows.iter().map(|row| row.tcp_bytes_per_second).collect();
    let of = |result: &BwResult| -> Vec<f64> {
        result.rows.iter().map(|row| row.goodput_bytes_per_second).collect()
    };
    for (class, rates) in [("tcp", tcp), ("one", of(one)), ("several", of(several))] {
        let points = rates.iter().enumerate().map(|(number, rate)| (x(number), y(rate / 1e9)));
        let path: Vec<_> = points.clone().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(chart.out, "<polyline class=\"{class}\" points=\"{}\"/>", path.join(" "));
        for ((x, y), (rate, row)) in points.zip(rates.iter().zip(&several.rows)) {
            let _ = write!(
                chart.out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{}: {:.2} GB/s</title></circle>",
                bytes(row.size_bytes),
                rate / 1e9
            );
        }
    }
    for (number, row) in several.rows.iter().enumerate().step_by(2) {
        let class = match number {
            0 => "start",
            last if last + 1 == several.rows.len() => "end",
            _ => "middle",
        };
        chart.text(class, [x(number), bottom + 18.0], &size(row.size_bytes));
    }
    chart.finish()
}

/// A size in its largest whole unit
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
