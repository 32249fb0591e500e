//! Round trips with another machine

use anyhow::Result;
use serde::Serialize;

use super::wire::{MAX_MESSAGE, PING};
use crate::args::Ping;
use crate::machines::{
    Carried, Meeting, Peer, explain, key_options, part, room, runtime, unless_interrupted,
};
use crate::ping::{Distribution, round_trips};
use crate::progress;
use crate::report::{Output, Wall};
use crate::signals::Interrupt;

#[derive(Debug, Serialize)]
struct RemotePing {
    /// What carried it at its end: `rdma` or `tcp`
    backend: &'static str,
    peer: String,
    size_bytes: usize,
    count: u32,
    rtt_ns: Distribution,
    wall_seconds: f64,
    #[serde(flatten)]
    carried: Carried,
}

/// Measures round trips with `host`
pub(crate) fn ping(args: &Ping, host: &str, output: Output) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let (size, count) = (args.size as usize, args.count);
    let options = room(key_options(args.machines.key.as_deref())?, MAX_MESSAGE, 2);
    let progress = progress::items(count.into(), output);
    let wall = Wall::start();
    let (samples, carried) = runtime()?.block_on(async {
        let peer = Peer { host, machines: &args.machines, command: "tb5 serve" };
        let Meeting { node, session } = Meeting::with(peer, options, &interrupt, output).await?;
        let done = unless_interrupted(&interrupt, async {
            session.send_bytes(PING).await?;
            round_trips(&session, size, count, &progress).await
        });
        let done = done.await;
        let carried = Carried::over(&session);
        part(node, session, &done).await;
        anyhow::Ok((done.map_err(explain)?, carried))
    })?;
    progress.finish_and_clear();
    let report = RemotePing {
        backend: carried.backend(),
        peer: host.to_owned(),
        size_bytes: size,
        count,
        rtt_ns: Distribution::of(samples),
        wall_seconds: wall.seconds(),
        carried,
    };
    let trips = [("round trips", format!("{count} of {size} bytes with {host}"))];
    let carried = [
        ("wall", format!("{:.3} s", report.wall_seconds)),
        ("carried by", report.carried.devices.join(", ")),
        ("repairs", report.carried.describe()),
    ];
    output.outcome(&report, trips.into_iter().chain(report.rtt_ns.rows()).chain(carried))
}
