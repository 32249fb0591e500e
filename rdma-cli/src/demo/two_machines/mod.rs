//! The demonstration between this machine and another one, in real time

mod cables;
mod findings;
mod page;

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use serde::Serialize;

use self::findings::{Findings, Reduced};
use super::comparison::Comparison;
use super::files::Files;
use crate::args::{Carrier, Demo, Machines};
use crate::copy::Sources;
use crate::copy::remote::{Outcome, Sending};
use crate::devices;
use crate::failure::written;
use crate::file::{require_writable, reserve_standard_output, write_all};
use crate::machines::{Carried, Host, Peer};
use crate::measure::{MAX_ELEMENTS, MAX_MESSAGE, Pair, RemoteBw, RemotePing, measure_bw, measure_ping};
use crate::report::{Output, Wall, note, with_sources};
use crate::signals::{Interrupt, Interrupted};
use crate::sizes::Sizes;
use crate::{progress, recorded};

/// Below the directory of the other machine.
const COPY: &str = "tb5-demo";
/// The length of the messages of the ping, and how many.
const PING_BYTES: usize = 64;
const PINGS: u32 = 1000;
/// Sends in flight, where there are several.
const IN_FLIGHT: u16 = 8;
/// The all_reduces of which the fastest counts.
const ROUNDS: usize = 5;

/// Findings of the demonstration
#[derive(Serialize)]
struct TwoMachinesResult<'a> {
    #[serde(flatten)]
    found: &'a Findings,
    results: &'a [Comparison],
    report: String,
    wall_seconds: f64,
}

pub(super) fn run(args: &Demo, host: &Host, output: Output) -> Result<()> {
    reserve_standard_output([&args.out], output)?;
    let interrupt = Interrupt::listen()?;
    let wall = Wall::start();
    require_writable(&args.out).context("the report")?;
    let peer =
        Peer { host, machines: &args.machines, command: "tb5 serve --into DIR", interrupt: &interrupt };
    let found = collect(peer, output)?;
    let results = found.comparisons();
    write_all(&args.out, &page::page(&found, &results)).context("the report")?;
    let report = TwoMachinesResult {
        found: &found,
        results: &results,
        report: args.out.display().to_string(),
        wall_seconds: wall.seconds(),
    };
    output.print(&report, || {
        let (rows, wall) = (Comparison::text(&results), report.wall_seconds);
        format!(
            "{rows}\nthe copy is in {host}:{COPY}\nreport: {} (open it in a browser), {wall:.1} s",
            written(&args.out)
        )
    })
}

/// Runs every part, and fails if a result is wrong
fn collect(peer: Peer<'_>, output: Output) -> Result<Findings> {
    let (steps, hidden) = (progress::steps(5), ProgressBar::hidden());
    let step = |name: &'static str| {
        steps.set_message(name);
        steps.inc(1);
        peer.interrupt.check()
    };
    let ignore = |_: &str| Ok(());
    let machine = devices::list(&recorded::this_machine()?);
    step("ping")?;
    let mut carrier = String::new();
    let ping = measure_ping(peer, PING_BYTES, PINGS, &hidden, |name| {
        name.clone_into(&mut carrier);
        output.announce_carrier(name)
    })?;
    step("copy of a directory")?;
    let [copy, copy_drill] = [copy(peer, false)?, copy(peer, true)?];
    step("goodput by size")?;
    let sizes = Sizes::parse("4KiB..4MiB", crate::sizes::MAX_BW).map_err(anyhow::Error::msg)?;
    let bw =
        [measure_bw(peer, sizes, 1, &hidden, ignore)?, measure_bw(peer, sizes, IN_FLIGHT, &hidden, ignore)?];
    step("TCP beside it")?;
    let tcp =
        if ping.backend == Carried::RDMA { over_tcp(peer, sizes)? } else { Err("TCP is the only carrier") };
    let tcp_missing = tcp.as_ref().err().copied();
    let (tcp_ping, tcp_bw) = tcp.ok().unzip();
    step("all_reduce")?;
    let all_reduce = all_reduce(peer)?;
    steps.finish_and_clear();
    Ok(Findings {
        backend: ping.backend,
        peer: peer.host.name().to_owned(),
        carrier,
        machine,
        ping,
        tcp_ping,
        bw,
        tcp_bw,
        tcp_missing,
        copy,
        copy_drill,
        all_reduce,
    })
}

/// A ping and the goodput over TCP, for comparison, or why there is none
fn over_tcp(peer: Peer<'_>, sizes: Sizes) -> Result<Result<(RemotePing, RemoteBw), &'static str>> {
    let Machines { port, carrier, key } = peer.machines;
    if carrier.is_some() {
        return Ok(Err("not beside --carrier"));
    }
    let machines = Machines { port: *port, carrier: Some(Carrier::Tcp), key: key.clone() };
    let (peer, hidden) = (Peer { machines: &machines, ..peer }, ProgressBar::hidden());
    let measured = measure_ping(peer, PING_BYTES, PINGS, &hidden, |_| Ok(()))
        .and_then(|ping| Ok((ping, measure_bw(peer, sizes, IN_FLIGHT, &hidden, |_| Ok(()))?)));
    match measured {
        Err(error) if !error.is::<Interrupted>() => {
            note(&format!("TCP was not measured: {}", with_sources(&error)));
            Ok(Err("TCP could not be measured"))
        }
        measured => measured.map(Ok),
    }
}

/// A copy of a directory that the other machine does not have yet
fn copy(peer: Peer<'_>, is_drill: bool) -> Result<Outcome> {
    let files = Files::create(RandomState::new().build_hasher().finish())?;
    let sources = Sources::of_path(files.source(), true)?;
    let sending = Sending { sources, to: Path::new(COPY), is_drill, hashes: &Cell::new(0) };
    sending.send_to(peer, &ProgressBar::hidden(), |_| Ok(()))
}

/// Measures an all_reduce of both machines, undisturbed and with all paths broken in its middle
fn all_reduce(peer: Peer<'_>) -> Result<Reduced> {
    let ((time, drill), carried): (_, Carried) = peer.in_session(
        MAX_MESSAGE,
        IN_FLIGHT.into(),
        |_| Ok(()),
        async |session| {
            let mut pair = Pair::join(session).await?;
            let mut time = pair.all_reduce(MAX_ELEMENTS, None).await?;
            for _ in 1..ROUNDS {
                time = time.min(pair.all_reduce(MAX_ELEMENTS, None).await?);
            }
            Ok((time, pair.all_reduce(MAX_ELEMENTS, Some(time / 2)).await?))
        },
    )?;
    Ok(Reduced {
        bytes: (MAX_ELEMENTS * size_of::<f32>()) as u64,
        time_ns: time.as_nanos() as u64,
        drill_ns: drill.as_nanos() as u64,
        carried,
    })
}
