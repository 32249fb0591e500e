//! `tb5 ping`: measures round trips in virtual time

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join;
use rdma_async::{NodeOptions, Session};
use rdma_bare::BareQp;
use rdma_core::Device;
use rdma_sim::{Net, Sim, SimDevice};
use serde::Serialize;

use crate::args::Ping;
use crate::report::{Output, SIMULATOR, Wall, micros, simulated};
use crate::{Failure, mac};

/// The longest message, in bytes
const MAX_MESSAGE: usize = 4 << 20;

#[derive(Debug, Serialize)]
struct PingResult {
    backend: &'static str,
    size_bytes: usize,
    count: u32,
    rtt_ns: Distribution,
    /// Median of the same ping on bare verbs.
    raw_rtt_ns: u64,
    wall_seconds: f64,
    seed: u64,
    trace_digest: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Distribution {
    min: u64,
    p50: u64,
    p99: u64,
    max: u64,
}

impl Distribution {
    /// Nearest-rank percentiles of at least one sample
    fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let rank = |percent: usize| samples[(samples.len() * percent).div_ceil(100).max(1) - 1];
        Self { min: rank(0), p50: rank(50), p99: rank(99), max: rank(100) }
    }
}

pub(crate) fn run(args: &Ping, output: Output) -> Result<()> {
    let &Ping { size, count, seed } = args;
    if size > MAX_MESSAGE {
        bail!(Failure::usage(format!("--size {size} exceeds the longest message, {MAX_MESSAGE} bytes")));
    }
    output.announce(&simulated(1))?;
    let wall = Wall::start();
    let run = Sim::new().seed(seed).run(async |net| ping(&net, size, count).await);
    let wall_seconds = wall.seconds();
    let rtt_ns = Distribution::of(run.value?);
    let raw = Sim::new().seed(seed).run(async |net| raw_ping(&net, size, count).await);
    let raw_rtt_ns = Distribution::of(raw.value?).p50;

    let trace_digest = run.digest.to_string();
    let report = PingResult {
        backend: SIMULATOR,
        size_bytes: size,
        count,
        rtt_ns,
        raw_rtt_ns,
        wall_seconds,
        seed,
        trace_digest,
    };
    let over = rtt_ns.p50 as f64 / raw_rtt_ns as f64 * 100.0 - 100.0;
    output.outcome(
        &report,
        [
            ("round trips", format!("{count} of {size} bytes, seed {seed}")),
            ("min", micros(rtt_ns.min)),
            ("p50", micros(rtt_ns.p50)),
            ("p99", micros(rtt_ns.p99)),
            ("max", micros(rtt_ns.max)),
            ("bare verbs p50", format!("{} ({over:+.2} %)", micros(raw_rtt_ns))),
            (
                "wall",
                format!(
                    "{wall_seconds:.3} s, {:.2} µs per round trip",
                    wall_seconds * 1e6 / f64::from(count)
                ),
            ),
            ("trace digest", report.trace_digest.clone()),
        ],
    )
}

async fn ping(net: &Net, size: usize, count: u32) -> Result<Vec<u64>> {
    let [a, b] = mac::connect(net, &NodeOptions::new().max_message(MAX_MESSAGE), 1).await?;
    let ask = async {
        let mut samples = Vec::with_capacity(count as usize);
        let mut lease = a.alloc(size).await?;
        lease.resize(size, 0);
        for number in 0..count {
            stamp(&mut lease, number);
            let start = net.now();
            lease = a.send(lease).await?;
            let answer = a.recv().await?.context("the peer closed the session before the last round trip")?;
            samples.push((net.now() - start).as_nanos() as u64);
            ensure!(*answer == *lease, "round trip {number}: the answer differs from the message");
        }
        a.close().await?;
        anyhow::Ok(samples)
    };
    // The peer is a task of its own, as it would be another program.
    let (answered, answer_ended) = futures::channel::oneshot::channel();
    net.runtime().spawn(Box::pin(async move { drop(answered.send(answer(&b, size).await)) }));
    let samples = ask.await?;
    answer_ended.await??;
    Ok(samples)
}

async fn answer(session: &Session<SimDevice>, size: usize) -> Result<()> {
    let mut lease = session.alloc(size).await?;
    while let Some(message) = session.recv().await? {
        lease.clear();
        lease.extend_from_slice(&message);
        drop(message);
        lease = session.send(lease).await?;
    }
    Ok(())
}

fn stamp(message: &mut [u8], number: u32) {
    for (byte, stamp) in message.iter_mut().zip(number.to_le_bytes()) {
        *byte = stamp;
    }
}

async fn raw_ping(net: &Net, size: usize, count: u32) -> Result<Vec<u64>> {
    let [a, b] = mac::devices(net)?;
    let frame = size.next_multiple_of(rdma_core::FRAME).max(rdma_core::FRAME);
    let [mut a, mut b] = BareQp::pair(a, b, 3 * frame)?;
    // Two receives stay posted, so that neither side waits for the other to post one.
    for place in [1, 2] {
        for side in [&mut a, &mut b] {
            side.recv(place as u64, place * frame..place * frame + size)?;
        }
    }
    let ask = async {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let start = net.now();
            a.send(0, 0..size)?;
            bounce(&mut a, frame, size).await?;
            samples.push((net.now() - start).as_nanos() as u64);
        }
        anyhow::Ok(samples)
    };
    let answer = async {
        for _ in 0..count {
            bounce(&mut b, frame, size).await?;
            b.send(0, 0..size)?;
        }
        anyhow::Ok(())
    };
    let (samples, ()) = try_join(ask, answer).await?;
    Ok(samples)
}

/// Receives a message and posts its receive again
async fn bounce<D: Device>(side: &mut BareQp<D>, frame: usize, size: usize) -> Result<(), rdma_core::Error> {
    let place = side.received().await?.id.0;
    let start = place as usize * frame;
    side.recv(place, start..start + size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let hundred = Distribution::of((1..=100).rev().collect());
        assert_eq!((hundred.min, hundred.p50, hundred.p99, hundred.max), (1, 50, 99, 100));
        let one = Distribution::of(vec![7]);
        assert_eq!((one.min, one.p50, one.p99, one.max), (7, 7, 7, 7));
    }
}
