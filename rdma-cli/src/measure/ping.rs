//! Round trips with another machine

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Serialize;

use super::distribution::Distribution;
use super::round_trips::round_trips;
use super::wire::{MAX_MESSAGE, PING};
use crate::args::Ping;
use crate::machines::{Carried, Host, Peer};
use crate::progress;
use crate::report::{Output, Wall};
use crate::signals::Interrupt;

/// The round trips of one size
#[derive(Debug, Serialize)]
pub(crate) struct RemotePing {
    /// Carrier of the session at its end: `rdma` or `tcp`
    pub(crate) backend: &'static str,
    peer: String,
    size_bytes: usize,
    count: u32,
    pub(crate) rtt_ns: Distribution,
    wall_seconds: f64,
    #[serde(flatten)]
    pub(crate) carried: Carried,
    /// Each round trip, in the order of their starts
    #[serde(skip)]
    pub(crate) samples: Vec<u64>,
}

/// Measures round trips with `host`
pub(crate) fn ping(args: &Ping, host: &Host, output: Output) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let peer = Peer { host, machines: &args.machines, command: "tb5 serve", interrupt: &interrupt };
    let progress = progress::items(args.count.into());
    let report = measure_ping(peer, args.bytes as usize, args.count, &progress, |carrier| {
        output.announce_carrier(carrier)
    })?;
    progress.finish_and_clear();
    let trips = [("round trips", format!("{} of {} bytes with {host}", report.count, report.size_bytes))];
    let carried = [
        ("wall", format!("{:.3} s", report.wall_seconds)),
        ("paths at the end", report.carried.devices.join(", ")),
        ("repairs", report.carried.describe()),
    ];
    output.outcome(&report, trips.into_iter().chain(report.rtt_ns.rows()).chain(carried))
}

/// Measures `count` round trips of `size` bytes with `peer`
pub(crate) fn measure_ping(
    peer: Peer<'_>,
    size: usize,
    count: u32,
    progress: &ProgressBar,
    on_carrier: impl FnOnce(&str) -> Result<()>,
) -> Result<RemotePing> {
    let wall = Wall::start();
    let (samples, carried) = peer.in_session(MAX_MESSAGE, 2, on_carrier, async |session| {
        session.send_bytes(PING).await?;
        round_trips(session, size, count, progress).await
    })?;
    Ok(RemotePing {
        backend: carried.backend(),
        peer: peer.host.name().to_owned(),
        size_bytes: size,
        count,
        rtt_ns: Distribution::of(samples.clone()),
        wall_seconds: wall.seconds(),
        carried,
        samples,
    })
}
