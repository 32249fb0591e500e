//! How fast sessions are, in virtual time: exact figures of the model

use std::time::Duration;

use futures::future::join;
use rdma_async::Session;
use rdma_sim::{LineRate, Model, Net, Sim, SimDevice, Topology};
use rdma_tests::{Pair, bare_pair, connected, connected_over, options};

/// Time from `start` on of a message and an answer of the same length
async fn round_trip(net: &Net, pair: &Pair, len: usize) -> Duration {
    let start = net.now();
    let answer = async {
        let message = pair.ba.recv().await.unwrap().unwrap();
        pair.ba.send_bytes(&message).await.unwrap();
    };
    let ask = async {
        pair.ab.send_bytes(&vec![7; len]).await.unwrap();
        pair.ab.recv().await.unwrap().unwrap()
    };
    let (answered, ()) = join(ask, answer).await;
    assert_eq!(answered.len(), len);
    net.now() - start
}

/// The same over bare verbs, with the receives posted
fn raw_round_trip(len: usize) -> Duration {
    Sim::new()
        .run(async |net| {
            let [mut a, mut b] = bare_pair(&net, 2 * len.max(4096));
            let (send, recv) = (0..len, len.max(4096)..len.max(4096) + len);
            a.recv(1, recv.clone()).unwrap();
            b.recv(1, recv).unwrap();
            let start = net.now();
            a.send(2, send.clone()).unwrap();
            b.received().await.unwrap();
            b.send(2, send).unwrap();
            a.received().await.unwrap();
            net.now() - start
        })
        .value
}

#[test]
fn a_round_trip_costs_little_more_than_over_bare_verbs() {
    let mut lens = vec![64, 4032, 4033, 4080, 4081, 8064, 8065, 65_536];
    lens.extend((1..=16).map(|frames| frames * 4096));
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        for len in lens {
            round_trip(&net, &pair, len).await;
            let [session, raw] = [round_trip(&net, &pair, len).await, raw_round_trip(len)];
            let ratio = session.as_secs_f64() / raw.as_secs_f64();
            let most = if len == 64 { 1.05 } else { 1.3 };
            assert!(ratio <= most, "{len} bytes: {session:?} against {raw:?}");
        }
    });
}

/// Two hosts with cables of these rates between ports of the same number
pub(crate) fn cables(rates: &[LineRate]) -> Topology {
    let mut topology = Topology::new().host("a", rates.len()).host("b", rates.len());
    for (port, rate) in rates.iter().enumerate() {
        topology = topology.cable(("a", port), ("b", port), *rate);
    }
    topology
}

/// Bytes per second of `total` bytes in messages of `len`, over cables of these rates
pub(crate) fn goodput(model: Model, rates: &[LineRate], total: usize, len: usize) -> f64 {
    let topology = cables(rates);
    Sim::new()
        .model(model)
        .topology(topology)
        .sanitize(false)
        .run(async |net| {
            let ports: Vec<_> = (0..rates.len()).map(|port| format!("rdma_en{}", port + 2)).collect();
            let ports: Vec<_> = ports.iter().map(String::as_str).collect();
            let options = options().receive_memory(64 << 20).send_memory(64 << 20);
            let pair = connected_over(&net, &ports, &options).await;
            net.sleep(Duration::from_millis(1)).await;
            let start = net.now();
            let send = async |session: &Session<SimDevice>| {
                let sends = (0..total / len).map(|_| async {
                    let mut lease = session.alloc(len).await.unwrap();
                    lease.resize(len, 7);
                    session.send(lease).delivered().await.unwrap();
                });
                futures::future::join_all(sends).await;
            };
            let receive = async |session: &Session<SimDevice>| {
                for _ in 0..total / len {
                    drop(session.recv().await.unwrap().unwrap());
                }
            };
            join(send(&pair.ab), receive(&pair.ba)).await;
            total as f64 / (net.now() - start).as_secs_f64()
        })
        .value
}

#[test]
fn cables_add_up() {
    let [full, half] = [LineRate::TB5, LineRate::TB4];
    let total = 256 << 20;
    let figure = |rates: &[LineRate]| goodput(Model::tb5(), rates, total, 4 << 20);
    let ceiling = full.ceiling_bytes_per_second();
    let gib = goodput(Model::tb5(), &[full], 1 << 30, 4 << 20);
    assert!(gib >= 0.97 * ceiling && gib <= ceiling, "{gib:.3e} of {ceiling:.3e}");
    let one = figure(&[full]);
    for (rates, least) in [
        (vec![full; 2], 1.95 * one),
        (vec![full; 4], 3.85 * one),
        (vec![half, full], 0.97 * (one + figure(&[half]))),
    ] {
        let found = figure(&rates);
        assert!(found >= least, "{rates:?}: {found:.3e}, at least {least:.3e} expected");
    }
}

/// Catches a message that goes over one of several cables as a whole.
#[test]
fn cables_share_a_message() {
    for len in [128 << 10, 256 << 10, 300_000, 1 << 20] {
        let time = |cables| len as f64 / goodput(Model::tb5(), &vec![LineRate::TB5; cables], len, len);
        let transfer = len as f64 / LineRate::TB5.ceiling_bytes_per_second();
        for (cables, saved) in [(2, 0.4), (4, 0.6)] {
            let [one, all] = [time(1), time(cables)];
            assert!(all <= one - saved * transfer, "{len} bytes: {one} over one cable, {all} over {cables}");
        }
    }
}
