//! The conformance body on the arms that every machine has: the simulator, the real path over the simulated provider, and TCP

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::Error;

use rdma_sim::rules::{QueueGrant, QueueReadBack};
use rdma_sim::{Choices as _, Driver, Model, Seeded, Sim, SimDevice};
use rdma_tb5::{OpenError, OpenOptions, Provider, VerbsDevice};
use rdma_tcp::{TcpDevice, TcpOptions};
use rdma_tests::DEVICE;
use rdma_tests::conformance::{Arm, BEHAVIOURS, Expectations, Verdict, run};
use rdma_tests::hosts::library;
use rdma_tests::remote::LocalDevice;

/// The simulator behind the traits
struct Simulated(Driver);

impl Arm for Simulated {
    type Device = SimDevice;

    fn open(&self, end: usize) -> Result<SimDevice, Error> {
        self.0.net().open(["a", "b"][end], DEVICE).map_err(Error::from)
    }

    fn rest(&self, time: Duration) {
        self.0.advance_to(self.0.now() + time);
    }
}

fn assert_conforms(verdicts: &[(&str, Verdict)], expected: usize) {
    let failed: Vec<_> =
        verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let passed = verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Passed).count();
    assert_eq!(passed, expected, "{verdicts:#?}");
}

#[test]
fn the_simulator_conforms() {
    assert!(BEHAVIOURS.len() >= 60, "{} behaviours", BEHAVIOURS.len());
    let verdicts = run(|| Simulated(Driver::new(Sim::new().seed(1), drop).unwrap()));
    assert_conforms(&verdicts, BEHAVIOURS.len());
}

/// Twenty-four random grants, which give more, less or exactly what was asked for, and report that, or something else.
///
/// Catches a body that takes the reported depth for the accepted one: the body before failed on every grant but the old default.
#[test]
fn the_simulator_conforms_whatever_depth_it_grants() {
    let mut choices = Seeded::new(14);
    for _ in 0..24 {
        let mut model = Model::tb5();
        model.rules.queue_grant = match choices.pick(3) {
            0 => QueueGrant::AtLeast(choices.pick(4096)),
            1 => QueueGrant::Exact,
            _ => QueueGrant::Fixed(64 + choices.pick(4032)),
        };
        // A device that accepts less than what was asked for and reported cannot be used.
        model.rules.queue_read_back = match (model.rules.queue_grant, choices.pick(3)) {
            (QueueGrant::Fixed(_), _) | (_, 0) => QueueReadBack::Accepted,
            (_, 1) => QueueReadBack::Asked,
            _ => QueueReadBack::Limit,
        };
        let fresh = || Simulated(Driver::new(Sim::new().seed(1).model(model.clone()), drop).unwrap());
        let verdicts = run(fresh);
        let failed: Vec<_> = verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Passed).collect();
        assert!(failed.is_empty(), "{:?}: {failed:#?}", model.rules);
    }
}

/// A device that takes less than was asked for and says otherwise is found, by name.
#[test]
fn a_device_that_takes_less_than_it_says_does_not_conform() {
    let mut model = Model::tb5();
    (model.rules.queue_grant, model.rules.queue_read_back) = (QueueGrant::Fixed(64), QueueReadBack::Limit);
    let verdicts = run(|| Simulated(Driver::new(Sim::new().seed(1).model(model.clone()), drop).unwrap()));
    let verdict = verdicts.iter().find(|(name, _)| *name == "what_was_asked_for_or_reported_fits");
    let (_, Verdict::Failed(why)) = verdict.unwrap() else { panic!("{verdicts:#?}") };
    assert!(why.contains("asked for 200, reported 4095"), "{why}");
}

/// `VerbsDevice` over the C ABI of the simulated provider, loaded as a program would
struct OverTheAbi {
    provider: Arc<Provider>,
    rest: unsafe extern "C" fn(u64),
}

impl Arm for OverTheAbi {
    type Device = VerbsDevice;

    fn open(&self, end: usize) -> Result<VerbsDevice, Error> {
        // Destroying a queue pair of the simulator ends all access; this has not been shown on a Mac.
        let options = OpenOptions::new().trust_destroy(true);
        match VerbsDevice::open(&self.provider, ["rdma_en2@a", "rdma_en2@b"][end], options) {
            Ok(device) => Ok(device),
            Err(OpenError::Verbs(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    fn rest(&self, time: Duration) {
        // SAFETY: the function has no preconditions.
        unsafe { (self.rest)(time.as_nanos() as u64) };
    }
}

#[test]
fn the_real_path_conforms_over_the_simulated_provider() {
    let path = library();
    // SAFETY: loading the provider has no preconditions; it stays loaded below.
    let symbols = unsafe { libloading::Library::new(&path) }.unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: the function has this type.
    let configure =
        unsafe { symbols.get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"rdma_sim_configure") };
    let configure = configure.expect("the provider can be configured");
    let configuration: &CStr = c"RDMA_SIM_CLOCK=virtual,RDMA_SIM_SEED=3";
    // SAFETY: the string ends with a zero.
    assert_eq!(unsafe { configure(configuration.as_ptr()) }, 0);
    // SAFETY: the function has this type.
    let rest = unsafe { symbols.get::<unsafe extern "C" fn(u64)>(b"rdma_sim_rest") };
    let rest = *rest.expect("the provider has a clock");
    // Never unloaded: `rest` is of it.
    std::mem::forget(symbols);
    // SAFETY: this is the simulated provider, which exports verbs.
    let provider = unsafe { Provider::load_from(&path) }.unwrap();
    assert!(provider.devices().unwrap().contains(&"rdma_en2@a".to_owned()));
    let verdicts = run(|| OverTheAbi { provider: Arc::clone(&provider), rest });
    assert_conforms(&verdicts, BEHAVIOURS.len());
}

/// TCP on the loopback interface; each device that is opened is one of its own
struct OverTcp;

impl Arm for OverTcp {
    type Device = TcpDevice;

    fn open(&self, _: usize) -> Result<TcpDevice, Error> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Ok(TcpDevice::bind(address, TcpOptions::new()).unwrap_or_else(|error| panic!("{error}")))
    }

    fn expectations(&self) -> Expectations {
        // As an adapter, without its reliable queue pairs.
        Expectations { is_unreliable_only: true, ..Expectations::ADAPTER }
    }
}

/// Skipped are `an_unknown_peer_is_not_found`, `a_send_queue_fills_up` and four limits, which `rdma-tcp` tests itself.
#[test]
fn the_tcp_device_conforms() {
    assert_conforms(&run(|| OverTcp), BEHAVIOURS.len() - 6);
}

/// `VerbsDevice` over whatever provider this machine has: two devices with a cable between them
struct Genuine([LocalDevice; 2]);

impl Arm for Genuine {
    type Device = VerbsDevice;

    fn open(&self, end: usize) -> Result<VerbsDevice, Error> {
        self.0[end].open()
    }

    fn expectations(&self) -> Expectations {
        self.0[0].expectations()
    }
}

/// Needs the environment variable `RDMA_CONFORMANCE_DEVICES`, two names with a comma between: CI runs it over Soft-RoCE in a
/// virtual machine; rdma-tb5/MACS.md describes a run on a Mac.
#[test]
#[expect(clippy::print_stderr, reason = "the verdicts are printed for the engineer who runs this")]
#[ignore = "needs two devices of a genuine provider, named by RDMA_CONFORMANCE_DEVICES"]
fn a_genuine_provider_conforms() {
    let devices = env::var("RDMA_CONFORMANCE_DEVICES").expect("RDMA_CONFORMANCE_DEVICES names two devices");
    let (a, b) = devices.split_once(',').expect("two names with a comma between");
    let provider = Provider::load().unwrap();
    let devices = [a, b].map(|name| LocalDevice::new(Arc::clone(&provider), name));
    let fresh = || Genuine(devices.clone());
    let verdicts = run(fresh);
    for (name, verdict) in &verdicts {
        eprintln!("{name}: {verdict:?}");
    }
    let skipped = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Skipped(_))).count();
    assert_conforms(&verdicts, BEHAVIOURS.len() - skipped);
    let known = if fresh().expectations() == Expectations::TB5 { 0 } else { 7 };
    assert_eq!(skipped, known, "what Soft-RoCE does not have is known");
}
