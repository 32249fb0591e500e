//! Two protocol states, joined by lanes that keep the order of messages and delay them
//!
//! Mutants that these tests have caught: a reserve of zero credits (`crossing_floods_do_not_lock_up`), updates that do
//! not report grants (`every_message_arrives_in_order`), a `Fin` that does not wait for bulk messages and a confirmation that
//! does not (`closing_waits_for_everything`), one credit too many (`credits_bound_everything_that_is_sent`), a keep-alive
//! deadline that stays in the past (`a_blocked_keepalive_does_not_spin`).

mod one_side;

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{FRAME, Time, frames};

const CONFIG: ProtocolConfig = ProtocolConfig {
    bulk_receives: 16,
    bulk_send_frames: 64,
    eager_send_frames: 16,
    keep_alive_interval: Duration::from_millis(10),
    params: Params {
        announces: 2,
        max_message: 32 * FRAME as u32,
        peer_timeout: Duration::from_millis(80),
        window: 24,
    },
    max_queued: 64,
};

/// One end: its protocol state, what it holds, and the lanes towards it
struct Side {
    protocol: Protocol,
    /// Lengths of the queued messages, by token.
    lens: Vec<usize>,
    eager: VecDeque<Vec<u8>>,
    bulk: VecDeque<u32>,
    /// Bulk receives posted, by length.
    posted: VecDeque<u32>,
    eager_receives: u32,
    /// Messages in order; `None` is a bulk message that is still to come.
    inbox: VecDeque<Option<usize>>,
    received: Vec<usize>,
    is_reading: bool,
    fin: bool,
}

impl Side {
    fn new() -> Self {
        Self {
            protocol: Protocol::new(CONFIG, CONFIG.params, Time::ZERO),
            lens: Vec::new(),
            eager: VecDeque::new(),
            bulk: VecDeque::new(),
            posted: VecDeque::new(),
            eager_receives: CONFIG.params.window,
            inbox: VecDeque::new(),
            received: Vec::new(),
            is_reading: true,
            fin: false,
        }
    }

    fn with_queue(lens: &[usize]) -> Self {
        let mut side = Self::new();
        lens.iter().for_each(|len| side.enqueue(*len).unwrap());
        side
    }

    fn enqueue(&mut self, len: usize) -> Result<(), EnqueueError> {
        self.protocol.enqueue(Token(self.lens.len() as u32), len)?;
        self.lens.push(len);
        Ok(())
    }

    fn fill_queue(&mut self, len: usize) {
        for _ in 0..CONFIG.max_queued {
            self.enqueue(len).unwrap();
        }
        assert_eq!(self.enqueue(len), Err(EnqueueError::Full));
    }

    fn next(&mut self, now: Time) -> Option<Transmit> {
        self.protocol.tick(now);
        let transmit = self.protocol.poll_transmit(true);
        if self.protocol.is_idle() {
            assert_eq!(self.protocol.poll_transmit(true), None, "`is_idle` returned true");
        }
        transmit
    }

    /// Posts one thing towards `peer`; its send completes at once
    fn transmit(&mut self, peer: &mut Self, now: Time) -> bool {
        let Some(transmit) = self.next(now) else { return false };
        let (mut message, trailer) = match transmit {
            Transmit::Bulk { token } => {
                let len = self.lens[token.0 as usize];
                peer.bulk.push_back(len as u32);
                self.protocol.bulk_sent(len);
                return true;
            }
            Transmit::Eager { token, trailer } => (vec![0; self.lens[token.0 as usize]], trailer),
            Transmit::Control { body, trailer } => {
                (body.map_or_else(Vec::new, |body| body.to_le_bytes().to_vec()), trailer)
            }
        };
        message.extend(trailer.to_bytes());
        peer.eager.push_back(message);
        self.protocol.eager_sent(now);
        true
    }

    /// Takes one message from the eager lane
    fn receive_eager(&mut self, now: Time) -> bool {
        let Some(message) = self.eager.pop_front() else { return false };
        assert!(self.eager_receives > 0, "a message without a receive: it would be lost on a real adapter");
        self.eager_receives -= 1;
        match self.protocol.on_eager(now, &message).unwrap() {
            Incoming::Announced { .. } => {
                self.inbox.push_back(None);
                self.repost();
            }
            Incoming::Control => self.repost(),
            Incoming::Data { len } => self.inbox.push_back(Some(len)),
            Incoming::Fin => {
                self.fin = true;
                self.repost();
            }
        }
        true
    }

    fn receive_bulk(&mut self, now: Time) -> bool {
        let Some(len) = self.bulk.pop_front() else { return false };
        let posted = self.posted.pop_front().expect("bulk data without a receive");
        assert_eq!(frames(posted as usize), frames(len as usize), "frames of send and receive differ");
        self.protocol.on_bulk(now, len).unwrap();
        *self.inbox.iter_mut().find(|m| m.is_none()).unwrap() = Some(len as usize);
        true
    }

    fn grant(&mut self) -> bool {
        let Some(len) = self.protocol.next_bulk_receive() else { return false };
        self.posted.push_back(len);
        self.protocol.bulk_receive_posted();
        true
    }

    fn read(&mut self) -> bool {
        let Some(Some(len)) = self.inbox.front().filter(|_| self.is_reading).copied() else { return false };
        self.inbox.pop_front();
        if len <= MAX_EAGER {
            self.repost();
        }
        self.received.push(len);
        true
    }

    fn repost(&mut self) {
        self.eager_receives += 1;
        self.protocol.eager_receive_posted();
    }
}

/// Takes the step that `choice` names, or the next possible one; false if there is none
fn step(a: &mut Side, b: &mut Side, choice: u8, now: Time) -> bool {
    (0..10).any(|i| match (choice + i) % 10 {
        0 => a.transmit(b, now),
        1 => b.transmit(a, now),
        2 => a.receive_eager(now),
        3 => b.receive_eager(now),
        4 => a.receive_bulk(now),
        5 => b.receive_bulk(now),
        6 => a.grant(),
        7 => b.grant(),
        8 => a.read(),
        _ => b.read(),
    })
}

/// More steps than any two sides take until nothing is left to do
const MAX_STEPS: usize = 100_000;

fn settle(a: &mut Side, b: &mut Side, choices: impl FnMut() -> u8) {
    settle_at(a, b, Time::ZERO, choices);
}

fn settle_at(a: &mut Side, b: &mut Side, now: Time, mut choices: impl FnMut() -> u8) {
    for _ in 0..MAX_STEPS {
        if !step(a, b, choices() % 10, now) {
            return;
        }
    }
    panic!("two idle sides keep sending");
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![
        Just(0),
        Just(MAX_EAGER),
        Just(MAX_EAGER + 1),
        0..=MAX_EAGER,
        MAX_EAGER + 1..=CONFIG.params.max_message as usize,
    ];
    prop::collection::vec(len, 0..60)
}

proptest! {
    #[test]
    fn every_message_arrives_in_order(
        from_a in lengths(),
        from_b in lengths(),
        choices in prop::collection::vec(any::<u8>(), 1..400),
    ) {
        let (mut a, mut b) = (Side::with_queue(&from_a), Side::with_queue(&from_b));
        let mut choices = choices.into_iter().cycle();
        settle(&mut a, &mut b, || choices.next().unwrap());
        prop_assert_eq!(&b.received, &from_a);
        prop_assert_eq!(&a.received, &from_b);
    }

    #[test]
    fn closing_waits_for_everything(
        from_a in lengths(),
        from_b in lengths(),
        choices in prop::collection::vec(any::<u8>(), 1..400),
        both in any::<bool>(),
    ) {
        let (mut a, mut b) = (Side::with_queue(&from_a), Side::with_queue(&from_b));
        a.protocol.finish();
        if both {
            b.protocol.finish();
        }
        let mut choices = choices.into_iter().cycle();
        let mut steps = 0;
        while step(&mut a, &mut b, choices.next().unwrap() % 10, Time::ZERO) {
            steps += 1;
            prop_assert!(steps < MAX_STEPS, "two sides that close keep sending");
            if a.protocol.is_acknowledged() {
                prop_assert!(b.inbox.iter().all(Option::is_some), "a bulk message is confirmed before it came");
                prop_assert_eq!(b.received.len() + b.inbox.len(), from_a.len());
            }
            for (side, peer) in [(&a, &b), (&b, &a)] {
                if side.protocol.is_closed() && !peer.protocol.is_closed() {
                    prop_assert!(side.bulk.is_empty(), "gone although bulk messages were under way");
                    prop_assert!(!peer.eager.iter().any(|m| matters(m)), "gone before what it said arrived");
                }
            }
            for side in [&mut a, &mut b] {
                while side.protocol.poll_refused().is_some() {}
            }
        }
        prop_assert!(a.protocol.is_closed() && b.protocol.is_closed());
        prop_assert!(a.fin || b.fin);
        if !both {
            prop_assert!(a.protocol.is_acknowledged());
            prop_assert_eq!(&b.received, &from_a);
        }
        prop_assert_eq!(a.enqueue(1), Err(EnqueueError::Closed));
        prop_assert_eq!(b.enqueue(1), Err(EnqueueError::Closed));
    }

    #[test]
    fn no_bytes_of_a_peer_are_a_panic(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40)) {
        let mut protocol = Protocol::new(CONFIG, CONFIG.params, Time::ZERO);
        for mut message in messages {
            // Kinds and numbers that get past the first checks are more interesting than noise.
            let len = message.len();
            if len >= Trailer::LEN {
                message[len - 4] %= 7;
                message[len - 3..].fill(0);
                message[len - 14..len - 12].fill(0);
            }
            if protocol.on_eager(Time::ZERO, &message).is_err() {
                break;
            }
            while protocol.poll_transmit(true).is_some() {}
        }
    }
}

/// Both sides fill each other's window and read nothing, then each announces and reads: the grants must get through.
#[test]
fn crossing_floods_do_not_lock_up() {
    let (mut a, mut b) = (Side::new(), Side::new());
    for side in [&mut a, &mut b] {
        side.is_reading = false;
        side.fill_queue(10);
    }
    settle(&mut a, &mut b, || 0);
    assert!(a.inbox.len() < 24 && !a.inbox.is_empty(), "{}", a.inbox.len());
    for reading in [true, false] {
        a.is_reading = reading;
        b.is_reading = !reading;
        settle(&mut a, &mut b, || 5);
    }
    a.is_reading = true;
    b.is_reading = true;
    settle(&mut a, &mut b, || 3);
    assert_eq!(a.received, b.lens);
    assert_eq!(b.received, a.lens);
    // What a lock-up would show next: no credits left for anything.
    a.enqueue(5000).unwrap();
    b.enqueue(5000).unwrap();
    settle(&mut a, &mut b, || 0);
    assert_eq!(a.received.last(), Some(&5000));
}

/// A bulk message passes although the application at its destination does not read what came before.
#[test]
fn grants_do_not_need_a_reader() {
    let (mut a, mut b) = (Side::new(), Side::new());
    b.is_reading = false;
    a.is_reading = false;
    b.fill_queue(10);
    settle(&mut a, &mut b, || 0);
    a.enqueue(20_000).unwrap();
    settle(&mut a, &mut b, || 0);
    assert_eq!(b.inbox, [Some(20_000)]);
}

#[test]
fn a_silent_peer_is_lost_after_the_timeout_and_not_before() {
    let (mut a, mut b) = (Side::new(), Side::new());
    let mut now = Time::ZERO;
    // Keep-alives in both directions hold the connection for as long as one likes.
    for _ in 0..100 {
        now = a.protocol.next_timeout().min(b.protocol.next_timeout());
        assert!(!a.protocol.is_peer_lost(now) && !b.protocol.is_peer_lost(now));
        settle_at(&mut a, &mut b, now, || 0);
    }
    let silence = now;
    while !a.protocol.is_peer_lost(now) {
        let next = a.protocol.next_timeout();
        assert!(next > now, "time must go on");
        now = next;
        while a.transmit(&mut b, now) {}
    }
    assert_eq!(now - silence, CONFIG.params.peer_timeout);
}

/// Whether the peer misses something if the message is lost: more than time
fn matters(message: &[u8]) -> bool {
    Trailer::split(message).is_ok_and(|(_, trailer)| !matches!(trailer.kind, Kind::Done | Kind::Update))
}

/// Regression: nothing was ever given up once this side had confirmed the end of the peer.
#[test]
fn a_peer_that_vanishes_while_it_closes_is_noticed() {
    let (mut a, mut b) = (Side::new(), Side::new());
    b.enqueue(10).unwrap();
    a.protocol.finish();
    assert!(a.transmit(&mut b, Time::ZERO) && b.receive_eager(Time::ZERO));
    while b.transmit(&mut a, Time::ZERO) {}
    // It has confirmed, and receives nothing more.
    let mut now = Time::ZERO;
    while !b.protocol.is_peer_lost(now) {
        assert!(!b.protocol.is_closed() && now <= Time::ZERO + CONFIG.params.peer_timeout);
        now = b.protocol.next_timeout();
        while b.transmit(&mut a, now) {}
    }
    assert_eq!(now, Time::ZERO + CONFIG.params.peer_timeout);
    assert!(b.protocol.can_end_without_peer(), "it sent nothing that could be missing");
}

/// Regression: a side that had received the `Fin` of its peer sent no keep-alives until it could confirm.
#[test]
fn a_confirmation_that_takes_its_time_keeps_the_connection_alive() {
    let (mut a, mut b) = (Side::new(), Side::new());
    a.enqueue(9000).unwrap();
    a.protocol.finish();
    let mut now = Time::ZERO;
    while step(&mut a, &mut b, 0, now) && !b.fin {}
    b.bulk.clear();
    for _ in 0..20 {
        now += CONFIG.keep_alive_interval;
        a.transmit(&mut b, now);
        b.transmit(&mut a, now);
        while a.receive_eager(now) || b.receive_eager(now) {}
        assert!(!a.protocol.is_peer_lost(now) && !a.protocol.is_acknowledged());
    }
}

/// Catches keep-alives behind a message that is under way, and a wake-up for them.
#[test]
fn no_keepalive_is_sent_while_a_message_is_in_flight() {
    let mut a = Side::new();
    let mut now = Time::ZERO;
    a.enqueue(1).unwrap();
    assert!(a.protocol.poll_transmit(true).is_some());
    now += CONFIG.keep_alive_interval;
    assert_eq!(a.next(now), None);
    assert_eq!(a.protocol.next_timeout(), Time::ZERO + CONFIG.params.peer_timeout);
    a.protocol.eager_sent(now);
    assert_eq!((a.next(now), a.protocol.next_timeout()), (None, now + CONFIG.keep_alive_interval));
    now += CONFIG.keep_alive_interval;
    assert!(matches!(a.next(now), Some(Transmit::Control { body: None, .. })));
}

#[test]
fn a_blocked_keepalive_does_not_spin() {
    let mut a = Side::new();
    let mut now = Time::ZERO;
    let mut wakeups = 0;
    while !a.protocol.is_peer_lost(now) {
        // No buffer for messages of the protocol is free.
        a.protocol.tick(now);
        assert_eq!(a.protocol.poll_transmit(false), None);
        let next = a.protocol.next_timeout();
        assert!(next > now, "time must go on");
        now = next;
        wakeups += 1;
    }
    assert_eq!(wakeups, 2, "when the keep-alive was due, and when the peer was given up");
}

#[test]
fn credits_bound_everything_that_is_sent() {
    let (mut a, mut b) = (Side::new(), Side::new());
    a.fill_queue(1);
    let mut now = Time::ZERO;
    let mut sent = 0;
    for _ in 0..100 {
        while a.transmit(&mut b, now) {
            sent += 1;
        }
        now += CONFIG.keep_alive_interval;
    }
    assert_eq!(sent, CONFIG.params.window, "a message for each receive of the peer, and none without");
}

#[test]
fn violations_are_told_apart() {
    let trailer = Trailer { kind: Kind::Data, seq: 0, credits: 24, grants: 0 };
    let table: [(Vec<u8>, Violation); 6] = [
        (vec![0; 15], TrailerError::Short(15).into()),
        (vec![0; 16], TrailerError::UnknownKind(0).into()),
        (Trailer { seq: 1, ..trailer }.to_bytes().into(), Violation::Sequence { expected: 0, received: 1 }),
        (Trailer { credits: 25, ..trailer }.to_bytes().into(), Violation::Credits(25)),
        (Trailer { credits: 23, ..trailer }.to_bytes().into(), Violation::Credits(23)),
        (Trailer { grants: 1, ..trailer }.to_bytes().into(), Violation::Grants(1)),
    ];
    for (message, violation) in table {
        let mut protocol = Protocol::new(CONFIG, CONFIG.params, Time::ZERO);
        assert_eq!(protocol.on_eager(Time::ZERO, &message), Err(violation));
    }
    let mut protocol = Protocol::new(CONFIG, CONFIG.params, Time::ZERO);
    assert_eq!(protocol.on_bulk(Time::ZERO, 9), Err(Violation::BulkLength { announced: 0, received: 9 }));
}

#[test]
fn a_hello_survives_its_encoding_and_other_programs_are_refused() {
    let hello =
        Hello { epoch: 9, params: CONFIG.params, eager: Default::default(), bulk: Default::default() };
    let bytes = hello.to_bytes();
    assert_eq!(Hello::from_bytes(&bytes), Ok(hello));

    let mut other = bytes;
    other[7] += 1;
    assert_eq!(Hello::from_bytes(&other), Err(HelloError::Version { theirs: Hello::VERSION + 1 }));
    let head = *other.first_chunk().unwrap();
    assert_eq!(Hello::check_head(head), Err(HelloError::Version { theirs: Hello::VERSION + 1 }));
    let mut foreign = bytes;
    foreign[..8].copy_from_slice(b"GET / HT");
    assert_eq!(Hello::from_bytes(&foreign), Err(HelloError::ForeignProtocol));
    let unusable = Hello { params: Params { window: 1, ..CONFIG.params }, ..hello };
    assert_eq!(Hello::from_bytes(&unusable.to_bytes()), Err(HelloError::Unusable(unusable.params)));
}
