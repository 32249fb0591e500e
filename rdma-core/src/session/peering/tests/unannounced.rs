//! What goes without a packet of its own: announcements of messages that are granted whole, and notices of their arrival

use super::expected::{ONE_WAY, session};
use super::*;
use crate::Time;

/// Messages of one part, of several, and as long as what is granted ahead on one path
const LENS: [usize; 4] = [MAX_EAGER + 1, 1 << 17, 3 * (1 << 16) + 36, 1 << 19];

/// A world with a session, whose accepting side expects as many messages of `len` bytes as it may; their grants are at the peer
fn expecting(paths: usize, len: usize) -> (World, (SessionId, StreamId)) {
    let mut world = World::new(paths, 1);
    let key = (session(&mut world), StreamId::MAIN);
    while world.nodes[1].expect(key.0, key.1, len) {}
    world.run(Duration::from_millis(1));
    (world, key)
}

fn announcements(world: &World) -> u64 {
    world.kinds[PacketKind::Announce as usize]
}

/// Catches an announcement of what was granted, and none of what was not.
#[test]
fn a_message_that_is_granted_whole_is_not_announced() {
    for paths in [1, 2, 4] {
        for len in LENS {
            let (mut world, key) = expecting(paths, len);
            world.nodes[0].send(key.0, key.1, message(0, len));
            world.run(ONE_WAY);
            assert!(world.nodes[1].received[&key] == [message(0, len)], "{len} bytes over {paths} paths");
            assert_eq!(announcements(&world), 0, "{len} bytes over {paths} paths");
            // Part of it was granted ahead, or the grants are for another length.
            for other in [2 << 20, len + 1] {
                let before = announcements(&world);
                world.nodes[0].send(key.0, key.1, message(1, other));
                world.run(SECOND);
                assert_eq!(announcements(&world), before + 1, "{other} bytes instead of {len}");
            }
            assert_eq!(world.nodes[1].received[&key].len(), 3);
            assert!(world.nodes.iter().all(|node| node.losses.is_empty() && node.outgoing.is_empty()));
        }
    }
}

/// Catches a message that nothing announces: its last part was lost, and its receiver expects it no more.
#[test]
fn a_message_without_an_announcement_survives_the_loss_of_its_path() {
    for (cut_by, len) in [0, 1].into_iter().flat_map(|side| LENS.map(|len| (side, len))) {
        for (paths, before) in [(1, 0), (1, 3), (1, 6), (2, 0), (2, 3), (2, 6)] {
            let (mut world, key) = expecting(paths, len);
            world.nodes[0].send(key.0, key.1, message(0, len));
            world.run(Duration::from_micros(before));
            world.cut(0, cut_by);
            world.nodes[1].peering.expect_nothing(key.0, key.1);
            world.run(SECOND);
            let received = world.nodes[1].received.get(&key).map_or(0, Vec::len);
            assert_eq!(received, 1, "{len} bytes over {paths} paths, cut by {cut_by} after {before} µs");
            assert!(world.nodes[1].received[&key] == [message(0, len)]);
            assert!(world.nodes[0].outgoing.is_empty());
        }
    }
}

/// Catches a last part that announces nothing because its memory was given back.
#[test]
fn a_message_without_an_announcement_arrives_although_it_is_expected_no_more() {
    for (len, paths) in LENS.into_iter().flat_map(|len| [1, 2].map(|paths| (len, paths))) {
        let (mut world, key) = expecting(paths, len);
        world.nodes[0].send(key.0, key.1, message(0, len));
        world.run(ONE_WAY / 2);
        world.nodes[1].peering.expect_nothing(key.0, key.1);
        world.run(SECOND);
        assert!(world.nodes[1].received[&key] == [message(0, len)], "{len} bytes over {paths} paths");
        assert!(world.nodes.iter().all(|node| node.losses.is_empty() && node.outgoing.is_empty()));
        assert!(world.nodes[1].peering.incoming.is_empty());
    }
}

/// Catches a message that begins because as many bytes are granted as it has, of which none are its last: a message of half its length was
/// expected in its place twice.
#[test]
fn grants_for_another_length_are_not_taken_for_those_of_a_message() {
    let len = 1 << 17;
    let (mut world, key) = expecting(1, len);
    let sender = &mut world.nodes[0].peering.paths[0].as_mut().unwrap().sender;
    let address = Address { session: key.0.number(), stream: key.1.0, message: 0 };
    let known = sender.granted(address).copied().collect::<Vec<_>>();
    assert_eq!(known.iter().map(|grant| grant.len as usize).sum::<usize>(), len);
    for (slot, grant) in (8..).zip(known) {
        sender.push(Time::ZERO, Grant { slot, ..grant }).unwrap();
    }
    world.nodes[0].send(key.0, key.1, message(0, 2 * len));
    world.run(ONE_WAY / 2);
    assert_eq!(announcements(&world), 1);
}

/// Regression: the end of a stream, or a short message, overtook the parts of a message that nothing had announced: they were sent again.
#[test]
fn what_overtakes_the_parts_of_a_message_does_not_end_its_expectation() {
    for (paths, len) in [1, 2].into_iter().flat_map(|paths| LENS.map(|len| (paths, len))) {
        for is_end in [false, true] {
            let (mut world, key) = expecting(paths, len);
            world.nodes[0].send(key.0, key.1, message(0, len));
            // A packet is faster than parts that the device still sends.
            world.delay_bulk(3 * ONE_WAY);
            if is_end {
                world.nodes[0].peering.finish(key.0, key.1);
            } else {
                world.nodes[0].send(key.0, key.1, message(1, 10));
            }
            world.run(2 * ONE_WAY);
            assert_eq!(world.nodes[1].unexpected, 3, "all but the message that is under way");
            world.run(3 * ONE_WAY);
            let case = format!("{len} bytes over {paths} paths, end {is_end}: {:?}", world.nodes[1].losses);
            let received = world.nodes[1].received.get(&key).unwrap_or_else(|| panic!("{case}"));
            assert!(received[0] == message(0, len));
            assert_eq!((received.len(), announcements(&world)), (2 - usize::from(is_end), 0));
            world.run(SECOND);
            assert!(world.nodes.iter().all(|node| node.losses.is_empty() && node.outgoing.is_empty()));
        }
    }
}

/// Catches a packet for each message that has arrived, beside that with the grants for the next one.
#[test]
fn the_notice_of_an_arrival_goes_with_grants() {
    const MESSAGES: u64 = 50;
    // Two parts, so that grants of one message share a packet.
    let len = MAX_EAGER + 1;
    let (mut world, key) = expecting(1, len);
    while world.nodes[0].expect(key.0, key.1, len) {}
    world.run(Duration::from_millis(1));
    world.sends_take = ONE_WAY;
    let before = world.kinds[PacketKind::Bulk as usize];
    let mut arrived = [0; 2];
    for number in 0..MESSAGES as usize + 2 {
        if number < MESSAGES as usize {
            for node in &mut world.nodes {
                node.send(key.0, key.1, message(number, len));
            }
        }
        world.run(ONE_WAY / 2);
        for (node, arrived) in world.nodes.iter_mut().zip(&mut arrived) {
            while *arrived < node.received.get(&key).map_or(0, Vec::len) {
                *arrived += 1;
                node.expect(key.0, key.1, len);
            }
        }
    }
    world.run(SECOND);
    assert!(world.nodes.iter().all(|node| node.outgoing.is_empty() && node.received[&key].len() == 50));
    let packets = world.kinds[PacketKind::Bulk as usize] - before;
    assert!((2 * MESSAGES - 10..=2 * MESSAGES + 10).contains(&packets), "{packets} packets");
    assert_eq!(announcements(&world), 0);
}

/// Regression: a notice that was due and that no path could carry was due again at once: time stood still.
#[test]
fn the_notice_of_an_arrival_waits_for_a_path() {
    let (mut world, _) = expecting(1, LENS[0]);
    let peering = &mut world.nodes[0].peering;
    peering.arrivals.push_back((world.now, Address::default()));
    peering.lose_path(PathId(0), PathLoss::Device);
    assert_eq!(peering.poll_transmit(world.now, 64), None);
    assert_eq!(peering.next_timeout(), Time::MAX);
}
