//! How fast the simulator itself is, and how it grows with the number of hosts
//!
//! Prints events of the fabric per second of one core, and asserts what the project promises about growth and memory;
//! speed is printed and not asserted, because it is that of the machine. With numbers of hosts as arguments, only their speed is
//! printed, the best of five runs: `cargo bench -p rdma-tests --bench engine -- 2 1024`.

use std::time::Duration;

use futures::future::join_all;
use rdma_async::time::sleep;
use rdma_bare::BareQp;
use rdma_sim::{LineRate, Net, Sim, SimDevice, Topology};
use rdma_tests::{DEVICE, now};

/// So many Macs, two by two at a cable
fn pairs(hosts: usize) -> Topology {
    let name = |number: usize| format!("host{number}");
    let topology = (0..hosts).fold(Topology::new(), |topology, number| topology.host(&name(number), 3));
    (0..hosts / 2).fold(topology, |topology, pair| {
        topology.cable((name(2 * pair).as_str(), 0), (name(2 * pair + 1).as_str(), 0), LineRate::TB5)
    })
}

fn connect(net: &Net, pair: usize) -> [BareQp<SimDevice>; 2] {
    let open = |number: usize| net.open(&format!("host{number}"), DEVICE).expect("every host has a cable");
    BareQp::pair(open(2 * pair), open(2 * pair + 1), 8192).expect("the devices are fresh")
}

/// So many round trips of 64 bytes, one after another, `every` so often
async fn ping(net: &Net, [mut a, mut b]: [BareQp<SimDevice>; 2], count: usize, every: Duration) {
    for _ in 0..count {
        a.recv(1, 0..64).expect("there is space");
        b.recv(1, 0..64).expect("there is space");
        a.send(2, 4096..4160).expect("there is space");
        b.received().await.expect("nothing fails");
        b.send(2, 4096..4160).expect("there is space");
        a.received().await.expect("nothing fails");
        if !every.is_zero() {
            sleep(&*net.runtime(), every).await;
        }
    }
}

/// Events per second with so many hosts that all ping at once
fn rate(hosts: usize, round_trips: usize) -> f64 {
    let sim = Sim::new().sanitize(false).topology(pairs(hosts));
    let mut spent = Duration::ZERO;
    let run = sim.run(|net| {
        let spent = &mut spent;
        async move {
            let qps: Vec<_> = (0..hosts / 2).map(|pair| connect(&net, pair)).collect();
            let start = now();
            join_all(qps.into_iter().map(|qps| ping(&net, qps, round_trips, Duration::ZERO))).await;
            *spent = start.elapsed();
        }
    });
    run.events as f64 / spent.as_secs_f64()
}

/// The most memory that the process has had, in bytes
fn peak_memory() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? << 10)
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let hosts: Vec<usize> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    if !hosts.is_empty() {
        for hosts in hosts {
            let best = (0..5).map(|_| rate(hosts, 400_000 / hosts)).fold(0.0, f64::max);
            println!("{hosts:>5} hosts: {:>5.2} million events per second", best / 1e6);
        }
        return;
    }
    // A minute of virtual time first: the peak of memory is then its own.
    let hosts = 256;
    let start = now();
    let run = Sim::new().sanitize(false).topology(pairs(hosts)).run(async |net| {
        let qps = (0..hosts / 2).map(|pair| connect(&net, pair));
        let every = Duration::from_millis(10);
        join_all(qps.map(|qps| ping(&net, qps, 6_000, every))).await;
    });
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{hosts} hosts, a minute of pings every 10 ms: {:.1} s of virtual time, {:.1} s on the wall, {} events",
        run.time.as_secs_f64(),
        seconds,
        run.events
    );
    assert!(run.time.as_secs_f64() >= 60.0, "it is a minute");
    match peak_memory() {
        Some(bytes) => {
            println!("  at most {} MiB of memory (below 1024)", bytes >> 20);
            assert!(bytes < 1 << 30, "256 hosts fit into 1 GiB");
        }
        None => println!("  this system does not report the memory in use"),
    }
    let mut first = None;
    for hosts in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] {
        let events = rate(hosts, 400_000 / hosts);
        let ns = 1e9 / events;
        let first = *first.get_or_insert(ns);
        println!(
            "{hosts:>5} hosts: {:>5.2} million events per second, {ns:>4.0} ns each, {:.2} × two hosts",
            events / 1e6,
            ns / first
        );
    }
}
