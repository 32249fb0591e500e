//! Random messages under random faults: a session promises order and exactly once until it ends with an error

use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::Session;
use rdma_async::time::timeout;
use rdma_core::Time;
use rdma_sim::{Check, FaultKind, LineRate, Model, Net, RandomFaults, SimDevice};
use rdma_tests::{DEVICE, message, options, try_connected};

use super::figures::cables;

/// Two to a random power below `bits`, and more up to the next
pub(crate) fn scale(net: &Net, bits: u32) -> u32 {
    let scale = 1 << net.pick(bits);
    scale + net.pick(scale)
}

/// A number below two to the power `bits`; the plain run has the largest one
///
/// Faults are drawn where the plain run has traffic: one of few frames would have them all at the beginning.
fn largest_first(net: &Net, bits: u32) -> u32 {
    let above = (1 << bits) >> net.pick(bits);
    above - 1 - net.pick(above / 2)
}

/// A message: the number of its content, its length, and the rest before it
type Planned = (usize, usize, Duration);

/// Sends the messages of `plan`, and closes; whether the peer has everything
async fn send(net: &Net, session: &Session<SimDevice>, plan: &[Planned]) -> bool {
    for (number, len, rest) in plan {
        net.sleep(*rest).await;
        if session.send_bytes(&message(*number, *len)).await.is_err() {
            return false;
        }
    }
    session.close().await.is_ok()
}

/// Expects the messages of `plan`, in order and once, until the end or a failure; whether all came
async fn receive(net: &Net, session: &Session<SimDevice>, plan: &[Planned]) -> bool {
    for (number, len, _) in plan {
        if net.pick(8) == 0 {
            net.sleep(Duration::from_micros(scale(net, 12).into())).await;
        }
        if net.pick(4) == 0 {
            // Often another one comes.
            session.expect(
                plan[net.pick(plan.len() as u32) as usize].1,
                net.pick(2) as usize..1 + net.pick(4) as usize,
            );
        }
        match session.recv().await {
            Ok(Some(got)) => assert!(*got == message(*number, *len), "message {number} is another one"),
            Ok(None) => panic!("message {number} is missing, and the session was closed as if it were not"),
            Err(_) => return false,
        }
    }
    matches!(session.recv().await, Ok(None))
}

/// Messages over up to three sessions; fails if something is lost, although no fault ends a session
async fn program(net: Net, ports: &[&str], must_complete: bool) {
    // A host that is killed meanwhile accepts nothing.
    let (runtime, options) = (net.runtime(), options());
    let first = match timeout(&*runtime, Duration::from_secs(30), try_connected(&net, ports, &options)).await
    {
        Some(Ok(first)) => first,
        failed => {
            assert!(!net.faults().is_empty(), "without a fault, no session was made: {failed:?}");
            // A call of a device that has not returned holds what it makes.
            net.sleep(Duration::from_secs(5)).await;
            return;
        }
    };
    let mut sessions = vec![(first.ab.clone(), first.ba.clone())];
    for _ in 0..net.pick(3) {
        let Ok(ab) = first.ab.open() else { break };
        let accepted = timeout(&*net.runtime(), Duration::from_secs(30), first.b.accept()).await;
        let Some(Some(ba)) = accepted else { break };
        sessions.push((ab, ba));
    }
    let exchanges = sessions.iter().enumerate().map(|(index, (ab, ba))| {
        let (from, to) = if net.pick(2) == 0 { (ab, ba) } else { (ba, ab) };
        let lens = [(); 2].map(|()| largest_first(&net, 20) as usize);
        let draw = |number| {
            let rest = Duration::from_micros(scale(&net, 12).into());
            (100 * index + number, lens[net.pick(2) as usize], rest)
        };
        let plan = (0..largest_first(&net, 5) as usize).map(draw).collect::<Vec<_>>();
        let net = &net;
        async move { join(send(net, from, &plan), receive(net, to, &plan)).await }
    });
    for ended in join_all(exchanges).await {
        assert!(ended == (true, true) || !must_complete, "a session failed: {ended:?}");
    }
}

/// Faults that a session survives as long as the bootstrap stream lives
pub(crate) const SURVIVED: [FaultKind; 8] = [
    FaultKind::Corrupt { frames: 1 },
    FaultKind::Delay { by: Duration::from_millis(50) },
    FaultKind::Flap { down: Duration::from_millis(3) },
    FaultKind::IdleDeath,
    FaultKind::Lose { frames: 3 },
    FaultKind::Lose { frames: 300 },
    FaultKind::Slow { percent: 30 },
    FaultKind::Unresolvable,
];

/// Up to `most` faults of [`SURVIVED`] and pulled cables
pub(crate) fn survived(most: u32) -> RandomFaults {
    RandomFaults::up_to(most).kinds(SURVIVED.into_iter().chain([FaultKind::Unplug]))
}

fn settings(runs: u64) -> Check {
    Check::new().runs(runs).time_limit(Time::ZERO + Duration::from_hours(1))
}

/// How many seeds of each are tried in the gate: a thousand in all, and a thousand more with short parts
const FEW: u64 = 334;
/// How long after the last fault everything has arrived
const RECOVERED: Duration = Duration::from_mins(1);

fn one_cable(runs: u64) {
    let check = settings(runs).random_faults(survived(4)).liveness(RECOVERED);
    rdma_sim::check(check, async |net| program(net, &[DEVICE], true).await);
}

/// One cable between devices that carry messages of one frame at most, so that all parts of a long message have the same length
fn short_parts(runs: u64) {
    let check = settings(runs).model(Model::tb5_macos_26_2()).random_faults(survived(4)).liveness(RECOVERED);
    rdma_sim::check(check, async |net| program(net, &[DEVICE], true).await);
}

fn two_cables(runs: u64) {
    let topology = cables(&[LineRate::TB5, LineRate::TB4]);
    let check = settings(runs).topology(topology).random_faults(survived(4)).liveness(RECOVERED);
    rdma_sim::check(check, async |net| program(net, &[DEVICE, "rdma_en3"], true).await);
}

/// Also faults that no session survives, or none that lasts
fn any_fault(runs: u64) {
    let topology = cables(&[LineRate::TB5; 2]);
    let check = settings(runs).topology(topology).random_faults(RandomFaults::up_to(4));
    rdma_sim::check(check, async |net| program(net, &[DEVICE, "rdma_en3"], false).await);
}

#[test]
fn sessions_survive_faults_of_one_cable() {
    one_cable(FEW);
}

/// Catches a part that is taken for a lost one of equal length before it (seed 645).
#[test]
fn sessions_survive_faults_where_parts_have_one_frame() {
    short_parts(1000);
}

#[test]
fn sessions_survive_faults_of_two_cables() {
    two_cables(FEW);
}

#[test]
fn no_fault_makes_a_session_lose_or_repeat_a_message() {
    any_fault(FEW);
}

#[test]
#[ignore = "takes minutes"]
fn forty_thousand_seeds() {
    let runs = std::env::var("RUNS").map_or(10_000, |runs| runs.parse().expect("a number"));
    one_cable(runs);
    short_parts(runs);
    two_cables(runs);
    any_fault(runs);
}
