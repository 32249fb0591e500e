//! Calibration of devices behind the C ABI, whose rules and timings it has to find out
//!
//! As of the simulator's own devices, and with the same devices and the same judge. Each device is the simulated provider in a process of
//! its own, which is this test once more, because a provider reads its settings once. The profile is named in the environment, for the
//! provider: the calibration is not told. Both sides are tasks of that process, each with its own device of `rdma-tb5`, which loads the
//! provider as it loads Apple's and is opened with the options of `tb5 calibrate`. What is found is written to a file, and judged here.
//!
//! Timings are exact although the backend polls, because time stands still while it does: with `RDMA_SIM_CLOCK=stepped`, only
//! [`SteppedRuntime`] advances it, from one event or timer to the next, once neither side has anything to do. The stream between the
//! sides is as slow as one of Thunderbolt networking: a side that answers at once would be faster than the cable.
//!
//! Two fields differ from the device's own: the library refuses requests with several elements itself, so that `rules.multi_sge` must be
//! reported as undecided, and the provider asks for no more alignment than that of a page of this system, 4096.
//!
//! Seen to fail: with EPERM in place of ETIMEDOUT where the provider finds no neighbour; with a device that is opened without
//! [`OpenOptions::unguarded`], which refuses in place of the provider; and with a clock that jumps at each poll.
#![allow(unsafe_code, reason = "loads the provider")]

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::{env, thread};

use futures::future::join;
use rdma_calibrate::{Machine, Options, Path, calibrate, serve};
use rdma_core::{AnyDevice, Cause, Error, Runtime, Verb};
use rdma_sim::profile::Profile;
use rdma_tb5::{OpenError, OpenOptions, PollPolicy, Provider, VerbsDevice};

use crate::devices::secret;
use crate::judge::{assert_found, of};
use crate::mac::MOST;
use crate::stepped::SteppedRuntime;

/// The environment variable that names the file for what the process of a calibration has found
const FOUND: &str = "RDMA_CALIBRATE_FOUND";
/// The fields that the library decides itself
const HIDDEN: &[&str] = &["rules.multi_sge"];

#[test]
fn two_hundred_devices_are_recovered_over_the_c_abi() {
    assert_recovers(0..200);
}

#[test]
#[ignore = "takes minutes"]
fn five_thousand_devices_are_recovered_over_the_c_abi() {
    assert_recovers(0..5000);
}

fn assert_recovers(seeds: std::ops::Range<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut running = VecDeque::new();
    for seed in seeds {
        if running.len() == processors {
            running.pop_front().map(Calibration::judge);
        }
        running.push_back(Calibration::start(folder.path(), seed));
    }
    running.into_iter().for_each(Calibration::judge);
}

/// A process that calibrates one device; it ends with this
struct Calibration {
    seed: u64,
    process: Child,
    found: PathBuf,
    log: PathBuf,
}

impl Calibration {
    fn start(folder: &FilePath, seed: u64) -> Self {
        let file = |name| folder.join(format!("{seed}.{name}"));
        let [profile, found, log] = ["secret", "found", "log"].map(file);
        fs::write(&profile, of(&secret(seed)).to_toml()).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "over_abi::a_calibration_in_a_process_of_its_own", "--ignored"]);
        command.env("RDMA_SIM_CLOCK", "stepped").env("RDMA_SIM_SEED", seed.to_string());
        command.env("RDMA_SIM_PROFILE", profile).env(FOUND, &found);
        let output = File::create(&log).unwrap();
        command.stderr(output.try_clone().unwrap()).stdout(output);
        Self { seed, process: command.spawn().unwrap(), found, log }
    }

    fn judge(mut self) {
        let is_done = self.process.wait().unwrap().success() && self.found.exists();
        assert!(is_done, "seed {}: {}", self.seed, fs::read_to_string(&self.log).unwrap());
        let mut model = secret(self.seed);
        model.rules.alignment = model.rules.alignment.min(4096);
        assert_found(self.seed, &model, &Profile::load(&self.found).unwrap(), HIDDEN);
        fs::remove_file(&self.log).unwrap();
    }
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
    device: &'static str,
    runtime: Arc<SteppedRuntime>,
}

impl Machine for HostOfProvider {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let options = OpenOptions::new().path_mtu(path.mtu).poll(PollPolicy::SPIN).unguarded();
        let options =
            path.source_index.map_or_else(|| options.clone(), |index| options.clone().source_index(index));
        let opened = VerbsDevice::open(&self.provider, self.device, options);
        opened.map(AnyDevice::new).map_err(|error| match error {
            OpenError::Verbs(error) => error,
            _ => Error::new(Verb::OpenDevice, Cause::DeviceGone),
        })
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    fn hidden(&self) -> &'static [&'static str] {
        HIDDEN
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
    let [asking, serving] = ["rdma_en2@a", "rdma_en2@b"].map(|device| HostOfProvider {
        provider: Arc::clone(&provider),
        device,
        runtime: Arc::clone(&runtime),
    });
    let [asks, answers] = runtime.streams();
    let options = Options::default();
    let (asked, served) = runtime.run(join(calibrate(&asking, asks, &options), serve(&serving, answers)));
    served.unwrap_or_else(|error| panic!("{error}"));
    let findings = asked.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(runtime.objects(), 0, "the calibration left objects");
    assert!(findings.took <= MOST, "{:?}", findings.took);
    fs::write(found, findings.profile.to_toml()).unwrap();
}
