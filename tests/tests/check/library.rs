//! A program that uses all of the library, by chance, and three defects that it finds without being written for them
//!
//! The connection promises messages in order and exactly once, until it ends with an error; an endpoint takes connections one
//! after another for ever. The program sends messages of any length after rests of any length, over one connection after another, on
//! devices that can or cannot say that they have stopped.

use std::sync::Arc;
use std::time::Duration;

use rdma_async::{Connection, Device, Endpoint, EndpointOptions};
use rdma_core::{Teardown, Time};
use rdma_sim::{Check, CheckFailure, FailureKind, FaultKind, Model, Net, RandomFaults, try_check};
use rdma_tests::{Hooked, Hooks};
use rdma_tests::{connect, endpoint_on};

/// What each seed draws from
#[derive(Clone, Copy, Debug)]
struct Traffic {
    /// Most connections, one after another
    connections: u32,
    /// Most messages of a connection
    messages: u32,
    /// The longest rest between two messages is two to this power, in microseconds
    rest: u32,
    /// Whether some devices cannot say that they have stopped
    unknown_teardown: bool,
}

/// A device that may not know whether it has stopped
struct Stopping {
    is_known: bool,
}

impl Hooks for Stopping {
    fn destroy(&self, _: u32) -> Option<Teardown> {
        (!self.is_known).then_some(Teardown::Unknown)
    }
}

/// Two to a random power below `bits`, and more up to the next
fn scale(net: &Net, bits: u32) -> u32 {
    let scale = 1 << net.pick(bits);
    scale + net.pick(scale)
}

/// The content of a message: its number, again and again
fn content(number: u32, len: u32) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len as usize).collect()
}

async fn send<D: Device>(net: &Net, connection: &Connection<D>, plan: &[(u32, Duration)]) -> bool {
    for (number, (len, rest)) in (0..).zip(plan) {
        net.sleep(*rest).await;
        let Ok(mut lease) = connection.alloc(*len as usize).await else { return false };
        lease.extend_from_slice(&content(number, *len));
        if connection.send(lease).await.is_err() {
            return false;
        }
    }
    connection.close().await.is_ok()
}

/// Expects the messages of `plan`, until the connection fails
async fn receive<D: Device>(connection: &Connection<D>, plan: &[(u32, Duration)]) -> bool {
    for (number, (len, _)) in (0..).zip(plan) {
        match connection.recv().await {
            Ok(Some(message)) => {
                assert!(*message == content(number, *len), "message {number} is another one")
            }
            Ok(None) => {
                panic!("message {number} is missing, and the connection was closed as if it were not")
            }
            Err(_) => return false,
        }
    }
    matches!(connection.recv().await, Ok(None))
}

async fn program(net: Net, traffic: Traffic) {
    let hooks = Arc::new(Stopping { is_known: !traffic.unknown_teardown || net.pick(2) == 0 });
    let open = |host| -> Option<Endpoint<_>> {
        let device = net.open(host, "rdma_en2").ok()?;
        Some(endpoint_on(&net, Hooked::new(device, &hooks), &EndpointOptions::new()))
    };
    let (Some(a), Some(b)) = (open("a"), open("b")) else { return };
    for _ in 0..=net.pick(traffic.connections) {
        let messages = net.pick(traffic.messages) + 1;
        // Programs send messages of few different lengths.
        let lens = [(); 2].map(|()| scale(&net, 20));
        let draw = |_| (lens[net.pick(2) as usize], Duration::from_micros(scale(&net, traffic.rest).into()));
        let plan: Vec<_> = (0..messages).map(draw).collect();
        let has_faults = !net.faults().is_empty();
        match connect(&a, &b).await {
            Ok((to, from)) => {
                let ended = futures::join!(send(&net, &to, &plan), receive(&from, &plan));
                assert!(
                    ended == (true, true) || has_faults,
                    "without a fault, the connection failed: {ended:?}"
                );
            }
            Err(error) => assert!(has_faults, "without a fault, no connection was made: {error}"),
        }
    }
}

fn settings() -> Check {
    let limit = Time::ZERO + Duration::from_hours(24);
    Check::new().runs(10_000).time_limit(limit).liveness(Duration::from_mins(20))
}

fn find(settings: Check, traffic: Traffic) -> Box<CheckFailure> {
    let failure = try_check(settings, async |net| program(net, traffic).await);
    failure.expect_err("the defect is there")
}

/// Message by message and without rests, the library keeps its promise; with these, see below.
#[test]
fn short_messages_without_faults_are_kept() {
    let traffic = Traffic { connections: 4, messages: 6, rest: 10, unknown_teardown: false };
    let settings = settings().runs(60);
    try_check(settings, async |net| program(net, traffic).await)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

/// Known: of the messages of the second lane, only the length is compared with what was announced.
#[test]
fn a_lost_long_message_is_replaced_by_the_next_one() {
    let traffic = Traffic { connections: 1, messages: 12, rest: 10, unknown_teardown: false };
    let faults = RandomFaults::up_to(2).kinds([FaultKind::Lose { frames: 1 }, FaultKind::IdleDeath]);
    let failure = find(settings().random_faults(faults), traffic);
    assert!(failure.reason.contains(" is another one"), "{failure}");
    assert!(failure.replay.faults.to_string().contains(" lose "), "{failure}");
}

/// Known: keep-alives go over the first lane only.
#[test]
fn the_second_lane_dies_of_rest() {
    let traffic = Traffic { connections: 1, messages: 3, rest: 27, unknown_teardown: false };
    // As after 23 minutes, in less time.
    let mut model = Model::tb5();
    model.rules.idle_death = Some(Duration::from_mins(1));
    let failure = find(settings().model(model), traffic);
    assert_eq!(failure.kind, FailureKind::NoProgress, "{failure}");
    assert!(
        failure.reason.contains("main waits for its message to be sent, or for a message of its peer"),
        "{failure}"
    );
}

/// Known: each end of a connection takes its memory along if the device cannot say that it has stopped.
#[test]
fn a_device_that_cannot_say_that_it_has_stopped_takes_five_connections() {
    let traffic = Traffic { connections: 12, messages: 2, rest: 10, unknown_teardown: true };
    let failure = find(settings(), traffic);
    let words = "without a fault, no connection was made: the memory for another connection is held";
    assert!(failure.reason.starts_with(words), "{failure}");
}
