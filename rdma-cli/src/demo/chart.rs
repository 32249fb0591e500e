//! Drawings of figures: bars for a distribution, lines for rates by size

use std::fmt::Write as _;

use crate::html::escaped;
use crate::measure::Distribution;
use crate::report::{self, bytes, micros};
use crate::sizes;

/// Width and height of a drawing.
const SIZE: [f64; 2] = [720.0, 300.0];
/// Holds five digits and a point in the size of a phone.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 40.0;
/// Between the middles of two labels, at least.
const LABEL: f64 = 52.0;
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
            // Without the rest of a binary fraction.
            let value_text = format!("{value:.3}");
            let value_text = value_text.trim_end_matches('0').trim_end_matches('.');
            self.text("end", [LEFT - 7.0, y(value)], value_text);
        }
        self.text("start", [2.0, TOP - 30.0], unit);
    }

    fn finish(mut self) -> String {
        self.out.push_str("</svg>");
        self.out
    }
}

/// Number of round trips by their time
pub(super) fn latency(samples: &[u64], rtt_ns: &Distribution) -> String {
    let [width, height] = SIZE;
    // A few that took many times as long would leave no room for the others.
    let most_shown = rtt_ns.p99 + (rtt_ns.p99 - rtt_ns.min) / 2;
    let is_cut = rtt_ns.max > 2 * most_shown;
    let (first, last) = (rtt_ns.min, if is_cut { most_shown } else { rtt_ns.max }.max(rtt_ns.min + 1));
    let step = (last - first + 1).div_ceil(BARS as u64);
    let mut counts = vec![0_usize; ((last - first) / step + 1) as usize];
    let shown = samples.iter().filter(|sample| **sample <= last);
    shown.for_each(|sample| counts[((sample - first) / step) as usize] += 1);
    let longer = samples.iter().filter(|sample| **sample > last).count();
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let (inner, bottom) = (width - LEFT - RIGHT, height - BOTTOM);
    let bar = inner / counts.len() as f64;
    let y = |count: f64| bottom - (bottom - TOP) * count / most as f64;
    let mut chart = Chart::new("Distribution of the round trips");
    let middle = (most > 1).then_some(most.div_ceil(2) as f64);
    chart.scale([Some(0.0), middle, Some(most as f64)].into_iter().flatten(), y, "pings");
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
    // Beside the unit of the scale, and beside each other.
    let mut free = LEFT + LABEL;
    for (name, ns) in [("median", rtt_ns.p50), ("99 %", rtt_ns.p99)] {
        chart.line("mark", [x(ns), TOP - 8.0], [x(ns), bottom]);
        let at = x(ns).min(width - 34.0).max(free);
        chart.text("middle", [at, TOP - 30.0], name);
        free = at + LABEL;
    }
    chart.text("start", [LEFT, bottom + 18.0], &micros(first));
    let end = match longer {
        0 => micros(last),
        _ => format!("{}; {longer} more up to {}", micros(last), micros(rtt_ns.max)),
    };
    chart.text("end", [width - RIGHT, bottom + 18.0], &end);
    chart.finish()
}

/// Rates by the size of messages, which are the same for all lines of a drawing
pub(super) struct Line {
    /// The class of the line in the page
    pub(super) class: &'static str,
    /// Sizes in bytes, and bytes per second
    pub(super) rates: Vec<(u64, f64)>,
}

/// Goodput by the size of messages, with the ceiling of the cable if it is known, in bytes per second
pub(super) fn goodput(lines: &[Line], ceiling: Option<f64>) -> String {
    let [width, height] = SIZE;
    let (inner, bottom) = (width - LEFT - RIGHT, height - BOTTOM);
    let highest = lines.iter().flat_map(|line| &line.rates).map(|(_, rate)| *rate).chain(ceiling);
    let step = step(highest.fold(0.0, f64::max) / 1e9);
    let highest = step * STEPS;
    let sizes: Vec<_> =
        lines.first().map_or(&[][..], |line| &line.rates).iter().map(|(size, _)| *size).collect();
    let x = |number: usize| LEFT + inner * number as f64 / (sizes.len().max(2) - 1) as f64;
    let y = |gigabytes: f64| bottom - (bottom - TOP) * gigabytes / highest;
    let mut chart = Chart::new("Goodput by the size of messages");
    chart.scale((0..=STEPS as u32).map(|number| f64::from(number) * step), y, "GB/s");
    if let Some(ceiling) = ceiling {
        let ceiling = y(ceiling / 1e9);
        chart.line("ceiling", [LEFT, ceiling], [width - RIGHT, ceiling]);
    }
    for Line { class, rates } in lines {
        let points =
            rates.iter().enumerate().map(|(number, (size, rate))| (x(number), y(rate / 1e9), size, rate));
        let path: Vec<_> = points.clone().map(|(x, y, ..)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(chart.out, "<polyline class=\"{class}\" points=\"{}\"/>", path.join(" "));
        for (x, y, size, rate) in points {
            let _ = write!(
                chart.out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{}: {}</title></circle>",
                bytes(*size),
                report::rate(*rate)
            );
        }
    }
    for (number, bytes) in sizes.iter().enumerate().step_by(2) {
        let class = match number {
            0 => "start",
            last if last + 1 == sizes.len() => "end",
            _ => "middle",
        };
        chart.text(class, [x(number), bottom + 18.0], &sizes::spaced(*bytes));
    }
    chart.finish()
}

/// Parts of the scale of a rate.
const STEPS: f64 = 5.0;

/// The least of 1, 2 and 5 times a power of ten of which five reach `highest`
fn step(highest: f64) -> f64 {
    let least = (highest / STEPS).max(1e-3);
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(least)
}
