//! Simulated Macs that calibrate each other

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join;
use rdma_calibrate::{CalibrateError, Findings, Machine, Options, Path, calibrate, serve};
use rdma_core::{AnyDevice, Error, Runtime, Time};
use rdma_sim::{Leaks, Model, Net, Sim};

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

/// Runs `side` as a task of `host`, and returns what it returns
fn on_host<T: Send + 'static>(
    net: &Net,
    host: &str,
    side: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> {
    let (ends, ended) = oneshot::channel();
    net.host(host).spawn(async move { drop(ends.send(side.await)) });
    async { ended.await.expect("no host ends") }
}

/// How both sides ended, and what they left behind
pub(crate) struct Ended {
    pub(crate) asked: Result<Findings, CalibrateError>,
    pub(crate) served: Result<(), CalibrateError>,
    pub(crate) leaks: Leaks,
    pub(crate) time: Time,
}

/// Calibrates two Macs of `model`
pub(crate) fn calibrated(model: Model, seed: u64, options: Options) -> Ended {
    // The sanitizer poisons the 16 MB of each probe of a queue, which would take most of the time.
    let sim = Sim::new().model(model).seed(seed).sanitize(false);
    let run = sim.try_run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host));
        // Each side is a task of its host: in one task, both would share a processor.
        let asked = on_host(&net, "a", async move { calibrate(&a, asks, &options).await });
        let served = on_host(&net, "b", async move { serve(&b, answers).await });
        join(asked, served).await
    });
    let run = run.unwrap_or_else(|error| panic!("{error}"));
    let (asked, served) = run.value;
    Ended { asked, served, leaks: run.leaks, time: run.time }
}

/// Ten minutes: what a calibration may take.
pub(crate) const MOST: Duration = Duration::from_mins(10);
