//! `tb5`: RDMA over Thunderbolt 5 from the terminal, real or simulated

#[cfg(not(unix))]
compile_error!("tb5 needs a Unix system, such as macOS or Linux");

mod args;
mod bench;
mod bw;
mod cabled_macs;
mod calibrate;
mod closed_streams;
mod copy;
mod demo;
mod devices;
mod doctor;
mod fabric;
mod failure;
mod fault_text;
mod file;
mod html;
mod input;
mod mac;
mod machines;
mod manual;
mod measure;
mod nearest;
mod path_counts;
mod ping;
mod progress;
mod recorded;
mod report;
mod run;
mod screen;
mod serve;
mod signals;
mod sim;
mod sizes;
mod topo;
mod verbose;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches};

use crate::args::{Args, Command, SimCommand};
use crate::args::{Demo, TopoCommand};
use crate::failure::Failure;
use crate::signals::Interrupted;

fn main() -> ExitCode {
    let parsed = args::command().try_get_matches().map_err(nearest::named);
    let parsed = parsed.and_then(|matches| Ok((Args::from_arg_matches(&matches)?, matches)));
    let (args, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    if args.quiet {
        report::be_quiet();
    }
    if let Err(error) = signals::end_on_signals().and_then(|()| signals::fail_writes_beyond_limits()) {
        report::note(&error.to_string());
    }
    if args.verbose
        && let Err(error) = verbose::print_events()
    {
        report::note(&error.to_string());
    }
    let done = match &args.command {
        None => demo::run(&Demo::default(), args.output()),
        Some(command) => perform(&args, command),
    };
    verbose::finish();
    let Err(error) = done else { return ExitCode::SUCCESS };
    match error.downcast_ref() {
        Some(Failure::Usage(why)) => {
            chosen(&matches).error(ErrorKind::ValueValidation, report::plain_lines(why)).exit()
        }
        Some(Failure::Ended(code)) => ExitCode::from(*code),
        Some(Failure::Reported) => ExitCode::FAILURE,
        None => {
            report::error(&error);
            let interrupted = error.chain().find_map(|cause| cause.downcast_ref::<Interrupted>());
            interrupted.map_or(ExitCode::FAILURE, |interrupted| ExitCode::from(interrupted.exit_code()))
        }
    }
}

/// Prints what clap has to say: an error of the arguments, or the help that was asked for
fn refuse(error: &clap::Error) -> ExitCode {
    let is_open = if error.use_stderr() { Ok(()) } else { closed_streams::require_output() };
    match is_open.and_then(|()| error.print()).and_then(|()| io::stdout().flush()) {
        Err(why) if !error.use_stderr() && why.kind() != io::ErrorKind::BrokenPipe => {
            report::error(&anyhow::Error::new(why).context("standard output: cannot be written"));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

/// The command of these arguments, for the usage that an error shows
fn chosen(matches: &ArgMatches) -> clap::Command {
    let (mut command, mut matches) = (args::command(), matches);
    command.build();
    while let Some((name, of_subcommand)) = matches.subcommand() {
        let Some(subcommand) = command.find_subcommand(name) else { break };
        (command, matches) = (subcommand.clone(), of_subcommand);
    }
    command
}

fn perform(args: &Args, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Bench(bench) => bench::run(bench, args.output()),
        Command::Bw(bw) => match &bw.host {
            Some(host) => measure::bw(bw, host, args.output()),
            None => bw::run(bw, args.output()),
        },
        Command::Calibrate(calibrate) => calibrate::run(calibrate, args.output()),
        Command::Completions(completions) => manual::completions(completions, args.output()),
        Command::Copy(copy) => copy::run(copy, args.output()),
        Command::Demo(demo) => demo::run(demo, args.output()),
        Command::Devices(devices) => devices::run(devices, args.output()),
        Command::Doctor(doctor) => doctor::run(doctor, args.output()),
        Command::Fabric(fabric) => fabric::run(fabric, args.output()),
        Command::Man(man) => manual::man(man, args.output()),
        Command::Ping(ping) => match &ping.host {
            Some(host) => measure::ping(ping, host, args.output()),
            None => ping::run(ping, args.output()),
        },
        Command::Provider(provider) => recorded::print_probe(provider),
        Command::Run(run) => run::run(run, args.output()),
        Command::Serve(serve) => serve::run(serve, args.output()),
        Command::Sim(SimCommand::Check(check)) => sim::check(check, args.output()),
        Command::Sim(SimCommand::Replay(replay)) => sim::replay(replay, args.output()),
        Command::Sim(SimCommand::Run(run)) => sim::run(run, args.output()),
        Command::Sim(SimCommand::Trace(trace)) => sim::trace(trace, args.output()),
        Command::Topo(TopoCommand::Check(check)) => topo::check(check, args.output()),
        Command::Topo(TopoCommand::Convert(convert)) => topo::convert(convert, args.output()),
        Command::Topo(TopoCommand::Discover(discover)) => topo::discover(discover, args.output()),
        Command::Topo(TopoCommand::Draw(draw)) => topo::draw(draw, args.output()),
        Command::Topo(TopoCommand::Plan(plan)) => topo::plan(plan, args.output()),
    }
}
