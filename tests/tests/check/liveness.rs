//! Faults that end, and what must go on then

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdma_core::{PortState, Time};
use rdma_sim::{Check, FailureKind, FaultPlan, Net, Scheduler, check, try_check};

fn plan(text: &str) -> FaultPlan {
    text.parse().unwrap()
}

fn with(faults: &str) -> Check {
    let faults = Check::new().runs(1).scheduler(Scheduler::Fifo).faults(plan(faults));
    faults.liveness(Duration::from_millis(100))
}

/// Every fault that another one ends has ended, and its effect with it.
#[test]
fn all_faults_end_before_the_time_of_liveness_begins() {
    let faults = "at 1ms a:rdma_en2 unplug; at 2ms a:rdma_en2 delay 9ms; at 3ms a:rdma_en2 unresolvable; at 4ms b rdma-off; \
                  at 5ms b sleep; at 6ms a:rdma_en2 lose 5; at 7ms b:rdma_en2 slow-receive";
    check(with(faults), async |net: Net| {
        let up = || net.port("a", "rdma_en2").unwrap().state == PortState::Active;
        net.sleep_until(Time::from_nanos(6_999_999)).await;
        assert!(!up(), "the cable is out");
        net.sleep(Duration::from_micros(1)).await;
        assert!(up(), "it is in again");
        let Ok([mut a, mut b]) = rdma_bare::BareQp::pair(
            net.open("a", "rdma_en2").unwrap(),
            net.open("b", "rdma_en2").unwrap(),
            65536,
        ) else {
            panic!("the ends find each other")
        };
        let start = net.now();
        for number in 0..12 {
            b.recv(number, 0..64).unwrap();
            a.send(number, 4096..4160).unwrap();
            b.received().await.unwrap();
        }
        assert!(net.now().since(start) < Duration::from_millis(1), "nothing is late, lost or pulled");
    });
}

#[test]
fn dead_and_stopped_processes_go_on_when_the_faults_have_ended() {
    check(with("at 1ms a kill; at 2ms b pause"), async |net: Net| {
        let alive = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        for (host, alive) in ["a", "b"].into_iter().zip(&alive) {
            let alive = Arc::clone(alive);
            net.host(host).start(move |host| {
                let alive = Arc::clone(&alive);
                async move {
                    host.net().sleep(Duration::from_millis(50)).await;
                    alive.store(true, Ordering::Relaxed);
                }
            });
        }
        while !alive.iter().all(|alive| alive.load(Ordering::Relaxed)) {
            net.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(net.now(), Time::from_nanos(52_000_000), "`a` began anew when all faults had ended");
    });
}

#[test]
fn a_test_that_does_not_recover_from_its_faults_makes_no_progress() {
    let gives_up = async |net: Net| {
        net.sleep(Duration::from_millis(5)).await;
        if net.open("a", "rdma_en2").is_err() {
            // It should try again; instead it waits for a message that is not sent.
            loop {
                net.sleep(Duration::from_secs(1)).await;
            }
        }
    };
    let faults = "at 1ms a:rdma_en2 slow 90%; at 4ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug; at 9ms b:rdma_en2 delay 2us";
    let failure = try_check(with(faults), gives_up).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NoProgress);
    let text = &failure.reason;
    assert!(
        text.starts_with(
            "no progress: all faults had ended after 8 ms, and 100 ms later the test still waits"
        ),
        "{text}"
    );
    // From 5 ms on for a second, of which 103 ms are over. Regression: it was the time from the last event on.
    assert!(text.contains("\n  main waits for its timer in 897 ms"), "{text}");
    // Regression: what a fault had begun never ended in the smaller run, which then failed for that reason.
    assert_eq!(
        failure.replay.faults,
        plan("at 4ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug"),
        "{failure}"
    );
}

/// Regression: the end of all faults came before the last one, in half of the runs.
#[test]
fn the_last_fault_of_a_plan_ends_with_the_others() {
    let settings =
        Check::new().runs(60).faults(plan("at 5ms a:rdma_en2 unplug")).liveness(Duration::from_secs(1));
    check(settings, async |net: Net| {
        net.sleep(Duration::from_millis(8)).await;
        net.open("a", "rdma_en2").map(drop)
    });
}

/// Regression: they were forgotten at the start.
#[test]
fn faults_that_wait_for_frames_fire_under_liveness() {
    let lost = async |net: Net| {
        let open = |host| net.open(host, "rdma_en2").unwrap();
        let [mut a, mut b] = rdma_bare::BareQp::pair(open("a"), open("b"), 8192).unwrap();
        b.recv(1, 0..64).unwrap();
        b.recv(2, 64..128).unwrap();
        a.send(1, 4096..4160).unwrap();
        b.received().await.unwrap();
        a.send(2, 4160..4224).unwrap();
        b.received().await.unwrap();
    };
    let failure = try_check(with("after 1 frames a:rdma_en2 lose 1"), lost).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Stall, "{failure}");
}
