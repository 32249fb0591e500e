//! `tb5 ping` on the simulator: round trips of a session, beside those of bare verbs

use std::ops::Range;

use anyhow::Result;
use futures::future::try_join;
use indicatif::ProgressBar;
use rdma_async::NodeOptions;
use rdma_bare::BareQp;
use rdma_core::Device;
use rdma_sim::{Model, Net, Sim, Topology};
use serde::Serialize;

use crate::args::Ping;
use crate::measure::{Distribution, echo, round_trips};
use crate::report::{Output, SIMULATOR, Wall, micros, simulated};
use crate::{mac, progress};

#[derive(Debug, Serialize)]
pub(crate) struct PingResult {
    backend: &'static str,
    size_bytes: usize,
    count: u32,
    pub(crate) rtt_ns: Distribution,
    /// Median of the same ping on bare verbs.
    pub(crate) bare_rtt_ns: u64,
    wall_seconds: f64,
    seed: u64,
    trace_digest: String,
    /// Each round trip, in the order of their starts
    #[serde(skip)]
    pub(crate) samples: Vec<u64>,
}

pub(crate) fn run(args: &Ping, output: Output) -> Result<()> {
    args.machines.require_host()?;
    let model = mac::model(&args.profile)?;
    output.announce(&simulated(1))?;
    let progress = progress::items(args.count.into());
    let report = simulate(&Topology::pair(), args, &model, &progress)?;
    progress.finish_and_clear();
    output.outcome(&report, report.rows())
}

/// Measures round trips between the Macs `a` and `b`, and those of bare verbs; `progress` counts the round trips of the session, then those of bare verbs
pub(crate) fn simulate(
    topology: &Topology,
    args: &Ping,
    model: &Model,
    progress: &ProgressBar,
) -> Result<PingResult> {
    let &Ping { bytes: size, count, seed, .. } = args;
    let size = size as usize;
    let sim = || Sim::new().model(model.clone()).seed(seed).topology(topology.clone());
    progress::next_part(progress, "a session (1 of 2)");
    let wall = Wall::start();
    let run = sim().run(async |net| ping(&net, size, count, progress).await);
    let wall_seconds = wall.seconds();
    let samples = run.value?;
    progress::next_part(progress, "bare verbs (2 of 2)");
    let bare = sim().run(async |net| bare_ping(&net, size, count, progress).await);
    Ok(PingResult {
        backend: SIMULATOR,
        size_bytes: size,
        count,
        rtt_ns: Distribution::of(samples.clone()),
        bare_rtt_ns: Distribution::of(bare.value?).p50,
        wall_seconds,
        seed,
        trace_digest: run.digest.to_string(),
        samples,
    })
}

impl PingResult {
    /// Excess of the median over that on bare verbs, in percent
    pub(crate) fn overhead_percent(&self) -> f64 {
        self.rtt_ns.p50 as f64 / self.bare_rtt_ns as f64 * 100.0 - 100.0
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, String)> {
        let &Self { size_bytes, count, rtt_ns, bare_rtt_ns, wall_seconds, seed, .. } = self;
        let per_round_trip = wall_seconds * 1e6 / f64::from(count);
        let trips = [("round trips", format!("{count} of {size_bytes} bytes, seed {seed}"))];
        let rest = [
            ("bare verbs p50", format!("{} ({:+.2} %)", micros(bare_rtt_ns), self.overhead_percent())),
            ("wall", format!("{wall_seconds:.3} s, {per_round_trip:.2} µs per round trip")),
            ("trace digest", self.trace_digest.clone()),
        ];
        trips.into_iter().chain(rtt_ns.rows()).chain(rest)
    }
}

async fn ping(net: &Net, size: usize, count: u32, progress: &ProgressBar) -> Result<Vec<u64>> {
    let [a, b] = mac::connect(net, &NodeOptions::new().max_message(size), 1).await?;
    let ask = async {
        let samples = round_trips(&a, size, count, progress).await?;
        a.close().await?;
        anyhow::Ok(samples)
    };
    // The peer is a task of its own, as it would be another program.
    let (answered, answer_ended) = futures::channel::oneshot::channel();
    net.runtime().spawn(Box::pin(async move { drop(answered.send(echo(&b).await)) }));
    let samples = ask.await?;
    answer_ended.await??;
    Ok(samples)
}

async fn bare_ping(net: &Net, size: usize, count: u32, progress: &ProgressBar) -> Result<Vec<u64>> {
    let [a, b] = mac::devices(net)?;
    let frame = size.next_multiple_of(rdma_core::FRAME).max(rdma_core::FRAME);
    let span = |number: usize| Span { start: number * frame, size, part: a.caps().max_message as usize };
    let (out, receives) = (span(0), [span(1), span(2)]);
    let [mut a, mut b] = BareQp::pair(a, b, 3 * frame)?;
    // Two receives stay posted, so that neither side waits for the other to post one.
    for span in &receives {
        span.receive(&mut a)?;
        span.receive(&mut b)?;
    }
    let received = || receives.iter().cycle().take(count as usize);
    let ask = async {
        let mut samples = Vec::with_capacity(count as usize);
        for span in received() {
            let start = net.now();
            out.send(&mut a)?;
            span.bounce(&mut a).await?;
            samples.push((net.now() - start).as_nanos() as u64);
            progress.inc(1);
        }
        anyhow::Ok(samples)
    };
    let answer = async {
        for span in received() {
            span.bounce(&mut b).await?;
            out.send(&mut b)?;
        }
        anyhow::Ok(())
    };
    let (samples, ()) = try_join(ask, answer).await?;
    Ok(samples)
}

/// A message in the memory of a bare queue pair, in as many parts as the device needs
struct Span {
    start: usize,
    size: usize,
    /// The longest message of the device
    part: usize,
}

impl Span {
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let Self { start, size, part } = *self;
        // An empty message is one message.
        let parts = (0..size.max(1)).step_by(part);
        parts.map(move |at| start + at..start + (at + part).min(size))
    }

    fn receive<D: Device>(&self, side: &mut BareQp<D>) -> Result<(), rdma_core::Error> {
        self.parts().try_for_each(|part| side.recv(0, part))
    }

    fn send<D: Device>(&self, side: &mut BareQp<D>) -> Result<(), rdma_core::Error> {
        self.parts().try_for_each(|part| side.send(0, part))
    }

    /// Receives the message and posts its receives again
    async fn bounce<D: Device>(&self, side: &mut BareQp<D>) -> Result<(), rdma_core::Error> {
        for part in self.parts() {
            side.received().await?;
            side.recv(0, part)?;
        }
        Ok(())
    }
}
