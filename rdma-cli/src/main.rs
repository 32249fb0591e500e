//! `tb5`: RDMA over Thunderbolt 5 from the terminal, real or simulated

mod args;
#[cfg(unix)]
mod bench;
mod bw;
#[cfg(unix)]
mod cabled_macs;
mod calibrate;
mod copy;
#[cfg(unix)]
mod demo;
mod devices;
mod doctor;
#[cfg(unix)]
mod fabric;
mod failure;
#[cfg(unix)]
mod fault_text;
mod file;
#[cfg(unix)]
mod html;
mod mac;
mod machines;
mod manual;
mod measure;
mod ping;
mod progress;
mod recorded;
mod report;
#[cfg(unix)]
mod run;
mod serve;
mod signals;
mod sim;
mod sizes;
#[cfg(unix)]
mod topo;
mod verbose;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::args::{Args, Command, SimCommand};
#[cfg(unix)]
use crate::args::{Demo, TopoCommand};
use crate::failure::Failure;
use crate::report::Output;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.quiet {
        report::be_quiet();
    }
    if args.verbose
        && let Err(error) = verbose::print_events()
    {
        report::note(&error.to_string());
    }
    let done = match &args.command {
        #[cfg(unix)]
        None => demo::run(&Demo::default(), args.output()),
        #[cfg(not(unix))]
        None => Err(Failure::usage("a command is missing").into()),
        Some(command) => perform(&args, command),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    match error.downcast_ref() {
        Some(Failure::Usage(why)) => Args::command().error(ErrorKind::ValueValidation, why).exit(),
        #[cfg(unix)]
        Some(Failure::Ended(code)) => ExitCode::from(*code),
        Some(Failure::Reported) => ExitCode::FAILURE,
        None => {
            report::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn perform(args: &Args, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Completions(_) | Command::Man(_) if args.output() == Output::Json => {
            Err(Failure::usage("--json: what shells and `man` read is text; leave the option out").into())
        }
        #[cfg(unix)]
        Command::Bench(bench) => bench::run(bench, args.output()),
        Command::Bw(bw) => match &bw.host {
            Some(host) => measure::bw(bw, host, args.output()),
            None => bw::run(bw, args.output()),
        },
        Command::Calibrate(calibrate) => calibrate::run(calibrate, args.output()),
        Command::Completions(completions) => manual::completions(completions),
        Command::Copy(copy) => copy::run(copy, args.output()),
        #[cfg(unix)]
        Command::Demo(demo) => demo::run(demo, args.output()),
        Command::Devices(devices) => devices::run(devices, args.output()),
        Command::Doctor(doctor) => doctor::run(doctor, args.output()),
        #[cfg(unix)]
        Command::Fabric(fabric) => fabric::run(fabric, args.output()),
        Command::Man(man) => manual::man(man),
        Command::Ping(ping) => match &ping.host {
            Some(host) => measure::ping(ping, host, args.output()),
            None => ping::run(ping, args.output()),
        },
        Command::Provider(provider) => recorded::print_probe(provider),
        #[cfg(unix)]
        Command::Run(run) => run::run(run, args.output()),
        Command::Serve(serve) => serve::run(serve, args.output()),
        Command::Sim(SimCommand::Check(check)) => sim::check(check, args.output()),
        Command::Sim(SimCommand::Replay(replay)) => sim::replay(replay, args.output()),
        Command::Sim(SimCommand::Run(run)) => sim::run(run, args.output()),
        Command::Sim(SimCommand::Trace(trace)) => sim::trace(trace, args.output()),
        #[cfg(unix)]
        Command::Topo(TopoCommand::Check(check)) => topo::check(check, args.output()),
        #[cfg(unix)]
        Command::Topo(TopoCommand::Convert(convert)) => topo::convert(convert, args.output()),
        #[cfg(unix)]
        Command::Topo(TopoCommand::Discover(discover)) => topo::discover(discover, args.output()),
        #[cfg(unix)]
        Command::Topo(TopoCommand::Draw(draw)) => topo::draw(draw, args.output()),
        #[cfg(unix)]
        Command::Topo(TopoCommand::Plan(plan)) => topo::plan(plan, args.output()),
    }
}
