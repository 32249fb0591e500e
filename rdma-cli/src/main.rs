//! `tb5`: RDMA over Thunderbolt 5 from the terminal, real or simulated

mod args;
#[cfg(unix)]
mod bench;
mod copy;
mod devices;
mod doctor;
#[cfg(unix)]
mod fabric;
mod failure;
#[cfg(unix)]
mod fault_text;
mod file;
mod mac;
mod ping;
mod recorded;
mod remote_path;
mod report;
#[cfg(unix)]
mod run;
mod signals;
mod sim;
#[cfg(unix)]
mod topo;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

#[cfg(unix)]
use crate::args::TopoCommand;
use crate::args::{Args, Command, SimCommand};
use crate::failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Command::Devices(_) | Command::Doctor(_) if args.sim => {
            let why = "--sim: the simulator has no devices to discover; leave the option out";
            Err(Failure::usage(why).into())
        }
        #[cfg(unix)]
        Command::Bench(bench) => bench::run(bench, args.output()),
        Command::Copy(copy) if args.sim && copy.is_between_machines() => {
            let why = "--sim: a copy between machines is not simulated; leave the option out";
            Err(Failure::usage(why).into())
        }
        Command::Copy(copy) => copy::run(copy, args.output()),
        Command::Devices(devices) => devices::run(devices, args.output()),
        Command::Doctor(doctor) => doctor::run(doctor, args.output()),
        #[cfg(unix)]
        Command::Fabric(fabric) => fabric::run(fabric, args.output()),
        Command::Ping(ping) => ping::run(ping, args.output()),
        Command::Provider(provider) => recorded::print_probe(provider),
        #[cfg(unix)]
        Command::Run(run) => run::run(run, args.output()),
        Command::Sim(SimCommand::Run(run)) => sim::run(run, args.output()),
        Command::Sim(SimCommand::Trace(trace)) => sim::trace(trace, args.output()),
        #[cfg(unix)]
        Command::Topo(TopoCommand::Check(check)) => topo::check(check, args.output()),
        #[cfg(unix)]
        Command::Topo(TopoCommand::Plan(plan)) => topo::plan(plan, args.output()),
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
