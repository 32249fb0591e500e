//! A calibration of two simulated Macs, in virtual time

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::future::join;
use rdma_calibrate::{Machine, Options, Path, calibrate, serve};
use rdma_core::{AnyDevice, Error, Runtime};
use rdma_sim::{Net, Sim};

use super::args::Arguments;
use super::outcome;
use crate::mac;
use crate::report::{Output, SIMULATOR, simulated};

/// The device at the cable of one of the two Macs
struct SimulatedMac(Net, &'static str);

impl Machine for SimulatedMac {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let device = self.0.open(self.1, &mac::device(0)).map_err(Error::from)?;
        Ok(AnyDevice::new(device.with_path(path.source_index, path.mtu)))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.host(self.1).runtime()
    }
}

pub(super) fn run(args: &Arguments, output: Output) -> Result<()> {
    let model = mac::model(args.profile.as_deref().unwrap_or("tb5"))?;
    output.announce(&simulated(1))?;
    let options = Options::default().with(args.idle_death, args.error_state);
    // Each probe of a queue has 16 MB, which the sanitizer would poison.
    let sim = Sim::new().model(model).seed(args.seed.unwrap_or(0)).topology(mac::topology(1)).sanitize(false);
    let run = sim.try_run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| SimulatedMac(net.clone(), host));
        join(calibrate(&a, asks, &options), serve(&b, answers)).await
    })?;
    let (asked, served) = run.value;
    let findings = asked?;
    served.context("the other simulated Mac")?;
    outcome::write(args, &findings, SIMULATOR, output)
}
