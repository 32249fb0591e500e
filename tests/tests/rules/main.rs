//! The rules of the device, one by one, and the faults, one by one
//!
//! `rdma_sim::catalogue` names the test of each rule; `catalogue` checks that they exist. Both variants of a switchable rule are
//! in one test. Virtual time is exact: a test that idles for half an hour takes no time.

mod catalogue;
mod connecting;
mod counting;
mod delivery;
mod facts;
mod faults;
mod hosts;
mod limits;
mod losses;
mod memory;
mod ports;
mod roce;
mod states;
mod strict;
mod symptoms;
mod timing;

use std::fmt::Debug;
use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{Completion, Error, Opcode, QpInit, Status};
use rdma_sim::{Fault, Model, Net, Rules, Sim, SimDevice};
use rdma_tests::DEVICE;

use crate::counting::Simulate;

type Bare = BareQp<SimDevice>;

/// The device of the pair's cable on `host`
fn device(net: &Net, host: &str) -> SimDevice {
    net.open(host, DEVICE).unwrap()
}

/// A queue pair that is not connected
fn bare(net: &Net, host: &str) -> Bare {
    Bare::new(device(net, host), &QpInit::with_frames(255), 1 << 20).unwrap()
}

/// Two that are
fn pair(net: &Net) -> [Bare; 2] {
    Bare::pair(device(net, "a"), device(net, "b"), 1 << 21).unwrap()
}

/// Two that are, with queues of `frames` frames
fn pair_of(net: &Net, frames: u32, len: usize) -> [Bare; 2] {
    Bare::pair_of(device(net, "a"), device(net, "b"), &QpInit::with_frames(frames), len).unwrap()
}

/// Runs `program` with two that are
fn on_pair(program: impl AsyncFnOnce(Net, [Bare; 2])) {
    Sim::new().simulate(async |net| {
        let pair = pair(&net);
        program(net, pair).await;
    });
}

/// A simulation of the pair under other rules
fn under(change: impl FnOnce(&mut Rules)) -> Sim {
    let mut model = Model::tb5();
    change(&mut model.rules);
    Sim::new().model(model)
}

/// A simulation of the pair on devices that grant no more than was asked for, so that few requests fill a queue
fn shallow() -> Sim {
    under(|rules| rules.queue_grant = rdma_sim::rules::QueueGrant::Exact)
}

/// Lets time pass
async fn rest(net: &Net, time: Duration) {
    rdma_async::time::sleep(&*net.runtime(), time).await;
}

/// Has a fault happen now, such as `a:rdma_en2 unplug`
async fn happen(net: &Net, fault: &str) {
    net.inject(format!("at 0s {fault}").parse::<Fault>().unwrap());
    rest(net, Duration::from_nanos(1)).await;
}

/// What completes at `qp` within a second
async fn within_a_second(net: &Net, qp: &mut Bare) -> Vec<(Opcode, Status)> {
    rest(net, Duration::from_secs(1)).await;
    let mut done = Vec::new();
    while let Some(Completion { opcode, status, .. }) = qp.poll().unwrap() {
        done.push((opcode, status));
    }
    done
}

/// Whether a small message passes from `from` to `to` within a second
async fn passes(net: &Net, from: &mut Bare, to: &mut Bare) -> bool {
    to.recv(77, 0..8).unwrap();
    from.send(77, 8..16).unwrap();
    within_a_second(net, to).await.contains(&(Opcode::Recv, Status::Success))
}

/// The error number of what failed
fn errno<T: Debug>(result: Result<T, Error>) -> i32 {
    result.expect_err("this should have failed").errno()
}
