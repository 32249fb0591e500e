//! `tb5 copy`: copies a file from one Mac to another

mod faults;
mod source;
mod transfer;

use indicatif::{ProgressBar, ProgressStyle};
use rdma_sim::{LineRate, Sim};
use serde::Serialize;

use self::faults::Faults;
use self::source::Source;
use self::transfer::Transfer;
use crate::args::Copy;
use crate::file::Replacement;
use crate::mac;
use crate::report::{Output, SIMULATOR, Wall, bytes, simulated};
use crate::signals::Interrupt;

#[derive(Debug, Serialize)]
struct CopyResult {
    backend: &'static str,
    bytes: u64,
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
    let cables = args.cables;
    let faults =
        args.fault.as_deref().map_or_else(|| Ok(Faults::default()), |text| Faults::parse(text, cables))?;
    let interrupt = Interrupt::listen()?;
    let source = Source::open(&args.src)?;
    source.require_other(&args.dst)?;
    let destination = Replacement::create(&args.dst, source.mode())?;
    output.announce(&simulated(cables))?;

    let progress = progress(source.len(), output);
    let wall = Wall::start();
    let last_fault = faults.end();
    let transfer =
        Transfer { source, destination, progress: progress.clone(), interrupt, cables, last_fault };
    let sim = Sim::new().seed(args.seed).topology(mac::topology(cables)).faults(faults.plan());
    let run = sim.run(async |net| transfer.run(&net).await);
    progress.finish_and_clear();
    let done = run.value?;

    let wall_seconds = wall.seconds();
    let virtual_seconds = done.virtual_time.as_secs_f64();
    let goodput = if done.bytes == 0 { 0.0 } else { done.bytes as f64 / virtual_seconds };
    let ceiling = LineRate::TB5.ceiling_bytes_per_second() * f64::from(cables);
    let report = CopyResult {
        backend: SIMULATOR,
        bytes: done.bytes,
        blake3: done.hash.to_string(),
        virtual_seconds,
        wall_seconds,
        goodput_bytes_per_second: goodput,
        ceiling_bytes_per_second: ceiling,
        efficiency: goodput / ceiling,
        cables,
        reconnects: done.reconnects,
        retransmitted_bytes: done.retransmitted_bytes,
        seed: args.seed,
        trace_digest: run.digest.to_string(),
    };
    let rate = |rate: f64| format!("{:.2} GB/s", rate / 1e9);
    let faults = (!faults.is_empty()).then(|| ("faults", faults.describe(done.end)));
    let again = format!(
        "{cables}, made again {}; {} sent again",
        times(done.reconnects),
        bytes(done.retransmitted_bytes)
    );
    let rows = [
        ("copied", format!("{} to {}", args.src.display(), args.dst.display())),
        ("size", format!("{} ({} bytes)", bytes(done.bytes), done.bytes)),
        ("blake3", format!("{} (verified at both ends)", report.blake3)),
        ("virtual", format!("{:.6} s, {}", virtual_seconds, rate(goodput))),
        ("ceiling", format!("{}, of which {:.1} %", rate(ceiling), report.efficiency * 100.0)),
        ("cables", again),
        ("wall", format!("{wall_seconds:.3} s")),
        ("trace digest", format!("{} (seed {})", report.trace_digest, args.seed)),
    ];
    output.outcome(&report, rows.into_iter().chain(faults))
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        _ => format!("{count} times"),
    }
}

/// A progress bar on a terminal, hidden elsewhere
fn progress(len: u64, output: Output) -> ProgressBar {
    if output == Output::Json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}");
    ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
