//! `tb5 bw` on the simulator: goodput by the size of messages, beside the ceiling of the cable and beside TCP

use anyhow::{Context as _, Result};
use futures::future::try_join;
use indicatif::ProgressBar;
use rdma_async::NodeOptions;
use rdma_sim::{Model, Net, Sim, Topology};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::args::Bw;
use crate::failure::Failure;
use crate::measure::{count_of, receive_messages, send_messages};
use crate::report::{Output, SIMULATOR, Wall, bytes, gigabytes, simulated, table};
use crate::sizes::MAX_BW;
use crate::{mac, progress};

/// Of each side, for sending and for receiving: room for many of the longest messages
const MEMORY: usize = 256 << 20;

#[derive(Debug, Serialize)]
pub(crate) struct BwResult {
    backend: &'static str,
    pub(crate) in_flight: u16,
    /// `None` if bytes take no time
    pub(crate) ceiling_bytes_per_second: Option<f64>,
    pub(crate) rows: Vec<Row>,
    seed: u64,
    wall_seconds: f64,
}

/// The goodput of one size
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) size_bytes: u64,
    count: u64,
    pub(crate) goodput_bytes_per_second: f64,
    /// `None` without a ceiling
    efficiency: Option<f64>,
    pub(crate) tcp_bytes_per_second: f64,
}

pub(crate) fn run(args: &Bw, output: Output) -> Result<()> {
    args.machines.require_host()?;
    require_memory(args)?;
    let model = mac::model(&args.profile)?;
    output.announce(&simulated(1))?;
    let progress = progress::items(args.bytes.each().count() as u64);
    let report = simulate(&Topology::pair(), args, &model, &progress)?;
    progress.finish_and_clear();
    output.print(&report, || report.text())
}

/// Fails unless there is memory for all sends that are to be in flight
fn require_memory(args: &Bw) -> Result<(), Failure> {
    let (longest, in_flight) = (args.bytes.each().last().unwrap_or(MAX_BW), u64::from(args.in_flight));
    let most = MEMORY as u64 / longest;
    if in_flight <= most {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{in_flight} sends of {} do not fit the memory of a session, {}: write --in-flight up to {most}, or shorter --bytes",
        bytes(longest),
        bytes(MEMORY as u64)
    )))
}

/// Measures the goodput from the Mac `a` to `b`
pub(crate) fn simulate(
    topology: &Topology,
    args: &Bw,
    model: &Model,
    progress: &ProgressBar,
) -> Result<BwResult> {
    let &Bw { bytes, in_flight, seed, .. } = args;
    let ceiling = mac::ceiling(model);
    let wall = Wall::start();
    // No device has to carry longer messages than those that are measured.
    let longest = bytes.each().last().unwrap_or(MAX_BW) as usize;
    let row = |size_bytes: u64| {
        let count = count_of(size_bytes, in_flight);
        let (len, sends) = (size_bytes as usize, count as usize);
        // The sanitizer takes most of the time of a run, and has tests of its own.
        let sim = || Sim::new().model(model.clone()).seed(seed).topology(topology.clone()).sanitize(false);
        let unended = || format!("{sends} messages of {} do not arrive", crate::report::bytes(size_bytes));
        let run = sim().try_run(async |net| send(&net, longest, len, sends, in_flight.into()).await);
        let goodput = run.with_context(unended)?.value?;
        let tcp = sim().try_run(async |net| send_over_tcp(&net, len, sends).await);
        let tcp_bytes_per_second = tcp.with_context(unended)?.value?;
        let efficiency = ceiling.map(|ceiling| goodput / ceiling);
        let row =
            Row { size_bytes, count, goodput_bytes_per_second: goodput, efficiency, tcp_bytes_per_second };
        progress.inc(1);
        anyhow::Ok(row)
    };
    let rows = bytes.each().map(row).collect::<Result<_>>()?;
    Ok(BwResult {
        backend: SIMULATOR,
        in_flight,
        ceiling_bytes_per_second: ceiling,
        rows,
        seed,
        wall_seconds: wall.seconds(),
    })
}

/// Sends messages over a session that carries the longest, and returns the bytes per second
async fn send(net: &Net, longest: usize, len: usize, count: usize, in_flight: usize) -> Result<f64> {
    let options = NodeOptions::new().max_message(longest);
    let [a, b] = mac::connect(net, &options.send_memory(MEMORY).receive_memory(MEMORY), 1).await?;
    let start = net.now();
    let send = async {
        send_messages(&a, len, count, in_flight).await?;
        a.close().await?;
        anyhow::Ok(())
    };
    let receive = async {
        receive_messages(&b, len, count).await?;
        Ok(net.now() - start)
    };
    let ((), took) = try_join(send, receive).await?;
    Ok((len * count) as f64 / took.as_secs_f64())
}

/// Writes messages to the TCP of the simulator, and returns the bytes per second
async fn send_over_tcp(net: &Net, len: usize, count: usize) -> Result<f64> {
    let (mut to, mut from) = net.tcp();
    let start = net.now();
    // TCP is slow: fewer messages show the same rate.
    let count = count.min((16_usize << 20).div_ceil(len));
    let send = async {
        let message = vec![7; len];
        for _ in 0..count {
            to.write_all(&message).await?;
        }
        anyhow::Ok(())
    };
    let receive = async {
        let mut message = vec![0; len];
        for _ in 0..count {
            from.read_exact(&mut message).await?;
        }
        Ok(net.now() - start)
    };
    let ((), took) = try_join(send, receive).await?;
    Ok((len * count) as f64 / took.as_secs_f64())
}

impl BwResult {
    /// The highest goodput of all sizes
    pub(crate) fn best(&self) -> f64 {
        self.rows.iter().map(|row| row.goodput_bytes_per_second).fold(0.0, f64::max)
    }

    fn text(&self) -> String {
        let head = ["size (B)", "messages", "goodput (GB/s)", "of the ceiling", "TCP (GB/s)"];
        let rows = self.rows.iter().map(|row| {
            [
                row.size_bytes.to_string(),
                row.count.to_string(),
                gigabytes(row.goodput_bytes_per_second),
                row.efficiency.map_or_else(String::new, |part| format!("{:.1} %", part * 100.0)),
                gigabytes(row.tcp_bytes_per_second),
            ]
        });
        let text = table(std::iter::once(head.map(str::to_owned)).chain(rows));
        let ceiling = match self.ceiling_bytes_per_second {
            Some(ceiling) => format!("the ceiling is {} GB/s", gigabytes(ceiling)),
            None => "there is no ceiling: bytes take no time".to_owned(),
        };
        format!("{text}\n{} in flight; {ceiling}", self.in_flight)
    }
}
