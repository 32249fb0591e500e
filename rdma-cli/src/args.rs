//! Command line arguments

mod copy;
mod demo;
mod machines;
pub(crate) mod names;
pub(crate) mod number;
mod operation;
mod sim;
mod topo;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, CommandFactory as _, Parser, Subcommand};
use rdma_doctor::discover::peer_probe::PeerTarget;
use rdma_sim_verbs::shared::SharedFabric;

pub(crate) use self::copy::Copy;
pub(crate) use self::demo::Demo;
pub(crate) use self::machines::{Carrier, Machines, Serve};
pub(crate) use self::operation::OperationName;
pub(crate) use self::sim::{SimCheck, SimCommand, SimReplay, SimRun, SimTrace, TraceFiles};
pub(crate) use self::topo::{
    Drawing, Format, TopoCheck, TopoCommand, TopoConvert, TopoDiscover, TopoDraw, TopoPlan, Topology, Written,
};
use crate::bench::NumberType;
use crate::machines::Host;
use crate::report::Output;
use crate::sim::Period;
use crate::sizes::{self, Sizes};

/// RDMA over Thunderbolt 5, real or simulated
///
/// `bw`, `copy` and `ping` run on the simulator: two Macs, a cable, virtual time; `bench` and `demo` with more of them. Equal seeds give equal runs. With HOST:, `bw`, `calibrate`, `copy`, `demo` and `ping` work with
/// another machine, where `serve`, `calibrate --listen` or `copy --listen` runs. `devices` and `doctor`
/// inspect this machine, or a report that was recorded on another one. `topo` plans and draws cablings.
#[derive(Debug, Parser)]
#[command(
    name = "tb5",
    version,
    after_help = "Examples: tb5; tb5 ping; tb5 copy README.md copy.md; tb5 help copy.\n\nExit codes: 0 done, 1 failed, also if a file cannot be read or written, 2 the arguments are wrong, 130 after Ctrl-C. When a command fails \
    before it has a result, standard error says why, and standard output has at most the line that names the backend, with --json nothing; a result that \
    is a failed check, of doctor, run or sim, is printed as others are."
)]
pub(crate) struct Args {
    /// The command; without one, `demo`
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Print JSON instead of text: one object, or one in a line with a command that listens
    #[arg(long, global = true)]
    json: bool,
    /// Print results and errors only: no backend, no remarks, no progress
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print what happens inside to standard error: paths that come and go, and why
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

/// Commands that use no library which reports events: their help leaves `--verbose` out
const WITHOUT_EVENTS: [&str; 7] = ["completions", "devices", "doctor", "fabric", "man", "run", "topo"];

/// The command line
pub(crate) fn command() -> clap::Command {
    let command = Args::command();
    let hidden = verbose(&command).hide(true);
    command.mut_subcommands(|command| if has_events(&command) { command } else { command.arg(&hidden) })
}

/// The command line for completions, which list options that help hides: each only where it does something
pub(crate) fn completed_command() -> clap::Command {
    let command = Args::command().mut_arg("verbose", |verbose| verbose.global(false));
    let verbose = verbose(&command);
    command.mut_subcommands(|command| if has_events(&command) { with(command, &verbose) } else { command })
}

/// The option `--verbose` of a command line
fn verbose(command: &clap::Command) -> Arg {
    let mut options = command.get_arguments();
    options.find(|option| option.get_id() == "verbose").expect("it is an option of the tool").clone()
}

fn has_events(command: &clap::Command) -> bool {
    !WITHOUT_EVENTS.contains(&command.get_name())
}

/// Adds an option to a command and to each of its subcommands
fn with(command: clap::Command, option: &Arg) -> clap::Command {
    command.arg(option).mut_subcommands(|command| with(command, option))
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        if self.json { Output::Json } else { Output::Text }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a collective operation of simulated Macs, beside the bound and the schedules of JACCL
    #[command(
        after_help = "Columns and conventions are those of nccl-tests; results are checked element by element. No plan is faster than the \
                      bound: the latency between the furthest hosts, or the time of the best plan for so many bytes, if that is more. JACCL \
                      is the collectives of MLX: its published schedules on bare verbs, where the cabling is a mesh or has a ring \
                      of at most 8 Macs. Equal arguments give equal times, which are virtual.\n\n\
                      Examples: tb5 bench all-reduce; tb5 bench all-reduce --topology ring:5 --bytes 4..256MiB --dtype bf16; \
                      tb5 bench all-to-all --topology macs.toml --json.\n\n\
                      Exit codes: 0 done, 1 a result is wrong, there is no plan or a rank failed, 2 usage, 130 after Ctrl-C."
    )]
    Bench(Bench),
    /// Measure the goodput by the size of messages between two Macs, beside the ceiling of the cable, or to another machine
    #[command(
        after_help = "Goodput is that of the payload, from the first message to the last one at the receiver. Without HOST:, two \
                      simulated Macs: equal arguments give equal times, which are virtual. With it, another machine where `tb5 serve` \
                      runs, in real time, over all cables with RDMA between the machines, or over TCP while there is none.\n\n\
                      The column TCP is what the same messages reach over a TCP stream between the simulated Macs, without RDMA. Its model is \
                      what users measured over Thunderbolt networking: rsync at up to 0.5 GB/s (MLX issue 3207), and a round trip of \
                      300 µs (docs/PUBLISHED.md).\n\n\
                      Examples: tb5 bw; tb5 bw --bytes 1MiB --in-flight 1; tb5 bw --bytes 4KiB..16MiB --json; tb5 bw mini:.\n\n\
                      Exit codes: 0 done, 1 failed, 2 usage, 130 after Ctrl-C."
    )]
    Bw(Bw),
    /// Find out how the device of two Macs behaves: a profile for the simulator, and a page for people
    #[command(after_help = crate::calibrate::HELP)]
    Calibrate(crate::calibrate::Arguments),
    /// Copy a file or a directory from one Mac to another over the cable, and verify it
    #[command(
        after_help = "Faults show how a copy goes on: --fault 'at 2ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug' pulls the cable after \
                      2 ms, and plugs it in again. rdma-sim/MODEL.md lists the faults of ports. A copy fails when nothing has arrived for 10 s after the last fault; all times are virtual.\n\n\
                      With -r, what is in SRC is put into DST, which is created if it does not exist: files, directories and symbolic \
                      links, with their modes, but for what the umask of the receiver takes away; setuid, setgid and sticky bits are not copied. A directory of DST that its owner may not write, as the one of SRC, is writable during the copy; \
                      it gets its mode at the end, also of a copy that is interrupted. Nothing is written through a symbolic link in DST.\n\n\
                      Between two machines: tb5 copy --listen DIR on the one that receives, then tb5 copy SRC HOST:NAME on the other \
                      one, which puts the copy into DIR under that name; HOST: keeps the name of a file, and with -r puts what is in SRC into DIR. Bytes go over all cables with \
                      RDMA between the machines, and over TCP while there is none. Without --key, every machine that reaches the \
                      port can write into DIR. What goes over TCP is never encrypted. A firewall must let the port and \
                      further ones pass: each machine may be connected to.\n\n\
                      `-` is standard input, which is read to its end first and kept in a temporary file meanwhile, or standard \
                      output, which gets the copy when it is verified; the report goes to standard error then. ./- is a file.\n\n\
                      A copy that is interrupted leaves .NAME.tb5-partial beside the destination NAME. The next copy continues it, if \
                      the source begins with the same bytes, and else starts anew; with -r, it does not copy equal files again. A copy \
                      that is killed (SIGKILL) leaves .tb5-*.part, which is not continued: remove it; directories stay writable.\n\n\
                      Examples: tb5 copy model.bin copy.bin; tb5 copy -r IN OUT --cables 2 --fault 'at 2ms a:rdma_en3 unplug'; tb5 copy model.bin \
                      mini:; tar c IN | tb5 copy - mini:in.tar.\n\n\
                      Exit codes: 0 done, 1 failed, 2 usage, 130 after Ctrl-C."
    )]
    Copy(Copy),
    /// Show devices, ping, a copy, an all_reduce and an unplugged cable, and write a report for a browser
    #[command(
        after_help = "The report is one file, which needs no network. Without HOST:, four simulated Macs: equal seeds give equal \
                      runs, to the nanosecond of virtual time. With it, another machine where `tb5 serve --into DIR` runs, in real \
                      time, over all cables with RDMA between the machines, or over TCP while there is none. The copy stays in DIR, in \
                      tb5-demo; instead of a cable that is pulled, all paths are broken at once.\n\n\
                      Examples: tb5 demo; tb5 demo --out /tmp/report.html; tb5 demo --json --seed 7; tb5 demo mini:.\n\n\
                      Exit codes: 0 done, 1 a result is wrong or the report cannot be written, 2 usage, 130 after Ctrl-C."
    )]
    Demo(Demo),
    /// List the RDMA devices, their ports, cables and peers
    #[command(after_help = "Examples: tb5 devices; tb5 devices --json; tb5 devices --from studio.json.\n\n\
                      Exit codes: 0 done, also without a device, 1 a file is wrong, 2 usage.")]
    Devices(Devices),
    /// Check whether RDMA can work here, and print a remedy for each failed check
    #[command(
        after_help = "Examples: tb5 doctor; tb5 doctor --record studio.json; tb5 doctor --from studio.json --from mini.json; tb5 doctor \
                      --probe.\n\n\
                      Exit codes: 0 nothing failed, 1 a check failed or a file is wrong, 2 usage."
    )]
    Doctor(Doctor),
    /// Measure round trips between two Macs, beside bare verbs, or with another machine
    #[command(
        after_help = "Without HOST:, two simulated Macs, in virtual time. With it, another machine where `tb5 serve` runs, in real time, \
                      over all cables with RDMA between the machines, or over TCP while there is none.\n\n\
                      Examples: tb5 ping; tb5 ping --bytes 4KiB --profile tb5-cpu; tb5 ping mini: --count 10000 --json.\n\n\
                      Exit codes: 0 done, 1 failed, 2 usage, 130 after Ctrl-C."
    )]
    Ping(Ping),
    /// Query the verbs provider in a process of its own, which may hang or crash; started by `devices` and `doctor`
    #[command(hide = true)]
    Provider(ProviderArgs),
    /// Run verbs programs as the hosts of a simulated fabric, without a Mac
    #[command(
        after_help = "A lone ':' separates the commands of different hosts; the last command is for all remaining hosts. If hosts have \
                      different commands, the others start when the first program listens on a port, after 3 s at the latest. \
                      Standard input is empty. When a program fails, the others are ended after --grace. A host that a fault \
                      kills has not failed and is not started again. A fault of a host acts on its process once the process \
                      has allocated a protection domain; ibv_devices and ibv_devinfo never do.\n\n\
                      With --net, each host has a network namespace: an interface such as en2 for each port, which reaches the \
                      neighbour at the other end of the cable, and Ethernet, over which hosts reach each other by name; nothing else is \
                      reached. A cable that is pulled, by --fault or by tb5 fabric, carries no IP. The programs find the provider at \
                      /usr/lib/librdma.dylib, where a Mac has it. Other processes are not affected, and nothing is left behind; what a run leaves that is killed (SIGKILL), the next run or \
                      tb5 fabric removes. Without \
                      root, this needs user namespaces.\n\n\
                      SIGINT, SIGTERM and SIGHUP \
                      end all programs; a signal that was ignored when tb5 started, as by nohup, stays ignored.\n\n\
                      Examples: tb5 run --hosts 2 -- ibv_devinfo; tb5 run -- ibv_uc_pingpong -g 1 : ibv_uc_pingpong -g 1 localhost; \
                      tb5 run --topology ring:4 --fault 'at 2s a:rdma_en2 unplug' -- ./program.\n\n\
                      Exit codes: that of the first program that failed, or 128 plus the signal that ended it; 0 if no program \
                      failed, 124 after --timeout, 130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP, 141 if the output is \
                      not read any more, 1 if it cannot be written or a program could not be started, 2 usage."
    )]
    Run(Run),
    /// List the simulated fabrics of this machine, show one, or schedule a fault in it
    #[command(
        after_help = "Faults are written as for tb5 run: [at TIME | after N frames] TARGET NAME [ARGUMENT]; without a time, a \
                            fault fires now. rdma-sim/MODEL.md lists their names.\n\n\
                            Examples: tb5 fabric; tb5 fabric NAME; tb5 fabric NAME a:rdma_en2 unplug; tb5 fabric NAME \
                            'a:rdma_en2 corrupt 3; at 9s b pause'.\n\n\
                            Exit codes: 0 done, 1 no such fabric or it does not accept the fault, 2 usage."
    )]
    Fabric(Fabric),
    /// Answer `tb5 ping`, `tb5 bw`, `tb5 demo` and `tb5 copy` of other machines, until Ctrl-C
    #[command(
        after_help = "Bytes go over all cables with RDMA between the machines, and over TCP while there is none. Without --key, every \
                      machine that reaches the port is answered; what goes over TCP is never encrypted. A firewall must let the port and \
                      further ones pass: each machine may be connected to. With --json, the first line is an object with the address, in the key `listening`; one \
                      object follows for each peer that was answered.\n\n\
                      It serves 4 peers at once; the command of a further one fails and says so. A measurement ends when no message \
                      passes for a minute, and after an hour.\n\n\
                      Examples: tb5 serve; tb5 serve --into /data --key secret; then, on another machine: tb5 ping mini:; tb5 bw mini:; \
                      tb5 copy model.bin mini:.\n\n\
                      Exit codes: 0 stopped by Ctrl-C or SIGTERM, 1 failed, 2 usage. A script that starts it in the background ends it by \
                      SIGTERM: its shell has the job ignore SIGINT."
    )]
    Serve(Serve),
    /// Reproduce failures seen in the field on the simulator
    #[command(
        subcommand,
        after_help = "Examples: tb5 sim run rdma-sim/scenarios/one-lost-message.toml; tb5 sim help trace."
    )]
    Sim(SimCommand),
    /// Plan collective operations over a cabling, with a proof of how fast any plan can be
    #[command(
        subcommand,
        after_help = "Examples: tb5 topo plan ring:4; tb5 topo draw mesh:4; tb5 topo help convert."
    )]
    Topo(TopoCommand),
    /// Print completions for a shell
    #[command(
        after_help = "Examples: tb5 completions zsh > ~/.zfunc/_tb5; tb5 completions bash > ~/.local/share/bash-completion/completions/tb5; \
                      tb5 completions fish > ~/.config/fish/completions/tb5.fish.\n\n\
                      Exit codes: 0 done, 1 failed, 2 usage."
    )]
    Completions(Completions),
    /// Print the manual, or write a page for each command
    #[command(after_help = "Examples: tb5 man | man -l -; tb5 man --out /usr/local/share/man/man1.\n\n\
                      Exit codes: 0 done, 1 a file cannot be written, 2 usage.")]
    Man(Man),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// The operation; one with a root begins or ends at the first host
    #[arg(value_enum)]
    pub(crate) operation: OperationName,
    /// Number of hosts; by default that of the topology, or 4
    #[arg(long, value_name = "N", value_parser = number::within(2..=64usize), allow_negative_numbers = true)]
    pub(crate) hosts: Option<usize>,
    #[arg(long, help = names::cabling(), default_value = "mesh", value_name = "SHAPE|FILE")]
    pub(crate) topology: String,
    /// Sizes from A to B in B, KiB, MiB or GiB, each twice the one before: from one element to 1 GiB
    #[arg(long, default_value = "4KiB..64MiB", value_name = "A..B", value_parser = Sizes::up_to(1 << 30), allow_hyphen_values = true)]
    pub(crate) bytes: Sizes,
    /// Type of the elements
    #[arg(long, value_enum, default_value_t)]
    pub(crate) dtype: NumberType,
    #[arg(long, help = names::profile("Device model"), default_value = "tb5", value_name = "PROFILE|FILE")]
    pub(crate) profile: String,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0, value_parser = number::seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Overwrite this element of the result of the first host, to see that the check finds it
    #[arg(long, value_name = "ELEMENT", hide = true)]
    pub(crate) spoil: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Number of hosts; by default that of the topology, or 2
    #[arg(long, value_name = "N", value_parser = number::within(1..=SharedFabric::MAX_HOSTS), allow_negative_numbers = true)]
    pub(crate) hosts: Option<usize>,
    #[arg(long, help = names::cabling(), default_value = "mesh", value_name = "SHAPE|FILE")]
    pub(crate) topology: String,
    #[arg(long, help = names::profile("Device model"), default_value = "tb5", value_name = "PROFILE|FILE")]
    pub(crate) profile: String,
    /// Speed of the cables
    #[arg(long, value_enum, default_value_t)]
    pub(crate) pace: Pace,
    /// Faults, such as 'at 2s a:rdma_en2 unplug; after 9 frames b kill'; times count from the start of the fabric, and a fault
    /// without one fires at the start
    #[arg(long, value_name = "PLAN")]
    pub(crate) fault: Vec<String>,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0, value_parser = number::seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Name of the fabric, for tb5 fabric; by default a new one
    #[arg(long, value_name = "FABRIC")]
    pub(crate) name: Option<String>,
    /// Give each host a network of its own: the link addresses of its GID table, cables that faults cut for IP as well, and the provider at
    /// /usr/lib/librdma.dylib; Linux only
    #[arg(long)]
    pub(crate) net: bool,
    /// Link layer that ports report
    #[arg(long, value_parser = ["ethernet", "infiniband", "thunderbolt"])]
    pub(crate) link_layer: Option<String>,
    /// Time between the starts of two hosts
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(crate) stagger: Option<Period>,
    /// End all programs after this time, and the wait for the reader of their output
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(crate) timeout: Option<Period>,
    /// Time that programs may continue after another one failed, and after SIGTERM
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = period)]
    pub(crate) grace: Period,
    /// The program of all hosts, or several programs separated by ':'
    #[arg(trailing_var_arg = true, required = true, value_name = "PROG")]
    pub(crate) program: Vec<OsString>,
}

/// Speed of the simulated cables
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Pace {
    /// As fast as this machine allows
    #[default]
    None,
    /// As fast as modelled
    Tb5,
}

fn period(text: &str) -> Result<Period, String> {
    let why = "write a whole number of h, m, s, ms, us or ns up to a day, such as 300ms";
    Period::parse(text).ok_or_else(|| why.to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Fabric {
    /// The fabric to show; by default all are listed
    pub(crate) name: Option<String>,
    /// A fault to schedule now, such as `a:rdma_en2 unplug`, or at a time since its start: `at 5s a pause`
    #[arg(value_name = "FAULT")]
    pub(crate) fault: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Devices {
    /// Read a report of `tb5 doctor --record` instead of inspecting this machine; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Diagnose a report of `tb5 doctor --record` instead of this machine; several reports are checked against each other
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Vec<PathBuf>,
    /// Write the report of this machine to a file; an existing file is replaced
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub(crate) record: Option<PathBuf>,
    /// Try to reach the host at the other end of each cable: with a socket, with ping, and with a queue pair that is destroyed at
    /// once, unless a verb hangs: its process is then killed and destroys nothing; run it on both hosts, and not while programs use the
    /// ports
    #[arg(long, value_name = "DEVICE=ADDRESS", num_args = 0.., conflicts_with = "from")]
    pub(crate) probe: Option<Vec<PeerTarget>>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ProviderArgs {
    /// Make a queue pair to the host at the other end of a cable instead
    pub(crate) peer: Option<PeerTarget>,
    /// The process that started this one, which ends soon after it
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) parent: Option<i32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    /// The machine where `tb5 serve` runs; without it, two simulated Macs
    #[arg(value_name = "HOST:")]
    pub(crate) host: Option<Host>,
    /// Size of each message, in B, KiB or MiB: up to 4 MiB
    #[arg(long, default_value = "64", value_name = "N", value_parser = sizes::up_to(sizes::MAX_PING), allow_hyphen_values = true)]
    pub(crate) bytes: u64,
    /// Number of round trips
    #[arg(long, default_value_t = 1000, value_parser = number::within(1..=10_000_000u32), allow_negative_numbers = true)]
    pub(crate) count: u32,
    #[arg(long, help = names::profile("Device model"), default_value = "tb5", value_name = "PROFILE|FILE", conflicts_with = "host")]
    pub(crate) profile: String,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0, value_parser = number::seed, allow_negative_numbers = true, conflicts_with = "host")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) machines: Machines,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bw {
    /// The machine where `tb5 serve` runs; without it, two simulated Macs
    #[arg(value_name = "HOST:")]
    pub(crate) host: Option<Host>,
    /// Sizes of the messages from A to B in B, KiB or MiB, each twice the one before: 1 B to 16 MiB, to another machine to 4 MiB
    #[arg(long, default_value = "4KiB..4MiB", value_name = "A..B", value_parser = Sizes::up_to(sizes::MAX_BW), allow_hyphen_values = true)]
    pub(crate) bytes: Sizes,
    /// Sends that are in flight at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = number::within(1..=64u16), allow_negative_numbers = true)]
    pub(crate) in_flight: u16,
    #[arg(long, help = names::profile("Device model"), default_value = "tb5", value_name = "PROFILE|FILE", conflicts_with = "host")]
    pub(crate) profile: String,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0, value_parser = number::seed, allow_negative_numbers = true, conflicts_with = "host")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) machines: Machines,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write a page for each command into this directory instead
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}
