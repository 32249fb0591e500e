//! Programs of other projects, and one in C, over the simulated provider
//!
//! They are Debian's `ibverbs-utils` and `perftest`, unmodified; `recipe.c` needs a C compiler and `libibverbs-dev`.
#![cfg(target_os = "linux")]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use procfs::net::{TcpState, tcp, tcp6};
use rdma_sim::{LineRate, Topology};
use rdma_sim_verbs::shared::{Settings, SharedFabric};
use rdma_tests::hosts::{Hosts, library};

mod perftest;
mod shapes;

/// The most time that a program gets, in seconds
const TIMEOUT: &str = "120";

fn topology(cables: usize) -> Topology {
    (0..cables).fold(Topology::new().host("a", 3).host("b", 3), |topology, port| {
        topology.cable(("a", port), ("b", port), LineRate::TB5)
    })
}

fn hosts(name: &str, settings: &Settings) -> Hosts {
    Hosts::new(name, settings, "no peers")
}

/// A program as a host of the fabric, which is killed if it hangs
fn command(hosts: &Hosts, host: &str, words: &str) -> Command {
    let mut words = words.split_whitespace();
    let program = words.next().unwrap();
    let is_there =
        Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(is_there, "{program} is missing: apt-get install ibverbs-utils perftest");
    let mut command = hosts.command("timeout", host);
    command.args(["-k", "1", TIMEOUT, program]).args(words).env("LD_PRELOAD", library());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, text(&output));
    text(&output)
}

/// Waits until the server listens on a port of this machine
fn wait_for_listener(port: u16, server: &mut Child) {
    for _ in 0..3_000 {
        let mut sockets = [tcp(), tcp6()].into_iter().flatten().flatten();
        if sockets.any(|socket| socket.state == TcpState::Listen && socket.local_address.port() == port) {
            return;
        }
        assert!(server.try_wait().unwrap().is_none(), "the server has ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the server does not listen on port {port}");
}

/// A port, and a connection that keeps the system from giving it to another program
///
/// A server that sets `SO_REUSEADDR`, as all of these do, may listen on the port of a connection.
fn held_port() -> (u16, [TcpStream; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = TcpStream::connect(address).unwrap();
    (address.port(), [connecting, listener.accept().unwrap().0])
}

/// What perftest says when it could not compare the counter of the processor with the clock, because too much else was running
const NO_CLOCK: &str = "Can't produce a report";

/// Runs a server as host `a` and its client as host `b`, and waits for both; again if perftest had no clock
fn outputs_of(hosts: &Hosts, words: &str, environment: &[(&str, &str)]) -> [Output; 2] {
    let mut outputs = once(hosts, words, environment);
    for _ in 0..20 {
        if !outputs.iter().any(|output| text(output).contains(NO_CLOCK)) {
            break;
        }
        outputs = once(hosts, words, environment);
    }
    outputs
}

fn once(hosts: &Hosts, words: &str, environment: &[(&str, &str)]) -> [Output; 2] {
    let (port, _held) = held_port();
    let words = format!("{words} -p {port}");
    let mut server = command(hosts, "a", &words).envs(environment.iter().copied()).spawn().unwrap();
    wait_for_listener(port, &mut server);
    let mut client = command(hosts, "b", &format!("{words} localhost"));
    let client = client.envs(environment.iter().copied()).output().unwrap();
    [server.wait_with_output().unwrap(), client]
}

/// As [`outputs_of`]; returns what both have printed
fn between(hosts: &Hosts, words: &str, environment: &[(&str, &str)]) -> [String; 2] {
    outputs_of(hosts, words, environment).map(|output| {
        assert!(output.status.success(), "{}: {}", output.status, text(&output));
        text(&output)
    })
}

/// Lines that `ibv_devinfo -v` prints for each device of a Mac, with single blanks
///
/// Linux has no name for the transport 100.
const LINES: [&str; 14] = [
    "phys_port_cnt: 1",
    "max_mr_size: 0xfa0000",
    "max_qp: 11",
    "max_qp_wr: 4095",
    "max_sge: 1",
    "max_cq: 11",
    "max_mr: 100",
    "max_pd: 11",
    "atomic_cap: ATOMIC_NONE (0)",
    "max_mtu: 4096 (5)",
    "active_mtu: 4096 (5)",
    "max_msg_sz: 0x1000000",
    "active_width: 8X (4)",
    "(100)",
];

#[test]
fn ibv_devices_and_ibv_devinfo_show_what_the_topology_says() {
    let topology = topology(2);
    let hosts = hosts("devices", &Settings::new(topology.clone()));
    for host in topology.hosts() {
        let devices = run(command(&hosts, host.name(), "ibv_devices"));
        for port in host.ports() {
            let guid: String = port.guid().0.iter().map(|byte| format!("{byte:02x}")).collect();
            let line = devices.lines().find(|line| line.contains(port.device())).unwrap();
            assert!(line.ends_with(&guid), "{line} {guid}");
        }
        assert_eq!(devices.matches("rdma_en").count(), host.ports().len());
        let info = run(command(&hosts, host.name(), "ibv_devinfo -v"));
        let sections: Vec<_> = info.split("hca_id:").skip(1).collect();
        assert_eq!(sections.len(), host.ports().len());
        for (section, port) in sections.iter().zip(host.ports()) {
            let has_cable = topology.links().any(|link| {
                link.ends.iter().any(|end| end.host == host.name() && end.device == port.device())
            });
            assert!(section.contains(port.device()));
            assert_eq!(section.contains("PORT_ACTIVE (4)"), has_cable, "{section}");
            assert_eq!(section.contains("PORT_DOWN (1)"), !has_cable, "{section}");
            assert_eq!(section.contains("10.0 Gbps (4)"), has_cable, "{section}");
            for gid in port.gids() {
                assert!(section.to_lowercase().contains(&gid.to_string().to_lowercase()), "{gid}: {section}");
            }
            let squeezed = section.split_whitespace().collect::<Vec<_>>().join(" ");
            for line in LINES {
                assert!(squeezed.contains(line), "{line}: {section}");
            }
        }
    }
}

#[test]
fn ibv_uc_pingpong_polls_and_sleeps() {
    let hosts = hosts("pingpong", &Settings::new(topology(1)));
    for words in ["ibv_uc_pingpong -d rdma_en2 -g 1 -c", "ibv_uc_pingpong -d rdma_en2 -g 1 -c -e -n 200"] {
        for output in between(&hosts, words, &[]) {
            assert!(output.contains("usec/iter") && !output.contains("invalid data"), "{output}");
        }
    }
    let sent = hosts.fabric.sent();
    assert_eq!((sent[0].messages, sent[3].messages), (1_200, 1_200));
    assert_eq!(sent[0].payload_bytes, 1_200 * 4096);
}

/// The device has no reliable queue pairs: the program says so, and no process crashes.
#[test]
fn ibv_rc_pingpong_runs_on_the_roce_profile_and_is_refused_on_a_mac() {
    let mac = hosts("refused", &Settings::new(topology(1)));
    let output = command(&mac, "a", "ibv_rc_pingpong -d rdma_en2 -g 1").output().unwrap();
    assert!(!output.status.success() && text(&output).contains("Couldn't create QP"), "{}", text(&output));
    let roce = hosts("rc", &Settings::new(topology(1)).profile("roce").unwrap());
    for words in ["ibv_rc_pingpong -d rdma_en2 -g 1 -c", "ibv_rc_pingpong -d rdma_en2 -g 1 -c -e -n 200"] {
        for output in between(&roce, words, &[]) {
            assert!(output.contains("usec/iter"), "{output}");
        }
    }
}

/// Catches variables that are ignored: the program would run by another clock, or in another fabric, than was asked for.
#[test]
fn variables_that_contradict_each_other_are_refused() {
    let (clock, fabric) = ("RDMA_SIM_CLOCK", "RDMA_SIM_FABRIC");
    let table: [(&[(&str, &str)], &str); 5] = [
        (&[(clock, "foo")], "RDMA_SIM_CLOCK: \"foo\" is unknown"),
        (&[(clock, "foo"), (fabric, "refused")], "RDMA_SIM_CLOCK: \"foo\" is unknown"),
        (
            &[(clock, "virtual"), (fabric, "refused"), ("RDMA_SIM_HOST", "a")],
            "RDMA_SIM_CLOCK=virtual is for one process: leave it or RDMA_SIM_FABRIC out",
        ),
        (&[("RDMA_SIM_HOST", "a")], "RDMA_SIM_HOST needs RDMA_SIM_FABRIC"),
        (&[(fabric, "refused")], "RDMA_SIM_FABRIC needs RDMA_SIM_HOST, the host to be"),
    ];
    for (variables, why) in table {
        let mut program = Command::new("timeout");
        program.args(["-k", "1", TIMEOUT, "ibv_devices"]).env("LD_PRELOAD", library());
        let output = text(&program.envs(variables.iter().copied()).output().unwrap());
        assert!(output.contains(&format!("librdma: {why}")) && !output.contains("rdma_en2"), "{output}");
    }
}

/// Catches a fault of the first instant that comes after the first verbs, and a slow verb that takes wall time, none, or another time than
/// was said: an unplug on either side of the hour shows what time it is when the device is open.
#[test]
fn a_slow_verb_takes_its_virtual_time_from_the_first_call_on() {
    let state_after = |unplug: &str| {
        let faults = format!("at 0s a:rdma_en2 slow-verb open_device=3600s; at {unplug} a:rdma_en2 unplug");
        let mut program = Command::new("timeout");
        program.args(["-k", "1", TIMEOUT, "ibv_devinfo", "-d", "rdma_en2@a"]).env("LD_PRELOAD", library());
        program.envs([("RDMA_SIM_CLOCK", "virtual"), ("RDMA_SIM_TOPOLOGY", "pair")]);
        program.env("RDMA_SIM_FAULTS", faults);
        run(program)
    };
    assert!(state_after("3599s").contains("PORT_DOWN"));
    assert!(state_after("3601s").contains("PORT_ACTIVE"));
}

/// Catches files, processes and shared memory that outlive a run.
#[test]
fn nothing_is_left_of_many_runs() {
    let runs = std::env::var("RDMA_TEST_RUNS").map_or(100, |count| count.parse::<usize>().unwrap());
    let before = descriptors();
    for number in 0..runs {
        let hosts = hosts(&format!("run{number}"), &Settings::new(topology(1)));
        let directory = hosts.fabric.directory().to_owned();
        between(&hosts, "ibv_uc_pingpong -d rdma_en2 -g 1 -n 20", &[]);
        drop(hosts);
        assert!(!directory.exists(), "{directory:?}");
    }
    assert_eq!(descriptors(), before);
    assert!(
        SharedFabric::list()
            .unwrap()
            .iter()
            .all(|name| !name.starts_with(&format!("run0-{}", std::process::id())))
    );
}

/// Open files of this process that are of fabrics
fn descriptors() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().contains("/run")).count()
}

/// A program of `tests/c`, compiled
fn compiled(name: &str, libraries: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name).with_extension("c");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program).arg(source).args(libraries);
    let compiled = compiler.output().expect("there is a C compiler");
    assert!(compiled.status.success(), "{} (apt-get install libibverbs-dev)", text(&compiled));
    program
}

/// Apple's recipe, and every error number on the way
#[test]
fn the_recipe_in_c_finds_every_error_number() {
    let program = compiled("recipe", &["-ldl"]);
    let cables = Path::new(env!("CARGO_TARGET_TMPDIR")).join("three-cables.toml");
    std::fs::write(&cables, topology(3).to_toml()).unwrap();
    let mut recipe = Command::new("timeout");
    recipe.args(["-k", "1", TIMEOUT]).arg(program).arg(library());
    for device in ["rdma_en2", "rdma_en3", "rdma_en4"] {
        recipe.args([format!("{device}@a"), format!("{device}@b")]);
    }
    recipe.env("RDMA_SIM_CLOCK", "virtual").env("RDMA_SIM_TOPOLOGY", &cables);
    let output = run(recipe);
    assert!(output.contains("\n0 failed\n") && output.matches("ok  ").count() >= 50, "{output}");
}

/// Catches a provider that refuses the child of a process which was no host when it forked.
#[test]
fn a_program_that_forks_before_its_first_verb_is_two_hosts() {
    let program = compiled("posts", &["-libverbs"]);
    let mut posts = Command::new("timeout");
    posts.args(["-k", "1", TIMEOUT]).arg(program).args(["20", "64"]);
    posts.env("RDMA_SIM_TOPOLOGY", "pair").env("LD_PRELOAD", library());
    posts.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = run(posts);
    assert!(output.contains("ns median of 20 rounds"), "{output}");
}
