//! `tb5 run`: runs programs as the hosts of a simulated fabric

mod environment;
mod faults;
mod host;
mod listening;
mod output;
mod provider;
mod summary;
mod watch;

use std::ffi::OsString;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::mpsc;

use rdma_sim::FaultPlan;
use rdma_sim_verbs::shared::{FabricError, Settings, SharedFabric, topology};

use self::environment::Environment;
use self::host::Host;
use self::output::{Relay, Stream, print_line};
use self::summary::Summary;
pub(crate) use self::summary::{Happened, columns, faults_of};
use self::watch::{Policy, Watch};
use crate::args::{Pace, Run};
use crate::failure::Failure;
use crate::report::{Output, Wall};
use crate::signals::Interrupt;

pub(crate) fn run(args: &Run, output: Output) -> Result<(), Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
    let topology = topology(&args.topology, args.hosts).map_err(|error| usage(&error))?;
    let commands = commands(&args.program, topology.hosts().len())?;
    let plans = args.fault.iter().map(|text| text.parse::<FaultPlan>());
    let plans = plans.collect::<Result<Vec<_>, _>>().map_err(|error| usage(&error))?;
    plans.iter().try_for_each(|plan| plan.check(&topology)).map_err(|error| usage(&error))?;
    let settings = Settings::new(topology).profile(&args.profile).map_err(|error| usage(&error))?;
    let settings = settings.paced(args.pace == Pace::Tb5).seed(args.seed);
    let provider = provider::find().map_err(Failure::failed)?;

    let interrupt = Interrupt::listen().map_err(Failure::failed)?;
    let fabric = create(args.name.as_deref(), &settings)?;
    for fault in plans.iter().flat_map(|plan| &plan.0) {
        fabric.add_fault(&fault.to_string()).map_err(Failure::failed)?;
    }
    let link_layer = args.link_layer.map(|layer| layer.name().to_owned());
    let environment = Environment::new(&fabric, provider, link_layer).map_err(Failure::failed)?;

    let names: Vec<_> = settings.topology().hosts().iter().map(|host| host.name().to_owned()).collect();
    print_line(&format!(
        "backend: simulator; fabric {}: {} hosts, {}, profile {}, {}",
        fabric.name(),
        names.len(),
        args.topology,
        args.profile,
        if args.pace == Pace::Tb5 { "paced" } else { "as fast as this machine" },
    ));
    let (ended, silences) = mpsc::channel();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let relay = Relay { is_unread: Arc::default(), ended, width };
    let policy = Policy {
        grace: args.grace.0,
        timeout: args.timeout.map(|timeout| timeout.0),
        stagger: args.stagger.map(|stagger| stagger.0),
        differ: commands.len() > 1,
    };
    // With --json, standard output holds one object only.
    let out = if output == Output::Json { Stream::Stderr } else { Stream::Stdout };
    let start = |number: usize| {
        let (name, words) = (&names[number], commands[number.min(commands.len() - 1)]);
        Host::start(name, number, words, |command| environment.set(command, name, number), &relay, out)
            .map_err(|error| {
                let program = words[0].to_string_lossy();
                std::io::Error::new(
                    error.kind(),
                    format!("host {name}: {program:?} cannot be started: {error}"),
                )
            })
    };
    let (begun, mut hosts) = (Wall::start(), Vec::new());
    let cause = Watch::new(policy, &fabric, &relay, &interrupt)
        .run(&mut hosts, names.len(), &silences, start)
        .map_err(Failure::failed)?;
    let summary = Summary::new(&fabric, &hosts, cause, begun.seconds());
    match output {
        Output::Json => output.print(&summary, String::new)?,
        Output::Text => summary.text().lines().for_each(print_line),
    }
    match summary.exit_code() {
        0 => Ok(()),
        code => Err(Failure::Ended(code)),
    }
}

/// The commands of the hosts, separated by a lone colon; the last one is for all remaining hosts
fn commands(words: &[OsString], hosts: usize) -> Result<Vec<&[OsString]>, Failure> {
    let commands: Vec<_> = words.split(|word| word == ":").collect();
    if commands.iter().any(|command| command.is_empty()) {
        return Err(Failure::Usage("a lone ':' separates the commands of two hosts, and one is missing: write a command on both sides".into()));
    }
    if commands.len() > hosts {
        let why = format!("{} commands for {hosts} hosts: write at most one for each host", commands.len());
        return Err(Failure::Usage(why));
    }
    Ok(commands)
}

/// Creates a fabric whose name is not in use
fn create(name: Option<&str>, settings: &Settings) -> Result<SharedFabric, Failure> {
    // Listing removes the files of killed runs. If it fails, they stay, and do not disturb this run.
    let _ = SharedFabric::list();
    let fresh;
    let name = match name {
        Some(name) => name,
        None => {
            let random = RandomState::new().hash_one(()) as u16;
            fresh = format!("run-{}-{random:04x}", std::process::id());
            &fresh
        }
    };
    match SharedFabric::open(name) {
        Err(FabricError::Missing(_)) => SharedFabric::create(name, settings).map_err(Failure::failed),
        Err(error @ FabricError::Name(_)) => Err(Failure::Usage(error.to_string())),
        Err(error) => Err(Failure::failed(error)),
        Ok(_) => Err(Failure::failed(std::io::Error::new(
            std::io::ErrorKind::AlreadyExists,
            format!("there is a fabric called {name:?} already; end its processes or choose another name"),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_command_is_for_all_remaining_hosts() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let all = words("server -v : client :x y");
        let found = commands(&all, 3).ok().unwrap();
        assert_eq!(found, [&words("server -v")[..], &words("client :x y")[..]]);
        for (text, hosts) in [(": a", 2), ("a :", 2), ("a : : b", 3), ("a : b : c", 2)] {
            assert!(matches!(commands(&words(text), hosts), Err(Failure::Usage(_))), "{text}");
        }
    }
}
