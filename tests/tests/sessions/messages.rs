//! Messages over a simulated cable: contents and cost

use futures::future::join;
use futures::stream::{self, StreamExt};
use proptest::prelude::*;
use rdma_async::Session;
use rdma_core::frames;
use rdma_core::session::{BulkTrailer, FRAGMENT, MAX_EAGER, PacketTrailer};
use rdma_sim::{CableStats, LineRate, Net, Sim, SimDevice};
use rdma_tests::{DEVICE, message, on_session, options, zeros};

use super::exchange;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn random_messages_arrive_in_order(
        lens in prop::collection::vec(prop_oneof![0usize..20_000, 0usize..200_000], 0..200),
        seed in any::<u64>(),
    ) {
        on_session(Sim::new().seed(seed), &options(), async |_, pair| exchange(&pair, &lens).await);
    }
}

/// What has left `a` so far
fn sent(net: &Net) -> CableStats {
    net.cable_stats("a", DEVICE).unwrap()[0]
}

/// Catches padding, and packets of the protocol beside each message.
#[test]
fn an_eager_message_costs_one_frame_and_its_bytes() {
    on_session(Sim::new(), &options(), async |net, pair| {
        for len in [0, 1, 64, FRAGMENT] {
            let before = sent(&net);
            let (_, got) = join(pair.ab.send_bytes(&message(0, len)), pair.ba.recv()).await;
            assert_eq!(got.unwrap().unwrap().len(), len);
            let after = sent(&net);
            assert_eq!(after.frames - before.frames, 1);
            assert_eq!(after.payload_bytes - before.payload_bytes, (len + PacketTrailer::LEN) as u64);
        }
    });
}

/// Catches padding, and parts that are sent twice.
#[test]
fn a_bulk_message_is_not_padded() {
    const ANNOUNCEMENT: usize = 8 + PacketTrailer::LEN;
    on_session(Sim::new(), &options(), async |net, pair| {
        for len in [MAX_EAGER + 1, 100_001, 1 << 18] {
            let before = sent(&net);
            let (_, got) = join(pair.ab.send_bytes(&message(0, len)), pair.ba.recv()).await;
            assert_eq!(got.unwrap().unwrap().len(), len);
            let after = sent(&net);
            // Beside the announcement, the one part and its trailer, a report that the grant has arrived.
            let reports = after.frames - before.frames - frames(len) as u64 - 2;
            assert!(reports <= 1, "{reports}");
            let bytes = len + ANNOUNCEMENT + BulkTrailer::LEN + reports as usize * PacketTrailer::LEN;
            assert_eq!(after.payload_bytes - before.payload_bytes, bytes as u64);
        }
    });
}

#[test]
fn a_message_can_be_shared_as_bytes_without_a_copy() {
    on_session(Sim::new(), &options(), async |net, pair| {
        for len in [100, 50_000, 500_000] {
            let (_, got) = join(pair.ab.send_bytes(&message(3, len)), pair.ba.recv()).await;
            let got = got.unwrap().unwrap();
            let place = got.as_ptr();
            let bytes = bytes::Bytes::from(got);
            assert_eq!(bytes.as_ptr(), place);
            let part = bytes.slice(10..20);
            drop(bytes);
            assert_eq!(part, message(3, len)[10..20]);
        }
        pair.ab.close().await.unwrap();
        drop((pair.ab, pair.ba));
        net.sleep(std::time::Duration::from_millis(10)).await;
        assert!(pair.b.pool_stats().is_whole());
    });
}

/// Catches a message whose memory stays behind, whose share is not given back, or that changes while it is sent on.
#[test]
fn a_received_message_is_sent_on_without_a_copy() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let other = (pair.ba.open().unwrap(), pair.a.accept().await.unwrap());
        let forward = async {
            while let Some(got) = pair.ba.recv().await.unwrap() {
                let place = got.as_ptr();
                let lease = got.into_lease().expect("there is memory for it");
                assert_eq!(lease.as_ptr(), place);
                other.0.send(lease).await.unwrap();
            }
            other.0.close().await.unwrap();
        };
        let lens = || [0, 1, 4032, 4033, 68_544, 68_545, 1 << 20].into_iter().cycle().take(500).enumerate();
        let send = async {
            for (number, len) in lens() {
                pair.ab.send_bytes(&message(number, len)).await.unwrap();
            }
            pair.ab.close().await.unwrap();
        };
        let receive = async {
            for (number, len) in lens() {
                assert!(*other.1.recv().await.unwrap().unwrap() == message(number, len), "message {number}");
            }
        };
        futures::join!(forward, send, receive);
        drop((other, pair.ab, pair.ba));
        net.sleep(std::time::Duration::from_millis(10)).await;
        assert!(pair.a.pool_stats().is_whole() && pair.b.pool_stats().is_whole());
    });
}

/// Catches directions that take each other's time.
#[test]
fn large_messages_fill_the_cable_in_both_directions() {
    let len = 1 << 20;
    let count = 64;
    let seconds = on_session(Sim::new(), &options(), async |net, pair| {
        let send = async |session: &Session<SimDevice>| {
            let sends = stream::iter(0..count).map(async |_| session.send(zeros(session, len).await).await);
            sends.buffered(8).for_each(async |sent| drop(sent.unwrap())).await;
        };
        let receive = async |session: &Session<SimDevice>| {
            for _ in 0..count {
                assert_eq!(session.recv().await.unwrap().unwrap().len(), len);
            }
        };
        let start = net.now();
        join(join(send(&pair.ab), receive(&pair.ab)), join(send(&pair.ba), receive(&pair.ba))).await;
        (net.now() - start).as_secs_f64()
    });
    let goodput = (len * count) as f64 / seconds;
    let ceiling = LineRate::TB5.ceiling_bytes_per_second();
    assert!(goodput >= 0.97 * ceiling, "{goodput:.3e} of {ceiling:.3e}");
    assert!(goodput <= ceiling);
}
