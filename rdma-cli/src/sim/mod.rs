//! `tb5 sim`: runs scenarios of failures on the simulator

mod check;
mod expect;
mod failure;
mod invalid;
mod log;
mod observe;
mod outcome;
mod period;
mod port;
mod rules;
mod scenario;
mod side;
mod trace;
mod workload;

pub(crate) use self::check::check;
pub(crate) use self::period::Period;
pub(crate) use self::trace::trace;

use serde::Serialize;

use self::failure::require_memory;
use self::observe::{Seen, observe, repeat};
use self::scenario::Scenario;
use self::trace::BACKEND;
use crate::args::{SimReplay, SimRun};
use crate::failure::Failure;
use crate::progress;
use crate::report::{Output, SIMULATOR, note, plain, table};

#[derive(Debug, Serialize)]
struct SeedResult<'a> {
    backend: &'static str,
    scenario: &'a str,
    seed: u64,
    passed: bool,
    violations: Vec<String>,
    virtual_seconds: f64,
    trace_digest: String,
    #[serde(skip)]
    ends: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Reports<'a> {
    backend: &'static str,
    scenario: &'a str,
    seeds: &'a [SeedResult<'a>],
    passed: bool,
}

pub(crate) fn run(args: &SimRun, output: Output) -> anyhow::Result<()> {
    let scenario = Scenario::read(&args.scenario)?;
    output.announce(BACKEND)?;
    let report = |seed| SeedResult::new(&scenario, seed, observe(&scenario, seed));
    let reports = match &args.seeds {
        Some(seeds) => {
            let progress = progress::items(seeds.end - seeds.start);
            let reports = seeds.clone().map(report).inspect(|_| progress.inc(1)).collect();
            progress.finish_and_clear();
            reports
        }
        None => vec![report(args.seed)],
    };
    require_memory()?;
    let passed = reports.iter().all(|report| report.passed);
    let again = |seed| format!("tb5 sim run {} --seed {seed}", args.scenario.display());
    match &reports[..] {
        [report] if args.seeds.is_none() => output.print(report, || text(&scenario, &reports, &again))?,
        seeds => output
            .print(&Reports { backend: SIMULATOR, scenario: &scenario.name, seeds, passed }, || {
                text(&scenario, seeds, &again)
            })?,
    }
    if passed { Ok(()) } else { Err(Failure::Reported.into()) }
}

/// Repeats one run that a check has found
pub(crate) fn replay(args: &SimReplay, output: Output) -> anyhow::Result<()> {
    args.files.require_valid(&args.scenario, output)?;
    let scenario = Scenario::read(&args.scenario)?;
    check::of(&scenario).require_setup_of(&args.replay)?;
    args.replay.faults.check(&scenario.topology).map_err(Failure::usage)?;
    output.announce(BACKEND)?;
    let progress = progress::spinner("simulating");
    let seen = repeat(&scenario, &args.replay);
    progress.finish_and_clear();
    require_memory()?;
    args.files.write(&seen.history, &format!("{} · replay", scenario.name))?;
    let report = SeedResult::new(&scenario, args.replay.seed, seen);
    if args.replay.faults != scenario.faults {
        note("the run has the faults of the replay line, which are not those of the scenario");
    }
    let again = |_| format!("tb5 sim replay {} '{}'", args.scenario.display(), args.replay);
    output.print(&report, || {
        let text = text(&scenario, std::slice::from_ref(&report), &again);
        [vec![text], args.files.names()].concat().join("\n")
    })?;
    if report.passed { Ok(()) } else { Err(Failure::Reported.into()) }
}

impl<'a> SeedResult<'a> {
    fn new(scenario: &'a Scenario, seed: u64, seen: Seen) -> Self {
        Self {
            backend: SIMULATOR,
            scenario: &scenario.name,
            seed,
            passed: seen.violations.is_empty(),
            violations: seen.violations,
            virtual_seconds: seen.time.as_secs_f64(),
            trace_digest: seen.digest,
            ends: seen.ends.iter().map(|end| format!("{}: {end}", end.port)).collect(),
        }
    }
}

/// The results, with the command that repeats a seed that has failed
fn text(scenario: &Scenario, reports: &[SeedResult<'_>], again: &dyn Fn(u64) -> String) -> String {
    let mut lines = vec![
        format!("scenario: {}", plain(&scenario.name)),
        format!("source:   {}", plain(&scenario.source)),
        format!("about:    {}", plain(&scenario.about.split_whitespace().collect::<Vec<_>>().join(" "))),
    ];
    let rows = reports.iter().map(|report| {
        let verdict = if report.passed { "passed" } else { "FAILED" };
        let time = format!("{:.6} s", report.virtual_seconds);
        [format!("seed {}", report.seed), verdict.to_owned(), time, report.trace_digest.clone()]
    });
    let heading = ["", "", "virtual time", "trace digest"].map(str::to_owned);
    lines.push(table(std::iter::once(heading).chain(rows)));
    if let [report] = reports {
        lines.extend(report.ends.iter().map(|end| plain(end)));
    }
    for report in reports.iter().filter(|report| !report.passed) {
        lines.push(format!("seed {}:", report.seed));
        lines.extend(report.violations.iter().map(|violation| format!("  {}", plain(violation))));
        lines.push(format!("  replay: {}", plain(&again(report.seed))));
    }
    let passed = reports.iter().filter(|report| report.passed).count();
    lines.push(format!("{passed} of {} seeds passed", reports.len()));
    lines.join("\n")
}
