//! Defects that were found, each as a test

use std::time::Duration;

use super::super::super::*;
use super::world::{LANE, SHARE, World};
use super::{SECOND, exchange, message};
use crate::Time;

/// The room was only reported when the application read: a message that could not become complete without it stalled.
#[test]
fn room_is_reported_when_the_peer_has_used_what_it_knows_of() {
    let mut lens = vec![1; 10];
    lens.push(MAX_EAGER);
    exchange(&mut World::new(1, 1), &lens, SECOND);
}

/// The room that was left was too little for the next message, and the room that had come back was not reported.
#[test]
fn room_is_reported_when_the_longest_message_would_not_fit() {
    let mut world = World::new(1, 1);
    let session = world.nodes[0].peering.open().unwrap();
    let send = |world: &mut World, len| {
        world.nodes[0].send(session, StreamId::MAIN, message(0, len));
        world.run(Duration::from_millis(1));
    };
    world.nodes[1].reads = false;
    send(&mut world, 4 * FRAGMENT);
    world.nodes[1].reads = true;
    for _ in 0..8 {
        send(&mut world, 1);
    }
    send(&mut world, MAX_EAGER);
    assert_eq!(world.nodes[1].received[&(session, StreamId::MAIN)].len(), 10);
}

/// Room that was due went in a packet of its own before an answer that was queued already.
#[test]
fn a_packet_of_data_carries_the_room_of_its_stream() {
    let mut world = World::new(1, 1);
    let session = world.nodes[0].peering.open().unwrap();
    world.nodes[1].reads = false;
    for number in 0..SHARE as usize {
        world.nodes[0].send(session, StreamId::MAIN, message(number, 1));
    }
    world.run(Duration::from_millis(1));
    let (now, node) = (world.now, &mut world.nodes[1]);
    node.read_all();
    node.send(session, StreamId::MAIN, message(0, 1));
    let Some(Transmit::Packet { trailer, .. }) = node.peering.poll_transmit(now, 64) else {
        panic!("an answer is queued");
    };
    assert_eq!((trailer.kind, trailer.room), (PacketKind::Fragment, 2 * SHARE));
    assert_eq!(node.peering.poll_transmit(now, 64), None);
}

/// Streams of a session shared its room: one that nobody read stalled the others, and short messages of one kept a long one of
/// another waiting for ever.
#[test]
fn a_stream_that_nobody_reads_stalls_only_itself() {
    let mut world = World::new(1, 1);
    let session = world.nodes[0].peering.open().unwrap();
    let [unread, read] =
        [(); 2].map(|()| world.nodes[0].peering.open_stream(session, Priority::Normal).unwrap());
    world.nodes[1].reads = false;
    for number in 0..2 * SHARE as usize {
        world.nodes[0].send(session, unread, message(number, 1));
    }
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(session, unread)].len(), SHARE as usize);
    assert!(world.nodes[0].peering.session_waits(session).needs_room);
    let kept = std::mem::take(&mut world.nodes[1].unread);
    world.nodes[1].reads = true;
    for number in 0..10 {
        world.nodes[0].send(session, read, message(number, MAX_EAGER));
    }
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(session, read)].len(), 10);
    assert_eq!(world.nodes[1].received[&(session, unread)].len(), SHARE as usize, "they wait for the reader");
    world.nodes[1].unread = kept;
    world.nodes[1].read_all();
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(session, unread)].len(), 2 * SHARE as usize);
}

/// Catches a writer that never learns that nobody reads: the packet that says so may be lost, and its stream over.
#[test]
fn a_peer_learns_that_nobody_reads_a_stream() {
    let mut world = World::new(1, 1);
    world.run(Duration::from_millis(1));
    let session = world.nodes[0].peering.open().unwrap();
    let stream = world.nodes[0].peering.open_stream(session, Priority::Normal).unwrap();
    world.run(Duration::from_millis(1));
    world.faults.lose = 1000;
    world.nodes[1].peering.stop(session, stream);
    world.run(Duration::from_millis(1));
    assert!(world.nodes[0].stopped.is_empty());
    world.faults.lose = 0;
    world.run(Duration::from_millis(40));
    assert_eq!(world.nodes[0].stopped, [(session, stream)]);
    // What both have finished needs no word.
    for node in &mut world.nodes {
        node.peering.finish(session, stream);
    }
    world.run(Duration::from_millis(1));
    world.nodes[1].peering.stop(session, stream);
    world.nodes[0].peering.stop(session, stream);
    world.run(Duration::from_millis(1));
    assert_eq!((world.nodes[0].stopped.len(), world.nodes[1].stopped.len()), (1, 0));
}

/// Catches a stream that the peer learns of only with its first message, or of whose end one side does not learn.
#[test]
fn both_sides_learn_when_a_stream_opens_and_when_it_is_over() {
    let mut world = World::new(1, 1);
    let session = world.nodes[0].peering.open().unwrap();
    let stream = world.nodes[0].peering.open_stream(session, Priority::Normal).unwrap();
    world.run(Duration::from_millis(1));
    assert_eq!(world.nodes[1].opened_streams, [(session, stream)]);
    world.nodes[1].send(session, stream, message(0, 1));
    for node in &mut world.nodes {
        node.peering.finish(session, stream);
    }
    world.run(Duration::from_millis(1));
    for node in &world.nodes {
        assert_eq!(
            (&node.closed_streams[..], &node.finished[..]),
            (&[(session, stream)][..], &[(session, stream)][..])
        );
    }
}

/// Packets of the protocol used up the receives that are kept for reports: both sides fell silent.
#[test]
fn many_sessions_at_once_leave_room_for_reports() {
    let mut world = World::new(1, 1);
    world.run(Duration::from_micros(100));
    for round in 0..3 {
        for node in &mut world.nodes {
            for number in 0..20 {
                let session = node.peering.open().unwrap();
                node.send(session, StreamId::MAIN, message(number, 1));
                node.send(session, StreamId::MAIN, message(number, 1 << 17));
            }
        }
        world.run(SECOND);
        for node in &world.nodes {
            assert_eq!((node.opened.len(), node.losses.as_slice()), (20 * (round + 1), [].as_slice()));
            assert!(node.outgoing.is_empty());
        }
    }
}

/// A session was opened in the place of one whose last report another path still carried: a violation ended the peering.
#[test]
fn a_place_is_used_again_before_the_last_report() {
    let mut world = World::new(2, 1);
    let session = world.nodes[0].peering.open().unwrap();
    world.run(Duration::from_millis(1));
    world.nodes.iter_mut().for_each(|node| node.peering.close(session));
    while world.nodes[0].closed.is_empty() {
        world.run(Duration::from_nanos(100));
    }
    let next = world.nodes[0].peering.open().unwrap();
    assert!(next.shares_place(session));
    world.run(SECOND);
    assert_eq!(world.nodes[1].opened, [session, next]);
    assert_eq!(world.nodes[1].closed, [session]);
}

/// Data went out on a path whose peer had not shown yet that it receives.
#[test]
fn a_path_carries_nothing_before_the_peer_was_heard() {
    let mut world = World::new(1, 1);
    let [a, b] = &mut world.nodes;
    for (node, kinds) in [(a, vec![PacketKind::Report]), (b, vec![])] {
        let session = node.peering.open().unwrap();
        node.send(session, StreamId::MAIN, message(0, 1));
        let sent = std::iter::from_fn(|| node.peering.poll_transmit(Time::ZERO, 64)).map(|transmit| {
            let Transmit::Packet { trailer, .. } = transmit else { panic!("{transmit:?}") };
            trailer.kind
        });
        assert_eq!(sent.collect::<Vec<_>>(), kinds);
    }
}

/// After as many losses as the peer has receives, no question could be sent, although the cable worked again.
#[test]
fn a_path_recovers_from_an_outage_that_is_shorter_than_its_timeout() {
    let mut world = World::new(1, 1);
    world.run(Duration::from_millis(1));
    let session = world.nodes[0].peering.open().unwrap();
    world.faults.lose = 1000;
    for number in 0..20 {
        world.nodes[0].send(session, StreamId::MAIN, message(number, 1));
    }
    world.run(LANE.timeout - Duration::from_millis(15));
    world.faults.lose = 0;
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(session, StreamId::MAIN)].len(), 20);
    assert!(world.nodes.iter().all(|node| node.losses.is_empty()));
}

/// Announcements took no room: so many that their numbers were refused ended the peering.
#[test]
fn announced_messages_wait_for_memory_and_take_room() {
    let mut world = World::new(1, 1);
    world.nodes[1].has_memory = false;
    let session = world.nodes[0].peering.open().unwrap();
    let count = 4 * SHARE as usize;
    for number in 0..count {
        world.nodes[0].send(session, StreamId::MAIN, message(number, 70_000));
    }
    world.run(SECOND);
    assert_eq!(world.nodes[1].peering.incoming.len(), SHARE as usize);
    world.nodes[1].accept_all();
    world.run(SECOND);
    assert_eq!(world.nodes[1].received[&(session, StreamId::MAIN)].len(), count);
}

/// A stream too many was noticed by the peer, which ended the peering.
#[test]
fn streams_are_opened_up_to_the_limit_of_the_peer_again_and_again() {
    let mut world = World::new(2, 1);
    let session = world.nodes[0].peering.open().unwrap();
    for _ in 0..100 {
        let open = || world.nodes[0].peering.open_stream(session, Priority::Normal);
        let streams = std::iter::from_fn(open).collect::<Vec<_>>();
        assert_eq!(streams.len(), 4);
        for stream in streams {
            world.nodes[0].send(session, stream, message(0, 1));
            world.nodes[0].peering.finish(session, stream);
        }
        world.run(Duration::from_millis(1));
        for (session, stream) in std::mem::take(&mut world.nodes[1].finished) {
            world.nodes[1].peering.finish(session, stream);
        }
        world.run(Duration::from_micros(12));
        world.run(Duration::from_millis(1));
    }
}

/// A message that was queued after the session was closed had no outcome.
#[test]
fn a_closed_session_takes_no_message_on_any_stream() {
    let mut world = World::new(1, 1);
    let session = world.nodes[0].peering.open().unwrap();
    world.run(Duration::from_millis(1));
    world.nodes[0].peering.close(session);
    let stream = world.nodes[1].peering.open_stream(session, Priority::Normal).unwrap();
    world.nodes[1].send(session, stream, message(0, 1));
    world.run(Duration::from_millis(1));
    let refused = world.nodes[0].peering.send(session, stream, Token(99), 1);
    assert_eq!(refused, Err(RefusedSend::Closed));
}

/// Packets of a hostile peer, on the first path of a world
struct Hostile {
    world: World,
    number: u32,
}

impl Hostile {
    fn new() -> Self {
        Self { world: World::new(1, 1), number: 0 }
    }

    fn send(
        &mut self,
        kind: PacketKind,
        address: Address,
        len: u32,
        payload: &[u8],
    ) -> Result<Option<Placement>, Violation> {
        let trailer = PacketTrailer {
            kind,
            address,
            len,
            epoch: 1,
            number: self.number,
            limit: LANE.window,
            ..PacketTrailer::default()
        };
        self.number += 1;
        let packet = [payload, &trailer.to_bytes(payload, Integrity::Crc32)].concat();
        let victim = &mut self.world.nodes[1].peering;
        let result = victim.on_packet(Time::ZERO, PathId(0), &packet);
        victim.packet_receive_posted(PathId(0));
        result
    }

    fn victim(&mut self) -> &mut Peering {
        &mut self.world.nodes[1].peering
    }
}

/// The number of the first session that the connecting side opens
fn first_session() -> u32 {
    World::new(1, 1).nodes[0].peering.open().unwrap().number()
}

/// The end of a session before the end of its messages left them behind for ever.
#[test]
fn an_early_end_of_a_session_leaves_nothing_behind() {
    let mut hostile = Hostile::new();
    let address = Address { session: first_session(), stream: 0, message: 0 };
    hostile.send(PacketKind::Fragment, address, 2 * FRAGMENT as u32, &[0; FRAGMENT]).unwrap().unwrap();
    hostile
        .send(PacketKind::Announce, Address { message: 1, ..address }, 0, &(1u64 << 20).to_le_bytes())
        .unwrap();
    let control = StreamId::CONTROL.0;
    hostile.send(PacketKind::Finish, Address { stream: control, ..address }, 0, &[]).unwrap();
    hostile.victim().reset(SessionId(address.session), 0);
    while hostile.victim().poll_event().is_some() {}
    assert!(hostile.victim().incoming.is_empty());
    assert_eq!(hostile.victim().session_count(), 0);
}

/// Messages behind the end of a stream were given up while receives were posted for them, and their numbers used again.
#[test]
fn nothing_follows_the_end_of_a_stream() {
    let session = first_session();
    let address = |message| Address { session, stream: 0, message };
    let announce = |hostile: &mut Hostile, message| {
        hostile.send(PacketKind::Announce, address(message), 0, &(1u64 << 20).to_le_bytes())
    };
    let mut hostile = Hostile::new();
    announce(&mut hostile, 0).unwrap();
    hostile.send(PacketKind::Finish, address(1), 0, &[]).unwrap();
    assert_eq!(announce(&mut hostile, 2), Err(Violation::Room(session)));
    let mut hostile = Hostile::new();
    announce(&mut hostile, 2).unwrap();
    assert_eq!(hostile.send(PacketKind::Finish, address(1), 0, &[]), Err(Violation::Stream(0)));
}

/// A message beyond the room of its session was announced to the caller before it was refused.
#[test]
fn a_message_without_room_is_not_announced() {
    let mut hostile = Hostile::new();
    let session = first_session();
    let fragment = Address { session, stream: 0, message: 0 };
    hostile.send(PacketKind::Fragment, fragment, 17 * FRAGMENT as u32, &[0; FRAGMENT]).unwrap();
    for message in 1..20 {
        while hostile.victim().poll_event().is_some() {}
        let address = Address { message, ..fragment };
        let result = hostile.send(PacketKind::Announce, address, 0, &(1u64 << 20).to_le_bytes());
        let event = hostile.victim().poll_event();
        if message < SHARE - 16 {
            assert!(matches!(event, Some(Event::Announced { .. })), "{event:?}");
        } else {
            assert_eq!((result, event), (Err(Violation::Room(session)), None));
            break;
        }
    }
}

/// Packets of a session that was reset stayed in line.
#[test]
fn a_reset_takes_a_session_out_of_every_line() {
    let mut hostile = Hostile::new();
    let first = first_session();
    for generation in 0..100 {
        // The same place, again and again.
        let session = SessionId(first + generation * MAX_SESSIONS * 2);
        let address = Address { session: session.number(), stream: 0, message: 0 };
        hostile.send(PacketKind::Fragment, address, 1, &[0]).unwrap().unwrap();
        hostile.victim().consume(session, StreamId::MAIN, 1);
        hostile.victim().send(session, StreamId::MAIN, Token(generation), 1).unwrap();
        hostile.victim().reset(session, 0);
        while hostile.victim().poll_event().is_some() {}
    }
    let victim = hostile.victim();
    assert!(victim.rooms.is_empty() && victim.ready.iter().all(|ready| ready.is_empty()));
    assert_eq!(victim.resets.len(), 1);
}

/// One packet made room for many: the memory for a message of 17 packets, or a line of 16,384 messages.
#[test]
fn a_packet_cannot_ask_for_more_than_the_room_of_its_session() {
    let mut hostile = Hostile::new();
    let session = first_session();
    let address = |message| Address { session, stream: 0, message };
    let len = 20 * FRAGMENT as u32;
    let refused = hostile.send(PacketKind::Fragment, address(0), len, &[0; FRAGMENT]);
    assert!(matches!(refused, Err(Violation::Fragment { .. })));
    assert_eq!(hostile.send(PacketKind::Fragment, address(SHARE), 1, &[0]), Err(Violation::Room(session)));
    let whole = 17 * FRAGMENT as u32;
    hostile.send(PacketKind::Fragment, address(1), whole, &[0; FRAGMENT]).unwrap().unwrap();
    let refused = hostile.send(PacketKind::Fragment, address(2), whole, &[0; FRAGMENT]);
    assert_eq!(refused, Err(Violation::Room(session)));
    let control = Address { stream: StreamId::CONTROL.0, ..address(0) };
    let refused = hostile.send(PacketKind::Fragment, control, 1, &[0]);
    assert_eq!(refused, Err(Violation::Stream(StreamId::CONTROL.0)));
    for kind in [PacketKind::Fragment, PacketKind::Room] {
        let far = Address { stream: 2 * 1000, ..address(0) };
        assert_eq!(
            hostile.send(kind, far, 1, &[]),
            Err(Violation::Stream(2000)),
            "more streams than there may be"
        );
        let own = Address { stream: 1, ..address(0) };
        assert_eq!(
            hostile.send(kind, own, 1, &[]),
            Err(Violation::Stream(1)),
            "a stream that this side never opened"
        );
    }
}

/// Memory that came for a message of a session that was over was granted, and counted for another message.
#[test]
fn memory_for_a_withdrawn_message_is_not_used() {
    let mut world = World::new(1, 1);
    world.nodes[1].has_memory = false;
    let session = world.nodes[0].peering.open().unwrap();
    world.nodes[0].send(session, StreamId::MAIN, message(0, 70_000));
    world.run(Duration::from_millis(1));
    let victim = &mut world.nodes[1].peering;
    victim.reset(session, 0);
    victim.accept_bulk(IncomingId(0));
    let is_receive = |transmit: &Transmit| matches!(transmit, Transmit::BulkReceive { .. });
    let sent = std::iter::from_fn(|| victim.poll_transmit(world.now, 64)).collect::<Vec<_>>();
    assert!(!sent.iter().any(is_receive), "{sent:?}");
}

#[test]
#[should_panic(expected = "is in use")]
fn a_path_that_has_not_stopped_cannot_be_added_again() {
    let mut world = World::new(1, 1);
    world.cut(0, 0);
    let peering = &mut world.nodes[0].peering;
    peering.add_path(Time::ZERO, PathId(0), 2, 1, LANE, true);
}
