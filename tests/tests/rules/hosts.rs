//! Hosts that stop, die, sleep and start

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rdma_core::{Cause, PortState, QueuePair};
use rdma_sim::{Net, Sim};
use rdma_tests::DEVICE;

use super::{Bare, happen, on_pair, pair, passes, rest};
use crate::counting::Simulate;

/// Has a process on `b` answer each message with one of its own
fn echo(net: &Net, mut b: Bare) {
    net.host("b").spawn(async move {
        loop {
            b.recv(1, 0..8).unwrap();
            b.received().await.unwrap();
            b.send(2, 8..16).unwrap();
        }
    });
}

/// How often the processes of `b` have started
fn count_starts(net: &Net) -> Arc<AtomicU32> {
    let starts = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&starts);
    net.host("b").start(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    });
    starts
}

/// Whether an answer comes within a second
async fn answers(net: &Net, a: &mut Bare, at: usize) -> bool {
    a.recv(1, at..at + 8).unwrap();
    a.send(2, 8..16).unwrap();
    let done = super::within_a_second(net, a).await;
    done.iter().any(|(opcode, _)| *opcode == rdma_core::Opcode::Recv)
}

/// Regression: the restart counted for a main task that was given after it, and at the next fault of the host a second one ran beside it; of
/// two main tasks only the first started anew.
#[test]
fn each_main_task_starts_once_for_each_restart_behind_it() {
    Sim::new().run(async |net| {
        happen(&net, "b kill").await;
        happen(&net, "b restart").await;
        let first = count_starts(&net);
        happen(&net, "b pause").await;
        happen(&net, "b resume").await;
        assert_eq!(first.load(Ordering::Relaxed), 1, "no restart since");
        let second = count_starts(&net);
        happen(&net, "b restart").await;
        let starts = [first, second].map(|starts| starts.load(Ordering::Relaxed));
        assert_eq!(starts, [2, 2], "both start anew");
    });
}

#[test]
fn a_stopped_peer_continues_without_damage() {
    on_pair(async |net, [mut a, b]| {
        echo(&net, b);
        assert!(answers(&net, &mut a, 24).await);
        happen(&net, "b pause").await;
        assert!(!answers(&net, &mut a, 32).await);
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Active);
        rest(&net, Duration::from_mins(1)).await;
        happen(&net, "b resume").await;
        rest(&net, Duration::from_secs(1)).await;
        let late = std::iter::from_fn(|| a.poll().unwrap()).last().unwrap();
        assert_eq!((late.opcode, late.byte_len), (rdma_core::Opcode::Recv, 8));
        assert!(answers(&net, &mut a, 40).await);
    });
}

#[test]
fn a_killed_host_is_silent_until_its_processes_start_anew() {
    Sim::new().simulate(async |net| {
        let starts = count_starts(&net);
        let [mut a, b] = pair(&net);
        echo(&net, b);
        happen(&net, "b kill").await;
        assert!(!answers(&net, &mut a, 48).await);
        happen(&net, "b restart").await;
        assert_eq!(starts.load(Ordering::Relaxed), 2);
        assert!(!answers(&net, &mut a, 56).await, "the old connection is not resumed");
        drop(a);
        let [mut a, mut b] = pair(&net);
        assert!(passes(&net, &mut a, &mut b).await);
    });
}

#[test]
fn only_a_reboot_frees_leaked_objects() {
    Sim::new().simulate(async |net| {
        let starts = count_starts(&net);
        let [mut a, b] = pair(&net);
        for fault in ["leak-pds 11", "leak-qps 10", "leak-cqs 11", "leak-mrs 100", "busy", "wedge", "no-pds"]
        {
            happen(&net, &format!("b:rdma_en2 {fault}")).await;
        }
        happen(&net, "b restart").await;
        let refused = rdma_core::Error::from(net.open("b", DEVICE).unwrap_err());
        assert_eq!(refused.cause, Cause::Busy, "that is not enough");
        happen(&net, "b reboot 40s").await;
        assert_eq!(net.port("a", DEVICE).unwrap().state, PortState::Down);
        assert_eq!(a.send(1, 0..8).unwrap_err().cause, Cause::DeviceGone);
        rest(&net, Duration::from_secs(39)).await;
        happen(&net, "b restart").await;
        assert_eq!(starts.load(Ordering::Relaxed), 2, "nothing starts before the host is up");
        assert_eq!(net.port("b", DEVICE).unwrap().state, PortState::Down);
        rest(&net, Duration::from_secs(1)).await;
        assert_eq!(starts.load(Ordering::Relaxed), 3);
        drop((a, b));
        let [mut a, mut b] = pair(&net);
        assert!(passes(&net, &mut a, &mut b).await);
        let more: Vec<_> = std::iter::from_fn(|| net.open("b", DEVICE).ok()).collect();
        assert_eq!(more.len(), 10, "the reboot costs its own host no protection domain");
        assert_eq!(a.qp().state(), rdma_core::QpState::ReadyToSend);
    });
}
