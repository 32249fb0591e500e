//! Peers one after another, for hours, on devices that can or cannot say that they have stopped
//!
//! A node takes peers one after another for ever, and its sessions carry messages of any length after rests of any length. All of it is
//! drawn, with one setting: what a run shows depends on its seed alone.

use std::sync::Arc;
use std::time::Duration;

use rdma_async::Session;
use rdma_async::time::timeout;
use rdma_core::{Device, Teardown, Time};
use rdma_sim::{Check, Fault, FaultKind, Model, Net, RandomFaults, check};
use rdma_tests::{Hooks, connect, hooked_node, message, node, options};

use super::chaos::{SURVIVED, scale};

/// A device that may not know whether it has stopped
struct Stopping {
    /// Whether a destroyed queue pair proves it.
    destroyed: bool,
    /// Whether deregistered memory proves it.
    deregistered: bool,
}

impl Hooks for Stopping {
    fn destroy(&self, _: u32) -> Option<Teardown> {
        (!self.destroyed).then_some(Teardown::Unknown)
    }

    fn deregister(&self) -> Option<Teardown> {
        (!self.deregistered).then_some(Teardown::Unknown)
    }
}

/// Fails if a path was lost and made again, although there is no fault
///
/// A session goes on after that, so that nothing else shows it.
fn assert_never_remade<D: Device>(net: &Net, session: &Session<D>) {
    let snapshot = session.snapshot();
    let is_remade = snapshot.paths.iter().any(|path| path.counts.made > 1);
    assert!(!is_remade || !net.faults().is_empty(), "without a fault, a path was lost: {snapshot}");
}

async fn send<D: Device>(net: &Net, session: &Session<D>, plan: &[(u32, Duration)]) -> bool {
    for (number, (len, rest)) in plan.iter().enumerate() {
        net.sleep(*rest).await;
        if session.send_bytes(&message(number, *len as usize)).await.is_err() {
            return false;
        }
    }
    assert_never_remade(net, session);
    session.close().await.is_ok()
}

/// Expects the messages of `plan`, until the session fails
async fn receive<D: Device>(session: &Session<D>, plan: &[(u32, Duration)]) -> bool {
    for (number, (len, _)) in plan.iter().enumerate() {
        match session.recv().await {
            Ok(Some(got)) => {
                assert!(*got == message(number, *len as usize), "message {number} is another one")
            }
            Ok(None) => {
                panic!("message {number} is missing, and the session was closed as if it were not")
            }
            Err(_) => return false,
        }
    }
    matches!(session.recv().await, Ok(None))
}

/// One peer after another; fails if a session does, although one of both proofs can be had
async fn program(net: Net) {
    let hooks = match net.pick(3) {
        0 => Stopping { destroyed: true, deregistered: true },
        1 => Stopping { destroyed: false, deregistered: true },
        _ => Stopping { destroyed: true, deregistered: false },
    };
    let hooks = Arc::new(hooks);
    let [a, b] = ["a", "b"].map(|host| hooked_node(&net, host, &hooks, &options()));
    let (peers, most) = (scale(&net, 4), scale(&net, 4));
    // The more messages, the shorter are the rests: all together are below 18 minutes.
    let longest = 28 - peers.ilog2() - most.ilog2();
    for _ in 0..peers {
        let messages = net.pick(most) + 1;
        // Programs send messages of few different lengths.
        let lens = [(); 2].map(|()| scale(&net, 20));
        let draw = |_| (lens[net.pick(2) as usize], Duration::from_micros(scale(&net, longest).into()));
        let plan: Vec<_> = (0..messages).map(draw).collect();
        match connect(&a, &b).await {
            Ok((to, from)) => {
                let ended = futures::join!(send(&net, &to, &plan), receive(&from, &plan));
                assert!(ended == (true, true), "the session failed: {ended:?}");
            }
            // A path that fails within the handshake is not made again.
            Err(error) => assert!(!net.faults().is_empty(), "without a fault, no session was made: {error}"),
        }
    }
    futures::join!(a.wait_idle(), b.wait_idle());
    assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
}

fn peers_one_after_another(runs: u64) {
    let mut model = Model::tb5();
    // As after 23 minutes, in less time, and longer than the minute after which a bulk lane is kept alive.
    model.rules.idle_death = Some(Duration::from_secs(90));
    let settings = Check::new().model(model).random_faults(RandomFaults::up_to(2).kinds(SURVIVED)).runs(runs);
    let limit = Time::ZERO + Duration::from_hours(24);
    check(settings.time_limit(limit).liveness(Duration::from_mins(20)), program);
}

/// Attempts to connect that fail, or are dropped at any time, while cables are pulled
async fn fails_to_connect(net: Net) {
    let options =
        options().peer_timeout(Duration::from_millis(20)).connect_timeout(Duration::from_millis(30));
    let [a, b] = ["a", "b"].map(|host| node(&net, host, &options));
    for _ in 0..scale(&net, 3) {
        let patience = Duration::from_micros(scale(&net, 16).into());
        drop(timeout(&*net.runtime(), patience, connect(&a, &b)).await);
        futures::join!(a.wait_idle(), b.wait_idle());
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole(), "after {patience:?}");
    }
}

/// Catches a node that is idle before a device has given up what it had for an attempt: a path that was being made or connected, or that was
/// not proven.
#[test]
fn a_node_is_idle_when_its_devices_have_given_up_all_attempts() {
    for model in [Model::tb5(), Model::tb5_strict(), Model::roce()] {
        let slow = |verb| format!("at 0s a:rdma_en2 slow-verb {verb}=3ms").parse::<Fault>().unwrap().kind;
        let flap = FaultKind::Flap { down: Duration::from_micros(300) };
        let kinds = [FaultKind::Unplug, flap, slow("create_qp"), slow("modify_qp"), slow("destroy_qp")];
        let faults = RandomFaults::up_to(3).kinds(kinds);
        check(Check::new().model(model).random_faults(faults).runs(150), fails_to_connect);
    }
}

/// Catches memory, queue pairs and places that an ended peer keeps. Regression (seed 6): a node was idle before its device had given up a path
/// that was being made when the attempt to connect failed.
#[test]
fn peers_come_and_go_for_ever() {
    peers_one_after_another(60);
}

/// Catches a lane that dies of rest, too, which few seeds show.
#[test]
#[ignore = "takes minutes"]
fn peers_come_and_go_for_ever_with_ten_thousand_seeds() {
    peers_one_after_another(10_000);
}
