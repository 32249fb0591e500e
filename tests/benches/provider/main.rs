//! What connections cost over a verbs provider
//!
//! With `RDMA_CONFORMANCE_DEVICES=a,b`, over the provider of the system: a ping-pong of connections against one of bare verbs,
//! both ends in one thread. Beside them the ping-pong that comes with libibverbs, which is two processes. What the traits cost over
//! the ABI is in `indirection`.

mod c;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join;
use rdma_async::{Connection, Endpoint, EndpointOptions, SpinRuntime};
use rdma_core::bare::BareQp;
use rdma_core::{Opcode, QpCapacity, QpInit, QueuePair, Runtime as _};
use rdma_tb5::{OpenOptions, PollPolicy, Provider, VerbsDevice};

/// Bytes of a message: a small one, and the longest of one frame, about what libibverbs' own ping-pong sends
const LENS: [usize; 2] = [64, 4080];
/// Round trips that are measured at once, and how often: emulators and their hosts have moods
const COUNT: u32 = 400;
const TURNS: usize = 15;
/// Round trips before those: the first use of a page, and of code in an emulator, costs more than a message.
const WARM_UP: u32 = 300;

#[expect(clippy::disallowed_methods, reason = "a benchmark asks the clock on the wall")]
fn now() -> Instant {
    Instant::now()
}

fn open(provider: &Arc<Provider>, name: &str) -> VerbsDevice {
    let options = OpenOptions::new().poll(PollPolicy::SPIN);
    VerbsDevice::open(provider, name, options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Nanoseconds per round trip over bare verbs, both ends polled in turn
fn bare(provider: &Arc<Provider>, [a, b]: [&str; 2], len: usize) -> f64 {
    let init = QpInit { capacity: QpCapacity { recv_frames: 64, send_frames: 64 }, ..QpInit::default() };
    let new = |name| BareQp::new(open(provider, name), &init, 16 * 1024).expect("the device is fresh");
    let (mut a, mut b) = (new(a), new(b));
    a.qp().connect(&b.qp().address()).expect("the peer is there");
    b.qp().connect(&a.qp().address()).expect("the peer is there");
    let receive = |qp: &mut BareQp<VerbsDevice>| loop {
        match qp.poll().expect("polling works") {
            Some(completion) if completion.opcode == Opcode::Recv => break,
            _ => (),
        }
    };
    let mut start = now();
    for number in 0..WARM_UP + COUNT {
        if number == WARM_UP {
            start = now();
        }
        a.recv(1, 0..len).expect("there is space");
        b.recv(1, 0..len).expect("there is space");
        a.send(2, 4096..4096 + len).expect("there is space");
        receive(&mut b);
        b.send(2, 4096..4096 + len).expect("there is space");
        receive(&mut a);
    }
    start.elapsed().as_nanos() as f64 / f64::from(COUNT)
}

/// Asks, and tells how long what counts took
async fn ask(connection: Connection<VerbsDevice>, len: usize) -> Duration {
    let mut lease = connection.alloc(len).await.expect("there is memory");
    lease.fill(1);
    let mut start = now();
    for number in 0..WARM_UP + COUNT {
        if number == WARM_UP {
            start = now();
        }
        lease = connection.send(lease).await.expect("the peer lives");
        drop(connection.recv().await.expect("the peer lives"));
    }
    let spent = start.elapsed();
    connection.close().await.expect("the peer confirms");
    spent
}

async fn answer(connection: Connection<VerbsDevice>, len: usize) {
    let mut lease = connection.alloc(len).await.expect("there is memory");
    lease.fill(2);
    while let Some(message) = connection.recv().await.expect("the peer lives") {
        drop(message);
        lease = connection.send(lease).await.expect("the peer lives");
    }
}

/// Nanoseconds per round trip over connections
fn connected(provider: &Arc<Provider>, [a, b]: [&str; 2], len: usize) -> f64 {
    let runtime = SpinRuntime::new();
    let spent = runtime.block_on(async {
        let options = EndpointOptions::new().connections(1).window(64);
        let endpoint = |name| Endpoint::new(open(provider, name), Arc::new(runtime.clone()), options.clone());
        let (a, b) = (endpoint(a).expect("the device is fresh"), endpoint(b).expect("the device is fresh"));
        let (to_b, to_a) = tokio::io::duplex(256);
        let (ab, ba) = try_join(a.connect(to_b), b.accept(to_a)).await.expect("the ends find each other");
        runtime.spawn(Box::pin(answer(ba, len)));
        ask(ab, len).await
    });
    spent.as_nanos() as f64 / f64::from(COUNT)
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let Ok(devices) = std::env::var("RDMA_CONFORMANCE_DEVICES") else {
        println!("RDMA_CONFORMANCE_DEVICES names no devices: there is nothing to compare");
        return;
    };
    let (a, b) = devices.split_once(',').expect("two names with a comma between");
    let provider = Provider::load().unwrap_or_else(|error| panic!("{error}"));
    for len in LENS {
        // In turn, so that both see the same machine.
        let (mut bares, mut connecteds): (Vec<_>, Vec<_>) =
            (0..TURNS).map(|_| (bare(&provider, [a, b], len), connected(&provider, [a, b], len))).unzip();
        bares.sort_by(f64::total_cmp);
        connecteds.sort_by(f64::total_cmp);
        for (which, at) in [("least", 0), ("lower quartile", TURNS / 4), ("median", TURNS / 2)] {
            let (bare, connected) = (bares[at], connecteds[at]);
            println!(
                "{len} B round trip, {which}: bare verbs {:.1} µs, connections {:.1} µs, {:.3} × that",
                bare / 1e3,
                connected / 1e3,
                connected / bare
            );
        }
        for (sleeps, how) in [(false, "polls"), (true, "sleeps")] {
            match c::ping_pong([a, b], len, COUNT, sleeps) {
                Ok(us) => println!("{len} B: ibv_uc_pingpong, which {how}, in two processes: {us:.1} µs"),
                Err(error) => println!("{error}"),
            }
        }
    }
}
