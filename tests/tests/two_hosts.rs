//! The conformance body with one end in another process, or on another host

use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use rdma::shared::Settings;
use rdma_core::{AnyDevice, Error};
use rdma_sim::Topology;
use rdma_tests::conformance::{Arm, BEHAVIOURS, Expectations, Verdict, run};
use rdma_tests::hosts::Hosts;
use rdma_tests::remote::{
    DEVICE_VARIABLE, LISTEN_VARIABLE, LocalDevice, PEER_VARIABLE, RemoteHost, TRUST_VARIABLE,
};

const FAR: &str = env!("CARGO_BIN_EXE_far");

/// One end here, the other one elsewhere
struct TwoHosts<'a> {
    device: &'a LocalDevice,
    host: RemoteHost,
    /// Which of the two ends is here.
    here: usize,
}

impl Arm for TwoHosts<'_> {
    type Device = AnyDevice;

    fn open(&self, end: usize) -> Result<AnyDevice, Error> {
        if end == self.here { self.device.open().map(AnyDevice::new) } else { self.host.open().map(AnyDevice::new) }
    }

    fn rest(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn expectations(&self) -> Expectations {
        if self.device.is_apple() { Expectations::TB5 } else { Expectations::RXE }
    }
}

/// Needs a server on the other host, and to know where: rdma-tb5/MACS.md says how. Runs the body twice, so that each host is once
/// the first end and once the second.
#[test]
#[expect(clippy::print_stderr, reason = "who runs this wants to see each verdict")]
#[ignore = "needs a served device on another host, named by RDMA_CONFORMANCE_PEER, and RDMA_CONFORMANCE_DEVICE"]
fn a_pair_of_hosts_conforms() {
    let peer = env::var(PEER_VARIABLE).unwrap_or_else(|_| panic!("{PEER_VARIABLE} is where the other host listens"));
    let device = LocalDevice::from_environment().unwrap_or_else(|why| panic!("{why}"));
    let connect = || RemoteHost::connect(&peer).unwrap_or_else(|error| panic!("{error}"));
    let mut failed = Vec::new();
    for here in [0, 1] {
        let verdicts = run(|| TwoHosts { device: &device, host: connect(), here });
        let ends = ["the first end is here", "the second end is here"][here];
        for (name, verdict) in &verdicts {
            eprintln!("{ends}: {name}: {verdict:?}");
        }
        let count = |is_it: fn(&Verdict) -> bool| verdicts.iter().filter(|(_, verdict)| is_it(verdict)).count();
        let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
        eprintln!("{ends}: {} passed, {skipped} skipped", count(|verdict| *verdict == Verdict::Passed));
        let known = if device.is_apple() { 0 } else { 7 };
        assert_eq!(skipped, known, "what a provider does not have is known");
        failed.extend(verdicts.into_iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_))));
    }
    connect().finish();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Ends with the test, however that ends
struct Far {
    child: Child,
    address: String,
}

impl Far {
    fn start(hosts: &Hosts, device: &str) -> Self {
        let mut command = hosts.command(FAR, "b");
        command.env(LISTEN_VARIABLE, "127.0.0.1:0").env(DEVICE_VARIABLE, device).env(TRUST_VARIABLE, "1");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program is there");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("the program speaks");
        let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
        Self { child, address: address.unwrap_or_else(|| panic!("the server said {line:?}")) }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the arm above between two processes that are the hosts of a fabric
fn assert_conform(name: &str, settings: &Settings, device: &str, summary: &str) {
    let hosts = Hosts::new(name, settings, FAR);
    let mut far = Far::start(&hosts, device);
    let mut near = hosts.command(env::current_exe().expect("the test has a path"), "a");
    near.args(["--ignored", "--exact", "--nocapture", "a_pair_of_hosts_conforms"]);
    near.env(PEER_VARIABLE, &far.address).env(DEVICE_VARIABLE, device).env(TRUST_VARIABLE, "1");
    let output = near.output().expect("the test runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for end in ["first", "second"] {
        assert!(said.contains(&format!("the {end} end is here: {summary}\n")), "{said}");
    }
    assert!(far.child.wait().expect("it was started here").success(), "the server ended well");
}

#[test]
fn processes_of_a_fabric_conform() {
    let settings = Settings::new(Topology::pair());
    assert_conform("conform", &settings, "rdma_en2", &format!("{} passed, 0 skipped", BEHAVIOURS.len()));
}
