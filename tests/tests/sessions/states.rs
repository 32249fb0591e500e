//! Each kind of fault, fired at each side of a peering in each of its states: `docs/STATES.md`

mod scenario;
mod watch;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rdma_core::Time;
use rdma_core::probe::PeeringState;
use rdma_sim::FaultPlan;
use rdma_sim::fault::{FAULTS, Fault, FaultInfo, TargetKind};
use rdma_tests::DEVICE;
use rdma_tests::files::assert_golden;

use self::scenario::{OTHER, Scenario};
use self::watch::{HOSTS, Hits, State, states};

/// How many runs have a fault in each cell: on each kind of device
const RUNS: u32 = 2;
/// How long a fault lasts that another one ends
const LASTS: Duration = Duration::from_millis(3);
/// Faults that end processes; a session survives all others, because one cable stays or is plugged in again
const ENDS: [&str; 3] = ["kill", "reboot", "restart"];
/// Faults that take both cables of the host for a moment: no session is made if it has none when it connects
const TAKES_ALL: [&str; 2] = ["rdma-off", "sleep"];
/// Verbs that hang or take long, in turn
const VERBS: [&str; 6] = ["destroy_qp", "modify_qp", "create_qp", "dereg_mr", "alloc_pd", "query_port"];

/// The fault at `at`, and the one that ends it
fn faults(info: &FaultInfo, scenario: Scenario, at: Time) -> FaultPlan {
    let name = info.name;
    let place = scenario.state.map_or(0, |state| 1 + state as usize) + scenario.side;
    let number = place + scenario.seed as usize;
    let argument = match info.argument {
        "–" => String::new(),
        "PERCENT" => ["10%", "60%", "1%"][number % 3].to_owned(),
        "TIME" => ["3ms", "100us", "1ms"][number % 3].to_owned(),
        "N" => ["1", "3", "40"][number % 3].to_owned(),
        "DEVICE" => OTHER.to_owned(),
        "VERB" => VERBS[number % VERBS.len()].to_owned(),
        "VERB=TIME" => format!("{}={}", VERBS[number % VERBS.len()], ["3ms", "100us", "1ms"][place % 3]),
        other => panic!("{name} {other}: which argument?"),
    };
    let host = HOSTS[scenario.side];
    let target = match info.target {
        TargetKind::Host => host.to_owned(),
        TargetKind::Port => format!("{host}:{DEVICE}"),
        other => panic!("{other:?}: which target?"),
    };
    let text = format!("at {}ns {target} {name} {argument}", at.as_nanos());
    let fault = text.trim().parse::<Fault>().expect("it is a fault");
    let end = fault.kind.end().map(|end| {
        let text = format!("at {}ns {target} {end}", (at + LASTS).as_nanos());
        text.parse::<Fault>().expect("its end is a fault")
    });
    end.into_iter().fold(FaultPlan::none().and(fault), FaultPlan::and)
}

/// Whether a run with a fault in this state may end so
fn is_allowed(value: Option<bool>, info: &FaultInfo, state: State) -> bool {
    use PeeringState::{FirstUnproven, NoPathYet};
    let is_made = !matches!(state, None | Some(NoPathYet | FirstUnproven));
    let is_missed = value.is_none() && !is_made && TAKES_ALL.contains(&info.name);
    value == Some(true) || is_missed || ENDS.contains(&info.name)
}

/// Fires each fault at a moment of the scenario at which its side is in its state, and checks how the runs end
fn fire_all(scenario: Scenario, failures: &mut Vec<String>) -> Hits {
    let plain = scenario.run(FaultPlan::none());
    let (value, watch) = plain.value;
    assert_eq!((value, plain.findings), (Some(true), vec![]), "{scenario:?}");
    let stays = watch.stays(scenario.side, scenario.state);
    assert!(!stays.is_empty(), "{scenario:?}: the side is never in the state");
    let mut hits = Hits::new();
    for (number, info) in FAULTS.iter().enumerate() {
        // Everything before the fault is as without it.
        let (start, end) = stays[number % stays.len()];
        let len = end.as_nanos() - start.as_nanos();
        let at = start + Duration::from_nanos(1 + number as u64 * (len - 2) / FAULTS.len() as u64);
        let plan = faults(info, scenario, at);
        let ran = scenario.run(plan.clone());
        let (value, watch) = ran.value;
        assert_eq!(ran.findings, [], "{scenario:?} {plan}");
        if !is_allowed(value, info, scenario.state) {
            failures.push(format!("{scenario:?} {plan}: {value:?}"));
        }
        for (name, state, side) in watch.fired() {
            let name = FAULTS.iter().find(|info| info.name == name).expect("it is in the list").name;
            *hits.entry((name, state, side)).or_default() += 1;
        }
    }
    hits
}

/// What was seen in all runs; all processors run them
fn run_all(scenarios: &[Scenario]) -> Hits {
    let (next, hits, failures) = (AtomicUsize::new(0), Mutex::new(Hits::new()), Mutex::new(Vec::new()));
    let run_some = || {
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Relaxed)) {
            let mut failed = Vec::new();
            let found = fire_all(*scenario, &mut failed);
            failures.lock().expect("as below").append(&mut failed);
            let mut hits = hits.lock().expect("no thread panics while it counts");
            found.into_iter().for_each(|(cell, count)| *hits.entry(cell).or_default() += count);
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let running: Vec<_> = (0..processors).map(|_| scope.spawn(run_some)).collect();
        running.into_iter().for_each(|running| running.join().expect("all runs end well"));
    });
    let failures = failures.into_inner().expect("as above");
    assert!(failures.is_empty(), "{} sessions ended without need:\n{}", failures.len(), failures.join("\n"));
    hits.into_inner().expect("as above")
}

fn head() -> String {
    let mut page = format!(
        "# Faults by the state of a peering\n\n\
         Made by the test `every_fault_fires_in_every_state` (`tests/tests/sessions/states.rs`) from what it ran, on simulated devices of both\n\
         kinds; nothing here was observed on hardware. Each kind of fault has fired at each side of a peering in each of its states. After\n\
         each run, every message had arrived once and in order, unless the fault ends a process, and then no message was lost between\n\
         others, repeated or changed. Before the first path, `rdma-off` and `sleep` may leave a host without a cable, and no session is made.\n\
         The test fails if a cell is never hit. A cell has how often the fault has fired at the side that\n\
         connects and at the side that accepts, {RUNS} for {RUNS} or more.\n\n\
         A side is in the first of these states that holds:\n\n"
    );
    writeln!(page, "* **0, introduced**: The side does not know its peer yet.")
        .expect("a string takes everything");
    for (number, state) in PeeringState::ALL.iter().enumerate() {
        writeln!(page, "* **{}, {state}**: {}", number + 1, state.description()).expect("as above");
    }
    let numbers = (0..states().count()).map(|number| number.to_string()).collect::<Vec<_>>().join(" | ");
    writeln!(page, "\n| fault | {numbers} |\n|---{}|", "|---".repeat(states().count())).expect("as above");
    page
}

/// Catches a message that is lost, repeated or another one, a task that never ends, and a session that ends without need, for each fault
/// in each state; and a state that no scenario reaches any more.
#[test]
fn every_fault_fires_in_every_state() {
    let in_state = |state: State| {
        let seeds = move |side| (0..RUNS).map(move |seed| Scenario { state, side, seed });
        [0, 1].into_iter().flat_map(seeds)
    };
    let hits = run_all(&states().flat_map(in_state).collect::<Vec<_>>());
    let mut page = head();
    let mut never = Vec::new();
    for info in FAULTS {
        let cells = states().map(|state| {
            let counts = [0, 1].map(|side| hits.get(&(info.name, state, side)).copied().unwrap_or(0));
            if counts.contains(&0) {
                never.push((info.name, state, counts));
            }
            format!("{} {}", counts[0].min(RUNS), counts[1].min(RUNS))
        });
        let cells = cells.collect::<Vec<_>>().join(" | ");
        writeln!(page, "| {} | {cells} |", info.name).expect("as above");
    }
    let fired = hits.values().sum::<u32>();
    assert_eq!(never, [], "cells that were never hit, of {} that were, by {fired} faults", hits.len());
    assert_golden("docs/STATES.md", &page);
}
