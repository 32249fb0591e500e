//! What messages between two processes cost over a fabric in shared memory, beside TCP over loopback and a plain copy
//!
//! Unpaced, the ratios are what counts; paced, the bandwidth has to be that of the modelled cable. On Linux, one copy by the
//! kernel, straight into the memory of the other process, is measured beside the two copies of the fabric.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use rdma_sim::{LineRate, Topology};
use rdma_sim_verbs::shared::Settings;
use rdma_tests::hosts::{Hosts, Peer};
use rdma_tests::{median, now};

const PEER: &str = env!("CARGO_BIN_EXE_peer");
const MIB: usize = 1 << 20;

/// Two hosts with a connection between them
struct Pair {
    a: Peer,
    b: Peer,
    links: [usize; 2],
    _hosts: Hosts,
}

impl Pair {
    fn new(settings: &Settings) -> Self {
        let hosts = Hosts::new("bench", settings, PEER);
        let (mut a, mut b) = (hosts.start("a"), hosts.start("b"));
        let links = hosts.connect([&mut a, &mut b], ["rdma_en2"; 2], 4095, 8 * MIB);
        Self { a, b, links, _hosts: hosts }
    }

    /// Runs an operation on both peers, and returns the nanoseconds of the second
    fn both(&mut self, [a, b]: [&str; 2], count: usize, len: usize) -> f64 {
        self.b.say(&format!("{b} {} {count} {len}", self.links[1])).expect("b runs");
        let _: u64 = self.a.ask(&format!("{a} {} {count} {len}", self.links[0])).parse().expect("a number");
        let answer = self.b.answer().expect("b goes on");
        answer.parse().expect("a number")
    }

    fn round_trip_ns(&mut self, count: usize) -> f64 {
        self.both(["ping", "pong"], count, 64) / count as f64
    }

    fn bytes_per_ns(&mut self, count: usize) -> f64 {
        (count * MIB) as f64 / self.both(["send", "take"], count, MIB)
    }
}

/// The other end of the measurement of TCP: this program again
fn tcp_peer(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let (mut small, mut large) = ([0; 64], vec![0; MIB]);
    for _ in 0..PINGS {
        stream.read_exact(&mut small)?;
        stream.write_all(&small)?;
    }
    for _ in 0..PIECES {
        stream.read_exact(&mut large)?;
    }
    stream.write_all(&small)
}

const PINGS: usize = 5_000;
const PIECES: usize = 400;

/// Nanoseconds of a round trip of 64 bytes, and bytes per nanosecond in pieces of 1 MiB
fn tcp() -> std::io::Result<(f64, f64)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let mut peer = Command::new(std::env::current_exe()?).arg("--tcp-peer").arg(port.to_string()).spawn()?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let (mut small, large) = ([0; 64], vec![1; MIB]);
    let start = now();
    for _ in 0..PINGS {
        stream.write_all(&small)?;
        stream.read_exact(&mut small)?;
    }
    let ping = start.elapsed().as_nanos() as f64 / PINGS as f64;
    let start = now();
    for _ in 0..PIECES {
        stream.write_all(&large)?;
    }
    stream.read_exact(&mut small)?;
    let bandwidth = (PIECES * MIB) as f64 / start.elapsed().as_nanos() as f64;
    peer.wait()?;
    Ok((ping, bandwidth))
}

/// Bytes that a plain copy of 1 MiB moves in a nanosecond
fn memcpy() -> f64 {
    let (from, mut to) = (vec![1_u8; 8 * MIB], vec![0_u8; 8 * MIB]);
    let start = now();
    for number in 0..PIECES {
        let range = number % 8 * MIB..(number % 8 + 1) * MIB;
        to[range.clone()].copy_from_slice(&from[range]);
        std::hint::black_box(&mut to);
    }
    (PIECES * MIB) as f64 / start.elapsed().as_nanos() as f64
}

#[cfg(target_os = "linux")]
mod one_copy;

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [flag, port] if flag == "--tcp-peer" => return tcp_peer(port.parse().expect("a port")),
        #[cfg(target_os = "linux")]
        [flag] if flag == one_copy::PEER => return one_copy::peer(),
        _ => {}
    }
    let mut pair = Pair::new(&Settings::new(Topology::pair()));
    let (mut pings, mut bandwidths) = (Vec::new(), Vec::new());
    #[cfg(target_os = "linux")]
    let mut one_copy = one_copy::OneCopy::new()?;
    #[cfg(target_os = "linux")]
    let (mut beside_one_copy, mut beside_both) = (Vec::new(), Vec::new());
    pair.round_trip_ns(1_000);
    pair.bytes_per_ns(100);
    for _ in 0..7 {
        // In turn, so that all see the same machine.
        let (tcp_ping, tcp_bandwidth) = tcp()?;
        let (ping, bandwidth, copy) = (pair.round_trip_ns(20_000), pair.bytes_per_ns(PIECES), memcpy());
        println!(
            "64 B round trip: {:.2} µs, TCP {:.2} µs; 1 MiB: {bandwidth:.2} GB/s, TCP {tcp_bandwidth:.2}, memcpy {copy:.2}",
            ping / 1e3,
            tcp_ping / 1e3
        );
        #[cfg(target_os = "linux")]
        {
            let (once, both) = (one_copy.bytes_per_ns(PIECES)?, one_copy.both_bytes_per_ns(PIECES)?);
            println!(
                "  1 MiB copied once by the kernel: {once:.2} GB/s; by both processes at once {both:.2}"
            );
            beside_one_copy.push(bandwidth / once);
            beside_both.push(bandwidth / both);
        }
        pings.push(ping / tcp_ping);
        bandwidths.push(bandwidth / (1.5 * tcp_bandwidth).min(copy / 2.0));
    }
    println!("64 B round trip: {:.3} of TCP's (at most 0.333)", median(pings));
    println!("1 MiB: {:.2} of the lesser of 1.5 times TCP and half a copy (at least 1)", median(bandwidths));
    #[cfg(target_os = "linux")]
    println!(
        "1 MiB: {:.2} of one copy by the kernel, {:.2} of what both processes copy so at once",
        median(beside_one_copy),
        median(beside_both)
    );
    drop(pair);

    let mut paced = Pair::new(&Settings::new(Topology::pair()).paced(true));
    paced.bytes_per_ns(100);
    let cable = LineRate::TB5.ceiling_bytes_per_second() / 1e9;
    let shares = (0..5).map(|_| paced.bytes_per_ns(2_000) / cable).collect();
    println!("paced, 1 MiB: {:.3} of the cable's {cable:.2} GB/s (0.95 to 1.05)", median(shares));
    Ok(())
}
