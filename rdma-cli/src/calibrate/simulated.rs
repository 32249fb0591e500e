//! A calibration of two simulated Macs, in virtual time

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use futures::channel::oneshot;
use futures::future::join;
use indicatif::ProgressBar;
use rdma_calibrate::{Machine, Options, Path, calibrate, serve};
use rdma_core::{AnyDevice, Error, Runtime};
use rdma_sim::{Net, Sim};

use super::args::Arguments;
use super::outcome::Files;
use crate::failure::Failure;
use crate::report::{Output, SIMULATOR, plain, simulated};
use crate::{mac, progress};

/// The device at the cable of one of the two Macs
struct SimulatedMac {
    net: Net,
    host: &'static str,
    cables: u8,
    progress: ProgressBar,
}

impl Machine for SimulatedMac {
    fn cables(&self) -> usize {
        self.cables.into()
    }

    fn open_cable(&self, cable: usize) -> Result<AnyDevice, Error> {
        // The calibration numbers the cables below their count.
        let device = self.net.open(self.host, &mac::device(cable as u8)).map_err(Error::from)?;
        Ok(AnyDevice::new(device))
    }

    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let device = self.net.open(self.host, &mac::device(0)).map_err(Error::from)?;
        Ok(AnyDevice::new(device.with_path(path.source_index, path.mtu)))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.net.host(self.host).runtime()
    }

    fn begins(&self, name: &'static str, number: usize, count: usize) {
        progress::step(&self.progress, name, number, count);
    }
}

pub(super) fn run(args: &Arguments, output: Output) -> Result<()> {
    for (option, is_given) in [("--device", !args.device.is_empty()), ("--port", args.port.is_some())] {
        if is_given {
            bail!(Failure::usage(format!("{option} is for two machines: write HOST:, or leave it out")));
        }
    }
    let files = Files::require_writable(&args.out, args.profile.as_deref())?;
    let profile = args.profile.as_deref().unwrap_or("tb5");
    let model = mac::model(profile)?;
    let cables = args.cables.unwrap_or(1);
    output.announce(&simulated(cables))?;
    let options = Options::default().with(args.idle_death, args.error_state);
    // Each probe of a queue has 16 MB, which the sanitizer would poison.
    let sim =
        Sim::new().model(model).seed(args.seed.unwrap_or(0)).topology(mac::topology(cables)).sanitize(false);
    let progress = progress::steps(1);
    let run = sim.try_run(async |net| {
        let (asks, answers) = net.tcp();
        let mac = |host| SimulatedMac { net: net.clone(), host, cables, progress: progress.clone() };
        let [a, b] = ["a", "b"].map(mac);
        // Each side is a task of its host: in one task, both would share a processor.
        let (asked, asking_ends) = oneshot::channel();
        let (served, serving_ends) = oneshot::channel();
        net.host("a").spawn(async move { drop(asked.send(calibrate(&a, asks, &options).await)) });
        net.host("b").spawn(async move { drop(served.send(serve(&b, answers).await)) });
        join(asking_ends, serving_ends).await
    })?;
    progress.finish_and_clear();
    let (asked, served) = run.value;
    let mut findings = asked??;
    findings.simulated = Some(plain(profile));
    served?.context("the other simulated Mac")?;
    files.write(&findings, SIMULATOR, output)
}
