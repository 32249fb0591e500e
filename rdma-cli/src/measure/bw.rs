//! Goodput to another machine
//!
//! Before the messages of a size, this side says how long they are and how many come, and the peer answers with the time that they took.

use anyhow::{Context as _, Result, bail};
use rdma_async::{Device, Session};
use serde::Serialize;

use super::wire::{BW, FOREIGN, MAX_MESSAGE};
use crate::args::Bw;
use crate::bw::{count_of, receive_messages, send_messages};
use crate::failure::Failure;
use crate::machines::{
    Carried, Meeting, Peer, explain, key_options, part, room, runtime, unless_interrupted,
};
use crate::progress;
use crate::report::{Output, Wall, table};
use crate::signals::Interrupt;

#[derive(Debug, Serialize)]
struct RemoteBw {
    /// What carried it at its end: `rdma` or `tcp`
    backend: &'static str,
    peer: String,
    in_flight: u16,
    rows: Vec<RemoteRow>,
    wall_seconds: f64,
    #[serde(flatten)]
    carried: Carried,
}

#[derive(Debug, Serialize)]
struct RemoteRow {
    size_bytes: u64,
    count: u64,
    goodput_bytes_per_second: f64,
}

/// Measures the goodput to `host`
pub(crate) fn bw(args: &Bw, host: &str, output: Output) -> Result<()> {
    let &Bw { bytes, in_flight, .. } = args;
    let longest = MAX_MESSAGE;
    if let Some(size) = bytes.each().last().filter(|size| *size > longest as u64) {
        let why = format!("--bytes: {size} exceeds the longest message between machines, {longest} bytes");
        bail!(Failure::usage(why));
    }
    let interrupt = Interrupt::listen()?;
    let options = room(key_options(args.machines.key.as_deref())?, longest, in_flight.into());
    let progress = progress::items(bytes.each().count() as u64, output);
    let wall = Wall::start();
    let (rows, carried) = runtime()?.block_on(async {
        let peer = Peer { host, machines: &args.machines, command: "tb5 serve" };
        let Meeting { node, session } = Meeting::with(peer, options, &interrupt, output).await?;
        let done = unless_interrupted(&interrupt, async {
            session.send_bytes(BW).await?;
            let mut rows = Vec::new();
            for size in bytes.each() {
                rows.push(row(&session, size, in_flight).await?);
                progress.inc(1);
            }
            Ok(rows)
        });
        let done = done.await;
        let carried = Carried::over(&session);
        part(node, session, &done).await;
        anyhow::Ok((done.map_err(explain)?, carried))
    })?;
    progress.finish_and_clear();
    let backend = carried.backend();
    let report =
        RemoteBw { backend, peer: host.to_owned(), in_flight, rows, wall_seconds: wall.seconds(), carried };
    output.print(&report, || report.text())
}

async fn row<D: Device>(session: &Session<D>, size: u64, in_flight: u16) -> Result<RemoteRow> {
    let count = count_of(size, in_flight);
    session.send_bytes(&[size.to_le_bytes(), count.to_le_bytes()].concat()).await?;
    send_messages(session, size as usize, count as usize, in_flight.into()).await?;
    let answer = session.recv().await?.context("the peer closed the session before it had told the time")?;
    let nanos = answer.as_array().map(|nanos| u64::from_le_bytes(*nanos)).filter(|nanos| *nanos > 0);
    let nanos = nanos.context(FOREIGN)?;
    let goodput_bytes_per_second = (size * count) as f64 / (nanos as f64 / 1e9);
    Ok(RemoteRow { size_bytes: size, count, goodput_bytes_per_second })
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
    fn text(&self) -> String {
        let head = ["size (B)", "messages", "goodput (GB/s)"].map(str::to_owned);
        let rows = self.rows.iter().map(|row| {
            let goodput = format!("{:.3}", row.goodput_bytes_per_second / 1e9);
            [row.size_bytes.to_string(), row.count.to_string(), goodput]
        });
        let text = table(std::iter::once(head).chain(rows));
        let (devices, repairs) = (self.carried.devices.join(", "), self.carried.describe());
        format!("{text}\n{} in flight; carried by {devices}; {repairs}", self.in_flight)
    }
}
