//! Prints the trace of a run, and writes it for trace viewers

use std::path::Path;

use rdma_sim::{History, Record, RecordKind};
use serde::Serialize;

use super::failure::require_memory;
use super::observe::observe;
use super::scenario::Scenario;
use crate::args::{SimTrace, TraceFiles};
use crate::failure::{Failure, written};
use crate::file::{is_same, require_other, reserve_standard_output, write_all};
use crate::progress;
use crate::report::{Output, SIMULATOR, plain};

/// First line of what `tb5 sim` prints.
pub(super) const BACKEND: &str = "backend: simulator (times are virtual)";

#[derive(Debug, Serialize)]
struct TraceOutput<'a> {
    backend: &'static str,
    scenario: &'a str,
    seed: u64,
    trace_digest: String,
    records: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    time_ns: u64,
    kind: RecordKind,
    subject: u32,
    value: u64,
    detail: u64,
    /// Name of the subject
    name: String,
}

pub(crate) fn trace(args: &SimTrace, output: Output) -> anyhow::Result<()> {
    args.files.require_valid(&args.scenario, output)?;
    let scenario = Scenario::read(&args.scenario)?;
    output.announce(BACKEND)?;
    let progress = progress::spinner("simulating");
    let seen = observe(&scenario, args.seed);
    progress.finish_and_clear();
    require_memory()?;
    args.files.write(&seen.history, &format!("{} · seed {}", scenario.name, args.seed))?;
    let report = TraceOutput {
        backend: SIMULATOR,
        scenario: &scenario.name,
        seed: args.seed,
        trace_digest: seen.digest,
        records: seen.history.records.iter().zip(seen.history.subjects()).map(Line::new).collect(),
    };
    output.print(&report, || match &args.files.names()[..] {
        [] => seen.history.lines().map(|line| plain(&line)).collect::<Vec<_>>().join("\n"),
        names => names.join("\n"),
    })
}

impl TraceFiles {
    /// Keeps standard output for the file that goes there, and `scenario` from being replaced
    pub(super) fn require_valid(&self, scenario: &Path, output: Output) -> Result<(), Failure> {
        let mut files = [&self.chrome, &self.html].into_iter().flatten();
        reserve_standard_output(files.clone(), output)?;
        files.try_for_each(|file| require_other(file, [scenario]))?;
        if let (Some(chrome), Some(html)) = (&self.chrome, &self.html)
            && is_same(chrome, html)
        {
            return Err(Failure::usage("--chrome and --html are two files: write two names"));
        }
        Ok(())
    }

    /// A line for each that is wanted, with its name
    pub(super) fn names(&self) -> Vec<String> {
        let files = [("chrome trace", &self.chrome), ("page", &self.html)].into_iter();
        let files = files.filter_map(|(what, path)| Some((what, path.as_deref()?)));
        files.map(|(what, path)| format!("{what}: {}", written(path))).collect()
    }

    /// Writes those that are wanted
    pub(super) fn write(&self, history: &History, title: &str) -> anyhow::Result<()> {
        if let Some(path) = &self.chrome {
            write_all(path, &history.to_chrome_json())?;
        }
        if let Some(path) = &self.html {
            write_all(path, &history.to_html(title))?;
        }
        Ok(())
    }
}

impl Line {
    fn new((record, name): (&Record, String)) -> Self {
        let Record { time, kind, subject, value, detail, .. } = *record;
        Self { time_ns: time.as_nanos(), kind, subject, value, detail, name }
    }
}
