//! One side alone; the test writes the messages of its peer

use super::*;

/// A protocol state, and what its peer counts
struct OneSide {
    protocol: Protocol,
    seq: u32,
    credits: u32,
    grants: u32,
}

/// What a side has sent: a token, or the kind of a message of the protocol with its body
#[derive(Debug, PartialEq)]
enum Sent {
    Bulk(u32),
    Control(Kind, Option<u32>),
    Eager(u32),
}

impl OneSide {
    fn new(config: ProtocolConfig) -> Self {
        let protocol = Protocol::new(config, config.params, Time::ZERO);
        Self { protocol, seq: 0, credits: config.params.window, grants: 0 }
    }

    fn with_queue(config: ProtocolConfig, lens: &[usize]) -> Self {
        let mut side = Self::new(config);
        for (token, &len) in (0..).zip(lens) {
            side.protocol.enqueue(Token(token), len).unwrap();
        }
        side
    }

    /// The next message of the peer arrives
    fn receive(&mut self, kind: Kind, payload: &[u8]) -> Result<Incoming, Violation> {
        let trailer = Trailer { kind, seq: self.seq, credits: self.credits, grants: self.grants };
        self.seq += 1;
        self.protocol.on_eager(Time::ZERO, &[payload, &trailer.to_bytes()].concat())
    }

    fn announce(&mut self, len: u32) -> Result<Incoming, Violation> {
        self.receive(Kind::Announce, &len.to_le_bytes())
    }

    fn grant(&mut self, grants: u32) {
        self.grants += grants;
        assert_eq!(self.receive(Kind::Update, &[]), Ok(Incoming::Control));
    }

    /// Posts the next send, which stays in flight
    fn post(&mut self) -> Option<Sent> {
        Some(match self.protocol.poll_transmit(true)? {
            Transmit::Bulk { token } => Sent::Bulk(token.0),
            Transmit::Control { body, trailer } => Sent::Control(trailer.kind, body),
            Transmit::Eager { token, .. } => Sent::Eager(token.0),
        })
    }

    /// Posts all that can be sent; on the eager lane each send completes at once
    fn send_all(&mut self) -> Vec<Sent> {
        let sent = std::iter::from_fn(|| {
            let sent = self.post()?;
            if !matches!(sent, Sent::Bulk(_)) {
                self.protocol.eager_sent(Time::ZERO);
            }
            Some(sent)
        });
        sent.collect()
    }

    /// Whether it has been acknowledged, can end without the peer, and is closed
    fn ending(&self) -> [bool; 3] {
        let protocol = &self.protocol;
        [protocol.is_acknowledged(), protocol.can_end_without_peer(), protocol.is_closed()]
    }
}

const CONTROL: Result<Incoming, Violation> = Ok(Incoming::Control);
const UPDATE: Sent = Sent::Control(Kind::Update, None);

#[test]
fn an_eager_message_and_its_trailer_fill_a_frame_at_most() {
    assert_eq!(MAX_EAGER + Trailer::LEN, FRAME);
}

#[test]
fn the_longest_message_is_what_the_queue_pair_and_the_peer_hold() {
    for (bulk_send_frames, max_message, longest) in
        [(64, 100_000, 100_000), (5, 100_000, 5 * FRAME), (64, 10, 10), (0, 100_000, MAX_EAGER)]
    {
        let config = ProtocolConfig { bulk_send_frames, ..CONFIG };
        let mut protocol = Protocol::new(config, Params { max_message, ..CONFIG.params }, Time::ZERO);
        assert_eq!(protocol.max_message(), longest);
        assert_eq!(protocol.enqueue(Token(0), longest), Ok(()));
        for len in [longest + 1, longest + 2] {
            assert_eq!(protocol.enqueue(Token(1), len), Err(EnqueueError::TooLong { len, max: longest }));
        }
    }
}

/// Catches a limit of this side that holds only for messages of the bulk lane.
#[test]
fn a_message_beyond_the_limit_of_this_side_ends_the_connection() {
    let params = Params { max_message: 10, ..CONFIG.params };
    let mut side = OneSide::new(ProtocolConfig { params, ..CONFIG });
    assert_eq!(side.receive(Kind::Data, &[1; 10]), Ok(Incoming::Data { len: 10 }));
    assert_eq!(side.receive(Kind::Data, &[1; 11]), Err(Violation::TooLong(11)));
}

/// Catches an interval that is longer than half of the peer's timeout, and a timeout that is not the shorter one.
#[test]
fn the_shorter_timeout_holds_for_both_sides() {
    let peer_timeout = Duration::from_millis(15);
    for (ours, theirs) in
        [(CONFIG.params.peer_timeout, peer_timeout), (CONFIG.params.peer_timeout, Duration::MAX)]
    {
        let peer = Params { peer_timeout: theirs.min(Duration::from_hours(9)), ..CONFIG.params };
        let protocol = Protocol::new(CONFIG, peer, Time::ZERO);
        let shorter = ours.min(theirs);
        assert_eq!(protocol.peer_timeout(), shorter);
        assert_eq!(protocol.next_timeout(), Time::ZERO + CONFIG.keep_alive_interval.min(shorter / 2));
        assert!(protocol.is_peer_lost(Time::ZERO + shorter));
    }
}

/// Catches a limit that counts only the messages that are not announced.
#[test]
fn announced_messages_count_as_queued() {
    let mut side = OneSide::with_queue(ProtocolConfig { max_queued: 4, ..CONFIG }, &[5000; 3]);
    assert_eq!(side.send_all(), [(); 2].map(|()| Sent::Control(Kind::Announce, Some(5000))));
    assert_eq!(side.protocol.enqueue(Token(3), 1), Ok(()));
    assert_eq!(side.protocol.enqueue(Token(4), 1), Err(EnqueueError::Full));
}

/// Catches a reserve that data may use: the lane could lock up.
#[test]
fn data_and_announcements_leave_the_reserve_to_updates() {
    let for_data = (CONFIG.params.window - CONFIG.params.reserve()) as usize;
    let mut side = OneSide::with_queue(CONFIG, &[1; 24]);
    assert_eq!(side.send_all().len(), for_data);
    side.credits += 2;
    assert_eq!(side.receive(Kind::Update, &[]), CONTROL);
    assert_eq!(side.send_all(), [Sent::Eager(for_data as u32), Sent::Eager(for_data as u32 + 1)]);

    let mut side = OneSide::with_queue(CONFIG, &[&[1; 6][..], &[5000; 2]].concat());
    assert_eq!(side.send_all().len(), for_data, "six messages and one announcement");
}

#[test]
fn sends_in_flight_fill_the_eager_queue_pair_and_no_more() {
    let mut side = OneSide::with_queue(ProtocolConfig { eager_send_frames: 3, ..CONFIG }, &[1; 5]);
    for token in 0..3 {
        assert_eq!(side.post(), Some(Sent::Eager(token)));
    }
    assert_eq!(side.post(), None);
    side.protocol.eager_sent(Time::ZERO);
    assert_eq!((side.post(), side.post()), (Some(Sent::Eager(3)), None));
}

/// Catches each operator of the count of frames replaced.
#[test]
fn frames_in_flight_fill_the_bulk_queue_pair_and_no_more() {
    let config = ProtocolConfig { params: Params { announces: 4, window: 40, ..CONFIG.params }, ..CONFIG };
    let half = 32 * FRAME;
    let mut side = OneSide::with_queue(config, &[half, half, FRAME, half]);
    assert_eq!(side.send_all().len(), 4, "announcements");
    side.grant(4);
    assert_eq!(side.send_all(), [Sent::Bulk(0), Sent::Bulk(1)], "64 frames");
    side.protocol.bulk_sent(half);
    assert_eq!(side.send_all(), [Sent::Bulk(2)], "33 frames, and 65 with the next message");
    side.protocol.bulk_sent(half);
    assert_eq!(side.send_all(), [Sent::Bulk(3)]);
}

#[test]
fn a_bulk_message_waits_for_its_own_grant() {
    let mut side = OneSide::with_queue(CONFIG, &[5000; 3]);
    assert_eq!(side.send_all().len(), 2, "two announcements may wait");
    side.grant(1);
    assert_eq!(side.send_all(), [Sent::Bulk(0), Sent::Control(Kind::Announce, Some(5000))]);
    side.grant(2);
    assert_eq!(side.send_all(), [Sent::Bulk(1), Sent::Bulk(2)]);
    side.grants += 1;
    assert_eq!(side.receive(Kind::Update, &[]), Err(Violation::Grants(4)));
}

#[test]
fn grants_are_not_taken_back() {
    let mut side = OneSide::with_queue(CONFIG, &[5000; 2]);
    side.send_all();
    side.grant(1);
    side.grants = 0;
    assert_eq!(side.receive(Kind::Update, &[]), Err(Violation::Grants(0)));
}

#[test]
fn a_control_message_needs_a_buffer_and_data_does_not() {
    let mut side = OneSide::with_queue(CONFIG, &[1, 5000]);
    assert!(matches!(side.protocol.poll_transmit(false), Some(Transmit::Eager { token: Token(0), .. })));
    assert_eq!(side.protocol.poll_transmit(false), None);
    assert_eq!(side.post(), Some(Sent::Control(Kind::Announce, Some(5000))));
}

#[test]
fn bulk_receives_are_posted_up_to_their_limit() {
    let mut side = OneSide::new(ProtocolConfig { bulk_receives: 1, ..CONFIG });
    assert_eq!(side.protocol.next_bulk_receive(), None);
    assert_eq!(side.announce(5000), Ok(Incoming::Announced { len: 5000 }));
    assert_eq!(side.announce(6000), Ok(Incoming::Announced { len: 6000 }));
    assert_eq!(side.protocol.next_bulk_receive(), Some(5000));
    side.protocol.bulk_receive_posted();
    assert_eq!(side.protocol.next_bulk_receive(), None);
    assert_eq!(side.protocol.on_bulk(Time::ZERO, 5000), Ok(()));
    assert_eq!(side.protocol.next_bulk_receive(), Some(6000));
}

#[test]
fn an_announcement_is_of_a_length_that_the_lane_carries() {
    let max = CONFIG.params.max_message;
    for len in [MAX_EAGER as u32 + 1, max] {
        assert_eq!(OneSide::new(CONFIG).announce(len), Ok(Incoming::Announced { len }));
    }
    for len in [0, MAX_EAGER as u32, max + 1, u32::MAX] {
        assert_eq!(OneSide::new(CONFIG).announce(len), Err(Violation::AnnouncedLength(len.into())));
    }
}

#[test]
fn announcements_wait_up_to_their_limit() {
    let mut side = OneSide::new(CONFIG);
    for _ in 0..2 {
        assert!(side.announce(5000).is_ok());
    }
    side.protocol.bulk_receive_posted();
    assert!(side.announce(5000).is_ok(), "one of them is granted");
    assert_eq!(side.announce(5000), Err(Violation::AnnouncedTooMany));
}

#[test]
fn a_quarter_of_the_window_is_posted_again_before_it_is_reported() {
    let mut side = OneSide::new(CONFIG);
    for _ in 0..5 {
        side.protocol.eager_receive_posted();
    }
    assert!(side.protocol.is_idle());
    assert_eq!(side.post(), None);
    side.protocol.eager_receive_posted();
    assert!(!side.protocol.is_idle());
    let Some(Transmit::Control { trailer, .. }) = side.protocol.poll_transmit(true) else {
        panic!("an update")
    };
    assert_eq!(trailer, Trailer { kind: Kind::Update, seq: 0, credits: 30, grants: 0 });
    assert_eq!(side.post(), None, "nothing is reported twice");
}

#[test]
fn a_grant_is_reported_at_once() {
    let mut side = OneSide::new(CONFIG);
    assert!(side.announce(5000).is_ok());
    assert_eq!(side.post(), None);
    side.protocol.bulk_receive_posted();
    let Some(Transmit::Control { trailer, .. }) = side.protocol.poll_transmit(true) else {
        panic!("an update")
    };
    assert_eq!((trailer.kind, trailer.grants), (Kind::Update, 1));
    assert_eq!(side.post(), None, "nothing is reported twice");
}

/// Catches a side that is always or never asked for its next send.
#[test]
fn a_side_is_idle_until_there_is_something_to_post() {
    assert!(OneSide::new(CONFIG).protocol.is_idle());
    let changes: [fn(&mut OneSide); 5] = [
        |side| side.protocol.enqueue(Token(0), 1).unwrap(),
        |side| assert!(side.announce(5000).is_ok()),
        |side| side.protocol.finish(),
        |side| assert!(side.receive(Kind::Fin, &[]).is_ok()),
        |side| side.protocol.tick(Time::ZERO + CONFIG.keep_alive_interval),
    ];
    for change in changes {
        let mut side = OneSide::new(CONFIG);
        change(&mut side);
        assert!(!side.protocol.is_idle());
    }
    let mut side = OneSide::with_queue(CONFIG, &[5000]);
    side.send_all();
    assert!(!side.protocol.is_idle(), "an announced message waits for its grant");
    side.grant(1);
    side.send_all();
    assert!(side.protocol.is_idle());
}

#[test]
fn time_makes_a_keep_alive_due_and_then_the_peer_lost() {
    let at = |ms| Time::ZERO + Duration::from_millis(ms);
    let mut side = OneSide::new(CONFIG);
    assert_eq!(side.protocol.next_timeout(), at(10));
    side.protocol.tick(Time::from_nanos(9_999_999));
    assert_eq!((side.post(), side.protocol.next_timeout()), (None, at(10)));
    side.protocol.tick(at(10));
    assert_eq!(side.protocol.next_timeout(), at(80), "a keep-alive is due already");
    assert_eq!((side.post(), side.protocol.next_timeout()), (Some(UPDATE), at(80)), "and now in flight");
    side.protocol.eager_sent(at(11));
    assert_eq!(side.protocol.next_timeout(), at(21));
    side.protocol.tick(at(75));
    assert_eq!(side.post(), Some(UPDATE));
    side.protocol.eager_sent(at(75));
    assert_eq!(side.protocol.next_timeout(), at(80), "the peer is lost before the next keep-alive");
    assert!(!side.protocol.is_peer_lost(Time::from_nanos(79_999_999)) && side.protocol.is_peer_lost(at(80)));
}

#[test]
fn the_peer_is_heard_on_both_lanes() {
    let at = |ms| Time::ZERO + Duration::from_millis(ms);
    let mut side = OneSide::new(CONFIG);
    let announce = Trailer { kind: Kind::Announce, seq: 0, credits: 24, grants: 0 };
    let message = [&5000_u32.to_le_bytes()[..], &announce.to_bytes()].concat();
    assert!(side.protocol.on_eager(at(50), &message).is_ok());
    assert!(!side.protocol.is_peer_lost(at(129)) && side.protocol.is_peer_lost(at(130)));
    side.protocol.bulk_receive_posted();
    side.protocol.on_bulk(at(100), 5000).unwrap();
    assert!(!side.protocol.is_peer_lost(at(179)) && side.protocol.is_peer_lost(at(180)));
}

#[test]
fn only_updates_and_the_end_may_follow_a_fin() {
    for (kind, violation) in [
        (Kind::Data, Violation::PastFin),
        (Kind::Announce, Violation::PastFin),
        (Kind::Fin, Violation::PastFin),
        (Kind::Done, Violation::Unexpected(Kind::Done)),
    ] {
        let mut side = OneSide::new(CONFIG);
        assert!(!side.protocol.is_peer_finished());
        assert_eq!(side.receive(Kind::Fin, &[]), Ok(Incoming::Fin));
        assert!(side.protocol.is_peer_finished());
        assert_eq!(side.receive(Kind::Update, &[]), CONTROL);
        assert_eq!(side.receive(kind, &[]), Err(violation));
    }
}

#[test]
fn a_control_message_has_its_length() {
    for kind in [Kind::Update, Kind::Fin, Kind::Done] {
        assert_eq!(OneSide::new(CONFIG).receive(kind, &[0]), Err(Violation::Unexpected(kind)));
    }
    for payload in [&[][..], &[0; 3], &[0; 5]] {
        for kind in [Kind::Announce, Kind::FinAck] {
            let mut side = OneSide::new(CONFIG);
            side.protocol.finish();
            side.send_all();
            assert_eq!(side.receive(kind, payload), Err(Violation::Unexpected(kind)));
        }
    }
}

#[test]
fn a_fin_is_acknowledged_once_and_not_before_it_was_sent() {
    let unexpected = Err(Violation::Unexpected(Kind::FinAck));
    let mut side = OneSide::new(CONFIG);
    assert_eq!(side.receive(Kind::FinAck, &[0; 4]), unexpected);
    let mut side = OneSide::new(CONFIG);
    side.protocol.finish();
    assert_eq!(side.receive(Kind::FinAck, &[0; 4]), unexpected, "the Fin is queued");
    let mut side = OneSide::new(CONFIG);
    side.protocol.finish();
    assert_eq!(side.send_all(), [Sent::Control(Kind::Fin, None)]);
    assert_eq!(side.receive(Kind::FinAck, &[0; 4]), CONTROL);
    assert_eq!(side.receive(Kind::FinAck, &[0; 4]), unexpected);
}

/// A side with a sent `Fin`, one bulk message received, and `granted` more to come
fn closing_with_granted(granted: u32) -> OneSide {
    let mut side = OneSide::new(CONFIG);
    for _ in 0..=granted {
        assert!(side.announce(5000).is_ok());
        side.protocol.bulk_receive_posted();
    }
    side.protocol.on_bulk(Time::ZERO, 5000).unwrap();
    side.protocol.finish();
    assert_eq!(side.send_all(), [Sent::Control(Kind::Fin, None)]);
    side
}

/// Catches each operator of the check of the total replaced.
#[test]
fn an_acknowledgement_counts_bulk_messages_that_were_granted() {
    for total in [1_u32, 2, 3] {
        assert_eq!(closing_with_granted(2).receive(Kind::FinAck, &total.to_le_bytes()), CONTROL);
    }
    for total in [0_u32, 4, 5, u32::MAX] {
        let unexpected = Err(Violation::Unexpected(Kind::FinAck));
        assert_eq!(closing_with_granted(2).receive(Kind::FinAck, &total.to_le_bytes()), unexpected);
    }
}

#[test]
fn a_side_that_closes_ends_when_all_that_the_peer_posted_has_arrived() {
    let mut side = closing_with_granted(1);
    assert_eq!(side.ending(), [false; 3]);
    assert_eq!(side.receive(Kind::FinAck, &2_u32.to_le_bytes()), CONTROL);
    assert_eq!(side.ending(), [true, false, false]);
    assert_eq!(side.post(), None, "a bulk message is under way");
    side.protocol.on_bulk(Time::ZERO, 5000).unwrap();
    assert_eq!(side.ending(), [true, true, false]);
    assert_eq!(side.post(), Some(Sent::Control(Kind::Done, None)));
    assert_eq!(side.ending(), [true, true, false], "Done is in flight");
    side.protocol.eager_sent(Time::ZERO);
    assert_eq!(side.ending(), [true; 3]);
    side.protocol.tick(Time::ZERO + CONFIG.keep_alive_interval);
    assert_eq!(side.post(), None, "nothing follows Done");
    assert_eq!(side.protocol.next_timeout(), Time::ZERO + CONFIG.params.peer_timeout);
}

#[test]
fn a_side_whose_peer_closes_answers_when_everything_has_arrived() {
    let mut side = OneSide::with_queue(CONFIG, &[5000; 2]);
    side.send_all();
    side.grant(1);
    assert_eq!(side.send_all(), [Sent::Bulk(0)]);
    assert!(side.announce(6000).is_ok());
    assert_eq!(side.receive(Kind::Fin, &[]), Ok(Incoming::Fin));
    assert_eq!(side.send_all(), [], "a message is announced");
    side.protocol.bulk_receive_posted();
    assert_eq!(side.send_all(), [UPDATE], "its grant");
    assert_eq!(side.ending(), [false; 3]);
    side.protocol.on_bulk(Time::ZERO, 6000).unwrap();
    assert_eq!(side.send_all(), [Sent::Control(Kind::FinAck, Some(1))], "one bulk message was posted");
    assert_eq!(side.ending(), [false, true, false]);
    assert_eq!(side.receive(Kind::Done, &[]), CONTROL);
    assert_eq!(side.ending(), [false, true, true]);
    assert_eq!(side.receive(Kind::Done, &[]), Err(Violation::Unexpected(Kind::Done)));
}

#[test]
fn if_both_sides_close_each_waits_for_the_answer_and_the_end_of_the_other() {
    let mut side = OneSide::new(CONFIG);
    side.protocol.finish();
    assert_eq!(side.send_all(), [Sent::Control(Kind::Fin, None)]);
    assert_eq!(side.receive(Kind::Fin, &[]), Ok(Incoming::Fin));
    assert_eq!(side.send_all(), [Sent::Control(Kind::FinAck, Some(0))]);
    assert_eq!(side.ending(), [false; 3]);
    assert_eq!(side.receive(Kind::FinAck, &[0; 4]), CONTROL);
    assert_eq!(side.send_all(), [Sent::Control(Kind::Done, None)]);
    assert_eq!(side.ending(), [true, true, false], "the peer may not have the answer");
    assert_eq!(side.receive(Kind::Done, &[]), CONTROL);
    assert_eq!(side.ending(), [true; 3]);
}

#[test]
fn a_side_that_closes_first_sends_what_is_queued() {
    let mut side = OneSide::with_queue(CONFIG, &[1, 5000]);
    side.protocol.finish();
    side.protocol.finish();
    assert_eq!(side.protocol.enqueue(Token(2), 1), Err(EnqueueError::Closed));
    assert_eq!(side.send_all(), [Sent::Eager(0), Sent::Control(Kind::Announce, Some(5000))]);
    side.grant(1);
    assert_eq!(side.send_all(), [Sent::Bulk(1), Sent::Control(Kind::Fin, None)]);
    side.protocol.finish();
    assert_eq!(side.send_all(), []);
}

#[test]
fn messages_that_a_closed_peer_does_not_read_are_refused_in_order() {
    let mut side = OneSide::with_queue(CONFIG, &[5000, 1, 5000, 5000, 1]);
    assert_eq!(side.send_all().len(), 3, "two announcements and the message between them");
    assert_eq!(side.protocol.poll_refused(), None);
    assert_eq!(side.receive(Kind::Fin, &[]), Ok(Incoming::Fin));
    assert_eq!(side.protocol.enqueue(Token(5), 1), Err(EnqueueError::Closed));
    assert_eq!(side.send_all(), [Sent::Control(Kind::FinAck, Some(0))]);
    let refused: Vec<_> = std::iter::from_fn(|| side.protocol.poll_refused()).collect();
    assert_eq!(refused, [0, 2, 3, 4].map(Token));
}
