//! Judge of a profile: sessions are as fast with it as on the device

use std::time::Duration;

use futures::future::try_join;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use rdma_async::{AnyDevice, Node, NodeOptions, Session};
use rdma_calibrate::Findings;
use rdma_core::FRAME;
use rdma_sim::profile::Decided;
use rdma_sim::{LineRate, Model, Net, Sim, Topology};

use crate::devices::cables;
use crate::figures::assert_within;

/// The lengths of messages, and how many there are of each
const LENS: [(usize, usize); 4] = [(8, 512), (4096, 512), (65_536, 128), (1 << 20, 24)];
const PINGS: usize = 40;
/// The messages of a stream that are sent at once.
const AT_ONCE: usize = 8;
/// With jitter, the time of a stream of messages of a frame at most is the mean of so many runs: one delivery that is later changes which are polled
/// together from then on, so that runs on one and the same device differ by up to 15 %.
const RUNS: u64 = 16;

/// Fails unless sessions take as long by the profile as on the device, within 5 %: messages there and back, and streams
#[track_caller]
pub(crate) fn assert_predicts(seed: u64, secret: &Model, found: &Findings) {
    let base = |timing| {
        let mut model = Model::tb5();
        model.caps.max_message = secret.caps.max_message;
        model.rules.send_completion = secret.rules.send_completion;
        model.rules.tb4_devices = true;
        model.timing = timing;
        // Few are late, each by another time: the figures differ by that.
        model.timing.wake_tail_one_in = 0;
        model
    };
    let mut predicting = found.profile.model.timing.clone();
    if found.profile.decided("timing.turns") != Some(Decided::Measured) {
        predicting.turns = secret.timing.turns;
    }
    let models = [base(secret.timing.clone()), base(predicting)];
    for (len, count) in LENS {
        let [truth, predicted] = models.each_ref().map(|model| figures(model, cables(seed).rate, len, count));
        for (what, truth, predicted) in
            [("round trip", truth.0, predicted.0), ("stream", truth.1, predicted.1)]
        {
            let [truth, predicted] = [truth, predicted].map(|time| time.as_nanos() as f64);
            assert_within(&format!("seed {seed}: {what} of {len} bytes"), truth, predicted);
        }
    }
}

/// The median of the times of messages of `len` bytes there and back, and the time of a stream of `count` of them
fn figures(model: &Model, rate: LineRate, len: usize, count: usize) -> (Duration, Duration) {
    let topology = Topology::new().host("a", 1).host("b", 1).cable(("a", 0), ("b", 0), rate);
    let sim = |seed| Sim::new().model(model.clone()).topology(topology.clone()).seed(seed).sanitize(false);
    let trip = sim(1).run(async |net| trip(&net, len).await).value;
    let runs = if model.timing.jitter_ns > 0 && len <= FRAME { RUNS } else { 1 };
    let streams = (1..=runs).map(|seed| sim(seed).run(async |net| stream(&net, len, count).await).value);
    (trip, streams.sum::<Duration>() / runs as u32)
}

async fn connect(net: &Net, len: usize) -> [Session<AnyDevice>; 2] {
    let [a, b] = ["a", "b"].map(|host| {
        let open = net.opener(host, "rdma_en2");
        let builder = Node::builder(move || open().map(AnyDevice::new)).runtime(net.runtime());
        builder.options(NodeOptions::new().max_message(len)).build().unwrap()
    });
    let (to_b, to_a) = tokio::io::duplex(64 << 10);
    let (there, ()) = try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
    [there, b.accept().await.unwrap()]
}

async fn trip(net: &Net, len: usize) -> Duration {
    let [here, there] = connect(net, len).await;
    let echo = async move {
        while let Some(message) = there.recv().await.unwrap() {
            let mut lease = there.alloc(len).await.unwrap();
            lease.extend_from_slice(&message);
            drop(message);
            there.send(lease).await.unwrap();
        }
    };
    // The other side is a task of its own, as it would be another program.
    net.runtime().spawn(Box::pin(echo));
    let mut lease = here.alloc(len).await.unwrap();
    lease.resize(len, 7);
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = net.now();
        lease = here.send(lease).await.unwrap();
        assert_eq!(here.recv().await.unwrap().unwrap().len(), len);
        times.push(net.now() - start);
    }
    here.close().await.unwrap();
    times.sort();
    times[PINGS / 2]
}

async fn stream(net: &Net, len: usize, count: usize) -> Duration {
    let [here, there] = connect(net, len).await;
    let start = net.now();
    let send = async {
        let sends = stream::iter(0..count).map(async |_| {
            let mut lease = here.alloc(len).await.unwrap();
            lease.resize(len, 7);
            here.send(lease).await.map(drop)
        });
        sends.buffered(AT_ONCE).try_collect::<()>().await.unwrap();
        here.close().await.unwrap();
    };
    let receive = async {
        for _ in 0..count {
            assert_eq!(there.recv().await.unwrap().unwrap().len(), len);
        }
        net.now() - start
    };
    futures::join!(send, receive).1
}
