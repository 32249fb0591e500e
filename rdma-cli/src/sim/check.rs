//! `tb5 sim check`: tries a scenario in other orders of events, and shrinks the first run that fails

use anyhow::bail;
use rdma_sim::{Check, CheckFailure, Fault, Report, try_check};
use serde::Serialize;

use super::failure::require_memory;
use super::observe::{TIME_LIMIT, violations};
use super::scenario::Scenario;
use super::trace::BACKEND;
use crate::args::SimCheck;
use crate::failure::Failure;
use crate::progress;
use crate::report::{Output, SIMULATOR, plain};

/// Environment variables of tests that would override the options.
const VARIABLES: [&str; 5] =
    ["RDMA_SIM_REPLAY", "RDMA_SIM_RUNS", "RDMA_SIM_SEED", "RDMA_SIM_THREADS", "RDMA_SIM_PAGE"];

#[derive(Debug, Serialize)]
struct Checked<'a> {
    backend: &'static str,
    scenario: &'a str,
    passed: bool,
    /// With the one that failed
    runs: u64,
    /// Why a run failed
    reason: Option<String>,
    /// The run that failed, shrunk, for `tb5 sim replay`
    replay: Option<String>,
    /// Faults of the scenario, if no fault of their kind fired in any run; `None` if a run failed
    never_fired: Option<Vec<String>>,
}

pub(crate) fn check(args: &SimCheck, output: Output) -> anyhow::Result<()> {
    if let Some(variable) = VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some()) {
        bail!(Failure::usage(format!("{variable} is for tests: unset it, and write options")));
    }
    let scenario = Scenario::read(&args.scenario)?;
    output.announce(BACKEND)?;
    let checked = of(&scenario).runs(args.runs).first_seed(args.seed);
    let progress = progress::items(args.runs.saturating_add(1));
    let tried = try_check(checked, async |net| {
        progress.inc(1);
        match &violations(&net, &scenario).await[..] {
            [] => Ok(()),
            violations => Err(violations.join("; ")),
        }
    });
    progress.finish_and_clear();
    require_memory()?;
    let report = Checked::new(&scenario, &tried);
    output.print(&report, || report.text(args))?;
    if report.passed { Ok(()) } else { Err(Failure::Reported.into()) }
}

/// The check of a scenario
pub(super) fn of(scenario: &Scenario) -> Check {
    Check::new()
        .name(&scenario.name)
        .topology(scenario.topology.clone())
        .model(scenario.model.clone())
        .faults(scenario.faults.clone())
        .time_limit(TIME_LIMIT)
}

impl<'a> Checked<'a> {
    fn new(checked: &'a Scenario, tried: &Result<Report, Box<CheckFailure>>) -> Self {
        let scenario = checked.name.as_str();
        match tried {
            Ok(report) => {
                let is_missing =
                    |fault: &&Fault| report.never_fired().any(|kind| kind.name == fault.kind.name());
                let missing = checked.faults.0.iter().filter(is_missing).map(Fault::to_string);
                let never_fired = Some(missing.collect());
                Self {
                    backend: SIMULATOR,
                    scenario,
                    passed: true,
                    runs: report.runs,
                    reason: None,
                    replay: None,
                    never_fired,
                }
            }
            Err(failure) => {
                let (reason, replay) = (failure.reason.clone(), failure.replay.to_string());
                Self {
                    backend: SIMULATOR,
                    scenario,
                    passed: false,
                    runs: failure.tried,
                    reason: Some(reason),
                    replay: Some(replay),
                    never_fired: None,
                }
            }
        }
    }

    fn text(&self, args: &SimCheck) -> String {
        let Self { scenario, runs, reason, replay, .. } = self;
        let mut lines = vec![format!("scenario: {}", plain(scenario))];
        if let (Some(reason), Some(replay)) = (reason, replay) {
            lines.push(format!("run {runs} FAILED: {}", plain(reason)));
            let again = format!("replay: tb5 sim replay {} '{replay}'", args.scenario.display());
            lines.push(plain(&again));
        } else {
            lines.push(format!("{} seeds and the plain order passed", runs - 1));
            let never_fired = self.never_fired.iter().flatten();
            lines.extend(never_fired.map(|fault| format!("fired in no run: {fault}")));
        }
        lines.join("\n")
    }
}
