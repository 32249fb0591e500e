//! The demonstration on a cluster of simulated Macs

mod cluster;
mod findings;
mod page;
mod unplug;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rdma_sim::topology::Topology;
use rdma_sim::{FaultPlan, Model};
use serde::Serialize;

use self::findings::Findings;
use self::unplug::Unplugged;
use super::comparison::Comparison;
use super::files::{Files, compare};
use crate::args::{Bw, Demo, Machines, Ping};
use crate::bench::{AllReduce, Row};
use crate::bw::{self, BwResult};
use crate::copy::{CopyResult, Simulation};
use crate::devices::{self, DeviceList};
use crate::failure::written;
use crate::file::{require_writable, reserve_standard_output, write_all};
use crate::mac;
use crate::ping::{self, PingResult};
use crate::report::{Output, SIMULATOR, Wall, is_quiet, print_line};
use crate::signals::Interrupt;
use crate::sizes::Sizes;
use crate::{progress, recorded};

/// Macs of the simulated cluster
const MACS: usize = 4;
/// Bytes of the vector of each Mac
const VECTOR: u64 = 16 << 20;
/// Time for which a cable is out during the copy
const OUTAGE: Duration = Duration::from_millis(2);

/// Findings of the demonstration
#[derive(Serialize)]
struct DemoResult<'a> {
    backend: &'static str,
    hosts: usize,
    seed: u64,
    /// Devices of this machine.
    machine: &'a DeviceList,
    /// Devices of the simulated Macs, in their order.
    devices: &'a [DeviceList],
    ping: &'a PingResult,
    bw: [&'a BwResult; 2],
    copy: &'a CopyResult,
    all_reduce: &'a Row,
    copy_unplugged: &'a Unplugged,
    all_reduce_unplugged: &'a Unplugged,
    results: &'a [Comparison],
    report: String,
    wall_seconds: f64,
}

pub(super) fn run(args: &Demo, output: Output) -> Result<()> {
    reserve_standard_output([&args.out], output)?;
    let interrupt = Interrupt::listen()?;
    let wall = Wall::start();
    require_writable(&args.out).context("the report")?;
    let machine = recorded::this_machine()?;
    let machine_devices = devices::list(&machine);
    output.announce(&format!(
        "backend: simulator ({MACS} Macs, one Thunderbolt 5 cable between any two; times are virtual)"
    ))?;
    if machine_devices.rdma == Some(true) {
        output.announce(&format!(
            "{}\nwhat needs a peer runs on the simulator: on two machines, run `tb5 serve --into DIR` there and `tb5 demo HOST:` here",
            devices::text(&machine, &machine_devices, None)
        ))?;
    }
    let found = collect(args, machine_devices, &interrupt, output)?;
    let results = found.comparisons();
    interrupt.check()?;
    write_all(&args.out, &page::page(&found, &results, args.seed)).context("the report")?;
    let report = DemoResult {
        backend: SIMULATOR,
        hosts: MACS,
        seed: args.seed,
        machine: &found.machine,
        devices: &found.devices,
        ping: &found.ping,
        bw: found.bw.each_ref(),
        copy: &found.copy,
        all_reduce: &found.all_reduce,
        copy_unplugged: &found.copy_unplugged.0,
        all_reduce_unplugged: &found.all_reduce_unplugged.0,
        results: &results,
        report: args.out.display().to_string(),
        wall_seconds: wall.seconds(),
    };
    output.print(&report, || {
        let rows = Comparison::text(&results);
        let (place, wall) = (written(&args.out), report.wall_seconds);
        format!("{rows}\nreport: {place} (open it in a browser), {wall:.1} s")
    })
}

/// Runs every part, and fails if a result is wrong
fn collect(args: &Demo, machine: DeviceList, interrupt: &Interrupt, output: Output) -> Result<Findings> {
    let seed = args.seed;
    let profile = || Model::PROFILES[0].to_owned();
    let model = mac::model(Model::PROFILES[0])?;
    let topology = Topology::mesh(MACS, MACS - 1)?;
    let (steps, hidden) = (progress::steps(6), indicatif::ProgressBar::hidden());
    let step = |name: &'static str| {
        steps.set_message(name);
        steps.inc(1);
        interrupt.check()
    };
    step("devices")?;
    let devices = cluster::devices(&topology)?;
    if output == Output::Text && !is_quiet() {
        print_line(&cluster::text(&devices))?;
    }
    step("ping")?;
    let ping = ping::simulate(
        &topology,
        &Ping { host: None, bytes: 64, count: 1000, seed, profile: profile(), machines: Machines::default() },
        &model,
        &hidden,
    )?;
    step("goodput by size")?;
    let bytes = Sizes::parse("4KiB..4MiB", crate::sizes::MAX_BW).map_err(anyhow::Error::msg)?;
    let bw = |in_flight| {
        interrupt.check()?;
        let machines = Machines::default();
        bw::simulate(
            &topology,
            &Bw { host: None, bytes, in_flight, seed, profile: profile(), machines },
            &model,
            &hidden,
        )
    };
    let bw = [bw(1)?, bw(8)?];
    step("copy of a directory")?;
    let files = Files::create(0)?;
    let copy = |to: &Path, faults: FaultPlan, keeps_records| {
        let simulation = Simulation::of_directory(files.source(), to, &topology)?;
        let simulation = Simulation { faults: faults.into(), seed, keeps_records, ..simulation };
        let copied = simulation.run(&hidden, interrupt);
        // An interrupted copy says to copy again, which nobody can do with the copy of a demonstration.
        interrupt.check()?;
        let copied = copied?;
        compare(files.source(), to)?;
        anyhow::Ok(copied)
    };
    let undisturbed = copy(&files.copy(0), FaultPlan::none(), false)?;
    step("all_reduce")?;
    let all_reduce = |faults, keeps_records| {
        interrupt.check()?;
        AllReduce { topology: &topology, bytes: VECTOR, seed, faults, keeps_records }.run()
    };
    let reduced = all_reduce(FaultPlan::none(), false)?;
    ensure!(reduced.row.is_right(), "the result of the all_reduce is wrong");
    step("an unplugged cable")?;
    let took = undisturbed.end - undisturbed.start;
    let copy_unplugged = unplug::during(undisturbed.start, took, Some(OUTAGE), |faults| {
        let copied = copy(&files.copy(1), faults, true)?;
        Ok((copied.end - copied.start, copied.history))
    })?;
    let took = Duration::from_nanos(reduced.row.time_ns);
    let all_reduce_unplugged = unplug::during(reduced.start, took, None, |faults| {
        let reduced = all_reduce(faults, true)?;
        ensure!(reduced.row.is_right(), "the result of the all_reduce is wrong");
        Ok((Duration::from_nanos(reduced.row.time_ns), reduced.history))
    })?;
    steps.finish_and_clear();
    let (copy, all_reduce) = (undisturbed.result, reduced.row);
    Ok(Findings {
        topology,
        machine,
        devices,
        ping,
        bw,
        copy,
        all_reduce,
        copy_unplugged,
        all_reduce_unplugged,
    })
}
