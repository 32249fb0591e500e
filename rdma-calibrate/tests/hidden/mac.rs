//! Simulated Macs that calibrate each other

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join;
use rdma_calibrate::{CalibrateError, Findings, Machine, Options, Path, calibrate, serve};
use rdma_core::{AnyDevice, Error, Runtime, Time};
use rdma_sim::{Finding, Leaks, Model, Net, Sim, Topology};

use crate::devices::Cables;

/// The device of a host with the cable of the pair
#[derive(Clone)]
pub(crate) struct Mac(pub(crate) Net, pub(crate) &'static str);

impl Machine for Mac {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let device = self.0.open(self.1, "rdma_en2").map_err(Error::from)?;
        Ok(AnyDevice::new(device.with_path(path.source_index, path.mtu)))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.host(self.1).runtime()
    }
}

/// A Mac with several cables to the other one
struct Cabled(Mac, usize);

impl Machine for Cabled {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        self.0.open(path)
    }

    fn cables(&self) -> usize {
        self.1
    }

    fn open_cable(&self, cable: usize) -> Result<AnyDevice, Error> {
        let Mac(net, host) = &self.0;
        let device = net.open(host, &format!("rdma_en{}", cable + 2)).map_err(Error::from)?;
        Ok(AnyDevice::new(device))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.runtime()
    }
}

/// Runs `side` as a task of `host`, and returns what it returns
pub(crate) fn on_host<T: Send + 'static>(
    net: &Net,
    host: &str,
    side: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> {
    let (ends, ended) = oneshot::channel();
    net.host(host).spawn(async move { drop(ends.send(side.await)) });
    async { ended.await.expect("no host ends") }
}

/// The ends of both sides, and the objects that they left
pub(crate) struct Ended {
    pub(crate) asked: Result<Findings, CalibrateError>,
    pub(crate) served: Result<(), CalibrateError>,
    /// What the DMA sanitizer has found
    pub(crate) misuse: Vec<Finding>,
    pub(crate) leaks: Leaks,
    pub(crate) time: Time,
}

/// Calibrates two Macs of `model`
pub(crate) fn calibrated(model: Model, seed: u64, options: Options) -> Ended {
    calibrated_over(Cables::ONE, model, seed, options)
}

/// Calibrates two Macs of `model` with these cables between them
pub(crate) fn calibrated_over(cables: Cables, model: Model, seed: u64, options: Options) -> Ended {
    // The sanitizer poisons the 16 MB of each probe of a queue, which would take most of the time.
    ended(cables, Sim::new().model(model).seed(seed).sanitize(false), options)
}

/// Calibrates two Macs of `sim` with these cables between them
pub(crate) fn ended(cables: Cables, sim: Sim, options: Options) -> Ended {
    let Cables { count, rate } = cables;
    let macs = Topology::new().host("a", 3).host("b", 3);
    let macs = (0..count).fold(macs, |macs, port| macs.cable(("a", port), ("b", port), rate));
    let run = sim.topology(macs).try_run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Cabled(Mac(net.clone(), host), count));
        // Each side is a task of its host: in one task, both would share a processor.
        let asked = on_host(&net, "a", async move { calibrate(&a, asks, &options).await });
        let served = on_host(&net, "b", async move { serve(&b, answers).await });
        join(asked, served).await
    });
    let run = run.unwrap_or_else(|error| panic!("{error}"));
    let (asked, served) = run.value;
    Ended { asked, served, misuse: run.findings, leaks: run.leaks, time: run.time }
}

/// Ten minutes: what a calibration may take.
pub(crate) const MOST: Duration = Duration::from_mins(10);
