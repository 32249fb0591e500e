//! The simulator in real time, on one core: what the model says, what a program sees, and what it costs while nothing happens
//!
//! * a ping-pong of 64 bytes in virtual time, and on the driver that runs freely;
//! * the share of a core that an idle session takes: on that driver, and between two processes of a fabric, over the verbs with
//!   the default poll policy.

#![allow(unsafe_code, reason = "asks the system for the processor time, and for one core")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use rdma_async::{Device, Node, Session, TokioRuntime};
use rdma_sim::driver::realtime;
use rdma_sim::{LineRate, Sim, Topology};
use rdma_sim_verbs::shared::Settings;
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};
use rdma_tests::hosts::{Hosts, Running};
use rdma_tests::{Pair, connected, median, now, on_session, options};
use tokio::net::{TcpListener, TcpStream};

/// Round trips of a stretch, and stretches
const COUNT: u32 = 500;
const STRETCHES: usize = 21;
/// How long nothing happens
const REST: Duration = Duration::from_secs(4);

async fn answer(session: &Session<impl Device>, count: u32) {
    for _ in 0..count {
        drop(session.recv().await.expect("the peer lives"));
        session.send_bytes(&[2; 64]).await.expect("the peer lives");
    }
}

async fn ask(session: &Session<impl Device>, count: u32) {
    for _ in 0..count {
        session.send_bytes(&[1; 64]).await.expect("the peer lives");
        drop(session.recv().await.expect("the peer lives"));
    }
}

async fn round_trips(pair: &Pair, count: u32) {
    join(ask(&pair.ab, count), answer(&pair.ba, count)).await;
}

/// Nanoseconds of a round trip by the model
fn model_ns() -> f64 {
    on_session(Sim::new(), &options(), async |net, pair| {
        round_trips(&pair, 10).await;
        let start = net.now();
        round_trips(&pair, COUNT).await;
        (net.now() - start).as_nanos() as f64 / f64::from(COUNT)
    })
}

/// Nanoseconds of a round trip in real time, and the share of a core that an idle session takes
fn in_real_time() -> (f64, f64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let handle = runtime.handle().clone();
    let running = realtime::start(Sim::new().sanitize(false), move |task| drop(handle.spawn(task)));
    let running = running.expect("there are no faults");
    let net = running.net().clone();
    let program = async move {
        let pair = connected(&net, &options()).await;
        let mut times = Vec::new();
        for _ in 0..STRETCHES {
            let start = now();
            round_trips(&pair, COUNT).await;
            times.push(start.elapsed().as_nanos() as f64 / f64::from(COUNT));
        }
        (median(times), idle_share().await)
    };
    // The session is that of a task: a runtime with one thread looks at its main future more rarely.
    runtime.block_on(runtime.spawn(program)).expect("the program ends")
}

/// The share of a core that this process takes while it rests
async fn idle_share() -> f64 {
    tokio::time::sleep(REST / 8).await;
    let (start, cpu) = (now(), cpu_time());
    tokio::time::sleep(REST).await;
    (cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64()
}

/// Processor time of this process
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Keeps this process, and those that it starts, on one core
#[cfg(target_os = "linux")]
fn take_one_core() {
    // SAFETY: all bits zero are a set without cores.
    let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set has room for the first core.
    unsafe { libc::CPU_SET(0, &mut cores) };
    // SAFETY: the set has the size that is passed.
    unsafe { libc::sched_setaffinity(0, size_of_val(&cores), &raw const cores) };
}

#[cfg(not(target_os = "linux"))]
fn take_one_core() {}

/// A process of the fabric with an idle session: this program again
#[expect(clippy::print_stdout, reason = "this is how it answers")]
fn idle(peer: Option<SocketAddr>, ports: usize) {
    let program = async {
        let provider = Provider::load().unwrap_or_else(|error| panic!("{error}"));
        let open = |port: usize| {
            let provider = Arc::clone(&provider);
            move || VerbsDevice::open(&provider, &format!("rdma_en{}", 2 + port), OpenOptions::new())
        };
        let builder = Node::builder(open(0)).runtime(Arc::new(TokioRuntime::current()));
        let builder = (1..ports).fold(builder, |builder, port| builder.device(open(port)));
        let node = builder.build().expect("the devices are fresh");
        let session = match peer {
            Some(peer) => {
                node.connect(TcpStream::connect(peer).await.expect("it listens")).await.expect("connects")
            }
            None => {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                println!("{}", listener.local_addr().expect("it is bound"));
                let (stream, _) = listener.accept().await.expect("it connects");
                node.serve(stream).await.expect("connects");
                node.accept().await.expect("the node is open")
            }
        };
        let (side, other) = (ask(&session, 100), answer(&session, 100));
        if peer.is_some() {
            side.await
        } else {
            other.await
        }
        println!("{}", idle_share().await);
        // The other process rests until then.
        tokio::time::sleep(REST).await;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(program);
}

/// The share of a core that each of two processes with an idle session over so many cables takes
fn idle_processes(ports: usize) -> [f64; 2] {
    let pair = Topology::new().host("a", ports).host("b", ports);
    let cabled = |pair: Topology, port| pair.cable(("a", port), ("b", port), LineRate::TB5);
    let hosts = Hosts::new("idle", &Settings::new((0..ports).fold(pair, cabled)), "");
    let start = |name: &str, peer: &str| {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = hosts.command(program, name);
        let mut child = Running(
            command
                .args(["--idle", peer, &ports.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .expect("it runs"),
        );
        let lines = BufReader::new(child.0.stdout.take().expect("it is piped")).lines();
        (child, lines.map(|line| line.expect("it answers")))
    };
    let (_a, mut from_a) = start("a", "");
    let (_b, mut from_b) = start("b", &from_a.next().expect("an address"));
    [&mut from_a, &mut from_b].map(|lines| lines.next().and_then(|line| line.parse().ok()).expect("a share"))
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, peer, ports] = &arguments[..]
        && flag == "--idle"
    {
        return idle(peer.parse().ok(), ports.parse().expect("a number"));
    }
    take_one_core();
    let (model, (real, share)) = (model_ns(), in_real_time());
    println!(
        "64 B round trip in real time: {:.1} µs, {:.2} × the model's {:.1} µs (at most 2)",
        real / 1e3,
        real / model,
        model / 1e3
    );
    let percent = share * 100.0;
    println!("an idle session in real time: {percent:.2} % of a core (below 1)");
    for ports in [1, 2, 4] {
        let [a, b] = idle_processes(ports).map(|share| share * 100.0);
        let aim = if ports == 1 { " (below 1)" } else { "" };
        println!("two idle processes over the verbs, ports {ports}: {a:.2} and {b:.2} % of a core{aim}");
    }
}
