//! Goodput to another machine
//!
//! Before the messages of a size, this side says how long they are and how many come, and the peer answers with the time that they took.

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use rdma_async::{Device, Session};
use serde::Serialize;

use super::messages::{count_of, receive_messages, send_messages};
use super::wire::{BW, FOREIGN, MAX_MESSAGE};
use crate::args::Bw;
use crate::failure::Failure;
use crate::machines::{Carried, Host, Peer};
use crate::progress;
use crate::report::{Output, Wall, gigabytes, table};
use crate::signals::Interrupt;
use crate::sizes::{self, Sizes};

/// Bytes of the trial of each size, at least
const TRIAL_BYTES: u64 = 4 << 20;
/// A trial that takes this long is the result: more bytes would show the same rate
const LONG_TRIAL_NS: u64 = 20_000_000;

/// The goodput of some sizes
#[derive(Debug, Serialize)]
pub(crate) struct RemoteBw {
    /// Carrier of the session at its end: `rdma` or `tcp`
    backend: &'static str,
    peer: String,
    pub(crate) in_flight: u16,
    pub(crate) rows: Vec<RemoteRow>,
    wall_seconds: f64,
    #[serde(flatten)]
    carried: Carried,
}

/// The goodput of one size
#[derive(Debug, Serialize)]
pub(crate) struct RemoteRow {
    pub(crate) size_bytes: u64,
    count: u64,
    pub(crate) goodput_bytes_per_second: f64,
}

/// Measures the goodput to `host`
pub(crate) fn bw(args: &Bw, host: &Host, output: Output) -> Result<()> {
    let longest = MAX_MESSAGE as u64;
    if let Some(size) = args.bytes.each().last().filter(|size| *size > longest) {
        let (size, longest) = (sizes::text(size), sizes::text(longest));
        bail!(Failure::usage(format!(
            "--bytes: {size} is too long: messages to another machine have at most {longest}"
        )));
    }
    let interrupt = Interrupt::listen()?;
    let peer = Peer { host, machines: &args.machines, command: "tb5 serve", interrupt: &interrupt };
    let progress = progress::items(args.bytes.each().count() as u64);
    let report =
        measure_bw(peer, args.bytes, args.in_flight, &progress, |carrier| output.announce_carrier(carrier))?;
    progress.finish_and_clear();
    output.print(&report, || report.text())
}

/// Measures the goodput of each size to `peer`
pub(crate) fn measure_bw(
    peer: Peer<'_>,
    sizes: Sizes,
    in_flight: u16,
    progress: &ProgressBar,
    on_carrier: impl FnOnce(&str) -> Result<()>,
) -> Result<RemoteBw> {
    let wall = Wall::start();
    let (rows, carried) = peer.in_session(MAX_MESSAGE, in_flight.into(), on_carrier, async |session| {
        session.send_bytes(BW).await?;
        let mut rows = Vec::new();
        for size in sizes.each() {
            rows.push(row(session, size, in_flight).await?);
            progress.inc(1);
        }
        Ok(rows)
    })?;
    let (backend, wall_seconds) = (carried.backend(), wall.seconds());
    Ok(RemoteBw { backend, peer: peer.host.name().to_owned(), in_flight, rows, wall_seconds, carried })
}

async fn row<D: Device>(session: &Session<D>, size: u64, in_flight: u16) -> Result<RemoteRow> {
    let all = count_of(size, in_flight);
    let few = all.min(TRIAL_BYTES.div_ceil(size).max(2 * u64::from(in_flight)));
    let nanos = timed(session, size, few, in_flight).await?;
    let (count, nanos) = if nanos < LONG_TRIAL_NS && few < all {
        (all, timed(session, size, all, in_flight).await?)
    } else {
        (few, nanos)
    };
    let goodput_bytes_per_second = (size * count) as f64 / (nanos as f64 / 1e9);
    Ok(RemoteRow { size_bytes: size, count, goodput_bytes_per_second })
}

/// Sends messages, and returns the nanoseconds that the peer took to receive them
async fn timed<D: Device>(session: &Session<D>, size: u64, count: u64, in_flight: u16) -> Result<u64> {
    session.send_bytes(&[size.to_le_bytes(), count.to_le_bytes()].concat()).await?;
    send_messages(session, size as usize, count as usize, in_flight.into()).await?;
    let answer = session
        .recv()
        .await?
        .context("the peer closed the session before it sent the time that the messages took")?;
    let nanos = answer.as_array().map(|nanos| u64::from_le_bytes(*nanos)).filter(|nanos| *nanos > 0);
    nanos.context(FOREIGN)
}

/// Receives messages and answers with the time that those of each size took, until the peer closes the session; returns how many
/// bytes came
pub(super) async fn answer<D: Device>(session: &Session<D>) -> Result<u64> {
    let mut total = 0;
    while let Some(request) = session.recv().await? {
        let numbers = request.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number));
        let [size, count] = numbers.collect::<Vec<_>>().try_into().ok().context(FOREIGN)?;
        drop(request);
        let start = session.runtime().now();
        receive_messages(session, usize::try_from(size)?, usize::try_from(count)?).await?;
        let nanos = (session.runtime().now() - start).as_nanos().max(1) as u64;
        session.send_bytes(&nanos.to_le_bytes()).await?;
        total += size * count;
    }
    Ok(total)
}

impl RemoteBw {
    /// The highest goodput of all sizes
    pub(crate) fn best(&self) -> f64 {
        self.rows.iter().map(|row| row.goodput_bytes_per_second).fold(0.0, f64::max)
    }

    fn text(&self) -> String {
        let head = ["size (B)", "messages", "goodput (GB/s)"].map(str::to_owned);
        let rows = self.rows.iter().map(|row| {
            [row.size_bytes.to_string(), row.count.to_string(), gigabytes(row.goodput_bytes_per_second)]
        });
        let text = table(std::iter::once(head).chain(rows));
        let (devices, repairs) = (self.carried.devices.join(", "), self.carried.describe());
        format!("{text}\n{} in flight; paths at the end: {devices}; {repairs}", self.in_flight)
    }
}
