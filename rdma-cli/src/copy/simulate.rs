//! A copy between two simulated Macs

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::ProgressBar;
use rdma_core::Time;
use rdma_sim::{FaultPlan, History, LineRate, Sim, Topology};
use serde::Serialize;

use super::destination::{Destination, prepare};
use super::faults::Faults;
use super::receive::Received;
use super::send::Sources;
use super::transfer::{Done, Transfer};
use super::words::size;
use crate::failure::{shown, written};
use crate::report::{SIMULATOR, Wall, duration, rate, repairs};
use crate::signals::Interrupt;

#[derive(Debug, Serialize)]
pub(crate) struct CopyResult {
    backend: &'static str,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    directories: u64,
    links: u64,
    resumed_bytes: u64,
    discarded_bytes: u64,
    pub(crate) blake3: String,
    pub(crate) virtual_seconds: f64,
    wall_seconds: f64,
    pub(crate) goodput_bytes_per_second: f64,
    pub(crate) ceiling_bytes_per_second: f64,
    pub(crate) efficiency: f64,
    cables: u8,
    pub(crate) reconnects: u32,
    pub(crate) retransmitted_bytes: u64,
    seed: u64,
    trace_digest: String,
}

/// Source, destination, cables and faults of a copy from the Mac `a` to `b`
pub(crate) struct Simulation {
    pub(crate) sources: Sources,
    pub(crate) destination: Destination,
    /// Of the destination, for errors
    pub(crate) path: PathBuf,
    pub(crate) topology: Topology,
    pub(crate) cables: u8,
    pub(crate) faults: Faults,
    pub(crate) seed: u64,
    pub(crate) keeps_records: bool,
}

/// A copy that both sides have verified
pub(crate) struct Copied {
    pub(crate) result: CopyResult,
    pub(crate) received: Received,
    /// When the first message was sent
    pub(crate) start: Time,
    /// When the sender had the confirmation of the receiver
    pub(crate) end: Time,
    /// The faults, and which of them have not fired
    pub(super) faults: String,
    pub(crate) history: History,
}

impl Simulation {
    /// A copy of everything in a directory, over one cable
    pub(crate) fn of_directory(src: &Path, dst: &Path, topology: &Topology) -> Result<Self> {
        let sources = Sources::of_path(src, true)?;
        Ok(Self {
            destination: prepare(&sources, dst)?,
            sources,
            path: dst.to_owned(),
            topology: topology.clone(),
            cables: 1,
            faults: FaultPlan::none().into(),
            seed: 0,
            keeps_records: false,
        })
    }

    pub(crate) fn run(self, progress: &ProgressBar, interrupt: &Interrupt) -> Result<Copied> {
        let Self { sources, destination, path, topology, cables, faults, seed, keeps_records } = self;
        let wall = Wall::start();
        let (shown, interrupt) = (progress.clone(), interrupt.clone());
        let plan = faults.plan();
        let transfer = Transfer { sources, destination, path, progress: shown, interrupt, cables, faults };
        let sim = Sim::new().seed(seed).topology(topology).faults(plan);
        let sim = if keeps_records { sim.keep_records() } else { sim };
        let run = sim.run(async |net| transfer.run(&net).await);
        progress.finish_and_clear();
        let Done { received, start, end, reconnects, retransmitted_bytes, faults } = run.value?;

        let virtual_seconds = (end - start).as_secs_f64();
        let copied = received.bytes - received.resumed;
        let goodput = if copied == 0 { 0.0 } else { copied as f64 / virtual_seconds };
        let ceiling = LineRate::TB5.ceiling_bytes_per_second() * f64::from(cables);
        let result = CopyResult {
            backend: SIMULATOR,
            bytes: received.bytes,
            files: received.files,
            directories: received.directories,
            links: received.links,
            resumed_bytes: received.resumed,
            discarded_bytes: received.discarded,
            blake3: received.hash.to_string(),
            virtual_seconds,
            wall_seconds: wall.seconds(),
            goodput_bytes_per_second: goodput,
            ceiling_bytes_per_second: ceiling,
            efficiency: goodput / ceiling,
            cables,
            reconnects,
            retransmitted_bytes,
            seed,
            trace_digest: run.digest.to_string(),
        };
        Ok(Copied { result, received, start, end, faults, history: run.history })
    }
}

impl Copied {
    /// The rows of text output
    pub(super) fn rows(&self, src: &Path, dst: &Path) -> [(&'static str, String); 8] {
        let CopyResult { wall_seconds, cables, reconnects, .. } = self.result;
        let CopyResult { goodput_bytes_per_second: goodput, ceiling_bytes_per_second: ceiling, .. } =
            self.result;
        let CopyResult { blake3, trace_digest, seed, efficiency, .. } = &self.result;
        let again = format!("{cables}, {}", repairs(reconnects, self.result.retransmitted_bytes));
        [
            ("copied", format!("{} to {}", shown(src), written(dst))),
            (
                "size",
                size(self.result.bytes, [self.result.files, self.result.directories, self.result.links]),
            ),
            ("blake3", format!("{blake3} (verified at both ends)")),
            (
                "virtual",
                format!("{}, {}", duration((self.end - self.start).as_nanos() as u64), rate(goodput)),
            ),
            ("ceiling", format!("{}, of which {:.1} %", rate(ceiling), efficiency * 100.0)),
            ("cables", again),
            ("wall", format!("{wall_seconds:.3} s")),
            ("trace digest", format!("{trace_digest} (seed {seed})")),
        ]
    }
}
