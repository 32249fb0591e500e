//! Calibration has to find out the rules and timings of devices behind the C ABI
//!
//! As of the simulator's own devices, and with the same devices and the same judge. Each device is the simulated provider in a process of
//! its own, which is this test once more, because a provider reads its settings once. The profile is named in the environment, for the
//! provider: the calibration is not told. Both sides are tasks of that process, each with its own device of `rdma-tb5`, which loads the
//! provider as it loads Apple's and is opened with the options of `tb5 calibrate`. Calibration writes its findings to a file, and the test judges them.
//!
//! Timings are exact although the backend polls, because time stands still while it does: with `RDMA_SIM_CLOCK=stepped`, only
//! [`SteppedRuntime`] advances it, from one event or timer to the next, once neither side has anything to do. The stream between the
//! sides is slower than the cable, as every real one: what a side says that it has posted has reached the other device by then.
//!
//! The costs of the processor are not found over the C ABI, and have to be reported as undecided. A program in C runs on a real processor:
//! the stepped clock does not count its time, and posts and polls of the provider do not advance that clock. A provider that advanced it would
//! delay both sides by the costs of each, because they are tasks of one process, with one clock. A runtime that took the costs itself would
//! test its own arithmetic, and step from poll to poll: the library polls all the time, so that each millisecond of waiting would take ten
//! thousands of steps. For the same reason nothing wakes a task here, and a late wake-up is not seen.
//!
//! One field differs from the device's own: the provider asks for no more alignment than that of a page of this system, 4096.
//!
//! Seen to fail, each by the first devices: with EPERM and ETIMEDOUT swapped in the provider; with verbs that take a tenth longer in the
//! provider; with devices that are opened without [`OpenOptions::unguarded`], so that the library refuses in place of the provider; and
//! with a clock that jumps whenever one side polls.
#![allow(unsafe_code, reason = "loads the provider")]

use std::collections::VecDeque;
use std::fs::{self, File};
use std::panic::catch_unwind;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use std::{env, thread};

use futures::future::join;
use rdma_calibrate::{Machine, Options, Path, ViewOfC, calibrate, serve};
use rdma_core::{AnyDevice, Cause, Error, Runtime, Verb};
use rdma_sim::Model;
use rdma_sim::profile::{Decided, Profile};
use rdma_tb5::{OpenError, OpenOptions, PollPolicy, Provider, VerbsDevice};

use crate::behaviours::assert_behaves;
use crate::devices::{Cables, cables, secret};
use crate::judge::{assert_cables, assert_found, assert_rules_hold, of};
use crate::mac::MOST;
use crate::stepped::SteppedRuntime;

/// The environment variable that names the file for what the process of a calibration has found
const FOUND: &str = "RDMA_CALIBRATE_FOUND";
/// The environment variable that asks for the experiments that have to be asked for
const ASKED_FOR: &str = "RDMA_CALIBRATE_ASKED_FOR";
/// The environment variable that numbers the device
const SEED: &str = "RDMA_SIM_SEED";

#[test]
fn two_hundred_devices_are_recovered_over_the_c_abi() {
    assert_recovers(0..200);
}

#[test]
#[ignore = "takes minutes"]
fn five_thousand_devices_are_recovered_over_the_c_abi() {
    assert_recovers(0..5000);
}

/// The experiments that have to be asked for: queue pairs of the first device live, those of the others die.
#[test]
fn idle_death_and_the_error_state_are_found_over_the_c_abi() {
    let folder = tempfile::tempdir().unwrap();
    let calibrations = [(0, None), (1, Some(600)), (2, Some(1380))].map(|(seed, seconds)| {
        let mut model = secret(seed);
        model.rules.idle_death = seconds.map(Duration::from_secs);
        model.rules.error_keeps_mappings = seed != 1;
        // A wedged port shows no idle death.
        model.rules.failed_rtr_wedges = None;
        (model.clone(), Calibration::start(folder.path(), seed, &model, "all"))
    });
    for (model, calibration) in calibrations {
        let (seed, found) = (calibration.seed, calibration.found());
        let field = "rules.error_keeps_mappings";
        assert_eq!(found.decided(field), Some(Decided::Measured), "seed {seed}");
        assert_eq!(found.value(field), of(&model).value(field), "seed {seed}");
        let is_decided = found.decided("rules.idle_death") == Some(Decided::Measured);
        assert_eq!(is_decided, model.rules.idle_death.is_some(), "seed {seed}");
        if let (Some(truth), Some(found)) = (model.rules.idle_death, found.model.rules.idle_death)
            && is_decided
        {
            let ratio = found.as_secs_f64() / truth.as_secs_f64();
            assert!((0.95..=1.05).contains(&ratio), "seed {seed}: {found:?} of {truth:?}");
        }
    }
}

/// Judges all of these devices, and names each that is not recovered
fn assert_recovers(seeds: std::ops::Range<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (mut running, mut failed) = (VecDeque::new(), Vec::new());
    let mut judge = |calibration: Calibration| {
        let seed = calibration.seed;
        if catch_unwind(|| calibration.judge()).is_err() {
            failed.push(seed);
        }
    };
    for seed in seeds {
        if running.len() == processors {
            running.pop_front().into_iter().for_each(&mut judge);
        }
        running.push_back(Calibration::start(folder.path(), seed, &secret(seed), ""));
    }
    running.into_iter().for_each(judge);
    assert!(failed.is_empty(), "not recovered: seeds {failed:?}");
}

/// A process that calibrates one device; it ends with this
struct Calibration {
    seed: u64,
    process: Child,
    found: PathBuf,
    log: PathBuf,
}

impl Calibration {
    /// Calibrates a device of `model`, with the optional experiments if `asked_for` says something
    fn start(folder: &FilePath, seed: u64, model: &Model, asked_for: &str) -> Self {
        let file = |name| folder.join(format!("{seed}.{name}"));
        let [profile, topology, found, log] = ["secret", "cables.toml", "found", "log"].map(file);
        fs::write(&profile, of(model).to_toml()).unwrap();
        let Cables { count, rate } = cables(seed);
        let gbps = rate.bits_per_second / 1_000_000_000;
        let cables = format!("shape = 'pair'\nports = 3\ncables = {count}\ngbps = {gbps}\n");
        fs::write(&topology, cables).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "over_abi::a_calibration_in_a_process_of_its_own", "--ignored"]);
        command.env("RDMA_SIM_CLOCK", "stepped").env(SEED, seed.to_string());
        command.env("RDMA_SIM_PROFILE", profile).env("RDMA_SIM_TOPOLOGY", topology);
        command.env(FOUND, &found).env(ASKED_FOR, asked_for);
        let output = File::create(&log).unwrap();
        command.stderr(output.try_clone().unwrap()).stdout(output);
        Self { seed, process: command.spawn().unwrap(), found, log }
    }

    fn judge(self) {
        assert_found(self.seed, &over_abi(self.seed), &self.found(), &[], true);
    }

    /// The findings, once the process has ended
    fn found(mut self) -> Profile {
        let is_done = self.process.wait().unwrap().success() && self.found.exists();
        assert!(is_done, "seed {}: {}", self.seed, fs::read_to_string(&self.log).unwrap());
        Profile::load(&self.found).unwrap()
    }
}

/// The device as a program in C sees it
fn over_abi(seed: u64) -> Model {
    let mut model = secret(seed);
    model.rules.alignment = model.rules.alignment.min(4096);
    model.timing.cpu = false;
    model
}

impl Drop for Calibration {
    fn drop(&mut self) {
        // Both fail only if the process was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A host of the provider, with the options of `tb5 calibrate`
struct HostOfProvider {
    provider: Arc<Provider>,
    /// Its name behind those of its devices
    host: &'static str,
    cables: usize,
    runtime: Arc<SteppedRuntime>,
}

impl Machine for HostOfProvider {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let options = OpenOptions::new().path_mtu(path.mtu).poll(PollPolicy::SPIN).unguarded();
        let options =
            path.source_index.map_or_else(|| options.clone(), |index| options.clone().source_index(index));
        self.open_with(0, options)
    }

    fn cables(&self) -> usize {
        self.cables
    }

    fn open_cable(&self, cable: usize) -> Result<AnyDevice, Error> {
        self.open_with(cable, OpenOptions::new().poll(PollPolicy::SPIN).unguarded())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    fn is_polling(&self) -> bool {
        true
    }

    fn open_for_c(&self) -> Option<Result<ViewOfC, Error>> {
        let options = OpenOptions::new().poll(PollPolicy::SPIN).unguarded().completion_channel();
        Some(self.open_verbs(0, options).and_then(|device| {
            let events = device.completion_events().expect("the device has a channel");
            Ok(ViewOfC {
                gid_table_len: device.gid_table_len()?,
                device: AnyDevice::new(device),
                completion_events: Ok(Box::new(move || events.take())),
            })
        }))
    }
}

impl HostOfProvider {
    /// Opens the device of a cable
    fn open_with(&self, cable: usize, options: OpenOptions) -> Result<AnyDevice, Error> {
        self.open_verbs(cable, options).map(AnyDevice::new)
    }

    fn open_verbs(&self, cable: usize, options: OpenOptions) -> Result<VerbsDevice, Error> {
        let device = format!("rdma_en{}@{}", cable + 2, self.host);
        let opened = VerbsDevice::open(&self.provider, &device, options);
        opened.map_err(|error| match error {
            OpenError::Verbs(error) => error,
            _ => Error::new(Verb::OpenDevice, Cause::DeviceGone),
        })
    }
}

/// The provider that cargo built beside the running test
fn library() -> PathBuf {
    let name = format!("{}rdma{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    env::current_exe().unwrap().with_file_name(name)
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn a_calibration_in_a_process_of_its_own() {
    let Some(found) = env::var_os(FOUND) else { return };
    // SAFETY: this is the simulated provider, which exports verbs.
    let provider = unsafe { Provider::load_from(&library()) }.unwrap();
    let runtime = Arc::new(SteppedRuntime::new(&library()));
    let seed = env::var(SEED).unwrap().parse().unwrap();
    let [asking, serving] = ["a", "b"].map(|host| HostOfProvider {
        provider: Arc::clone(&provider),
        host,
        cables: cables(seed).count,
        runtime: Arc::clone(&runtime),
    });
    let [asks, answers] = runtime.streams();
    let is_asked = env::var(ASKED_FOR).is_ok_and(|asked_for| !asked_for.is_empty());
    let options = Options::default().with_idle_death(is_asked).with_risk_reboot(true);
    let (asked, served) = runtime.run(join(calibrate(&asking, asks, &options), serve(&serving, answers)));
    let findings = asked.unwrap_or_else(|error| panic!("{error}; the other side: {served:?}"));
    served.unwrap_or_else(|error| panic!("{error}"));
    assert!(findings.stopped.is_empty(), "{:?}", findings.stopped);
    assert_rules_hold(&findings);
    assert_cables(seed, &over_abi(seed), &findings);
    assert_behaves(seed, &findings.profile.model, &findings, true);
    if !is_asked {
        // The last stage sets a queue pair to the error state: a device of this rule keeps the mappings of its region counted for ever, as the
        // rule says, so that a region that was leaked as well would not show. The devices without the rule show each.
        let keeps = findings.profile.model.rules.error_keeps_mappings;
        assert!(keeps || runtime.objects() == 0, "the calibration left {} objects", runtime.objects());
        assert!(findings.took <= MOST, "{:?}", findings.took);
    }
    fs::write(found, findings.profile.to_toml()).unwrap();
}
