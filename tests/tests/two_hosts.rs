//! The conformance body with one end in another process, or on another host

use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rdma_core::{AnyDevice, Error};
use rdma_sim::Topology;
use rdma_sim_verbs::shared::Settings;
use rdma_tests::DEVICE;
use rdma_tests::conformance::{Arm, BEHAVIOURS, Expectations, Verdict, run};
use rdma_tests::hosts::{Hosts, Running};
use rdma_tests::remote::{
    DEVICE_VARIABLE, END_VARIABLE, KIND_VARIABLE, LISTEN_VARIABLE, LocalDevice, PEER_VARIABLE, RemoteHost,
    TRUST_VARIABLE,
};

const SERVER: &str = env!("CARGO_BIN_EXE_serve_device");

/// One end in this process, the other end at a server
struct TwoHosts<'a> {
    device: &'a LocalDevice,
    host: RemoteHost,
    /// Which of the two ends is here.
    here: usize,
}

impl Arm for TwoHosts<'_> {
    type Device = AnyDevice;

    fn open(&self, end: usize) -> Result<AnyDevice, Error> {
        if end == self.here {
            self.device.open().map(AnyDevice::new)
        } else {
            self.host.open().map(AnyDevice::new)
        }
    }

    fn expectations(&self) -> Expectations {
        self.device.expectations()
    }
}

/// Needs a server on the other host; rdma-tb5/MACS.md describes how to start it.
#[test]
#[expect(clippy::print_stderr, reason = "the verdicts are printed for the engineer who runs this")]
#[ignore = "needs a served device on another host, named by RDMA_CONFORMANCE_PEER, and RDMA_CONFORMANCE_DEVICE"]
fn a_pair_of_hosts_conforms() {
    let peer =
        env::var(PEER_VARIABLE).unwrap_or_else(|_| panic!("{PEER_VARIABLE} is where the other host listens"));
    let device = LocalDevice::from_environment().unwrap_or_else(|why| panic!("{why}"));
    let here = match env::var(END_VARIABLE).as_deref() {
        Err(_) | Ok("0") => 0,
        Ok("1") => 1,
        Ok(other) => panic!("{END_VARIABLE}={other:?} is neither 0 nor 1"),
    };
    let connect = || RemoteHost::connect(&peer).unwrap_or_else(|error| panic!("{error}"));
    // Without the other host, this fails at once rather than for each behaviour.
    drop(connect());
    let verdicts = run(|| TwoHosts { device: &device, host: connect(), here });
    connect().finish();
    for (name, verdict) in &verdicts {
        eprintln!("{name}: {verdict:?}");
    }
    let count = |is_it: fn(&Verdict) -> bool| verdicts.iter().filter(|(_, verdict)| is_it(verdict)).count();
    let passed = count(|verdict| *verdict == Verdict::Passed);
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
    eprintln!("this host was end {here}: {passed} passed, {skipped} skipped, of {}", verdicts.len());
    assert_eq!(passed + skipped, verdicts.len(), "each verdict is above");
    let known = if device.expectations() == Expectations::TB5 { 0 } else { 7 };
    assert_eq!(skipped, known, "what adapters do not have is known");
}

/// The server process
struct Server {
    child: Running,
    address: String,
}

impl Server {
    fn start(hosts: &Hosts) -> Self {
        let mut command = hosts.command(SERVER, "b");
        command.env(LISTEN_VARIABLE, "127.0.0.1:0").env(DEVICE_VARIABLE, DEVICE).env(TRUST_VARIABLE, "1");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program is there");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("the program speaks");
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        Self {
            child: Running(child),
            address: address.unwrap_or_else(|| panic!("the server printed {line:?}")),
        }
    }
}

/// Runs the arm above between two processes that are the hosts of a fabric
fn assert_conform(name: &str, settings: &Settings, kind: &str, end: usize, skipped: usize) {
    let hosts = Hosts::new(name, settings, SERVER);
    let mut server = Server::start(&hosts);
    let mut client = hosts.command(env::current_exe().expect("the test has a path"), "a");
    client.args(["--ignored", "--exact", "--nocapture", "a_pair_of_hosts_conforms"]);
    client.env(PEER_VARIABLE, &server.address).env(DEVICE_VARIABLE, DEVICE).env(TRUST_VARIABLE, "1");
    let output =
        client.env(KIND_VARIABLE, kind).env(END_VARIABLE, end.to_string()).output().expect("the test runs");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    // A test filter that matches nothing would be a success, too.
    let all = BEHAVIOURS.len();
    let summary = format!("this host was end {end}: {} passed, {skipped} skipped, of {all}\n", all - skipped);
    assert!(printed.contains(&summary), "{printed}");
    assert!(server.child.0.wait().expect("it was started here").success(), "the server ended well");
}

/// Catches receives that are not announced when their queue pair becomes ready, and failures of the server that are taken for
/// success.
#[test]
fn processes_of_a_fabric_conform() {
    assert_conform("conform-0", &Settings::new(Topology::pair()), "tb5", 0, 0);
}

/// The life cycles and limits of the server's device are tested.
#[test]
fn processes_of_a_fabric_conform_with_the_ends_swapped() {
    assert_conform("conform-1", &Settings::new(Topology::pair()), "tb5", 1, 0);
}

/// Cables as fast as modelled.
#[test]
fn processes_of_a_paced_fabric_conform() {
    assert_conform("conform-paced", &Settings::new(Topology::pair()).paced(true), "tb5", 0, 0);
}

/// Catches, now and then, a send that passes a receive which was announced before it.
#[test]
fn processes_with_network_adapters_conform() {
    let settings = Settings::new(Topology::pair()).profile("roce").expect("there is such a profile");
    assert_conform("conform-adapter", &settings, "adapter", 0, 7);
}
