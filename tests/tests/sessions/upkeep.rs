//! Completions while no message is sent are upkeep of the paths: completion queues may let their tasks sleep on

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join;
use rdma_core::Time;
use rdma_sim::Sim;
use rdma_tests::{Hooks, begun, connect, hooked_node, message, node, options};

/// How often a node has let the queue of a device rest
#[derive(Default)]
struct Rests(AtomicU64);

impl Hooks for Rests {
    fn rest(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Catches a node that lets a queue rest while messages are on their way, which would make the answer wait for the end of a nap, and one
/// that never does.
#[test]
fn queues_rest_when_nothing_but_upkeep_completes() {
    for len in [0, 64, 4033, 100_000] {
        Sim::new().run(async |net| {
            let rests: [Arc<Rests>; 2] = Default::default();
            let [a, b] = [("a", &rests[0]), ("b", &rests[1])]
                .map(|(host, hooks)| hooked_node(&net, host, hooks, &options().send_memory(1 << 20)));
            let told = || rests.each_ref().map(|rests| rests.0.load(Relaxed));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            let exchange = async |number| {
                let told_before = told();
                let mut lease = ab.alloc(len).await.unwrap();
                lease.extend_from_slice(&message(number, len));
                let (sent, received) = join(ab.send(lease).delivered(), ba.recv()).await;
                sent.unwrap();
                assert!(*received.unwrap().unwrap() == message(number, len));
                assert_eq!(told(), told_before, "message {number} of {len} bytes was no upkeep");
            };
            let begun = told();
            for number in 0..300 {
                exchange(number).await;
                net.sleep(Duration::from_millis([0, 1, 9][number % 3])).await;
            }
            assert_eq!(told(), begun, "pauses are shorter than a rest");

            // Half of the time, the heartbeat of a quarter of a second is due soon.
            for number in 0..100 {
                net.sleep(Duration::from_millis(120 + number as u64)).await;
                exchange(number).await;
            }
            let rested = told();
            net.sleep(Duration::from_secs(100)).await;
            for (rested, told) in rested.into_iter().zip(told()) {
                let count = told - rested;
                assert!((400..=3000).contains(&count), "{count} times for 400 questions and as many answers");
            }
        });
    }
}

/// Catches a node that lets a queue rest while the peer has not taken a message: the next completion may be its answer.
#[test]
fn a_queue_does_not_rest_while_a_message_is_undelivered() {
    let faults = "at 1s b pause; at 1600ms b resume".parse().unwrap();
    Sim::new().faults(faults).run(async |net| {
        let hooks: Arc<Rests> = Arc::default();
        let (a, b) = (hooked_node(&net, "a", &hooks, &options()), node(&net, "b", &options()));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        net.sleep(Time::from_nanos(1_100_000_000) - net.now()).await;
        assert!(hooks.0.load(Relaxed) > 0, "nothing was under way");
        let lease = ab.alloc(64).await.unwrap();
        let waits = begun(ab.send(lease).delivered()).await;
        let told = hooks.0.load(Relaxed);
        net.sleep(Duration::from_millis(400)).await;
        assert_eq!(hooks.0.load(Relaxed), told, "heartbeats have passed meanwhile");
        join(waits, ba.recv()).await.0.unwrap();
    });
}
