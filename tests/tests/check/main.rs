//! Checking over many seeds, replaying and shrinking

mod blocked;
mod coverage;
mod destructors;
mod exhaustive;
mod faults;
mod guided;
mod leaks;
mod limits;
mod liveness;
mod misuse;
mod pages;
mod report;
mod stalls;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_core::{Device as _, PortState};
use rdma_sim::{Check, FaultPlan, Net, RandomFaults, Replay, check, try_check};
use rdma_tests::{DEVICE, Pair, connected, options};

/// Sends ten messages over a session, which survives a pulled cable, and then uses a handle of the device that does not
async fn fragile(net: Net) {
    let device = net.open("a", DEVICE).unwrap();
    let Pair { ab, ba, .. } = connected(&net, &options()).await;
    for _ in 0..10 {
        ab.send_bytes(b"ping").await.unwrap();
        assert_eq!(*ba.recv().await.unwrap().unwrap(), *b"ping");
        net.sleep(Duration::from_millis(1)).await;
    }
    ab.close().await.unwrap();
    device.create_cq(8).unwrap();
}

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    *panic.downcast::<String>().expect("a check fails with a text")
}

/// The one line of a failure, as an environment variable would hold it
fn line(text: &str) -> Replay {
    let (_, rest) = text.split_once("RDMA_SIM_REPLAY='").expect("the line is there");
    rest.split_once('\'').unwrap().0.parse().unwrap()
}

#[test]
fn a_test_without_faults_passes() {
    check(Check::new().runs(20), fragile);
}

#[test]
fn a_failure_shrinks_to_the_fault_that_matters_and_replays() {
    let plan: FaultPlan =
        "at 1ms a:rdma_en2 slow 90%; at 2ms b:rdma_en2 delay 3us; at 4ms a:rdma_en2 unplug; \
                           at 5ms b:rdma_en2 slow 50%; at 9ms a:rdma_en2 replug"
            .parse()
            .unwrap();
    let failure = try_check(Check::new().faults(plan).runs(3), fragile).unwrap_err();
    let faults = failure.replay.faults.to_string();
    assert_eq!(faults, "at 4ms a:rdma_en2 unplug; at 9ms a:rdma_en2 replug", "{failure}");
    assert_eq!(failure.replay.draws, Some(0), "no choice of the simulation matters");
    assert_eq!(failure.tried, 1, "the plain run has the faults of the plan");
    assert!(failure.is_plain && failure.to_string().starts_with("the plain run failed: "), "{failure}");
    // Regression: what to do about picks was said of tests that draw nothing.
    assert!(!failure.to_string().contains("that is not drawn"), "{failure}");

    // The text of the panic has the line that repeats the run.
    let again =
        catch_unwind(AssertUnwindSafe(|| check(Check::new().replay(failure.replay.clone()), fragile)));
    let again = message(again.unwrap_err());
    assert!(again.contains("DeviceGone"), "{again}");
    // Regression: any smaller run was called the plain one when it was repeated, also one that random faults had found.
    assert!(!again.contains("plain run"), "{again}");
    assert_eq!(line(&again), failure.replay, "{again}");

    let picks = async |net: Net| assert_ne!(net.pick(9), 0, "of the plain run");
    let failure = try_check(Check::new(), picks).unwrap_err();
    assert!(failure.to_string().contains("add a part that is not drawn"), "{failure}");
}

/// Regression: the plain run counted as one of two runs of which one failed.
#[test]
fn the_plain_run_says_nothing_of_the_rate_of_a_failure() {
    let failure =
        try_check(Check::new(), async |net: Net| assert_eq!(net.pick(1 << 30), 0, "drawn")).unwrap_err();
    assert!(!failure.is_plain && !failure.to_string().contains("It failed in 1 of"), "{failure}");
}

/// Regression: without the fault that ends another one, the smaller run stalled, and the stall was printed instead of the bug.
#[test]
fn a_failure_does_not_shrink_to_another_one() {
    let late = async |net: Net| {
        let ended = Arc::new(AtomicBool::new(false));
        let (host, flag) = (net.host("a"), ended.clone());
        let runtime = host.runtime();
        host.spawn(async move {
            rdma_async::time::sleep(&*runtime, Duration::from_millis(2)).await;
            flag.store(true, Ordering::Relaxed);
        });
        while !ended.load(Ordering::Relaxed) {
            assert!(net.now().as_nanos() < 20_000_000_000, "stalled");
            rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(1)).await;
        }
        assert!(net.now().as_nanos() < 5_000_000, "late, at {} ns", net.now().as_nanos());
    };
    let plan: FaultPlan = "at 1ms a sleep; at 3ms b:rdma_en2 slow 50%; at 9ms a wake".parse().unwrap();
    let failure = try_check(Check::new().faults(plan.clone()).runs(1), late).unwrap_err();
    assert!(failure.reason.starts_with("late, at "), "{failure}");
    assert_eq!(failure.replay.faults.to_string(), "at 1ms a sleep; at 9ms a wake");
    assert_eq!(failure.original.faults, plan);
    let text = failure.to_string();
    assert!(text.ends_with(&format!("\nAs it was found:\n\n{}\n", failure.original.line())), "{text}");
}

/// Catches a shrinking that takes any failure.
#[test]
fn a_failure_does_not_shrink_to_one_with_another_text() {
    let faults = "at 1ms a:rdma_en2 slow 90%; at 2ms b:rdma_en2 slow 50%".parse().unwrap();
    let test = async |net: Net| {
        let faults = net.faults().0.len();
        assert_ne!(faults, 2, "with both faults");
        assert_eq!(faults, 9, "with fewer");
    };
    let failure = try_check(Check::new().faults(faults).runs(1), test).unwrap_err();
    assert!(failure.reason.contains("with both faults"), "{failure}");
    assert_eq!(failure.replay.faults.0.len(), 2, "{failure}");
}

/// Regression: the line of a smaller run was printed, which passed. Catches a run that is not repeated.
#[test]
fn a_test_that_is_not_deterministic_is_called_so_and_its_run_is_not_made_smaller() {
    let plan: FaultPlan = "at 1ms a:rdma_en2 slow 90%; at 2ms b:rdma_en2 slow 50%".parse().unwrap();
    for fails in [1, 2, 3] {
        let runs = AtomicU32::new(0);
        let test = async |_: Net| {
            assert!(runs.fetch_add(1, Ordering::Relaxed) >= fails, "one of the first");
        };
        let failure = try_check(Check::new().faults(plan.clone()).runs(1), test).unwrap_err();
        assert!(!failure.is_deterministic);
        assert_eq!(
            (&failure.reason[..], &failure.replay),
            ("one of the first", &failure.original),
            "{fails}"
        );
        let text = failure.to_string();
        assert!(
            text.contains("\nThe test is not deterministic: ") && text.contains("`RandomState`"),
            "{text}"
        );
        assert_eq!(line(&text).faults, plan);
        assert_eq!(text.matches("RDMA_SIM_REPLAY=").count(), 1, "{text}");
    }
    // Also if nothing is made smaller.
    let runs = AtomicU32::new(0);
    let once = async |_: Net| assert!(runs.fetch_add(1, Ordering::Relaxed) > 0, "the first");
    assert!(!try_check(Check::new().shrink(false), once).unwrap_err().is_deterministic);
    let always = try_check(Check::new().shrink(false), async |net: Net| assert_eq!(net.seed(), None, "each"))
        .unwrap_err();
    assert!(always.is_deterministic && !always.to_string().contains("not deterministic"), "{always}");
}

/// Catches times that stay as the generator drew them, and times that are rounder than the failure allows.
#[test]
fn times_of_faults_are_rounded_if_the_failure_stays_the_same() {
    let plan: FaultPlan = "at 4234567ns a:rdma_en2 unplug; at 9876543ns a:rdma_en2 replug".parse().unwrap();
    let failure = try_check(Check::new().faults(plan.clone()).runs(3), fragile).unwrap_err();
    assert_eq!(
        failure.replay.faults.to_string(),
        "at 4ms a:rdma_en2 unplug; at 10ms a:rdma_en2 replug",
        "{failure}"
    );
    assert_eq!(failure.original.faults, plan);
}

#[test]
fn choices_shrink_to_the_few_that_matter() {
    // Fails as soon as the program has drawn a number above 900.
    let unlucky = async |net: Net| {
        for _ in 0..1000 {
            assert!(net.pick(1000) < 900, "unlucky");
        }
    };
    let failure = try_check(Check::new().runs(50), unlucky).unwrap_err();
    let draws = failure.replay.draws.unwrap();
    let mut less = failure.replay.clone();
    less.draws = Some(draws - 1);
    check(Check::new().replay(less), unlucky);
}

#[test]
fn random_faults_are_other_ones_for_each_seed_and_the_same_for_the_same() {
    let seen = Mutex::new(BTreeMap::new());
    let look = async |net: Net| {
        net.sleep(Duration::from_millis(500)).await;
        let port = net.port("a", "rdma_en2").unwrap();
        let again = seen.lock().unwrap().insert((net.seed(), net.faults().to_string()), port);
        assert!(again.is_none_or(|again| again == port));
    };
    let faults = RandomFaults::up_to(6).within(Duration::from_secs(1));
    for _ in 0..2 {
        check(Check::new().random_faults(faults.clone()).runs(40), look);
    }
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 41, "the plain run, and one of each seed");
    let up = seen.values().filter(|port| port.state == PortState::Active).count();
    assert!((1..41).contains(&up), "some plans leave the cable pulled");
}

/// Regression: the last seed ran nothing, and the check passed.
#[test]
fn a_check_that_begins_with_the_last_seed_tries_it() {
    let last = async |net: Net| assert_ne!(net.seed(), Some(u64::MAX), "it runs");
    let failure = try_check(Check::new().first_seed(u64::MAX), last).unwrap_err();
    assert_eq!((failure.replay.seed, failure.tried), (u64::MAX, 2));
    let seen = Mutex::new(BTreeSet::new());
    check(Check::new().first_seed(u64::MAX - 1).runs(5), async |net| {
        seen.lock().unwrap().insert(net.seed());
    });
    let seeds = [0, 1, 2, u64::MAX - 1, u64::MAX].map(Some);
    assert_eq!(seen.into_inner().unwrap(), seeds.into());
}
