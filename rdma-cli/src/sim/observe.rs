//! Runs a scenario once and observes its programs

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::unbounded;
use rdma_async::time::{sleep, timeout};
use rdma_core::Time;
use rdma_sim::{FaultPlan, History, Net, Record, RecordKind, Replay, Run, Sim};
use tracing::{Instrument as _, info_span};

use super::failure::Failure;
use super::log::Log;
use super::outcome::{End, Outcome};
use super::period::Period;
use super::scenario::Scenario;
use super::side::{Link, Reports, Side};

/// The result of a run
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) ends: Vec<End>,
    pub(crate) violations: Vec<String>,
    pub(crate) time: Time,
    pub(crate) digest: String,
    pub(crate) history: History,
}

/// When programs start: faults at time zero fire earlier.
const START: Duration = Duration::from_micros(1);
/// Later than the end of any observation.
pub(super) const TIME_LIMIT: Time = Time::from_nanos(2 * Period::DAY.0.as_nanos() as u64);

/// Runs `scenario` with `seed`
pub(super) fn observe(scenario: &Scenario, seed: u64) -> Seen {
    let sim = Sim::new().seed(seed).faults(scenario.faults.clone());
    info_span!("run", seed).in_scope(|| observe_in(sim, scenario, &scenario.faults))
}

/// Repeats a run of `scenario`
pub(super) fn repeat(scenario: &Scenario, replay: &Replay) -> Seen {
    observe_in(Sim::new().replay(replay), scenario, &replay.faults)
}

fn observe_in(sim: Sim, scenario: &Scenario, faults: &FaultPlan) -> Seen {
    let log = Arc::new(Log::default());
    let sim = sim
        .topology(scenario.topology.clone())
        .model(scenario.model.clone())
        .time_limit(TIME_LIMIT)
        .sanitize(true)
        .keep_records();
    let watched = OnceCell::new();
    let run = match sim.try_run(async |net| watch(watched.get_or_init(|| net), scenario, &log).await) {
        Ok(run) => run,
        Err(error) => {
            let mut history = watched.get().map(Net::history).unwrap_or_default();
            history.remarks.push((history.end, error.to_string()));
            let (time, violations) = (history.end, vec![error.to_string()]);
            return Seen { ends: Vec::new(), violations, time, digest: String::new(), history };
        }
    };
    let mut violations = log.violations();
    violations.extend(scenario.expect.check_run(&run.value, &log.measured()));
    violations.extend(missing_faults(faults, &run.history.records));
    violations.extend(leaks_and_findings(&run));
    let digest = run.digest.to_string();
    let mut history = run.history;
    history.remarks.extend(violations.iter().map(|violation| (run.time, violation.clone())));
    Seen { ends: run.value, violations, time: run.time, digest, history }
}

/// Runs the programs once, and returns what they do wrong
pub(super) async fn violations(net: &Net, scenario: &Scenario) -> Vec<String> {
    let log = Arc::new(Log::default());
    let ends = watch(net, scenario, &log).await;
    let mut violations = log.violations();
    violations.extend(scenario.expect.check_run(&ends, &log.measured()));
    violations
}

/// Starts the programs, and waits for as long as the scenario expects
async fn watch(net: &Net, scenario: &Scenario, log: &Arc<Log>) -> Vec<End> {
    sleep(&*net.runtime(), START).await;
    let (to, mut reports) = unbounded();
    let mut ports = Vec::new();
    for pair in &scenario.links {
        let link = Arc::new(Link::new());
        for (port, is_first) in pair.iter().zip([true, false]) {
            let side = Side {
                host: net.host(&port.host),
                port: port.clone(),
                is_first,
                options: scenario.options.clone(),
                link: Arc::clone(&link),
                log: Arc::clone(log),
                reports: Reports { end: ports.len(), to: to.clone() },
            };
            let workload = Arc::clone(&scenario.workload);
            let span = info_span!("program", host = %port.host);
            net.host(&port.host).start(move |_| {
                let (workload, side) = (Arc::clone(&workload), side.clone());
                async move { side.report(workload.start(side.clone()).await) }.instrument(span.clone())
            });
            ports.push(port.clone());
        }
    }
    let mut results: Vec<_> = ports.iter().map(|_| None).collect();
    let is_awaited = |end: usize| !scenario.kills(&ports[end].host);
    let collect = async {
        while (0..ports.len()).any(|end| is_awaited(end) && results[end].is_none()) {
            let Some((end, at, result)) = reports.next().await else { break };
            results[end].get_or_insert((at, result));
        }
    };
    timeout(&*net.runtime(), scenario.expect.within().0, collect).await;
    let ends = ports.into_iter().zip(results).filter(|(port, _)| !scenario.kills(&port.host));
    ends.map(|(port, result)| {
        let waits = || (net.now(), Err(Failure::new(Outcome::Stalls, "the program still waits")));
        let (at, result) = result.unwrap_or_else(waits);
        let (outcome, why) = match result {
            Ok(()) => (Outcome::Completes, String::new()),
            Err(Failure { outcome, why }) => (outcome, why),
        };
        End { port, outcome, why, at }
    })
    .collect()
}

/// Faults that did not fire: the scenario tested nothing of them
fn missing_faults(plan: &FaultPlan, records: &[Record]) -> Option<String> {
    let fired = records.iter().filter(|record| record.kind == RecordKind::Fault);
    let fired: BTreeSet<_> = fired.map(|record| record.subject).collect();
    let missing: Vec<_> = plan
        .0
        .iter()
        .zip(0..)
        .filter(|(_, number)| !fired.contains(number))
        .map(|(fault, _)| fault)
        .collect();
    let first = missing.first()?;
    Some(format!("the run ended before {} of the faults fired, the first is {first}", missing.len()))
}

/// Findings of the sanitizer and leaked objects
fn leaks_and_findings(run: &Run<Vec<End>>) -> Vec<String> {
    let findings = run.findings.iter().map(|finding| format!("the DMA sanitizer found: {finding}"));
    let leaks = (!run.leaks.is_empty()).then(|| format!("objects were leaked: {:?}", run.leaks));
    findings.chain(leaks).collect()
}
