//! What the runs of a check have reached

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rdma_core::{always, sometimes, state};
use rdma_sim::{Check, FailureKind, FaultKind, Net, RandomFaults, Report, Scheduler, Trigger, try_check};

fn report(check: Check, test: impl AsyncFn(Net) + Sync) -> Report {
    try_check(check, test).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn statements_are_counted_over_all_runs() {
    let report = report(Check::new().runs(40), async |net: Net| {
        for _ in 0..3 {
            let choice = net.pick(4);
            always!(choice < 4, "choices are below their bound");
            sometimes!(choice == 3, "the last one is drawn");
        }
    });
    let counts = report.statements.iter().map(|(statement, count)| (statement.label, *count));
    let counts: std::collections::BTreeMap<_, _> = counts.collect();
    let bound = counts["choices are below their bound"];
    assert_eq!((bound.evaluated, bound.held, bound.runs), (123, 123, 41), "of the plain run, too");
    let last = counts["the last one is drawn"];
    assert!(last.evaluated == 123 && (10..60).contains(&last.held) && last.runs < 41, "{last:?}");
    let table = format!("{report:#}");
    assert!(table.contains("always choices are below their bound (tests/tests/check/report.rs:"), "{table}");
}

#[test]
fn a_statement_that_never_holds_fails_the_check() {
    let test = async |net: Net| {
        sometimes!(net.pick(4) == 9, "a choice beyond its bound");
        sometimes!(net.pick(4) == 0, "the plain choice");
    };
    let failure = try_check(Check::new().runs(20), test).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NeverHeld);
    let text = failure.to_string();
    assert!(text.starts_with("what should hold sometimes never did in 21 runs"), "{text}");
    assert!(text.contains("\"a choice beyond its bound\" at tests/tests/check/report.rs:"), "{text}");
    assert!(!text.contains("the plain choice") && !text.contains("RDMA_SIM_REPLAY"), "{text}");
}

#[test]
fn a_report_has_the_faults_and_refusals_of_all_runs() {
    let faults = RandomFaults::up_to(3).kinds([FaultKind::Unplug]).within(Duration::from_millis(1));
    let report = report(Check::new().runs(60).random_faults(faults), async |net: Net| {
        for _ in 0..20 {
            net.sleep(Duration::from_micros(50)).await;
            let _ = net.open("a", "rdma_en2");
        }
    });
    let covered: Vec<_> = report.covered.keys().map(String::as_str).collect();
    let expected = ["alloc_pd refused: PortDown", "fault replug", "fault unplug", "rule down-port"];
    assert!(expected.iter().all(|name| covered.contains(name)), "{covered:?}");
    assert!(report.covered["fault unplug"].runs > 20, "{report:#}");
    assert!(report.simulated > Duration::from_millis(50), "{report}");
}

/// Whatever the number of threads, the same seed is found first. Catches outcomes in the order in which they end.
#[test]
fn findings_do_not_depend_on_the_number_of_threads() {
    let test = async |net: Net| {
        let seed = net.seed().unwrap();
        // Later seeds end before it.
        if seed == 35 {
            std::thread::sleep(Duration::from_millis(30));
        }
        assert!(net.pick(2) == 0 || seed < 30 || !seed.is_multiple_of(7), "unlucky");
    };
    let found = [1, 2, 5].map(|threads| {
        let threads = NonZeroUsize::new(threads).unwrap();
        try_check(Check::new().name("t").runs(200).threads(threads), test).unwrap_err()
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
    assert!(found[0].tried > 31, "{}", found[0]);
}

/// Whatever the number of threads, a guided check varies the same runs. Catches a round that begins before the last one has ended, and
/// runs that are added up in the order in which they end.
#[test]
fn reports_do_not_depend_on_the_number_of_threads() {
    let seen = [1, 2, 5].map(|threads| {
        let (ended, is_waiting) = (AtomicU64::new(0), AtomicBool::new(false));
        let check = Check::new().name("t").runs(300).threads(NonZeroUsize::new(threads).unwrap()).guided();
        let faults = RandomFaults::up_to(2).kinds([FaultKind::LeakPds { count: 1 }]);
        let mut report = report(check.random_faults(faults), async |net: Net| {
            for step in 0..6_u32 {
                state!("step", step);
                net.sleep(Duration::from_micros(10)).await;
                if net.pick(3) != 1 {
                    break;
                }
            }
            // Some runs of the first round end after a later one: there is one, because a round has 32 runs.
            let before = ended.load(Ordering::Relaxed);
            if threads > 1 && (1..8).contains(&before) && !is_waiting.swap(true, Ordering::Relaxed) {
                while ended.load(Ordering::Relaxed) == before {
                    std::thread::yield_now();
                }
                is_waiting.store(false, Ordering::Relaxed);
            }
            ended.fetch_add(1, Ordering::Relaxed);
        });
        report.elapsed = Duration::ZERO;
        format!("{report:#?}")
    });
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[test]
fn a_failure_says_how_many_clean_runs_prove_its_repair() {
    let test = async |net: Net| assert!(net.seed() != Some(8) || net.pick(2) > 1, "unlucky");
    let failure = try_check(Check::new().name("t").scheduler(Scheduler::Fifo), test).unwrap_err();
    assert_eq!(failure.tried, 10, "the plain run, and seeds 0 to 8");
    let text = failure.to_string();
    assert!(
        text.contains(
            "It failed in 1 of 9 seeds. If that is its rate, \
             a repair that does nothing passes 42 other seeds with a chance of 1 %."
        ),
        "{text}"
    );
    assert!(text.contains("\nRDMA_SIM_REPLAY='2 test=t setup="), "{text}");
}

#[test]
fn shrinking_can_be_switched_off() {
    let faults = "at 1ms a:rdma_en2 slow 90%; at 2ms a:rdma_en2 unplug".parse().unwrap();
    let check = Check::new().faults(faults).shrink(false);
    let failure = try_check(check, async |net: Net| net.sleep_until_failure().await).unwrap_err();
    assert_eq!(failure.replay, failure.original);
    assert_eq!(failure.replay.faults.0.len(), 2);
}

/// Catches faults that are drawn at any time of the run.
#[test]
fn half_of_the_random_faults_begin_where_the_traffic_is() {
    let faults = RandomFaults::up_to(8).kinds([FaultKind::LeakPds { count: 1 }]);
    let count = Mutex::new([0; 2]);
    let moment = Duration::from_millis(700);
    report(Check::new().runs(200).random_faults(faults).scheduler(Scheduler::Fifo), async |net: Net| {
        let open = |host| net.open(host, "rdma_en2").unwrap();
        let [mut a, mut b] = rdma_bare::BareQp::pair(open("a"), open("b"), 1 << 16).unwrap();
        net.sleep(moment).await;
        b.recv(1, 0..9).unwrap();
        a.send(2, 0..9).unwrap();
        b.received().await.unwrap();
        net.sleep(Duration::from_millis(300)).await;
        for fault in &net.faults().0 {
            let is_near = match fault.trigger {
                Trigger::At(time) => time.as_nanos().abs_diff(moment.as_nanos() as u64) < 50_000,
                // The only frame is that of the message.
                _ => true,
            };
            count.lock().unwrap()[usize::from(is_near)] += 1;
        }
    });
    let [elsewhere, near] = count.into_inner().unwrap();
    let part = f64::from(near) / f64::from(near + elsewhere);
    assert!((0.4..0.6).contains(&part), "{near} of {} begin within 50 µs of the message", near + elsewhere);
}

trait Fails {
    async fn sleep_until_failure(&self);
}

impl Fails for Net {
    async fn sleep_until_failure(&self) {
        self.sleep(Duration::from_millis(3)).await;
        panic!("it fails");
    }
}

/// The order of tasks and the moments at which they run differ by seed; in the plain order, only the jitter of frames does.
#[test]
fn schedules_differ_by_seed() {
    let seen = |scheduler| {
        let seen = Mutex::new(BTreeSet::new());
        let check = Check::new().runs(100).scheduler(scheduler);
        report(check, async |net: Net| {
            let order = std::sync::Arc::new(Mutex::new(Vec::new()));
            for number in 0..3 {
                let (order, net) = (order.clone(), net.clone());
                net.clone().spawn(async move {
                    net.sleep(Duration::from_micros(5)).await;
                    order.lock().unwrap().push(number);
                });
            }
            net.sleep(Duration::from_millis(50)).await;
            seen.lock().unwrap().insert(order.lock().unwrap().clone());
        });
        seen.into_inner().unwrap().len()
    };
    assert_eq!(seen(Scheduler::Fifo), 1);
    assert_eq!(seen(Scheduler::Random), 6, "all orders");
    assert_eq!(seen(Scheduler::Pct { depth: 3, steps: 0 }), 6, "all orders");
    assert_eq!(seen(Scheduler::Pct { depth: 1, steps: 0 }), 6, "all orders, by priorities alone");
}
