//! One run of a checked test

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_core::Time;
use rdma_core::probe::{Statement, observe};

use super::failure::{FailureKind, RunFailure};
use super::landmarks::Landmark;
use super::observer::{Count, Counting};
use super::outcome::Outcome;
use super::replay::Replay;
use super::settings::Check;
use crate::caught::{Panic, catch};
use crate::choices::Step;
use crate::executor::{HumanDuration, Progress, UnfinishedTask};
use crate::fault::{Target, Traffic};
use crate::{Choices, Net, RunError, Sim, Stalled, Waits};

/// What a run that did not fail has seen
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedRun {
    pub(super) time: Time,
    pub(super) events: u64,
    /// How many times tasks were polled
    pub(super) steps: u64,
    /// How many choices were drawn
    pub(super) drawn: u64,
    pub(super) statements: BTreeMap<Statement, Count>,
    pub(super) covered: BTreeMap<String, u64>,
    /// How many times each rule was exercised
    pub(super) rules: Vec<(&'static str, u64)>,
    /// The tasks that waited when the test ended
    pub(super) unfinished: Vec<UnfinishedTask>,
    /// States and their successions, if the check is guided
    pub(super) landmarks: Vec<Landmark>,
    /// Orders of tasks at one instant, if the check is guided
    pub(super) orders: Vec<u64>,
    /// Where the traffic was, if that was wanted
    pub(super) traffic: Traffic,
}

/// Counts the choices that are drawn
#[derive(Debug)]
struct CountedChoices {
    choices: Box<dyn Choices>,
    drawn: Arc<AtomicU64>,
}

impl Choices for CountedChoices {
    fn pick(&mut self, n: u32) -> u32 {
        self.drawn.fetch_add(1, Ordering::Relaxed);
        self.choices.pick(n)
    }

    fn order(&mut self, steps: &[Step]) -> Option<usize> {
        self.drawn.fetch_add(u64::from(steps.len() > 1), Ordering::Relaxed);
        self.choices.order(steps)
    }

    fn seed(&self) -> Option<u64> {
        self.choices.seed()
    }
}

/// What a run is for, beside finding a failure
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// To find where the traffic is
    Measure,
    /// To show what happens
    Show,
    /// To find a failure
    Test,
}

/// Runs `case` with the choices of `source`; `seen` is its network, whether it fails or not
pub(super) fn run<O: Outcome>(
    check: &Check,
    case: &Replay,
    source: Box<dyn Choices>,
    purpose: Purpose,
    progress: &Arc<Progress>,
    seen: &RefCell<Option<Net>>,
    test: &impl AsyncFn(Net) -> O,
) -> Result<FinishedRun, RunFailure> {
    let drawn = Arc::new(AtomicU64::new(0));
    let choices = CountedChoices { choices: source, drawn: Arc::clone(&drawn) };
    let mut sim = Sim::new()
        .topology(check.topology.clone())
        .model(check.model.clone())
        .replay(case)
        .choices(choices)
        .sanitize(true)
        .time_limit(check.time_limit)
        .step_limit(check.step_limit)
        .task_limit(check.task_limit)
        .settle(!check.allows_leaked_tasks)
        .without_digest()
        .progress(Arc::clone(progress));
    if purpose == Purpose::Measure {
        sim = sim.keep_moments();
    }
    if check.is_guided {
        sim = sim.keep_orders();
    }
    if let Some((calm, bound)) = check.calm(&case.faults) {
        sim = sim.calm_at(calm).time_limit((calm + bound).min(check.time_limit));
    }
    if purpose == Purpose::Show {
        sim = sim.keep_records();
    }
    let counting = Rc::new(Counting::default());
    let observation = observe(counting.clone());
    let error = RefCell::new(None);
    let run = catch(|| {
        sim.try_run(async |net| {
            seen.replace(Some(net.clone()));
            if check.is_guided {
                counting.landmarks.keep(net.clone(), Arc::clone(&drawn));
            }
            let outcome = test(net).await.into_text();
            counting.end();
            error.replace(outcome.err());
        })
    });
    drop(observation);
    let (run, mut panics) = match run {
        Ok(run) => (Some(run), Vec::new()),
        Err(caught) => (None, caught.into_panics()),
    };
    panics.extend(progress.take_later());
    let run = match (error.take(), run) {
        // It was there before the destructors ran that have panicked.
        (Some(text), _) => Err(RunFailure::new(FailureKind::Error, text)),
        (None, Some(run)) => run.map_err(|error| check.failed_by(error, &case.faults)),
        (None, None) => Err(failed_by(panics.remove(0))),
    };
    let run = run.map_err(|failed| RunFailure { later: panics, ..failed })?;
    if let Some(finding) = run.findings.first() {
        return Err(RunFailure::new(FailureKind::Misuse, format!("the DMA sanitizer found: {finding}")));
    }
    if let Some(text) = check.leaked_tasks(&run.unfinished) {
        return Err(RunFailure::new(FailureKind::LeakedTask, text));
    }
    if !run.leaks.is_empty() {
        let reason = format!(
            "objects were left behind: {}; drop or close what the test has opened, also in its tasks, before it ends",
            run.leaks
        );
        return Err(RunFailure::new(FailureKind::Leak, reason));
    }
    Ok(FinishedRun {
        time: run.time,
        events: run.events,
        steps: run.steps,
        drawn: drawn.load(Ordering::Relaxed),
        statements: counting.statements(),
        rules: run.rules,
        covered: run.covered.into_iter().chain(counting.states()).chain(counting.protocol_states()).collect(),
        unfinished: run.unfinished,
        landmarks: counting.landmarks.take(),
        orders: run.orders,
        traffic: Traffic {
            moments: run.moments,
            frames: if purpose == Purpose::Measure { frames(check, seen) } else { Vec::new() },
        },
    })
}

/// How many frames each cabled port has sent, in the order in which hosts have their ports
fn frames(check: &Check, seen: &RefCell<Option<Net>>) -> Vec<(Target, u64)> {
    let Some(net) = &*seen.borrow() else { return Vec::new() };
    let ports =
        check.topology.hosts().iter().flat_map(|host| {
            host.ports().iter().map(|port| (host.name().to_owned(), port.device().to_owned()))
        });
    let counted = ports.filter_map(|(host, device)| {
        let [sent, _] = net.cable_stats(&host, &device)?;
        Some((Target::Port { host, device }, sent.frames))
    });
    counted.collect()
}

impl Check {
    /// What is wrong with the tasks that have not ended, if anything is
    fn leaked_tasks(&self, unfinished: &[UnfinishedTask]) -> Option<String> {
        let leaked = unfinished.iter().filter(|task| !self.allows_leaked_tasks && task.is_outside);
        let waits = Waits(leaked.map(|task| task.wait.clone()).collect());
        (!waits.0.is_empty()).then(|| {
            format!(
                "tasks outside of all hosts still wait when the test has ended:{waits}\n\
                 Let the test wait for their end, or stop them; what serves for ever is a task of a host: `SimHost::spawn`. \
                 `Check::allow_leaked_tasks` lets them be left"
            )
        })
    }

    fn failed_by(&self, error: RunError, faults: &crate::FaultPlan) -> RunFailure {
        let text = error.to_string();
        let kind = match error {
            RunError::Fault(_) => FailureKind::Unusable,
            RunError::Stalled(Stalled::Spin { .. }) => FailureKind::Spin,
            RunError::Stalled(Stalled::StepLimit { .. }) => FailureKind::StepLimit,
            RunError::Stalled(Stalled::TaskLimit { .. }) => FailureKind::TaskLimit,
            RunError::Stalled(Stalled::TimeLimit { limit, waits }) => {
                return match self.calm(faults) {
                    Some((calm, bound)) if limit == calm + bound => RunFailure::new(
                        FailureKind::NoProgress,
                        format!(
                            "no progress: all faults had ended after {}, and {} later the test still waits{waits}",
                            HumanDuration(calm.since(Time::ZERO)),
                            HumanDuration(bound),
                        ),
                    ),
                    _ => RunFailure::new(FailureKind::TimeLimit, text),
                };
            }
            RunError::Stalled(Stalled::Deadlock { .. } | Stalled::Pruned) => FailureKind::Stall,
        };
        RunFailure::new(kind, text)
    }
}

fn failed_by(Panic { text, site }: Panic) -> RunFailure {
    let mut reason = text.clone();
    // tokio's own words for a task that uses its clock, its sockets or its tasks outside of a tokio runtime.
    if ["no reactor running", "timers are disabled", "context was found, but"]
        .iter()
        .any(|words| text.contains(words))
    {
        reason += "\nThe test uses tokio's tasks, clock or sockets, which know nothing of the simulation: use `Net::spawn` (as \
                   `net.spawn(async { … })`), or `SimHost::spawn` for a task of a host; `Net::sleep` and `rdma_async::time`; and the \
                   streams of `SimHost`";
    }
    RunFailure { site, ..RunFailure::new(FailureKind::Panic, reason) }
}
