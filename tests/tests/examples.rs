//! The examples of `rdma-async` and of groups, each run as a process
//!
//! `cargo test --workspace` builds them before it runs any test; for this one alone, build them by
//! `cargo build -p rdma-async -p rdma-collectives --examples`.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdma_sim::Topology;
use rdma_sim_verbs::shared::Settings;
use rdma_tests::files;
use rdma_tests::hosts::{Hosts, Running};

const PING_PONG: &str = "ping_pong";
const STREAM_COPY: &str = "stream_copy";
const UNPLUG_AND_RECOVER: &str = "unplug_and_recover";
const FUZZ_YOUR_PROTOCOL: &str = "fuzz_your_protocol";
const LEADER_ELECTION: &str = "leader_election";
const REPLAY_A_SEED: &str = "replay_a_seed";
const GRADIENT_AVERAGING: &str = "gradient_averaging";
const TENSOR_PARALLEL_DECODE: &str = "tensor_parallel_decode";
const EXPERT_DISPATCH: &str = "expert_dispatch";
const MOVE_KEY_VALUES: &str = "move_key_values";
const SERVE_DATA_SET: &str = "serve_data_set";
const OPEN_DEVICE: &str = "open_device";
const LAUNCHED_RANKS: &str = "launched_ranks";
const FIVE_MACS: &str = "five_macs";

/// Long enough for any example on a machine that runs other programs, too
const TIMEOUT: Duration = Duration::from_secs(60);

/// The program of an example
fn program(name: &str) -> String {
    let test = std::env::current_exe().expect("this program has a path");
    // Tests are in the folder `deps` beside that of the examples.
    let folder = test.ancestors().nth(2).expect("cargo keeps tests in a folder").join("examples");
    let program = folder.join(name);
    let remedy = "build it: cargo build -p rdma-async -p rdma-collectives --examples";
    assert!(program.exists(), "{} is not there; {remedy}", program.display());
    program.into_os_string().into_string().expect("paths of cargo are text")
}

/// A running example
struct Example(Running);

/// Exit code and outputs of an example
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }
}

impl Example {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Running(command.spawn().expect("cargo built the example")))
    }

    fn run(name: &str, args: &[&str]) -> Ended {
        Self::start(Command::new(program(name)).args(args)).end()
    }

    /// The address that the example listens at, from its first line
    fn address(&mut self) -> String {
        let mut line = String::new();
        // Unbuffered beyond the line: the rest is read by `end`.
        let mut stdout = BufReader::with_capacity(1, self.0.0.stdout.as_mut().expect("it is piped"));
        stdout.read_line(&mut line).expect("the example prints text");
        line.trim().strip_prefix("listening on ").expect("the example listens").to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "processes run in the time of the wall clock")]
    fn end(mut self) -> Ended {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            match self.0.0.try_wait().expect("the example was started here") {
                Some(status) => break status,
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                None => panic!("the example still runs after {TIMEOUT:?}"),
            }
        };
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.0.0.stdout.take().expect("it is piped").read_to_string(&mut stdout).expect("it prints text");
        self.0.0.stderr.take().expect("it is piped").read_to_string(&mut stderr).expect("it prints text");
        Ended { code: status.code(), stdout, stderr }
    }
}

/// Runs an example as both hosts of a simulated fabric, through the C ABI of the provider
fn over_the_provider(name: &str) -> [Ended; 2] {
    let program = &program(name);
    let hosts = Hosts::new(&format!("example-{name}"), &Settings::new(Topology::pair()), program);
    let device = ["--device", "rdma_en2"];
    let listening = ["--listen", "127.0.0.1:0"];
    let mut accepting = Example::start(hosts.command(program, "a").args(device).args(listening));
    let connecting = ["--connect", &accepting.address()];
    let connecting = Example::start(hosts.command(program, "b").args(device).args(connecting));
    [accepting.end().succeeded(), connecting.end().succeeded()]
}

#[test]
fn ping_pong_measures_round_trips_in_the_simulator() {
    for args in [&[][..], &["--sim"]] {
        let ended = Example::run(PING_PONG, args).succeeded();
        assert!(ended.stdout.starts_with("1000 round trips of 64 bytes, median 11."), "{ended:?}");
    }
}

#[test]
fn stream_copy_copies_every_byte_in_the_simulator() {
    let ended = Example::run(STREAM_COPY, &["--sim"]).succeeded();
    assert!(ended.stdout.contains("received 67108864 bytes in 64 messages"), "{ended:?}");
}

#[test]
fn unplug_and_recover_waits_for_the_cable_and_goes_on() {
    let ended = Example::run(UNPLUG_AND_RECOVER, &["--sim"]).succeeded();
    assert_eq!(
        ended.stdout, "the longest pause between two numbers was 2.0 s\nreceived 1 to 100\n",
        "{ended:?}"
    );
}

/// Catches a corpus that is not read, one of other settings, and a run of it that fails.
#[test]
fn fuzz_your_protocol_holds_by_seed_by_strategy_and_by_bytes() {
    let ended = Example::run(FUZZ_YOUR_PROTOCOL, &["--sim"]).succeeded();
    assert_eq!(ended.stdout.lines().filter(|line| line.ends_with(" hold")).count(), 3, "{ended:?}");
    let corpus = files::root().join("rdma-async/examples/corpora/fuzz_your_protocol");
    let count = std::fs::read_dir(corpus).expect("the corpus is committed").count();
    assert!(ended.stdout.contains(&format!(" and {count} of the corpus, ")), "{count}: {ended:?}");
}

/// Catches a node that votes for two candidates of one term, a planted bug that is none, a line that repeats another run or more than
/// one, and a page that is missing or of another run.
#[test]
fn leader_election_finds_the_planted_bug_repeats_it_and_shows_it_on_a_page() {
    let ended = Example::run(LEADER_ELECTION, &[]).succeeded();
    assert!(ended.stdout.ends_with("each term has one leader\n"), "{ended:?}");
    let folder = tempfile::tempdir().unwrap();
    let forgetful = |page: &str, line: Option<&str>| {
        let mut command = Command::new(program(LEADER_ELECTION));
        command.arg("--forgetful").env("RDMA_SIM_PAGE", folder.path().join(page));
        line.into_iter().for_each(|line| _ = command.env("RDMA_SIM_REPLAY", line));
        let ended = Example::start(&mut command).end();
        assert_eq!(ended.code, Some(101), "{ended:?}");
        assert!(ended.stderr.contains("a term has one leader"), "{ended:?}");
        let page = std::fs::read_to_string(folder.path().join(page)).expect("the page is written");
        (ended, page)
    };
    let (found, page) = forgetful("found.html", None);
    assert!(found.stderr.contains("It failed in 1 of "), "the line is not needed to find it: {found:?}");
    let (_, line) = found.stderr.split_once("RDMA_SIM_REPLAY='").expect("the line is printed");
    let (line, _) = line.split_once('\'').expect("it is quoted");
    assert!(line.starts_with("2 test=leader_election "), "{line}");
    assert!(line.contains("restart"), "the shrunk run has the fault that matters: {line}");

    let (repeated, again) = forgetful("repeated.html", Some(line));
    assert!(!repeated.stderr.contains("It failed in 1 of "), "one run alone: {repeated:?}");
    assert!(repeated.stderr.contains(&format!("RDMA_SIM_REPLAY='{line}'")), "{repeated:?}");
    assert_eq!(again, page, "the same run, shown on the same page");
    assert!(page.contains("<title>leader_election, seed ") && page.contains(": failed</title>"));
    for part in ["a term has one leader", "\"a\"", "\"b\"", "\"c\"", "state candidate"] {
        assert!(page.contains(part), "{part} is on the page");
    }
}

/// Catches an operation that fails, or never ends, when a cable is pulled, and sums that differ between Macs.
#[test]
fn gradient_averaging_goes_on_without_a_cable() {
    let ended = Example::run(GRADIENT_AVERAGING, &[]).succeeded();
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with("step ")).count(), 8, "{ended:?}");
    assert!(ended.stdout.ends_with("all Macs have the same weights\n"), "{ended:?}");
}

/// Catches advice that gains nothing or moves cables that can stay, a pulled cable that ends the group, and a lost Mac that ends it.
#[test]
fn five_macs_are_cabled_better_and_four_go_on() {
    let ended = Example::run(FIVE_MACS, &[]).succeeded();
    let time = |name: &str| number_after(&ended.stdout, &format!("{name}: 16 MiB in "));
    assert!(time("as advised") < 0.62 * time("as found"), "{ended:?}");
    assert!(ended.stdout.contains(": no cabling is faster.\n"), "{ended:?}");
    let plugged = |word: &str| ended.stdout.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((plugged("plug "), plugged("unplug ")), (3, 0), "all cables as found stay: {ended:?}");
    let steps: Vec<_> = ended.stdout.lines().filter(|line| line.starts_with("step ")).collect();
    let macs = |step: usize, macs| format!("step {step}: the sum of {macs} Macs after ");
    let expected: Vec<_> = (1..6)
        .map(|step| macs(step, 5))
        .chain(["step 6: rank 4 is lost: ".to_owned(), macs(6, 4), macs(7, 4)])
        .collect();
    assert_eq!(steps.len(), expected.len(), "{ended:?}");
    // A reason follows if it was not another Mac that has said so.
    let is_expected = |(step, expected): (&&str, &String)| {
        format!("{}: ", step.trim_end_matches("; a, b, c, d go on")).starts_with(expected)
    };
    assert!(steps.iter().zip(&expected).all(is_expected), "{ended:?}");
    assert!(steps[5].ends_with("; a, b, c, d go on"), "{ended:?}");
}

/// The first number that `text` has behind `before`
fn number_after(text: &str, before: &str) -> f64 {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{before:?} is not in {text}"));
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number behind {before:?}: {text}"))
}

/// Catches sums that are wrong, and an all_reduce that takes longer than DECODE.md says: the rates are those of its table, within 2 %.
#[test]
fn tensor_parallel_decode_comes_to_the_predicted_rates() {
    let ended = Example::run(TENSOR_PARALLEL_DECODE, &[]).succeeded();
    for (macs, rate) in [(1, 19.5), (2, 26.2), (4, 32.2)] {
        let found = number_after(&ended.stdout, &format!("{macs} Macs: "));
        assert!((found / rate - 1.0).abs() < 0.02, "{macs} Macs: {found}");
    }
}

/// Catches tokens that come to another expert or back to another place, which the program checks, and a copy that is not used.
#[test]
fn expert_dispatch_is_faster_with_a_replica() {
    let ended = Example::run(EXPERT_DISPATCH, &[]).succeeded();
    assert!(number_after(&ended.stdout, "replication is ") > 1.5, "{ended:?}");
}

/// Catches a cache that moves over one way only: it would take longer than one cable needs.
#[test]
fn move_key_values_takes_both_ways() {
    let ended = Example::run(MOVE_KEY_VALUES, &[]).succeeded();
    let [took, one_cable] =
        [" MiB in ", "one cable alone takes "].map(|text| number_after(&ended.stdout, text));
    assert!(took < one_cable, "{ended:?}");
}

/// Catches samples that are lost or mixed up, which the program checks, and readers that wait for one another.
#[test]
fn serve_data_set_serves_all_readers_at_once() {
    let ended = Example::run(SERVE_DATA_SET, &[]).succeeded();
    // One cable carries 9.2 GB/s.
    assert!(number_after(&ended.stdout, " ms, ") > 2.0 * 9.2, "{ended:?}");
}

#[test]
fn replay_a_seed_finds_a_seed_and_repeats_it() {
    let ended = Example::run(REPLAY_A_SEED, &["--sim"]).succeeded();
    let (_, replay) = ended.stdout.split_once("the replay is: ").expect("the example prints the replay");
    let again = Example::run(REPLAY_A_SEED, &[replay.lines().next().expect("a line")]);
    assert_eq!(again.stdout, ended.stdout, "the replay repeats the run");
}

#[test]
fn open_device_shows_the_simulated_device() {
    let ended = Example::run(OPEN_DEVICE, &["--sim"]).succeeded();
    assert!(ended.stdout.starts_with("rdma_en2: Active, 80 Gbit/s\n"), "{ended:?}");
}

#[test]
fn examples_run_between_two_processes_over_a_provider() {
    let [_, ping] = over_the_provider(PING_PONG);
    assert!(ping.stdout.starts_with("1000 round trips of 64 bytes"), "{ping:?}");

    let [write, _] = over_the_provider(STREAM_COPY);
    assert!(write.stdout.contains("received 67108864 bytes in 64 messages"), "{write:?}");

    let [receive, _] = over_the_provider(UNPLUG_AND_RECOVER);
    assert!(receive.stdout.ends_with("received 1 to 100\n"), "{receive:?}");

    let [serve, ask] = over_the_provider(FUZZ_YOUR_PROTOCOL);
    assert_eq!([serve.code, ask.code], [Some(0); 2], "{serve:?}, {ask:?}");
    assert!(ask.stdout.ends_with("50 requests hold, without faults\n"), "{ask:?}");

    let [echo, ask] = over_the_provider(REPLAY_A_SEED);
    assert_eq!([echo.code, ask.code], [Some(0); 2], "{echo:?}, {ask:?}");
    assert!(ask.stdout.contains("the slowest answer took "), "{ask:?}");
}

#[test]
fn open_device_opens_the_first_device_of_a_provider() {
    let program = &program(OPEN_DEVICE);
    let hosts = Hosts::new("example-open", &Settings::new(Topology::pair()), program);
    for args in [&["--device"][..], &["--device", "rdma_en2"]] {
        let ended = Example::start(hosts.command(program, "a").args(args)).end().succeeded();
        assert!(ended.stdout.contains("devices: rdma_en2") && ended.stdout.contains("Active"), "{ended:?}");
    }
}

/// Starts the ranks of `topology`, with the variables that launchers set; `change` has the last word about those of each rank
fn launch(name: &str, topology: &Topology, change: impl Fn(usize, &mut Command)) -> Vec<Ended> {
    let program = &program(LAUNCHED_RANKS);
    let hosts = Hosts::new(name, &Settings::new(topology.clone()), program);
    let matrix = std::env::temp_dir().join(format!("rdma-{name}-{}.json", std::process::id()));
    std::fs::write(&matrix, topology.to_matrix()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let coordinator = listener.local_addr().unwrap().to_string();
    // The system does not hand out a released port again soon.
    drop(listener);
    let names = topology.hosts().iter().map(|host| host.name().to_owned());
    let start = |(rank, name): (usize, String)| {
        let mut command = hosts.command(program, &name);
        command.env("MLX_RANK", rank.to_string()).env("MLX_IBV_DEVICES", &matrix);
        command.env("MLX_JACCL_COORDINATOR", &coordinator);
        change(rank, &mut command);
        Example::start(&mut command)
    };
    let running: Vec<_> = names.enumerate().map(start).collect();
    let ended = running.into_iter().map(Example::end).collect();
    std::fs::remove_file(&matrix).unwrap();
    ended
}

/// Catches a device that is used for another neighbour, and two cables between two Macs that are taken for one another.
#[test]
fn launched_ranks_come_together_over_any_cabling() {
    let ring = Topology::graph(4, 3, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 1)]).unwrap();
    for (rank, ended) in launch("example-launch", &ring, |_, _| ()).into_iter().enumerate() {
        let ended = ended.succeeded();
        assert_eq!(
            ended.stdout,
            format!("rank {rank} of 4, cabled to 2: the sum of all is 6\n"),
            "{ended:?}"
        );
    }
}

/// Catches a comparison of the cables alone.
#[test]
fn launched_ranks_with_different_matrices_name_the_one_that_differs() {
    let other = std::env::temp_dir().join(format!("rdma-example-of-rank-1-{}.json", std::process::id()));
    std::fs::write(&other, r#"[[null, "rdma_en2"], ["rdma_en3", null]]"#).unwrap();
    let ended = launch("example-other", &Topology::pair(), |rank, command| {
        if rank == 1 {
            command.env("MLX_IBV_DEVICES", &other);
        }
    });
    std::fs::remove_file(&other).unwrap();
    for ended in ended {
        let why = "error: rank 1 has another device matrix than rank 0\n";
        assert_eq!((ended.code, &*ended.stderr), (Some(1), why), "{ended:?}");
    }
}

#[test]
fn a_machine_without_rdma_is_an_error_in_one_sentence() {
    let args = ["--device", "rdma_en2", "--listen", "127.0.0.1:0"];
    for (name, args) in [(OPEN_DEVICE, &args[..2]), (PING_PONG, &args[..])] {
        let mut command = Command::new(program(name));
        let ended = Example::start(command.args(args).env("RDMA_PROVIDER", "/there/is/none.so")).end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let why = "error: the verbs provider /there/is/none.so cannot be loaded: ";
        assert!(ended.stderr.starts_with(why), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
}

#[test]
fn unknown_arguments_are_a_usage_error() {
    for name in [PING_PONG, STREAM_COPY, UNPLUG_AND_RECOVER, FUZZ_YOUR_PROTOCOL, REPLAY_A_SEED, OPEN_DEVICE] {
        let ended = Example::run(name, &["--hardware"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.starts_with("usage: "), "{ended:?}");
    }
}

#[test]
fn a_device_without_an_address_is_a_usage_error_that_names_the_missing_option() {
    for name in [PING_PONG, STREAM_COPY, UNPLUG_AND_RECOVER, FUZZ_YOUR_PROTOCOL, REPLAY_A_SEED] {
        let ended = Example::run(name, &["--device", "rdma_en2"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let why = "--device needs --listen ADDRESS or --connect ADDRESS\nusage: ";
        assert!(ended.stderr.starts_with(why), "{ended:?}");
    }
}
