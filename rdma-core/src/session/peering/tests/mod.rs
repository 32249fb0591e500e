mod control_messages;
mod counts;
mod expected;
mod regressions;
mod states;
mod unannounced;
mod world;

use std::env;
use std::time::Duration;

use proptest::prelude::*;

use self::world::{Faults, SHARE, World};
use super::super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A message of `len` bytes that differs from those of other numbers
fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 13 + at / 251) as u8).collect()
}

/// Around every length at which something changes
const LENGTHS: [usize; 10] = [
    0,
    1,
    FRAGMENT,
    FRAGMENT + 1,
    65_536,
    MAX_EAGER,
    MAX_EAGER + 1,
    (1 << 17) + 1,
    1 << 19,
    3 * (1 << 16) + 36,
];

/// Sends messages of `lens` both ways on one stream, and checks that each arrives exactly once and in order
fn exchange(world: &mut World, lens: &[usize], limit: Duration) {
    let session = world.nodes[0].peering.open().unwrap();
    let stream = StreamId::MAIN;
    let lens_expected: Vec<_> = lens.iter().copied().filter(|len| *len > MAX_EAGER).collect();
    if !lens_expected.is_empty() {
        world.nodes.iter_mut().for_each(|node| node.expects = Some((session, stream, lens_expected.clone())));
    }
    for (number, &len) in lens.iter().enumerate() {
        world.nodes[0].send(session, stream, message(number, len));
    }
    world.run(limit);
    assert_eq!(world.nodes[1].opened, [session]);
    for (number, &len) in lens.iter().enumerate() {
        world.nodes[1].send(session, stream, message(number, len));
    }
    world.nodes.iter_mut().for_each(|node| node.peering.close(session));
    world.run(limit);
    for node in &world.nodes {
        let received = &node.received[&(session, stream)];
        let found = received.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(found, lens);
        for (number, message_received) in received.iter().enumerate() {
            assert!(*message_received == message(number, lens[number]), "message {number} differs");
        }
        assert!(node.outgoing.is_empty(), "not delivered: {:?}", node.outgoing.keys());
        assert_eq!(node.closed, [session]);
        assert_eq!(node.finished, [(session, stream)]);
    }
}

#[test]
fn messages_of_every_length_arrive_in_order() {
    for paths in [1, 2, 4] {
        exchange(&mut World::new(paths, 1), &LENGTHS, SECOND);
    }
}

/// Catches an answer that is itself answered: two idle sides would talk for ever.
#[test]
fn an_idle_path_only_asks_once_per_heartbeat() {
    let mut world = World::new(1, 1);
    world.run(SECOND);
    let heartbeats = 100;
    assert!((heartbeats..=4 * heartbeats).contains(&world.packets), "{} packets", world.packets);
    assert_eq!(world.nodes[0].losses, []);
}

/// Catches an idle bulk lane that nothing keeps alive.
#[test]
fn both_lanes_are_used_in_each_minute() {
    let mut world = World::new(1, 1);
    world.run(SECOND);
    let path = world.nodes[0].peering.paths[0].as_ref().unwrap().receiver.last_progress();
    world.run(61 * SECOND);
    assert!(world.nodes[0].peering.paths[0].as_ref().unwrap().receiver.last_progress() > path);
    assert_eq!(world.nodes[0].losses, []);
}

/// Catches a sender that goes on without room, and one that never learns of new room.
#[test]
fn a_session_that_nobody_reads_stalls_only_itself() {
    let mut world = World::new(1, 1);
    let [unread, read] = [(); 2].map(|()| world.nodes[0].peering.open().unwrap());
    world.nodes[1].reads = false;
    let count = 3 * SHARE as usize;
    for number in 0..count {
        world.nodes[0].send(unread, StreamId::MAIN, message(number, 1));
    }
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(unread, StreamId::MAIN)].len(), SHARE as usize);
    let stalled = std::mem::take(&mut world.nodes[1].unread);
    world.nodes[1].reads = true;
    for number in 0..count {
        world.nodes[0].send(read, StreamId::MAIN, message(number, 1));
    }
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(read, StreamId::MAIN)].len(), count);
    world.nodes[1].unread = stalled;
    world.nodes[1].read_all();
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(unread, StreamId::MAIN)].len(), count);
}

#[test]
fn a_session_that_is_reset_tells_the_peer_why_and_leaves_nothing_behind() {
    for (sender, len) in [(0, 1), (0, 1 << 20), (1, 1), (1, 1 << 20)] {
        let mut world = World::new(2, 1);
        let session = world.nodes[0].peering.open().unwrap();
        world.nodes[0].send(session, StreamId::MAIN, message(0, 1));
        world.run(Duration::from_micros(100));
        let tokens = [0, 1].map(|number| {
            world.nodes[sender].send(session, StreamId::MAIN, message(number, len));
            number
        });
        world.run(Duration::from_micros(12));
        world.nodes[0].peering.reset(session, 77);
        world.run(SECOND);
        assert_eq!(world.nodes[1].resets, [(session, 77)]);
        assert!(world.nodes.iter().all(|node| node.outgoing.is_empty() && node.losses.is_empty()));
        assert!(world.nodes.iter().all(|node| node.peering.incoming.is_empty()), "{tokens:?}");
        let next = world.nodes[0].peering.open().unwrap();
        assert_ne!(next, session, "numbers are not used again soon");
        world.nodes[0].send(next, StreamId::MAIN, message(3, 3));
        world.run(SECOND);
        assert_eq!(world.nodes[1].received[&(next, StreamId::MAIN)], [message(3, 3)]);
    }
}

/// Catches a session number that is still in use on one side, or is lost, wherever generations wrap.
#[test]
fn sessions_are_opened_and_closed_for_ever() {
    for paths in [1, 2] {
        open_and_close(World::new(paths, 1), 10_000);
    }
}

fn open_and_close(mut world: World, times: usize) {
    for _ in 0..times {
        let session = world.nodes[0].peering.open().expect("the one before is over");
        for node in &mut world.nodes {
            node.opened.clear();
            node.closed.clear();
        }
        world.nodes[0].peering.close(session);
        world.run(Duration::from_micros(50));
        assert_eq!(world.nodes[1].opened, [session]);
        world.nodes[1].peering.close(session);
        world.run(Duration::from_micros(100));
        assert_eq!(world.nodes[0].closed, [session]);
        assert_eq!(world.nodes[1].closed, [session]);
    }
}

#[test]
fn streams_do_not_wait_for_each_other() {
    let mut world = World::new(1, 1);
    world.run(Duration::from_micros(100));
    let session = world.nodes[0].peering.open().unwrap();
    let high = world.nodes[0].peering.open_stream(session, Priority::High).unwrap();
    for number in 0..8 {
        world.nodes[0].send(session, StreamId::MAIN, message(number, MAX_EAGER));
    }
    world.nodes[0].send(session, high, message(9, 1));
    world.nodes[0].peering.finish(session, high);
    world.run(Duration::from_micros(6));
    assert_eq!(world.nodes[1].received.get(&(session, high)), Some(&vec![message(9, 1)]));
    let read = world.nodes[1].received.get(&(session, StreamId::MAIN)).map(Vec::len);
    assert!(read <= Some(1), "{read:?} messages came before the one of the stream with priority");
    assert_eq!(world.nodes[1].finished, [(session, high)]);
}

/// Catches a message of low priority that goes no further than the packets which the device may have queued at once.
#[test]
fn a_long_queue_of_low_priority_goes_on_as_packets_are_sent() {
    let mut world = World::new(1, 1);
    let session = world.nodes[0].peering.open().unwrap();
    let low = world.nodes[0].peering.open_stream(session, Priority::Low).unwrap();
    let messages: Vec<_> = (0..4).map(|number| message(number, MAX_EAGER)).collect();
    for message in &messages {
        world.nodes[0].send(session, low, message.clone());
    }
    world.run(SECOND);
    assert!(world.nodes[1].received[&(session, low)] == messages);
}

/// Catches more grants or arrivals in a packet than a correct peer sends, which a side would have to remember.
#[test]
fn packets_with_too_many_grants_or_arrivals_are_violations() {
    for (grants, arrivals, is_right) in [
        (MAX_GRANTS, 0, true),
        (0, MAX_ARRIVALS, true),
        (MAX_GRANTS + 1, 0, false),
        (0, MAX_ARRIVALS + 1, false),
        (MAX_GRANTS + 1, MAX_ARRIVALS + 1, false),
    ] {
        let mut world = World::new(1, 3);
        world.run(Duration::from_millis(1));
        let payload: Vec<_> = (0..grants)
            .flat_map(|slot| {
                Grant { slot: slot as u32, len: 0, offset: 0, address: Address::default() }.to_bytes()
            })
            .chain((0..arrivals).flat_map(|_| Address::default().to_bytes()))
            .collect();
        let trailer =
            PacketTrailer { kind: PacketKind::Bulk, fragment: grants as u8, ..PacketTrailer::default() };
        let took = world.nodes[0].peering.on_control(world.now, PathId(0), &payload, &trailer);
        let expected = if is_right { Ok(()) } else { Err(Violation::Payload(payload.len())) };
        assert_eq!(took, expected, "{grants} grants, {arrivals} arrivals");
    }
}

fn faults() -> impl Strategy<Value = Faults> {
    let often = || prop_oneof![Just(0u32), 1..40u32, 200..400u32];
    let rare = || prop_oneof![2 => Just(0u32), 1 => 1..20u32];
    (often(), often(), often(), rare(), rare(), rare(), often(), often()).prop_map(
        |(lose, damage, repeat, lose_bulk, damage_bulk, cut, no_memory, expect)| Faults {
            lose,
            damage,
            repeat,
            lose_bulk,
            damage_bulk,
            cut,
            no_memory,
            expect,
        },
    )
}

/// `PROPTEST_CASES`, where a machine is slow or has a night
fn cases() -> u32 {
    env::var("PROPTEST_CASES").map_or(64, |cases| cases.parse().expect("PROPTEST_CASES is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Catches fragments that are lost for good, taken for others, delivered twice or out of order, whatever a path does.
    #[test]
    fn everything_arrives_exactly_once_and_in_order(
        paths in 1..4usize,
        seed in any::<u64>(),
        faults in faults(),
        lens in prop::collection::vec(prop_oneof![
            prop::sample::select(LENGTHS.as_slice()),
            0..10_000usize,
            0..1_000_000usize,
            // Often enough that what is expected comes.
            Just(1usize << 17),
        ], 1..20),
    ) {
        let mut world = World::new(paths, seed);
        world.faults = faults;
        exchange(&mut world, &lens, 100 * SECOND);
        for node in &world.nodes {
            prop_assert!(node.peering.incoming.is_empty());
        }
    }
}
