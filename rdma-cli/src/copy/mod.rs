//! `tb5 copy`: copies files from one Mac to another

mod agreed;
mod destination;
mod digest;
mod entry;
mod faults;
mod receive;
mod remote;
mod send;
mod source;
mod transfer;
mod tree;
mod words;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use rdma_sim::{LineRate, Sim};
use serde::Serialize;

use self::destination::Destination;
use self::faults::Faults;
use self::send::Sources;
use self::transfer::Transfer;
use self::words::{earlier, progress, rate, repairs, size};
use crate::args::Copy;
use crate::failure::at;
use crate::file::Replacement;
use crate::mac;
use crate::report::{Output, SIMULATOR, Wall, simulated};
use crate::signals::Interrupt;

#[derive(Debug, Serialize)]
struct CopyResult {
    backend: &'static str,
    bytes: u64,
    files: u64,
    directories: u64,
    links: u64,
    resumed_bytes: u64,
    discarded_bytes: u64,
    blake3: String,
    virtual_seconds: f64,
    wall_seconds: f64,
    goodput_bytes_per_second: f64,
    ceiling_bytes_per_second: f64,
    efficiency: f64,
    cables: u8,
    reconnects: u32,
    retransmitted_bytes: u64,
    seed: u64,
    trace_digest: String,
}

pub(crate) fn run(args: &Copy, output: Output) -> anyhow::Result<()> {
    if let Some(root) = &args.listen {
        return remote::listen(args, root, output);
    }
    let (src, dst) = (args.source()?, args.destination()?);
    match args.remote() {
        Some(path) => {
            args.require_effect(true)?;
            remote::send(args, &path, output)
        }
        None => {
            args.require_effect(false)?;
            simulate(args, src, dst, output)
        }
    }
}

/// Copies between two simulated Macs
fn simulate(args: &Copy, src: &Path, dst: &Path, output: Output) -> anyhow::Result<()> {
    let (cables, seed) = (args.cables.unwrap_or(1), args.seed.unwrap_or(0));
    let faults =
        args.fault.as_deref().map_or_else(|| Ok(Faults::default()), |text| Faults::parse(text, cables))?;
    let interrupt = Interrupt::listen()?;
    let sources = Sources::open(src, args.recursive)?;
    let destination = destination(&sources, dst)?;
    output.announce(&simulated(cables))?;

    let progress = progress(sources.len(), output);
    let wall = Wall::start();
    let last_fault = faults.end();
    let (path, shown) = (dst.to_owned(), progress.clone());
    let transfer = Transfer { sources, destination, path, progress: shown, interrupt, cables, last_fault };
    let sim = Sim::new().seed(seed).topology(mac::topology(cables)).faults(faults.plan());
    let run = sim.run(async |net| transfer.run(&net).await);
    progress.finish_and_clear();
    let done = run.value?;
    let received = &done.received;

    let wall_seconds = wall.seconds();
    let virtual_seconds = done.virtual_time.as_secs_f64();
    let copied = received.bytes - received.resumed;
    let goodput = if copied == 0 { 0.0 } else { copied as f64 / virtual_seconds };
    let ceiling = LineRate::TB5.ceiling_bytes_per_second() * f64::from(cables);
    let report = CopyResult {
        backend: SIMULATOR,
        bytes: received.bytes,
        files: received.files,
        directories: received.directories,
        links: received.links,
        resumed_bytes: received.resumed,
        discarded_bytes: received.discarded,
        blake3: received.hash.to_string(),
        virtual_seconds,
        wall_seconds,
        goodput_bytes_per_second: goodput,
        ceiling_bytes_per_second: ceiling,
        efficiency: goodput / ceiling,
        cables,
        reconnects: done.reconnects,
        retransmitted_bytes: done.retransmitted_bytes,
        seed,
        trace_digest: run.digest.to_string(),
    };
    let faults = (!faults.is_empty()).then(|| ("faults", faults.describe(done.end)));
    let again = format!("{cables}, {}", repairs(done.reconnects, done.retransmitted_bytes));
    let rows = [
        ("copied", format!("{} to {}", src.display(), dst.display())),
        ("size", size(received)),
        ("blake3", format!("{} (verified at both ends)", report.blake3)),
        ("virtual", format!("{:.6} s, {}", virtual_seconds, rate(goodput))),
        ("ceiling", format!("{}, of which {:.1} %", rate(ceiling), report.efficiency * 100.0)),
        ("cables", again),
        ("wall", format!("{wall_seconds:.3} s")),
        ("trace digest", format!("{} (seed {})", report.trace_digest, seed)),
    ];
    output.outcome(&report, rows.into_iter().chain(faults).chain(earlier(received)))
}

/// Prepares the destination, or refuses it
fn destination(sources: &Sources, path: &Path) -> anyhow::Result<Destination> {
    match sources {
        Sources::File(source) => {
            source.require_other(path)?;
            Ok(Destination::File(Some(Replacement::create(path, source.mode())?)))
        }
        Sources::Directory { root, .. } => {
            require_outside(path, root)?;
            Ok(Destination::folder(path))
        }
    }
}

/// Fails unless a directory can be at `path` or is there, outside of `source`
fn require_outside(path: &Path, source: &Path) -> anyhow::Result<()> {
    let folder = destination::require_directory(path)?;
    let source = fs::canonicalize(source).with_context(|| at(source, "cannot be read"))?;
    ensure!(!folder.starts_with(&source), at(path, "is in the directory that is copied"));
    Ok(())
}
