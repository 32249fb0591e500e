//! `tb5 run`: runs programs as the hosts of a simulated fabric

mod cause;
mod environment;
mod faults;
mod host;
mod listening;
#[cfg(target_os = "linux")]
mod net;
#[cfg(not(target_os = "linux"))]
mod no_net;
#[cfg(not(target_os = "linux"))]
mod no_orphans;
#[cfg(target_os = "linux")]
mod orphans;
mod output;
mod outside;
mod provider;
mod summary;
mod watch;

use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use rdma_sim_verbs::shared::{FabricError, Settings, SharedFabric};

use self::cause::Cause;
use self::environment::Environment;
pub(crate) use self::faults::has_fired;
use self::host::{Host, not_started};
#[cfg(not(target_os = "linux"))]
use self::no_net as net;
#[cfg(not(target_os = "linux"))]
use self::no_orphans as orphans;
use self::orphans::Orphans;
use self::output::{OwnLines, Relay, Stream};
use self::outside::{End, Outside};
pub(crate) use self::summary::{FaultOutcome, columns, faults_of};
use self::summary::{Summary, outcome};
use self::watch::{Policy, Watch};
use crate::args::{Pace, Run};
use crate::failure::Failure;
use crate::report::{Output, Wall, is_quiet};
use crate::signals::{INTERRUPTED, Interrupt};
use crate::{cabled_macs, fault_text, mac};

pub(crate) fn run(args: &Run, output: Output) -> Result<()> {
    // Before the topology, which may be impossible for another reason with so many hosts.
    args.hosts.map_or(Ok(()), check_hosts)?;
    let topology = cabled_macs::read(&args.topology, args.hosts)?;
    check_hosts(topology.hosts().len())?;
    let commands = commands(&args.program, topology.hosts().len())?;
    let plans = args.fault.iter().map(|text| fault_text::parse(text, 0, &topology));
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    let settings = Settings::new(topology).with_profile(mac::profile(&args.profile)?);
    let settings = settings.paced(args.pace == Pace::Tb5).seed(args.seed);
    let provider = provider::find()?;
    if args.net {
        net::enter(settings.topology(), &provider)?;
    }

    let interrupt = Interrupt::listen()?;
    let fabric = create(args.name.as_deref(), &settings)?;
    for fault in plans.iter().flat_map(|plan| &plan.0) {
        fabric.add_fault(&fault.to_string())?;
    }
    let (network, mut wires) = if args.net { Some(net::make(&fabric)?).unzip() } else { (None, None) };
    let coordinator = args.net.then(net::coordinator);
    let environment = Environment::new(&fabric, provider, args.link_layer.clone(), coordinator)?;

    let names: Vec<_> = settings.topology().hosts().iter().map(|host| host.name().to_owned()).collect();
    let backend = format!(
        "backend: simulator; fabric {}: {} hosts, {}, profile {}, {}{}",
        fabric.name(),
        names.len(),
        args.topology,
        args.profile,
        if args.pace == Pace::Tb5 { "paced" } else { "as fast as this machine" },
        if args.net { ", each host with a network of its own" } else { "" },
    );
    let mut own = OwnLines::new()?;
    if !is_quiet() {
        own.print(&backend);
    }
    let (relay, silences) = Relay::new(names.iter().map(|name| name.chars().count()).max().unwrap_or(0));
    let policy = Policy {
        grace: args.grace.0,
        stagger: args.stagger.map(|stagger| stagger.0),
        differ: commands.len() > 1,
    };
    // With --json, standard output holds one object only.
    let out = if output == Output::Json { Stream::Stderr } else { Stream::Stdout };
    let start = |number: usize| {
        let (name, words) = (&names[number], commands[number.min(commands.len() - 1)]);
        let set = |command: &mut Command| {
            environment.set(command, name, number);
            network.iter().for_each(|hosts| hosts.set(command, number));
        };
        Host::start(name, number, words, set, &relay, out)
            .map_err(|error| anyhow!("host {name}: {}", not_started(&words[0], &error)))
    };
    // Dropped after the hosts.
    let orphans = Orphans::adopt()?;
    let (begun, mut hosts) = (Wall::start(), Vec::new());
    let timeout = args.timeout.map(|timeout| timeout.0);
    let outside = Outside { interrupt: &interrupt, relay: &relay, begun, timeout };
    let watch = Watch::new(policy, &fabric, wires.as_mut(), &own, &outside, &orphans);
    let mut end = watch.run(&mut hosts, names.len(), &silences, start)?;
    // The last output may be lost when all programs have succeeded.
    end.add(relay.cause());
    let summary = Summary::new(&fabric, &hosts, end.cause, begun.seconds(), args.net);
    if output == Output::Text {
        summary.text().lines().for_each(|line| own.print(line));
    }
    if let Cause::Interrupted(_) = end.cause {
        own.print(INTERRUPTED);
    }
    // A run that was ended leaves lines that are not read.
    let _ = outside.wait(own.finish(), &mut end);
    if output == Output::Json {
        print_json(summary, &outside, &mut end)?;
    }
    match outcome(end.cause, &hosts).1 {
        0 => Ok(()),
        code => Err(Failure::Ended(code).into()),
    }
}

/// Prints the summary as JSON, and waits for the reader until the run is ended
fn print_json(summary: Summary, outside: &Outside<'_>, end: &mut End) -> Result<()> {
    let (done, printed) = mpsc::channel();
    // The receiver is gone if the tool does not wait any longer.
    let printing = move || drop(done.send(Output::Json.print(&summary, String::new)));
    thread::Builder::new().name("summary of the run".to_owned()).spawn(printing)?;
    outside.wait(&printed, end).unwrap_or(Ok(()))
}

/// Fails if `hosts` is more than the shared memory of a fabric holds
fn check_hosts(hosts: usize) -> Result<(), Failure> {
    const MOST: usize = SharedFabric::MAX_HOSTS;
    if hosts <= MOST {
        return Ok(());
    }
    Err(Failure::usage(format!("{hosts} hosts are too many: a fabric has at most {MOST} hosts")))
}

/// The commands of the hosts, separated by a lone colon; the last one is for all remaining hosts
fn commands(words: &[OsString], hosts: usize) -> Result<Vec<&[OsString]>, Failure> {
    let commands: Vec<_> = words.split(|word| word == ":").collect();
    if commands.iter().any(|command| command.is_empty()) {
        return Err(Failure::usage(
            "a lone ':' separates the commands of two hosts, and one is missing: write a command on both sides",
        ));
    }
    if commands.len() > hosts {
        let why = format!("{} commands for {hosts} hosts: write at most one for each host", commands.len());
        return Err(Failure::Usage(why));
    }
    Ok(commands)
}

/// Enters a fabric
pub(crate) fn open(name: &str) -> Result<SharedFabric> {
    SharedFabric::open(name).map_err(|error| match error {
        FabricError::Name(_) => Failure::usage(error).into(),
        error => error.into(),
    })
}

/// Creates a fabric whose name is not in use
fn create(name: Option<&str>, settings: &Settings) -> Result<SharedFabric> {
    // Listing removes the files of killed runs. If it fails, they stay, and do not disturb this run.
    let _ = SharedFabric::list();
    let random = RandomState::new().hash_one(()) as u16;
    let fresh = format!("run-{}-{random:04x}", std::process::id());
    let name = name.unwrap_or(&fresh);
    match open(name) {
        Ok(_) => Err(taken(name)),
        Err(error) if matches!(error.downcast_ref(), Some(FabricError::Missing(_))) => {
            claim(SharedFabric::create(name, settings)?)
        }
        Err(error) => Err(error),
    }
}

/// Takes a fabric for this run: two that begin at once under one name find none, and enter the same
fn claim(fabric: SharedFabric) -> Result<SharedFabric> {
    match File::create_new(fabric.directory().join("run")) {
        Ok(_) => Ok(fabric),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(taken(fabric.name())),
        Err(error) => Err(error).context("the files of the run"),
    }
}

fn taken(name: &str) -> anyhow::Error {
    anyhow!("there is a fabric called {name:?} already; end its processes or choose another name")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: of runs that began at once under one name, one ended with "File exists", and its faults were those of the other.
    #[test]
    fn of_two_runs_in_one_fabric_the_second_is_refused() {
        let name = format!("claim-{}", std::process::id());
        let [first, second] = [(); 2].map(|()| {
            claim(SharedFabric::create(&name, &Settings::new(rdma_sim::Topology::pair())).unwrap())
        });
        let refused = second.unwrap_err().to_string();
        assert!(refused.contains(&name) && refused.contains("choose another name"), "{refused}");
        drop(first.unwrap());
        assert!(open(&name).is_err(), "nothing is left");
    }

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
