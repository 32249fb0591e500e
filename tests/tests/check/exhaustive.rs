//! All orders of small programs

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::Device as _;
use rdma_sim::check::Orders;
use rdma_sim::{Check, FailureKind, FaultPlan, Net, Replay, Scheduler, try_check};

/// The orders of what `test` appends to its log, and how many runs that took
fn orders(test: impl AsyncFn(Net, Log) + Sync) -> (BTreeSet<String>, Orders) {
    let seen = Mutex::new(BTreeSet::new());
    let report = try_check(Check::new().runs(5000).exhaustive(), async |net| {
        let log = Log::default();
        test(net, log.clone()).await;
        seen.lock().unwrap().insert(log.0.lock().unwrap().clone());
    });
    let orders = report.unwrap_or_else(|failure| panic!("{failure}")).orders.unwrap();
    (seen.into_inner().unwrap(), orders)
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn add(&self, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

fn tasks_of(net: &Net, hosts: &[&str], log: &Log) {
    for (number, host) in hosts.iter().enumerate() {
        let (net, log) = (net.clone(), log.clone());
        net.clone().host(host).spawn(async move {
            net.sleep(Duration::from_micros(5)).await;
            log.add(&number.to_string());
        });
    }
}

#[test]
fn tasks_of_one_host_run_in_all_orders() {
    let (seen, orders) = orders(async |net, log| {
        tasks_of(&net, &["a", "a", "a"], &log);
        net.sleep(Duration::from_micros(9)).await;
    });
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["012", "021", "102", "120", "201", "210"]);
    // Beside each order at 5 µs there are those in which the tasks begin.
    assert!(orders.are_all && orders.tried == 36, "{orders:?}");
}

#[test]
fn tasks_of_different_hosts_run_in_one_order() {
    let (seen, orders) = orders(async |net, log| {
        tasks_of(&net, &["a", "b"], &log);
        net.sleep(Duration::from_micros(9)).await;
    });
    assert_eq!(seen.len(), 1);
    assert!(orders.are_all && orders.tried == 1, "{orders:?}");
}

/// Two messages that leave at one instant arrive at one instant: which completion is seen first is open.
#[test]
fn completions_of_two_queues_come_in_all_orders() {
    let (seen, orders) = orders(async |net, log| {
        let mut pairs: Vec<_> = (0..2)
            .map(|_| {
                let open = |host| net.open(host, "rdma_en2").unwrap();
                BareQp::pair(open("a"), open("b"), 8192).unwrap()
            })
            .collect();
        for [a, b] in &mut pairs {
            b.recv(1, 0..64).unwrap();
            a.send(2, 4096..4160).unwrap();
        }
        for (number, [a, mut b]) in pairs.into_iter().enumerate() {
            let log = log.clone();
            net.spawn(async move {
                b.received().await.unwrap();
                log.add(&number.to_string());
                drop(a);
            });
        }
        net.sleep(Duration::from_millis(1)).await;
    });
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["01", "10"]);
    assert!(orders.are_all, "{orders:?}");
}

#[test]
fn a_failing_order_is_repeated_by_its_line() {
    let race = async |net: Net| {
        let value = Arc::new(Mutex::new(0));
        for _ in 0..2 {
            let (net, value) = (net.clone(), Arc::clone(&value));
            net.clone().spawn(async move {
                net.sleep(Duration::from_micros(5)).await;
                let read = *value.lock().unwrap();
                // It lets the other one run.
                net.sleep(Duration::ZERO).await;
                tokio::task::yield_now().await;
                *value.lock().unwrap() = read + 1;
            });
        }
        net.sleep(Duration::from_micros(9)).await;
        let value = *value.lock().unwrap();
        assert_eq!(value, 2, "an update was lost");
    };
    let failure = try_check(Check::new().exhaustive().runs(1000), race).unwrap_err();
    assert_eq!(failure.replay.scheduler, Scheduler::Fifo, "the plain order suffices: {failure}");
    let original: Replay = failure.original.line().parse().unwrap();
    let again = try_check(Check::new().replay(original), race).unwrap_err();
    assert_eq!(again.reason, failure.reason);
}

/// Regression: a task ran on at once after a verb that does not return, or that takes time.
#[test]
fn verbs_take_as_long_as_in_the_plain_order() {
    let hangs = async |net: Net| {
        let device = net.open("a", "rdma_en2").unwrap();
        net.sleep(Duration::from_micros(1)).await;
        let _queue = device.create_cq(8);
        net.sleep(Duration::from_micros(1)).await;
    };
    let plan: FaultPlan = "at 0s a:rdma_en2 hang create_cq".parse().unwrap();
    let check = || Check::new().shrink(false).faults(plan.clone());
    let plain = try_check(check().scheduler(Scheduler::Fifo), hangs).unwrap_err();
    let every = try_check(check().exhaustive(), hangs).unwrap_err();
    assert_eq!(every.kind, FailureKind::Stall, "{every}");
    assert!(every.reason.contains("\n  main waits for a verb that does not return"), "{every}");
    assert_eq!(every.reason, plain.reason);

    let slow = "at 0s a:rdma_en2 slow-verb create_cq=3ms".parse().unwrap();
    let report = try_check(Check::new().exhaustive().faults(slow), async |net: Net| {
        let host = net.host("a");
        let others = net.clone();
        host.spawn(async move { others.sleep(Duration::from_micros(20)).await });
        let device = net.open("a", "rdma_en2").unwrap();
        net.sleep(Duration::from_micros(1)).await;
        let queue = device.create_cq(8).unwrap();
        net.sleep(Duration::from_micros(1)).await;
        assert!(net.now().as_nanos() > 3_000_000, "the verb takes 3 ms, and it is {}", net.now().as_nanos());
        drop(queue);
    });
    assert!(report.unwrap_or_else(|failure| panic!("{failure}")).orders.unwrap().are_all);
}

#[test]
fn an_exhaustive_check_reports_orders_that_it_did_not_try() {
    let report = try_check(Check::new().runs(5).exhaustive(), async |net: Net| {
        net.pick(9);
    });
    let report = report.unwrap();
    let orders = report.orders.unwrap();
    assert_eq!((orders.tried, orders.are_all), (5, false));
    assert!(report.to_string().contains("; 5 orders, not all of them, beside 0"), "{report}");
}

/// Regression: all orders had been tried, and the advice was to try more. Catches advice that is missing where there are more orders.
#[test]
fn no_more_runs_are_advised_when_all_orders_were_tried() {
    let never = |runs, pick| {
        let check = Check::new().runs(runs).exhaustive().reaches(["the end"]);
        let test = async |net: Net| rdma_core::sometimes!(net.pick(pick) == 9, "the tenth");
        let failure = try_check(check, test).unwrap_err();
        assert_eq!(failure.kind, FailureKind::NeverHeld);
        failure.to_string()
    };
    let text = never(100, 4);
    let words = "what should hold sometimes never did in 4 runs, and there are no other orders: give the test what it needs";
    assert!(text.starts_with(words) && !text.contains("try more"), "{text}");
    assert!(text.contains("\"the end\", which `Check::reaches` names"), "{text}");
    assert!(never(100, 1).contains("never did in 1 run, and there are no other orders: "));
    assert!(never(3, 4).contains("never did in 3 runs: try more, give the test"));
}

/// Regression: a delivery took one of the recorded choices, and the run of the line was another one.
#[test]
fn an_order_behind_a_delivery_is_repeated_by_its_line() {
    let test = async |net: Net| {
        let open = |host| net.open(host, "rdma_en2").unwrap();
        let [mut a, mut b] = BareQp::pair(open("a"), open("b"), 8192).unwrap();
        for number in 0..3 {
            b.recv(number, 0..64).unwrap();
            a.send(number, 4096..4160).unwrap();
            b.received().await.unwrap();
        }
        assert_ne!(net.pick(5), 4, "the last number");
    };
    let failure = try_check(Check::new().exhaustive().shrink(false), test).unwrap_err();
    assert_eq!(failure.reason.lines().next(), Some("assertion `left != right` failed: the last number"));
    assert_eq!(failure.replay.choices.as_ref().and_then(|choices| choices.last()), Some(&4));
    let again = try_check(Check::new().replay(failure.replay.line().parse().unwrap()), test).unwrap_err();
    assert_eq!(again.reason, failure.reason);
}
