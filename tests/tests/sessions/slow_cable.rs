//! A cable that carries less than its ports report

use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::Session;
use rdma_sim::{LineRate, Model, Net, Sim, SimDevice, Topology};
use rdma_tests::{Pair, connected_over, options};

use crate::figures::cables;

const FULL: LineRate = LineRate::TB5;

/// Messages of one length: all at once, or each when the one before is delivered
#[derive(Clone, Copy, Debug)]
struct Load {
    count: usize,
    len: usize,
    in_turn: bool,
}

impl Load {
    /// Payload over time
    async fn goodput(self, net: &Net, pair: &Pair) -> f64 {
        let start = net.now();
        let one = async |session: &Session<SimDevice>| {
            let mut lease = session.alloc(self.len).await.unwrap();
            lease.resize(self.len, 7);
            session.send(lease).delivered().await.unwrap();
        };
        let send = async {
            if self.in_turn {
                for _ in 0..self.count {
                    one(&pair.ab).await;
                }
            } else {
                join_all((0..self.count).map(|_| one(&pair.ab))).await;
            }
        };
        let receive = async {
            for _ in 0..self.count {
                drop(pair.ba.recv().await.unwrap().unwrap());
            }
        };
        join(send, receive).await;
        (self.count * self.len) as f64 / (net.now() - start).as_secs_f64()
    }

    /// The same a second time over two cables, of which the first becomes `percent` as fast as its ports report
    fn second_goodput(self, model: Model, topology: Topology, percent: u32) -> f64 {
        over_two(model, topology, async |net, pair| {
            net.inject(format!("at 0s a:rdma_en2 slow {percent}%").parse().unwrap());
            net.sleep(Duration::from_millis(1)).await;
            self.goodput(&net, &pair).await;
            self.goodput(&net, &pair).await
        })
    }
}

fn over_two<T>(model: Model, topology: Topology, program: impl AsyncFnOnce(Net, Pair) -> T) -> T {
    Sim::new()
        .model(model)
        .topology(topology)
        .sanitize(false)
        .run(async |net| {
            let options = options().receive_memory(64 << 20).send_memory(64 << 20);
            let pair = connected_over(&net, &["rdma_en2", "rdma_en3"], &options).await;
            program(net, pair).await
        })
        .value
}

/// Catches a path whose rate is what its port reports: 4 MiB in turn took five times as long with a cable at 10 %.
#[test]
fn a_slow_cable_carries_what_it_can() {
    let load = |count, len, in_turn| Load { count, len, in_turn };
    let long =
        [load(16, 4 << 20, false), load(4, 4 << 20, true), load(8, 1 << 20, true), load(16, 256 << 10, true)];
    let short = [load(128, 64 << 10, false), load(500, 16_000, false), load(2000, 4000, false)];
    for (model, percent, loads, least) in [
        (Model::tb5(), 50, &long[..], 0.99),
        (Model::tb5(), 25, &long, 0.99),
        (Model::tb5(), 10, &long, 0.99),
        (Model::roce(), 25, &long, 0.99),
        (Model::tb5(), 50, &short, 0.8),
        (Model::tb5(), 25, &short, 0.75),
        (Model::tb5(), 10, &short, 0.65),
    ] {
        for &load in loads {
            let slow = LineRate { bits_per_second: FULL.bits_per_second * u64::from(percent) / 100 };
            let reported = load.second_goodput(model.clone(), cables(&[slow, FULL]), 100);
            let found = load.second_goodput(model.clone(), cables(&[FULL, FULL]), percent);
            assert!(
                found >= least * reported,
                "{load:?} at {percent} %: {found:.3e}, {reported:.3e} if the ports report it"
            );
        }
    }
}

/// Catches a rate that is never measured again.
#[test]
fn a_cable_that_was_slow_is_used_again() {
    over_two(Model::tb5(), cables(&[FULL; 2]), async |net, pair| {
        let load = Load { count: 16, len: 4 << 20, in_turn: false };
        let short = Load { count: 8, len: 256 << 10, in_turn: true };
        let before = [load.goodput(&net, &pair).await, short.goodput(&net, &pair).await];
        let rates = || {
            let paths = pair.ba.snapshot().paths;
            [paths[0].bulk_rate, paths[1].bulk_rate]
        };
        assert_eq!(rates(), [None; 2], "{}", pair.ba.snapshot());
        net.inject("at 0s a:rdma_en2 slow 10%".parse().unwrap());
        load.goodput(&net, &pair).await;
        let snapshot = pair.ba.snapshot();
        let tenth = FULL.bits_per_second / 80;
        assert!(
            matches!(rates(), [Some(rate), None] if (tenth * 8 / 10..=tenth).contains(&rate)),
            "{snapshot}"
        );
        assert!(snapshot.to_string().contains("; 0.9"), "{snapshot}");
        net.inject("at 0s a:rdma_en2 slow 100%".parse().unwrap());
        load.goodput(&net, &pair).await;
        let after = load.goodput(&net, &pair).await;
        assert!(after >= 0.99 * before[0], "{after:.3e} after, {before:?} before");
        // Short messages do not use a slow cable, so that it is tried again only after a while.
        net.inject("at 0s a:rdma_en2 slow 10%".parse().unwrap());
        short.goodput(&net, &pair).await;
        net.inject("at 0s a:rdma_en2 slow 100%".parse().unwrap());
        net.sleep(Duration::from_secs(10)).await;
        let after = short.goodput(&net, &pair).await;
        assert!(after >= 0.99 * before[1], "{after:.3e} after, {before:?} before");
    });
}

/// Catches the time in which an application has nothing to send taken for that of a lane: then 40 Gb/s got as much as 80.
#[test]
fn pauses_of_the_application_slow_no_cable() {
    over_two(Model::tb5(), cables(&[LineRate::TB4, FULL]), async |net, pair| {
        let (from, to) = (pair.ab.main_stream(), pair.ba.main_stream());
        let bytes = vec![7; 512 << 10];
        let mut times = Vec::new();
        for expects in [true, false].repeat(20) {
            if expects {
                to.expect(bytes.len(), 0..1);
            }
            net.sleep(Duration::from_millis(10)).await;
            let start = net.now();
            let (sent, got) = join(from.send_bytes(&bytes), to.recv()).await;
            sent.unwrap();
            assert_eq!(got.unwrap().unwrap().len(), bytes.len());
            times.push(net.now() - start);
        }
        let [first, last] = [&times[2..4], &times[38..]];
        assert!(last.iter().zip(first).all(|(last, first)| *last <= first.mul_f64(1.01)), "{times:?}");
    });
}

/// Catches the time for which reports wait for company taken for that of a lane.
#[test]
fn bursts_of_few_packets_slow_no_cable() {
    over_two(Model::tb5(), cables(&[LineRate::TB4, FULL]), async |net, pair| {
        let burst = Load { count: 20, len: 4000, in_turn: false };
        let first = burst.goodput(&net, &pair).await;
        let mut last = first;
        for _ in 0..50 {
            net.sleep(Duration::from_millis(1)).await;
            last = burst.goodput(&net, &pair).await;
        }
        assert!(last >= 0.99 * first, "{last:.3e}, {first:.3e} at first");
    });
}

/// Catches proportions that slow hosts decide: what both paths carry is the same then, whatever their ports report.
#[test]
fn paths_that_are_all_slower_than_reported_have_the_reported_proportions() {
    over_two(Model::tb5(), cables(&[LineRate::TB4, FULL]), async |net, pair| {
        net.inject("at 0s a:rdma_en2 slow 20%".parse().unwrap());
        net.inject("at 0s a:rdma_en3 slow 10%".parse().unwrap());
        net.sleep(Duration::from_millis(1)).await;
        let load = Load { count: 32, len: 1 << 20, in_turn: true };
        load.goodput(&net, &pair).await;
        let carried = || [0, 1].map(|path| pair.ba.snapshot().paths[path].counts.bulk.bytes_received);
        let before = carried();
        load.goodput(&net, &pair).await;
        let [slow, fast] = [0, 1].map(|path| carried()[path] - before[path]);
        assert!(fast as f64 > 1.9 * slow as f64, "{slow} and {fast} bytes");
    });
}
