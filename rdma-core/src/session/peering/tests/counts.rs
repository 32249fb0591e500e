//! What lanes of paths count

use std::time::Duration;

use super::world::{Faults, LANE, World};
use super::{LENGTHS, SECOND, exchange, message};
use crate::session::{
    Address, BulkPart, BulkTrailer, Grant, Integrity, LaneCounts, MAX_EAGER, PacketTrailer, PathCounts,
    PathId, StreamId,
};

fn counts(world: &World, node: usize, path: usize) -> PathCounts {
    world.nodes[node].peering.path_counts(PathId(path as u32))
}

/// The lanes of a path at a node: eager, then bulk
fn lanes(world: &World, node: usize, path: usize) -> [LaneCounts; 2] {
    let PathCounts { eager, bulk, .. } = counts(world, node, path);
    [eager, bulk]
}

/// Bytes of the messages that go by each lane, eager and then bulk, if one of each of `lens` is sent
fn bytes(lens: &[usize]) -> [u64; 2] {
    let (short, long): (Vec<_>, Vec<_>) =
        lens.iter().map(|len| *len as u64).partition(|len| *len <= MAX_EAGER as u64);
    [short, long].map(|lens| lens.iter().sum())
}

/// Catches a count of another path, lane or side, and one that is not increased, or twice, in any of: sent, received, their bytes, parts.
#[test]
fn each_lane_of_each_path_counts_what_it_carries() {
    let mut world = World::new(2, 1);
    let lens = LENGTHS.repeat(3);
    exchange(&mut world, &lens, SECOND);
    for node in 0..2 {
        let mut sums = [[0; 2]; 2];
        for path in 0..2 {
            let peer = lanes(&world, 1 - node, path);
            for (lane, counts) in lanes(&world, node, path).into_iter().enumerate() {
                let LaneCounts { sent, bytes_sent, received, bytes_received, .. } = counts;
                assert_eq!(sent, world.sent[path][node][lane], "{counts:?}");
                assert_eq!((received, bytes_received), (peer[lane].sent, peer[lane].bytes_sent));
                assert!(bytes_sent > 0, "{counts:?}");
                sums[0][lane] += bytes_sent;
                sums[1][lane] += bytes_received;
                let LaneCounts { in_flight, credits, .. } = counts;
                // A bare report has no outcome yet.
                assert_eq!(in_flight + credits, [LANE.window - 14, 0][lane]);
                let rest = LaneCounts {
                    sent,
                    bytes_sent,
                    received,
                    bytes_received,
                    in_flight,
                    credits,
                    ..LaneCounts::default()
                };
                assert_eq!(counts, rest, "nothing has gone wrong");
            }
            let parts = world.nodes[node].peering.part_times(PathId(path as u32));
            assert_eq!(parts.count(), peer[1].sent);
            assert!(
                parts.max() >= 2 * Duration::from_micros(5),
                "a grant goes one way, and its part the other: {parts}"
            );
        }
        assert_eq!(sums, [bytes(&lens); 2]);
    }
}

/// Catches packets that are lost, damaged, repeated or sent again and not counted so, or counted as received, and bytes that count twice.
#[test]
fn spoiled_packets_are_counted_by_what_has_happened_to_them() {
    let kinds = [
        Faults { lose: 100, ..Faults::default() },
        Faults { damage: 100, ..Faults::default() },
        Faults { repeat: 100, ..Faults::default() },
    ];
    for faults in kinds {
        let mut world = World::new(1, 1);
        world.faults = faults;
        let lens = [0, 1, 5000, MAX_EAGER].repeat(5);
        exchange(&mut world, &lens, SECOND);
        let [a, b] = [0, 1].map(|node| counts(&world, node, 0).eager);
        let total = |count: fn(&LaneCounts) -> u64| count(&a) + count(&b);
        let [lost, damaged, repeated] = world.spoiled;
        assert_eq!(total(|lane| lane.damaged), damaged);
        assert_eq!(total(|lane| lane.refused), repeated);
        assert_eq!(total(|lane| lane.received), total(|lane| lane.sent) - lost - damaged);
        // The loss of a bare report goes unnoticed.
        let missed = total(|lane| lane.lost);
        assert!(
            missed <= lost + damaged && (missed > 0) == (repeated == 0),
            "{missed} of {:?}",
            world.spoiled
        );
        for lane in [a, b] {
            let [eager, _] = bytes(&lens);
            assert_eq!((lane.bytes_received, lane.bytes_sent - lane.retransmitted_bytes), (eager, eager));
            assert_eq!(lane.retransmitted > 0, repeated == 0, "{lane:?}");
            assert!(lane.retransmitted <= lane.lost, "{lane:?}");
            assert_eq!(lane.retransmitted_bytes > 0, repeated == 0, "{lane:?}");
        }
    }
}

/// Catches parts of long messages that are lost or damaged with their path and not counted so, and bytes of them that count twice.
#[test]
fn parts_that_are_lost_with_their_path_are_counted() {
    let kinds =
        [Faults { lose_bulk: 30, ..Faults::default() }, Faults { damage_bulk: 30, ..Faults::default() }];
    for faults in kinds {
        let mut world = World::new(1, 1);
        world.faults = faults;
        let lens = [1 << 20; 4];
        exchange(&mut world, &lens, 100 * SECOND);
        let [_, long] = bytes(&lens);
        let mut damaged = 0;
        for node in 0..2 {
            let counts = counts(&world, node, 0);
            let PathCounts { bulk, bulk_bytes_granted, .. } = counts;
            assert!(counts.made > 1 && bulk.lost > 0, "{counts:?}");
            assert_eq!(bulk.retransmitted, bulk.lost, "each was granted again");
            let once = bulk_bytes_granted - bulk.retransmitted_bytes;
            assert_eq!((bulk.bytes_received, once), (long, long));
            assert_eq!(
                counts.retransmitted_bytes(),
                bulk.retransmitted_bytes + counts.eager.retransmitted_bytes
            );
            damaged += bulk.damaged;
        }
        assert_eq!(damaged > 0, faults.damage_bulk > 0, "{faults:?}");
    }
}

/// Catches packets and parts that arrive intact, are dropped, and do not count as refused, or count as received or damaged.
#[test]
fn packets_and_parts_of_another_epoch_count_as_refused() {
    let mut world = World::new(1, 1);
    world.run(Duration::from_millis(1));
    let session = world.nodes[1].peering.open().unwrap();
    world.nodes[1].send(session, StreamId::MAIN, message(0, 3 << 16));
    world.nodes[1].peering.pause_answers(PathId(0));
    world.run(Duration::from_millis(1));
    let [eager, bulk] = lanes(&world, 0, 0);
    let (path, now, other_epoch) = (PathId(0), world.now, 7);
    let peering = &mut world.nodes[0].peering;
    let packet = PacketTrailer { epoch: other_epoch, ..PacketTrailer::default() };
    assert_eq!(peering.on_packet(now, path, &packet.to_bytes(&[], Integrity::Crc32)), Ok(None));
    peering.packet_receive_posted(path);
    assert_eq!(lanes(&world, 0, 0)[0], LaneCounts { refused: eager.refused + 1, ..eager });

    let address = Address { session: session.number(), stream: 0, message: 0 };
    let grant = Grant { slot: 0, len: 1 << 16, offset: 0, address };
    let (part, payload) = (BulkPart::Inner, vec![0; 1 << 16]);
    let trailer = BulkTrailer { grant, epoch: other_epoch, part }.to_bytes(&payload, Integrity::Crc32);
    world.nodes[0].peering.on_bulk(now, path, &payload, &trailer).unwrap();
    assert_eq!(lanes(&world, 0, 0)[1], LaneCounts { refused: 1, lost: 3, ..bulk }, "it costs the path");
}

/// Catches credits and packets under way that are counted as those of the other lane, or before the path is proven.
#[test]
fn credits_and_what_is_under_way_are_those_of_now() {
    let mut world = World::new(1, 1);
    assert_eq!(counts(&world, 0, 0).eager.credits, 0, "nothing has come from the peer yet");
    world.run(Duration::from_millis(1));
    let session = world.nodes[0].peering.open().unwrap();
    for number in 0..3 {
        world.nodes[0].send(session, StreamId::MAIN, message(number, 1));
    }
    world.run(Duration::ZERO);
    let [eager, bulk] = lanes(&world, 0, 0);
    assert_eq!((eager.in_flight, eager.credits), (3, LANE.window - 14 - 3));
    assert_eq!((bulk.in_flight, bulk.credits), (0, 0));
    world.run(Duration::from_millis(1));
    assert_eq!(lanes(&world, 0, 0)[0].in_flight, 0);

    world.sends_take = Duration::from_millis(1);
    world.nodes[0].send(session, StreamId::MAIN, message(3, 3 << 16));
    world.nodes[0].peering.pause_answers(PathId(0));
    world.run(Duration::from_micros(100));
    let [_, bulk] = lanes(&world, 0, 0);
    assert_eq!((bulk.in_flight, bulk.credits, bulk.sent), (0, 3, 0));
    world.nodes[0].peering.resume_answers(PathId(0));
    world.run(Duration::ZERO);
    let [_, bulk] = lanes(&world, 0, 0);
    assert_eq!((bulk.in_flight, bulk.credits, bulk.sent), (3, 0, 3));
    world.run(Duration::from_millis(2));
    assert_eq!(lanes(&world, 0, 0)[1].in_flight, 0);
}
