//! Messages about paths that go by other paths

use super::super::control_messages::{ControlMessages, MAX_WAITING};
use super::*;

fn lost(epoch: u16) -> ControlMessage {
    ControlMessage::Lost { path: PathId(9), epoch, reason: LostReason::Lost, port: None }
}

/// The epochs in the messages that a node has received
fn epochs(node: &mut world::Node) -> Vec<u16> {
    let received = std::iter::from_fn(|| node.peering.poll_control());
    received
        .map(|message| match message {
            ControlMessage::Lost { epoch, .. } => epoch,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Catches a message that is not sent again when it was lost, one that is taken in twice, and the next one sent while one is under way.
#[test]
fn messages_about_paths_arrive_in_order_once_whatever_is_lost() {
    for paths in [1, 2, 3] {
        for (lose, damage, repeat) in [(0, 0, 0), (100, 0, 0), (0, 100, 0), (0, 0, 300), (100, 100, 200)] {
            let mut world = World::new(paths, 7);
            world.run(Duration::from_millis(1));
            world.faults = Faults { lose, damage, repeat, ..Faults::default() };
            let mut found = [Vec::new(), Vec::new()];
            for round in 0..10 {
                for node in &mut world.nodes {
                    (0..10).for_each(|number| assert!(node.peering.send_control(lost(round * 10 + number))));
                }
                // No longer than needed: while many packets are lost, a path that rests seems silent in the end.
                while world.nodes.iter().any(|node| !node.peering.control_messages.is_empty()) {
                    world.run(Duration::from_millis(1));
                }
                world.nodes.iter_mut().zip(&mut found).for_each(|(node, found)| found.extend(epochs(node)));
            }
            let case = format!("{paths} paths, {lose} lost, {damage} damaged, {repeat} repeated");
            assert_eq!(found, [(); 2].map(|()| (0..100).collect::<Vec<_>>()), "{case}");
        }
    }
}

/// Catches a message that is forgotten with the path that carried it, and one that arrives twice when its report is lost with the path.
#[test]
fn a_message_about_a_path_survives_the_loss_of_another_one() {
    for cut_after in 0..20 {
        for cut in [0, 1] {
            let mut world = World::new(2, 3);
            world.run(Duration::from_millis(1));
            (0..4).for_each(|number| assert!(world.nodes[0].peering.send_control(lost(number))));
            world.run(Duration::from_micros(cut_after));
            for node in &mut world.nodes {
                node.peering.lose_path(PathId(cut), PathLoss::Device);
            }
            world.run(SECOND);
            assert_eq!(epochs(&mut world.nodes[1]), [0, 1, 2, 3], "path {cut} is cut after {cut_after} µs");
        }
    }
}

/// Catches a message that is kept until a path comes back: what it says is not true any more; and numbers that no longer fit after it.
#[test]
fn messages_about_paths_are_given_up_with_the_last_path() {
    for cut_after in 0..20 {
        let mut world = World::new(1, 3);
        assert!(!world.nodes[0].peering.send_control(lost(0)), "no path is proven");
        world.run(Duration::from_millis(1));
        (0..4).for_each(|number| assert!(world.nodes[0].peering.send_control(lost(number))));
        world.run(Duration::from_micros(cut_after));
        for node in &mut world.nodes {
            node.peering.lose_path(PathId(0), PathLoss::Device);
        }
        assert!(world.nodes[0].peering.control_messages.is_empty());
        let before = epochs(&mut world.nodes[1]);
        assert!(before.len() < 4 && before == (0..before.len() as u16).collect::<Vec<_>>(), "{before:?}");
        world.run(SECOND);
        (10..14).for_each(|number| assert!(world.nodes[0].peering.send_control(lost(number))));
        world.run(SECOND);
        assert_eq!(epochs(&mut world.nodes[1]), [10, 11, 12, 13], "the path is cut after {cut_after} µs");
    }
}

#[test]
fn as_many_messages_about_paths_wait_as_fit() {
    let mut world = World::new(1, 3);
    world.run(Duration::from_millis(1));
    let sent = (0..u16::MAX).take_while(|number| world.nodes[0].peering.send_control(lost(*number))).count();
    assert_eq!(sent, MAX_WAITING);
    world.run(SECOND);
    assert_eq!(epochs(&mut world.nodes[1]).len(), MAX_WAITING);
}

/// Catches a message that only the other side may send, one that belongs on the stream alone, one that is none, and a side that keeps any
/// number of them.
#[test]
fn messages_that_a_correct_peer_does_not_send_are_violations() {
    let end = PathEnd {
        path: PathId(0),
        epoch: 1,
        window: 16,
        rate: 1,
        eager: crate::QpAddress::default(),
        bulk: crate::QpAddress::default(),
    };
    let offer = Offer { end, port: 0, transport: crate::Transport::Rdma, link: None };
    let answer = ControlMessage::Answer { end, port: 0 };
    for (to, message) in [
        (0, ControlMessage::Offer(offer)),
        (1, answer),
        (0, ControlMessage::Alive),
        (1, ControlMessage::Alive),
        (1, ControlMessage::Confirm([0; 16])),
        (0, ControlMessage::Bye(ByeReason::Done)),
    ] {
        let mut world = World::new(1, 3);
        world.run(Duration::from_millis(1));
        let took = world.nodes[to].peering.on_control_message(0, &message.to_bytes());
        assert_eq!(took, Err(Violation::Control), "{message:?}");
    }
    let mut world = World::new(1, 3);
    let node = &mut world.nodes[0].peering;
    assert_eq!(node.on_control_message(0, &[0; ControlMessage::LEN]), Err(Violation::Control));
    assert_eq!(node.on_control_message(0, &[1; 5]), Err(Violation::Payload(5)));
    for number in 0..MAX_WAITING as u32 {
        assert_eq!(node.on_control_message(number, &lost(0).to_bytes()), Ok(()));
    }
    assert_eq!(node.on_control_message(MAX_WAITING as u32, &lost(0).to_bytes()), Err(Violation::Control));
}

/// Catches a report on an earlier message that counts for the one under way, or for one that is not under way yet.
#[test]
fn a_report_counts_for_the_message_that_it_names() {
    let mut messages = ControlMessages::default();
    assert!(messages.push(lost(0)) && messages.push(lost(1)));
    messages.delivered(0);
    assert_eq!(messages.next_to_send(), Some((0, lost(0))), "it was not under way");
    messages.delivered(1);
    assert!(!messages.is_due());
    messages.delivered(0);
    assert_eq!(messages.next_to_send(), Some((1, lost(1))));
    messages.lost(0);
    assert!(!messages.is_due(), "the message before was lost, not this one");
    messages.lost(1);
    assert_eq!(messages.next_to_send(), Some((1, lost(1))));
}

/// Catches a message that is dropped because the ones before it were given up, and one that is taken in again.
#[test]
fn numbers_of_messages_that_were_given_up_are_skipped() {
    let mut messages = ControlMessages::default();
    assert!(!messages.has_received());
    let mut arrives = |number: u32| {
        assert!(messages.receive(Side::Accepting, number, lost(7)));
        let is_new = messages.has_received();
        assert_eq!(messages.pop_received().is_some(), is_new);
        is_new
    };
    assert_eq!([0, 5, 6, 6, 5, 0].map(&mut arrives), [true, true, true, false, false, false]);
    assert_eq!([7 + u32::MAX / 2, 7 + u32::MAX / 2].map(&mut arrives), [true, false]);
}
