//! Messages that the receiver expects, so that it grants their parts before the sender announces them

use super::*;
use crate::Time;

const LEN: usize = 3 * (1 << 16) + 36;
/// What a message takes that is not waited for: one way over the cable.
pub(super) const ONE_WAY: Duration = Duration::from_micros(5);

/// A session both sides know, after everything of its beginning has passed
pub(super) fn session(world: &mut World) -> SessionId {
    let session = world.nodes[0].peering.open().unwrap();
    world.run(SECOND);
    session
}

/// How many messages have arrived at a node
fn arrived(world: &World, node: usize, key: (SessionId, StreamId)) -> usize {
    world.nodes[node].received.get(&key).map_or(0, Vec::len)
}

/// Catches parts that are granted only when their message was announced: it would be there after three ways.
#[test]
fn an_expected_message_takes_one_way() {
    for (paths, sender) in [(1, 0), (1, 1), (2, 0), (4, 1)] {
        let mut world = World::new(paths, 1);
        let key = (session(&mut world), StreamId::MAIN);
        for number in 0..6 {
            assert!(world.nodes[1 - sender].expect(key.0, key.1, LEN));
            world.run(Duration::from_millis(1));
            world.nodes[sender].send(key.0, key.1, message(number, LEN));
            world.run(ONE_WAY);
            assert_eq!(arrived(&world, 1 - sender, key), number + 1);
        }
        assert!(
            world.nodes[1 - sender].received[&key] == (0..6).map(|n| message(n, LEN)).collect::<Vec<_>>()
        );
        world.run(SECOND);
        assert!(world.nodes[sender].outgoing.is_empty());
        assert!(world.nodes.iter().all(|node| node.losses.is_empty() && node.unexpected == 0));
    }
}

/// Catches a message that is taken for the one that was expected, or memory that is not given back.
#[test]
fn another_message_than_the_expected_one_arrives_whole() {
    for others in [&[LEN + 1][..], &[LEN - 1], &[MAX_EAGER], &[0], &[1, LEN, 1], &[1 << 20, LEN, LEN], &[]] {
        let mut world = World::new(2, 1);
        let key = (session(&mut world), StreamId::MAIN);
        let expected = (0..9).filter(|_| world.nodes[1].expect(key.0, key.1, LEN)).count();
        assert_eq!(expected, 4, "at most so many");
        world.run(Duration::from_millis(1));
        for (number, len) in others.iter().enumerate() {
            world.nodes[0].send(key.0, key.1, message(number, *len));
        }
        world.nodes[0].peering.finish(key.0, key.1);
        world.run(SECOND);
        let sent: Vec<_> = others.iter().enumerate().map(|(n, len)| message(n, *len)).collect();
        assert!(world.nodes[1].received.get(&key).cloned().unwrap_or_default() == sent, "{others:?}");
        let fulfilled = others.iter().take(4).take_while(|len| **len == LEN).count();
        assert_eq!(world.nodes[1].unexpected, 4 - fulfilled, "{others:?}");
        assert!(world.nodes.iter().all(|node| node.losses.is_empty() && node.outgoing.is_empty()));
        assert!(world.nodes[1].peering.incoming.is_empty());
    }
}

/// Catches what is expected behind the end of a stream.
#[test]
fn nothing_is_expected_of_a_finished_stream() {
    let mut world = World::new(1, 1);
    let session = session(&mut world);
    world.nodes[0].peering.finish(session, StreamId::MAIN);
    world.run(SECOND);
    assert!(!world.nodes[1].expect(session, StreamId::MAIN, LEN));
}

/// Catches memory of messages that are not expected any more, and a stream that is damaged by them.
#[test]
fn what_is_not_expected_any_more_gives_its_memory_back() {
    for (before, sent) in [(0, 0), (1, 0), (1, 2), (1, 5)] {
        let mut world = World::new(1, 1);
        let key = (session(&mut world), StreamId::MAIN);
        while world.nodes[1].expect(key.0, key.1, LEN) {}
        world.run(before * Duration::from_millis(1));
        for number in 0..sent {
            world.nodes[0].send(key.0, key.1, message(number, LEN));
        }
        world.run(ONE_WAY);
        world.nodes[1].peering.expect_nothing(key.0, key.1);
        world.run(SECOND);
        assert_eq!(world.nodes[1].unexpected, 4_usize.saturating_sub(sent));
        assert!(world.nodes[1].peering.incoming.is_empty());
        world.nodes[0].send(key.0, key.1, message(9, LEN + 1));
        world.nodes[0].peering.finish(key.0, key.1);
        world.run(SECOND);
        assert_eq!(arrived(&world, 1, key), sent + 1);
        assert_eq!(world.nodes[1].finished, [key]);
        assert!(world.nodes.iter().all(|node| node.losses.is_empty() && node.outgoing.is_empty()));
    }
}

/// Catches grants that wait for a message while others could be answered.
#[test]
fn an_expected_message_that_does_not_come_delays_no_other_stream() {
    let mut world = World::new(1, 1);
    let session = session(&mut world);
    let other = world.nodes[0].peering.open_stream(session, Priority::Normal).unwrap();
    world.run(SECOND);
    while world.nodes[1].expect(session, StreamId::MAIN, 1 << 20) {}
    world.run(Duration::from_millis(1));
    world.nodes[0].send(session, other, message(0, LEN));
    world.run(3 * ONE_WAY);
    assert_eq!(arrived(&world, 1, (session, other)), 1, "as without an expected message");
    // They were in the way once, and are not again before one of them has come.
    assert!(!world.nodes[1].expect(session, StreamId::MAIN, LEN));
    for number in 0..16 {
        world.nodes[0].send(session, other, message(2, LEN));
        world.run(3 * ONE_WAY);
        assert_eq!(arrived(&world, 1, (session, other)), number + 2);
    }
    world.nodes[0].send(session, StreamId::MAIN, message(1, 1 << 20));
    world.run(3 * ONE_WAY);
    assert_eq!(arrived(&world, 1, (session, StreamId::MAIN)), 1);
    assert_eq!(world.nodes[1].unexpected, 0);
    assert!(world.nodes[1].expect(session, StreamId::MAIN, LEN));
}

/// Catches a lane that counts as stalled because the application of the peer takes its time, or that dies of rest.
#[test]
fn an_expected_message_may_come_late() {
    let mut world = World::new(2, 1);
    let key = (session(&mut world), StreamId::MAIN);
    assert!(world.nodes[1].expect(key.0, key.1, LEN));
    world.run(70 * SECOND);
    assert!(world.nodes.iter().all(|node| node.losses.is_empty()));
    for path in world.nodes[1].peering.paths.iter().flatten() {
        assert!(path.receiver.is_empty(), "nothing is posted for long");
    }
    world.nodes[0].send(key.0, key.1, message(0, LEN));
    world.run(3 * ONE_WAY);
    assert!(world.nodes[1].received[&key] == [message(0, LEN)]);
    assert_eq!(world.nodes[1].unexpected, 0);
}

/// Regression: after a pause in which the peer sent nothing, a stream expected no message before sixteen long ones had come.
#[test]
fn a_peer_that_has_nothing_to_send_for_a_while_is_expected_to_send_again() {
    let mut world = World::new(1, 1);
    let key = (session(&mut world), StreamId::MAIN);
    for round in 0..5 {
        while world.nodes[1].expect(key.0, key.1, LEN) {}
        world.run(SECOND);
        world.nodes[0].send(key.0, key.1, message(0, LEN));
        world.run(3 * ONE_WAY);
        assert_eq!(arrived(&world, 1, key), 4 * round + 1, "it is granted once it is announced");
        for number in 1..4 {
            world.run(3 * ONE_WAY);
            world.nodes[0].send(key.0, key.1, message(number, LEN));
            world.run(ONE_WAY);
            assert_eq!(arrived(&world, 1, key), 4 * round + number + 1, "those behind it are granted ahead");
        }
        assert_eq!(world.nodes[1].unexpected, 0);
    }
}

/// Regression: after a pause, a message that was not expected took the stream out of the line for grants, for as long as it expected others.
#[test]
fn messages_behind_an_unexpected_one_are_expected_after_a_pause() {
    let mut world = World::new(1, 1);
    let key = (session(&mut world), StreamId::MAIN);
    for _ in 0..4 {
        world.nodes[1].expect_at(key.0, key.1, LEN, 1..5);
    }
    world.run(SECOND);
    world.nodes[0].send(key.0, key.1, message(0, LEN + 1));
    for number in 1..5 {
        world.run(6 * ONE_WAY);
        assert_eq!(arrived(&world, 1, key), number);
        world.nodes[0].send(key.0, key.1, message(number, LEN));
        world.run(ONE_WAY);
        assert_eq!(arrived(&world, 1, key), number + 1, "it takes one way");
    }
}

/// Catches grants of an expected message that wait for it while its memory is needed, and a peer that is asked for them without an end.
#[test]
fn memory_of_an_expected_message_is_back_soon() {
    let mut world = World::new(2, 1);
    let session = session(&mut world);
    while world.nodes[1].expect(session, StreamId::MAIN, 1 << 20) {}
    world.run(Duration::from_millis(1));
    world.nodes[1].peering.expect_nothing(session, StreamId::MAIN);
    let packets = world.packets;
    world.run(4 * ONE_WAY);
    for path in world.nodes[1].peering.paths.iter().flatten() {
        assert!(path.receiver.is_empty(), "receives are posted");
    }
    world.run(Duration::from_millis(1));
    // Parts of 64 KiB and their trailers, one trailer more on each path, and packets with grants and reports.
    assert!(world.packets - packets < 40, "{} packets", world.packets - packets);
    assert!(world.nodes.iter().all(|node| node.losses.is_empty()));
}

/// Catches parts on a path that comes back which wait for an announcement.
#[test]
fn a_path_that_comes_back_carries_parts_of_expected_messages() {
    for cut_by in [0, 1] {
        let mut world = World::new(2, 1);
        let session = session(&mut world);
        world.nodes[1].expect(session, StreamId::MAIN, 1 << 21);
        let granted = |world: &World| {
            let paths = world.nodes[1].peering.paths.iter().flatten();
            paths.map(|path| path.receiver.outstanding(Time::ZERO)).collect::<Vec<_>>()
        };
        world.run(ONE_WAY);
        assert_eq!(granted(&world), [1 << 19; 2]);
        world.cut(0, cut_by);
        world.run(Duration::from_millis(5));
        assert_eq!(granted(&world).iter().sum::<u64>(), 2 << 19, "{:?}", granted(&world));
    }
}

/// Catches parts that are lost with a path, or are granted a second time while a device may write to them.
#[test]
fn an_expected_message_survives_the_loss_of_its_path() {
    for cut_by in [0, 1] {
        for (before, announced) in [(0, false), (1, false), (0, true), (1, true)] {
            let mut world = World::new(2, 1);
            let key = (session(&mut world), StreamId::MAIN);
            while world.nodes[1].expect(key.0, key.1, LEN) {}
            world.run(before * Duration::from_millis(1));
            if announced {
                world.nodes[0].send(key.0, key.1, message(0, LEN));
                world.run(ONE_WAY / 2);
            }
            world.cut(0, cut_by);
            world.run(SECOND);
            if !announced {
                world.nodes[0].send(key.0, key.1, message(0, LEN));
            }
            world.run(SECOND);
            assert!(world.nodes[1].received[&key] == [message(0, LEN)]);
        }
    }
}

/// Catches memory and receives of an expected message that stay when its session is over.
#[test]
fn nothing_is_left_of_an_expected_message_when_its_session_ends() {
    for resets in [false, true] {
        let mut world = World::new(1, 1);
        let session = session(&mut world);
        while world.nodes[1].expect(session, StreamId::MAIN, LEN) {}
        world.run(Duration::from_millis(1));
        if resets {
            world.nodes[0].peering.reset(session, 1);
        } else {
            world.nodes.iter_mut().for_each(|node| node.peering.close(session));
        }
        world.run(SECOND);
        assert!(world.nodes[1].peering.incoming.is_empty());
        assert_eq!(world.nodes[1].peering.session_count(), 0);
        assert!(world.nodes.iter().all(|node| node.losses.is_empty()));
        assert!(!world.nodes[1].expect(session, StreamId::MAIN, LEN));
    }
}

#[test]
fn a_message_is_expected_if_it_may_be_long() {
    let mut world = World::new(1, 1);
    let session = session(&mut world);
    let mut can_be = |len: usize| world.nodes[1].expect(session, StreamId::MAIN, len);
    assert_eq!(
        [MAX_EAGER, MAX_EAGER + 1, 1 << 24, (1 << 24) + 1].map(&mut can_be),
        [false, true, true, false]
    );
}
