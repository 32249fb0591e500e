//! Messages over a simulated cable: contents and cost

use futures::future::join;
use futures::stream::{self, StreamExt};
use proptest::prelude::*;
use rdma_async::Connection;
use rdma_core::frames;
use rdma_core::protocol::{MAX_EAGER, Trailer};
use rdma_sim::{LineRate, Sim, SimDevice};
use rdma_tests::{DEVICE, on_connection, options, zeros};

fn message(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + salt * 7 + (i >> 8)) as u8).collect()
}

fn arrives(lens: &[usize], seed: u64) {
    on_connection(Sim::new().seed(seed), &options(), async |_, pair| {
        let send = async {
            for (salt, &len) in lens.iter().enumerate() {
                pair.ab.send_bytes(&message(len, salt)).await.unwrap();
            }
            pair.ab.close().await.unwrap();
        };
        let receive = async {
            for (salt, &len) in lens.iter().enumerate() {
                let got = pair.ba.recv().await.unwrap().expect("every message arrives before the end");
                assert!(*got == message(len, salt), "message {salt} of {len} bytes");
            }
            assert!(pair.ba.recv().await.unwrap().is_none());
        };
        join(send, receive).await;
    });
}

#[test]
fn messages_around_every_boundary_arrive_byte_for_byte() {
    let lens = [
        0,
        1,
        8,
        64,
        4079,
        MAX_EAGER,
        MAX_EAGER + 1,
        4095,
        4096,
        4097,
        8192,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
        4 << 20,
    ];
    arrives(&lens, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn random_messages_arrive_in_order(lens in prop::collection::vec(0usize..20_000, 0..200), seed in any::<u64>()) {
        arrives(&lens, seed);
    }
}

#[test]
fn an_eager_message_costs_one_frame_and_its_bytes() {
    on_connection(Sim::new(), &options(), async |net, pair| {
        for len in [0, 1, 64, MAX_EAGER] {
            let before = net.cable_stats("a", DEVICE).unwrap()[0];
            let (_, got) = join(pair.ab.send_bytes(&message(len, 0)), pair.ba.recv()).await;
            assert_eq!(got.unwrap().unwrap().len(), len);
            let after = net.cable_stats("a", DEVICE).unwrap()[0];
            assert_eq!(after.frames - before.frames, 1);
            assert_eq!(after.payload_bytes - before.payload_bytes, (len + Trailer::LEN) as u64);
        }
    });
}

#[test]
fn a_message_can_be_shared_as_bytes_without_a_copy() {
    on_connection(Sim::new(), &options(), async |net, pair| {
        for len in [100, 50_000] {
            let (_, got) = join(pair.ab.send_bytes(&message(len, 3)), pair.ba.recv()).await;
            let got = got.unwrap().unwrap();
            let place = got.as_ptr();
            let bytes = bytes::Bytes::from(got);
            assert_eq!(bytes.as_ptr(), place);
            let part = bytes.slice(10..20);
            drop(bytes);
            assert_eq!(part, message(len, 3)[10..20]);
        }
        pair.ab.close().await.unwrap();
        drop((pair.ab, pair.ba));
        rdma_async::time::sleep(&*net.runtime(), std::time::Duration::from_millis(1)).await;
        assert!(pair.b.pool_stats().is_whole());
    });
}

#[test]
fn a_bulk_message_is_not_padded() {
    on_connection(Sim::new(), &options(), async |net, pair| {
        for len in [MAX_EAGER + 1, 5000, 100_001] {
            let before = net.cable_stats("a", DEVICE).unwrap()[0];
            let (_, got) = join(pair.ab.send_bytes(&message(len, 0)), pair.ba.recv()).await;
            assert_eq!(got.unwrap().unwrap().len(), len);
            let after = net.cable_stats("a", DEVICE).unwrap()[0];
            // The announcement is a frame of its own: its four bytes and a trailer.
            assert_eq!(after.frames - before.frames, frames(len) as u64 + 1);
            assert_eq!(after.payload_bytes - before.payload_bytes, (len + 4 + Trailer::LEN) as u64);
        }
    });
}

#[test]
fn large_messages_fill_the_cable_in_both_directions() {
    let len = 1 << 20;
    let count = 64;
    let seconds = on_connection(Sim::new(), &options(), async |net, pair| {
        let send = async |connection: &Connection<SimDevice>| {
            let sends =
                stream::iter(0..count).map(async |_| connection.send(zeros(connection, len).await).await);
            sends.buffered(8).for_each(async |sent| drop(sent.unwrap())).await;
        };
        let receive = async |connection: &Connection<SimDevice>| {
            for _ in 0..count {
                assert_eq!(connection.recv().await.unwrap().unwrap().len(), len);
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
