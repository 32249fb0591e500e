//! What sessions cost over a verbs provider
//!
//! With `RDMA_CONFORMANCE_DEVICES=a,b`, over the provider of the system: a ping-pong of sessions against one of bare verbs,
//! both ends in one thread. Beside them the ping-pong that comes with libibverbs, which is two processes. What the traits cost over
//! the ABI is in `indirection`.
//!
//! Over Soft-RoCE, after `cargo bench -p rdma-tests --bench provider --no-run` has printed the path of the program:
//! `.ci/vm/run -e RDMA_CONFORMANCE_DEVICES=a_en2,b_en2 -- PROGRAM --bench`. Over the simulated provider, without an emulator:
//! `RDMA_PROVIDER=target/release/librdma.so RDMA_SIM_PROFILE=roce RDMA_SIM_PACE=none RDMA_CONFORMANCE_DEVICES=rdma_en2@a,rdma_en2@b`.

mod c;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use rdma_async::{Node, NodeOptions, Session, SpinRuntime};
use rdma_bare::BareQp;
use rdma_core::{Opcode, QpInit, Runtime as _};
use rdma_tb5::{OpenOptions, PollPolicy, Provider, VerbsDevice};
use rdma_tests::now;

/// Bytes of a message: a small one, and the longest of one frame, about what libibverbs' own ping-pong sends
const LENS: [usize; 2] = [64, 4080];
/// Round trips at a stretch, and stretches of each kind: in turn and short, because emulators and their hosts have moods
const COUNT: u32 = 50;
const TURNS: usize = 200;
/// Stretches before those: the first use of a page, and of code in an emulator, costs more than a message.
const WARM_UP: usize = 10;

fn open(provider: &Arc<Provider>, name: &str) -> VerbsDevice {
    let options = OpenOptions::new().poll(PollPolicy::SPIN);
    VerbsDevice::open(provider, name, options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Nanoseconds per round trip between queue pairs without a protocol, both polled in turn
fn bare_stretch([a, b]: &mut [BareQp<VerbsDevice>; 2], len: usize) -> f64 {
    let receive = |qp: &mut BareQp<VerbsDevice>| loop {
        match qp.poll().expect("polling works") {
            Some(completion) if completion.opcode == Opcode::Recv => break,
            _ => (),
        }
    };
    let start = now();
    for _ in 0..COUNT {
        a.recv(1, 0..len).expect("there is space");
        b.recv(1, 0..len).expect("there is space");
        a.send(2, 4096..4096 + len).expect("there is space");
        receive(b);
        b.send(2, 4096..4096 + len).expect("there is space");
        receive(a);
    }
    per_round_trip(start)
}

fn per_round_trip(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / f64::from(COUNT)
}

/// A session whose peer answers
async fn connect(
    runtime: &SpinRuntime,
    provider: &Arc<Provider>,
    [a, b]: [&str; 2],
    len: usize,
) -> Session<VerbsDevice> {
    let node = |name: &str| {
        let (provider, name) = (Arc::clone(provider), name.to_owned());
        let node = Node::builder(move || Ok::<_, Infallible>(open(&provider, &name)))
            .runtime(Arc::new(runtime.clone()))
            .options(NodeOptions::new().max_peers(1))
            .build();
        node.expect("the device is fresh")
    };
    // The answering side is polled first, so that the runtime polls each side when it has work, as the loop over bare verbs does.
    let (to_b, to_a) = tokio::io::duplex(64 << 10);
    let answering = node(b);
    runtime.spawn(Box::pin(async move {
        answering.serve(to_a).await.expect("the ends find each other");
        answer(answering.accept().await.expect("the node is open"), len).await;
    }));
    node(a).connect(to_b).await.expect("the ends find each other")
}

/// Nanoseconds per round trip over a session
async fn stretch(session: &Session<VerbsDevice>, len: usize) -> f64 {
    let mut lease = session.alloc(len).await.expect("there is memory");
    lease.resize(len, 1);
    let start = now();
    for _ in 0..COUNT {
        lease = session.send(lease).await.expect("the peer lives");
        drop(session.recv().await.expect("the peer lives"));
    }
    per_round_trip(start)
}

async fn answer(session: Session<VerbsDevice>, len: usize) {
    let mut lease = session.alloc(len).await.expect("there is memory");
    lease.resize(len, 2);
    while let Some(message) = session.recv().await.expect("the peer lives") {
        drop(message);
        lease = session.send(lease).await.expect("the peer lives");
    }
}

/// Both, stretch by stretch
async fn measure(
    runtime: &SpinRuntime,
    provider: &Arc<Provider>,
    devices: [&str; 2],
    len: usize,
) -> Vec<[f64; 2]> {
    let [a, b] = devices.map(|name| open(provider, name));
    let bare = BareQp::pair_of(a, b, &QpInit::with_frames(64), 16 * 1024);
    let mut bare = bare.expect("the devices are fresh");
    let session = connect(runtime, provider, devices, len).await;
    let mut times = Vec::new();
    for _ in 0..WARM_UP + TURNS {
        times.push([bare_stretch(&mut bare, len), stretch(&session, len).await]);
    }
    session.close().await.expect("the peer confirms");
    times.split_off(WARM_UP)
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
        let runtime = SpinRuntime::new();
        let times = runtime.block_on(measure(&runtime, &provider, [a, b], len));
        let quartiles = |of: fn(&[f64; 2]) -> f64| {
            let mut values: Vec<_> = times.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            [1, 2, 3].map(|quarter| values[TURNS * quarter / 4])
        };
        let ([_, bare, _], [_, session, _]) = (quartiles(|t| t[0]), quartiles(|t| t[1]));
        let [low, ratio, high] = quartiles(|t| t[1] / t[0]);
        println!(
            "{len} B round trip: bare verbs {:.1} µs, sessions {:.1} µs; {ratio:.3} × the stretch before, half of them {low:.3} to {high:.3}",
            bare / 1e3,
            session / 1e3,
        );
        if std::env::var_os("RDMA_PROVIDER").is_some() {
            // The program in C would take the provider of the system.
            continue;
        }
        for (sleeps, how) in [(false, "polls"), (true, "sleeps")] {
            match c::ping_pong([a, b], len, 400, sleeps) {
                Ok(us) => println!("{len} B: ibv_uc_pingpong, which {how}, in two processes: {us:.1} µs"),
                Err(error) => println!("{error}"),
            }
        }
    }
}
