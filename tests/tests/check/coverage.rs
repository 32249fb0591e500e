//! Which rules, faults and states of the protocol the runs of a check have reached, and which not

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use rdma_core::probe::ProtocolState;
use rdma_core::{sometimes, state};
use rdma_sim::{Check, FailureKind, Model, Net, Report, Scheduler, try_check};
use rdma_tests::{Pair, connected, options};

fn report(check: Check, test: impl AsyncFn(Net) + Sync) -> Report {
    try_check(check, test).unwrap_or_else(|failure| panic!("{failure}"))
}

fn never_exercised(report: &Report) -> BTreeSet<&'static str> {
    report.never_exercised().map(|rule| rule.name).collect()
}

#[test]
fn a_test_that_does_nothing_reaches_nothing() {
    let report = report(Check::new().runs(1), async |_| ());
    assert!(report.covered.is_empty() && report.tasks.is_empty(), "{report:#}");
    assert!(never_exercised(&report).len() > 70, "{report:#}");
    let table = format!("{report:#}");
    assert!(table.contains("\nrules never exercised, Memory: all\n"), "{table}");
    assert!(table.contains("\nrules not counted: they always hold: device-per-port, "), "{table}");
    assert!(table.contains("\nstates of the protocol never reached: all\n"), "{table}");
    assert!(table.ends_with("\nfaults that never fired: all"), "{table}");
}

/// Catches a rule that is not counted where the device follows it, and one that is counted where it does not.
#[test]
fn a_report_says_which_rules_were_exercised() {
    let faults = "at 1ms a:rdma_en2 lose 1".parse().unwrap();
    let report = report(Check::new().runs(3).faults(faults), async |net: Net| {
        let open = |host| net.open(host, "rdma_en2").unwrap();
        let [mut a, mut b] = rdma_bare::BareQp::pair(open("a"), open("b"), 1 << 17).unwrap();
        net.sleep(Duration::from_millis(2)).await;
        b.recv(1, 0..9).unwrap();
        a.send(2, 0..9).unwrap();
        net.sleep(Duration::from_millis(1)).await;
        a.send(3, 16..25).unwrap();
        b.received().await.unwrap();
        a.send(4, 32..41).unwrap();
        net.sleep(Duration::from_millis(1)).await;
        b.recv(5, 16..25).unwrap();
        // Two frames, each into a receive of one: both fail.
        a.send(6, 8192..16384).unwrap();
        b.recv(7, 32..41).unwrap();
        b.recv(8, 48..57).unwrap();
        net.sleep(Duration::from_millis(1)).await;
    });
    let exercised = ["credits", "frame-match", "frame-mismatch-spill", "no-delivery-receipt"];
    let never = never_exercised(&report);
    for name in exercised {
        assert_eq!(report.covered[&format!("rule {name}")].runs, 4, "{name}: {report:#}");
        assert!(!never.contains(name), "{name}: {report:#}");
    }
    assert_eq!(report.covered["rule no-delivery-receipt"].held, 4, "one message of each run was lost");
    for name in ["corruption", "max-qp", "unplug"] {
        assert!(never.contains(name), "{name}: {report:#}");
    }
    assert!(!never.contains("latency"), "it is not counted");
    let unfired: Vec<_> = report.never_fired().map(|fault| fault.name).collect();
    assert!(!unfired.contains(&"lose") && unfired.contains(&"unplug"), "{unfired:?}");
    let table = format!("{report:#}");
    assert!(table.lines().skip(1).all(|line| line.len() < 130), "{table}");
}

/// The cause that cut an object off decides by which rule it is refused: catches the two rules taken for each other.
#[test]
fn refusals_after_a_pulled_cable_and_after_a_dead_process_are_told_apart() {
    let refused = |faults: &str| {
        let check = Check::new().runs(1).faults(faults.parse().unwrap());
        let report = report(check, async |net: Net| {
            let device = net.open("b", "rdma_en2").unwrap();
            net.sleep(Duration::from_millis(3)).await;
            rdma_core::Device::create_cq(&device, 8).map(drop).unwrap_err();
        });
        ["unplug", "replug-stale", "process-end"]
            .map(|name| report.covered.contains_key(&format!("rule {name}")))
    };
    assert_eq!(refused("at 1ms a:rdma_en2 unplug"), [true, false, false]);
    assert_eq!(refused("at 1ms a:rdma_en2 unplug; at 2ms a:rdma_en2 replug"), [false, true, false]);
    assert_eq!(refused("at 1ms b kill"), [false, false, true]);
}

fn reached(report: &Report) -> BTreeSet<ProtocolState> {
    let never: BTreeSet<_> = report.never_reached().collect();
    ProtocolState::ALL.iter().copied().filter(|state| !never.contains(state)).collect()
}

/// Catches each state that is noted elsewhere than where the protocol is in it.
#[test]
fn a_report_says_which_states_the_protocol_has_reached() {
    use ProtocolState as S;

    const MADE: [S; 4] = [S::PathAdded, S::PathProven, S::SessionOpened, S::SessionAccepted];
    let open = report(Check::new().runs(1), async |net: Net| {
        let pair = connected(&net, &options()).await;
        drop(pair);
    });
    // What the test leaves is lost when the simulation is dropped, which is no behaviour of the test.
    let closing = [S::SessionClosing, S::SessionReset];
    assert!(reached(&open).is_subset(&MADE.into_iter().chain(closing).collect()), "{open:#}");
    assert_eq!(open.covered["protocol path added"].held, 4, "two ends in two runs");

    let closed = report(Check::new().runs(1), async |net: Net| {
        let Pair { ab, ba, .. } = connected(&net, &options()).await;
        let message = vec![7; 100_000];
        let receive = async { ba.recv().await.unwrap().map(|message| message.len()) };
        let (sent, len) = futures::join!(ab.send_bytes(&message), receive);
        assert_eq!((sent, len), (Ok(()), Some(100_000)));
        // The bulk lanes rest.
        net.sleep(Duration::from_secs(100)).await;
        let (closed, end) = futures::join!(ab.close(), async { ba.recv().await.map(|end| end.is_none()) });
        assert_eq!((closed, end.unwrap()), (Ok(()), true));
        ba.closed().await.unwrap();
        net.sleep(Duration::from_millis(10)).await;
    });
    let states = [
        S::BulkAnnounced,
        S::BulkArrived,
        S::BulkGranted,
        S::BulkKeptAlive,
        S::SessionClosing,
        S::SessionClosedByPeer,
        S::SessionClosed,
    ];
    assert_eq!(reached(&closed), MADE.into_iter().chain(states).collect(), "{closed:#}");

    let lost = report(Check::new().runs(1).scheduler(Scheduler::Fifo), async |net: Net| {
        // The peer is there, and its application takes nothing.
        let Pair { ab, ba: _ba, .. } = connected(&net, &options()).await;
        while let Either::Left((sent, _)) =
            select(pin!(ab.send_bytes(b"more")), pin!(net.sleep(Duration::from_millis(1)))).await
        {
            sent.unwrap();
        }
        net.inject("at 0s b kill".parse().unwrap());
        ab.closed().await.unwrap_err();
    });
    assert!(reached(&lost).contains(&S::PeerLostSilent), "{lost:#}");
    assert_eq!(lost.covered["protocol message waits for room"].held, 2, "once in each of two runs: {lost:#}");
    let table = format!("{lost:#}");
    assert!(table.contains("  protocol peer lost: silent"), "{table}");
    assert!(table.contains("\nstates of the protocol never reached: "), "{table}");
}

/// Catches names that are not looked up before the first run, and those of the program refused there.
#[test]
fn an_expectation_of_what_the_model_does_not_have_is_refused_before_the_first_run() {
    for (name, near) in [("rule frame-macth", "rule frame-match"), ("fault unplg", "fault unplug")] {
        let check = Check::new().reaches([name]);
        let never = async |net: Net| assert_eq!(net.seed(), None, "no run begins");
        let panic = std::panic::catch_unwind(|| try_check(check, never)).unwrap_err();
        let text = *panic.downcast::<String>().unwrap();
        assert!(text.contains(&format!("{name:?}")) && text.contains(&format!("near: {near:?}")), "{text}");
    }
    let failure = try_check(Check::new().runs(2).reaches(["state begn"]), async |_: Net| state!("begun"));
    let text = failure.unwrap_err().to_string();
    assert!(text.contains("\"state begn\", which") && text.contains("near: \"state begun\", "), "{text}");
}

/// Catches a report that lists rules of devices which the model does not have.
#[test]
fn a_report_lists_only_rules_that_the_model_can_exercise() {
    let [tb5, roce] =
        [Model::tb5(), Model::roce()].map(|model| report(Check::new().runs(1).model(model), async |_| ()));
    let [of_tb5, of_roce] = [&tb5, &roce].map(never_exercised);
    for (name, is_of_tb5, is_of_roce) in [
        ("frame-match", true, false),
        ("max-qp", true, true),
        ("roce-drops", false, true),
        ("transports", true, false),
    ] {
        assert_eq!((of_tb5.contains(name), of_roce.contains(name)), (is_of_tb5, is_of_roce), "{name}");
    }
    let [tb5, roce] = [tb5, roce].map(|report| format!("{report:#}"));
    assert!(!tb5.contains("roce-"), "{tb5}");
    assert!(roce.contains("\nrules never exercised, Network adapters that speak RoCE: all\n"), "{roce}");
    assert!(roce.contains(" roce-room") && !roce.contains("frame-credits"), "{roce}");
}

/// Catches a state that counts again whenever the node looks for memory.
#[test]
fn a_message_that_waits_for_memory_has_reached_that_state_once() {
    let report = report(Check::new().runs(1).scheduler(Scheduler::Fifo), async |net: Net| {
        let Pair { ab, ba, .. } = connected(&net, &options()).await;
        let message = vec![7; 1 << 20];
        let sends = futures::future::join_all((0..64).map(|_| ab.send_bytes(&message)));
        // The application of the peer takes nothing, and heartbeats go on.
        let rest = net.sleep(Duration::from_secs(20));
        assert!(matches!(select(pin!(sends), pin!(rest)).await, Either::Right(_)), "memory has sufficed");
        drop(ba);
    });
    assert_eq!(
        report.covered["protocol message waits for memory"].held, 2,
        "once in each of two runs: {report:#}"
    );
}

/// Catches an expectation that only looks at what was evaluated.
#[test]
fn an_expectation_in_code_that_no_run_reaches_fails_the_check() {
    let test = async |net: Net| {
        state!("begun");
        sometimes!(net.pick(2) == 0, "the plain choice");
        if net.open("a", "rdma_en2").is_err() {
            sometimes!(true, "the cable is out");
        }
    };
    let names = ["the plain choice", "state begun", "rule qp-numbers", "the cable is out"];
    let failure = try_check(Check::new().runs(20).reaches(names), test).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NeverHeld);
    let lines: Vec<_> = failure.reason.lines().skip(1).collect();
    assert_eq!(lines.len(), 2, "{failure}");
    assert_eq!(lines[0], "  \"rule qp-numbers\", which `Check::reaches` names");
    let label = "  \"the cable is out\", which `Check::reaches` names: no rule, fault or state has that name, and no statement";
    assert!(lines[1].starts_with(label), "{failure}");
    let faults = "at 0s a:rdma_en2 unplug".parse().unwrap();
    let check = Check::new().runs(20).faults(faults).reaches(["the cable is out", "fault unplug"]);
    let report = report(check, test);
    assert!(report.statements.keys().any(|statement| statement.label == "the cable is out"));
}
