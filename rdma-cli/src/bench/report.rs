//! Rows of a measurement, as a table and as JSON

use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use indicatif::ProgressBar;
use serde::Serialize;

use super::workload::Workload;
use crate::args::{Bench, OperationName};
use crate::failure::Failure;
use crate::progress;
use crate::report::{Output, SIMULATOR, gigabytes, or_dash, plain, print_line};

/// Values that all rows have in common
#[derive(Debug, Serialize)]
pub(super) struct Header<'a> {
    backend: &'static str,
    hosts: usize,
    topology: &'a str,
    operation: String,
    dtype: String,
    seed: u64,
    /// Which schedules of JACCL run, or why none does
    jaccl: String,
}

/// The figures of one size, by the conventions of nccl-tests
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) size_bytes: u64,
    #[serde(skip)]
    count: usize,
    pub(crate) time_ns: u64,
    algbw_bytes_per_second: f64,
    busbw_bytes_per_second: f64,
    /// The latency between the furthest hosts, or the time of the best plan, if that is more
    pub(crate) lower_bound_ns: u64,
    pub(crate) jaccl_ns: Option<u64>,
    /// `ok`, or how many elements are wrong
    check: String,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    header: &'a Header<'a>,
    rows: &'a [Row],
}

/// Rows that are printed as they are measured
#[derive(Debug)]
pub(super) struct Rows<'a> {
    header: Header<'a>,
    rows: Vec<Row>,
    output: Output,
    progress: ProgressBar,
}

impl<'a> Header<'a> {
    pub(super) fn new(args: &'a Bench, hosts: usize, jaccl: String) -> Self {
        Self {
            backend: SIMULATOR,
            hosts,
            topology: &args.topology,
            operation: name(&args.operation),
            dtype: name(&args.dtype),
            seed: args.seed,
            jaccl,
        }
    }
}

fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Row {
    /// A row without bound and baseline
    pub(super) fn new(workload: &Workload, element_size: usize, time: Duration) -> Self {
        let size = workload.elements() * element_size;
        let algbw = size as f64 / time.as_secs_f64();
        Self {
            size_bytes: size as u64,
            count: workload.count,
            time_ns: time.as_nanos() as u64,
            algbw_bytes_per_second: algbw,
            busbw_bytes_per_second: algbw * bus_factor(workload.operation, workload.ranks),
            lower_bound_ns: 0,
            jaccl_ns: None,
            check: OK.to_owned(),
        }
    }

    /// Counts wrong elements of the results of the group, and of the baseline
    pub(super) fn set_wrong(&mut self, group: usize, jaccl: usize) {
        self.check = match (group, jaccl) {
            (0, 0) => OK.to_owned(),
            (0, _) => format!("{jaccl} wrong (JACCL)"),
            _ => format!("{group} wrong"),
        };
    }

    /// Whether every element of the results is right
    pub(crate) fn is_right(&self) -> bool {
        self.check == OK
    }

    fn text(&self, dtype: &str) -> String {
        let micros = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
        columns([
            self.size_bytes.to_string(),
            self.count.to_string(),
            dtype.to_owned(),
            micros(self.time_ns),
            gigabytes(self.algbw_bytes_per_second),
            gigabytes(self.busbw_bytes_per_second),
            micros(self.lower_bound_ns),
            or_dash(self.jaccl_ns.map(micros)),
            or_dash(self.jaccl_ns.map(|ns| format!("{:.2}", ns as f64 / self.time_ns as f64))),
            self.check.clone(),
        ])
    }
}

const OK: &str = "ok";
const NAMES: [&str; 10] =
    ["size", "count", "type", "time", "algbw", "busbw", "bound", "JACCL", "gain", "check"];
const UNITS: [&str; 10] = ["(B)", "(elements)", "", "(µs)", "(GB/s)", "(GB/s)", "(µs)", "(µs)", "(×)", ""];

/// Bytes over the busiest cable of a host of a switched network, for each byte of the size (nccl-tests, doc/PERFORMANCE.md)
fn bus_factor(operation: OperationName, ranks: usize) -> f64 {
    let others = (ranks - 1) as f64 / ranks as f64;
    match operation {
        OperationName::AllReduce => 2.0 * others,
        OperationName::Broadcast | OperationName::Reduce => 1.0,
        OperationName::AllGather
        | OperationName::AllToAll
        | OperationName::Gather
        | OperationName::ReduceScatter
        | OperationName::Scatter => others,
    }
}

/// Cells of a fixed width, because a row is printed before the next one is known
fn columns(cells: [String; 10]) -> String {
    let [size, count, dtype, time, algbw, busbw, bound, jaccl, gain, check] = cells;
    let text = format!(
        "{size:>11} {count:>11} {dtype:>5} {time:>12} {algbw:>8} {busbw:>8} {bound:>12} {jaccl:>12} {gain:>6}  {check}"
    );
    text.trim_end().to_owned()
}

impl<'a> Rows<'a> {
    /// No rows
    pub(super) fn new(header: Header<'a>, sizes: usize, output: Output) -> Result<Self> {
        if output == Output::Text {
            let Header { hosts, topology, jaccl, .. } = &header;
            let backend =
                format!("backend: simulator ({hosts} Macs, {}; times are virtual)", plain(topology));
            let jaccl = format!("JACCL: {jaccl}");
            output.announce(&[backend, jaccl].join("\n"))?;
        }
        let progress = progress::items(sizes as u64);
        Ok(Self { header, rows: Vec::new(), output, progress })
    }

    /// Adds a row, and returns whether the output is still read
    pub(super) fn push(&mut self, row: Row) -> Result<bool> {
        let mut lines = Vec::new();
        // With the first row: a measurement that fails before it prints no table.
        if self.rows.is_empty() {
            lines.extend([NAMES, UNITS].map(|cells| columns(cells.map(str::to_owned))));
        }
        lines.push(row.text(&self.header.dtype));
        self.rows.push(row);
        self.progress.inc(1);
        match self.output {
            Output::Json => Ok(true),
            Output::Text => print_line(&lines.join("\n")),
        }
    }

    /// Prints the JSON object, and fails if an element was wrong
    pub(super) fn finish(self) -> Result<()> {
        self.progress.finish_and_clear();
        if self.output == Output::Json {
            print_line(&serde_json::to_string(&Report { header: &self.header, rows: &self.rows })?)?;
        }
        if self.rows.iter().any(|row| !row.is_right()) {
            bail!(Failure::Reported);
        }
        Ok(())
    }
}
