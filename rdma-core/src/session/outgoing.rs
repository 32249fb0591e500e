//! One direction of a stream at its sender

use std::collections::VecDeque;

use super::{MAX_EAGER, PacketKind, Token, packets};

/// The messages of a stream that the peer does not have yet
#[derive(Debug, Default)]
pub(super) struct OutgoingStream {
    /// Oldest first; the first is not acknowledged.
    messages: VecDeque<OutgoingMessage>,
    /// Number of the first of them.
    first: u32,
    /// How many of them have been sent at least once, all their packets.
    sent: usize,
    /// Packets to be sent again.
    lost: VecDeque<(u32, u8)>,
    is_finished: bool,
}

#[derive(Debug)]
struct OutgoingMessage {
    token: Token,
    len: u64,
    kind: PacketKind,
    /// Packets that were sent at least once.
    sent: u8,
    /// Packets that the peer has, a bit each.
    acknowledged: u32,
    /// Whether its last part announces it: all of it was granted before it began
    is_unannounced: bool,
    is_done: bool,
}

/// A packet of a stream, to be sent now
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Next {
    pub(super) message: u32,
    pub(super) fragment: u8,
    pub(super) kind: PacketKind,
    pub(super) token: Token,
    /// Length of the message
    pub(super) len: u64,
    /// How many packets of room it takes: all of its message, if it is the first of them
    pub(super) charge: u32,
    /// Whether it was sent before
    pub(super) is_repeat: bool,
}

/// What can be sent for a grant
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Granted {
    /// Bytes of this message; whether it ends with them
    Message { token: Token, is_last: bool },
    /// None: the message is not sent any more, or does not have them
    Nothing,
    /// None before the message begins
    NotYet,
}

impl OutgoingMessage {
    fn packets(&self) -> u8 {
        packets(self.len) as u8
    }

    fn next(&self, message: u32, fragment: u8, charge: u32, is_repeat: bool) -> Next {
        let Self { token, len, kind, .. } = *self;
        Next { message, fragment, kind, token, len, charge, is_repeat }
    }

    /// Whether the next of its packets can be sent, given so much room
    ///
    /// A message begins only when there is room for all of it: two that have room for one half each would wait for ever.
    fn has_next(&self, room: u32) -> bool {
        self.sent > 0 || u32::from(self.packets()) <= room
    }
}

impl OutgoingStream {
    /// Appends a message
    pub(super) fn push(&mut self, token: Token, len: u64) {
        let kind = if len > MAX_EAGER as u64 { PacketKind::Announce } else { PacketKind::Fragment };
        self.append(token, len, kind);
    }

    /// Appends the end of the stream
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.is_finished, true) {
            self.append(Token::default(), 0, PacketKind::Finish);
        }
    }

    fn append(&mut self, token: Token, len: u64, kind: PacketKind) {
        self.messages.push_back(OutgoingMessage {
            token,
            len,
            kind,
            sent: 0,
            acknowledged: 0,
            is_unannounced: false,
            is_done: false,
        });
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// How many messages the peer may not have
    pub(super) fn unconfirmed(&self) -> usize {
        self.messages.iter().filter(|message| !message.is_done && message.kind != PacketKind::Finish).count()
    }

    /// Whether a message of the bulk lane has begun, and has not arrived
    pub(super) fn awaits_arrival(&self) -> bool {
        let mut begun = self.messages.iter().take(self.sent);
        begun.any(|message| message.kind == PacketKind::Announce && !message.is_done)
    }

    /// Whether the peer has everything
    pub(super) fn is_acknowledged(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether there is a packet to send, a new one or one that was lost
    pub(super) fn has_next(&self, room: Option<u32>) -> bool {
        let is_new = |room| self.messages.get(self.sent).is_some_and(|message| message.has_next(room));
        !self.lost.is_empty() || room.is_some_and(is_new)
    }

    /// The next packet to send: lost ones first, then new ones, for which there is so much room; `None` if there may be none
    pub(super) fn next(&mut self, room: Option<u32>) -> Option<Next> {
        while let Some((number, fragment)) = self.lost.pop_front() {
            let message = self.messages.get(number.wrapping_sub(self.first) as usize);
            if let Some(message) = message.filter(|message| message.lacks(fragment)) {
                return Some(message.next(number, fragment, 0, true));
            }
        }
        let room = room?;
        let message = self.messages.get_mut(self.sent).filter(|message| message.has_next(room))?;
        let fragment = message.sent;
        message.sent += 1;
        let charge = if fragment == 0 { message.packets().into() } else { 0 };
        let next = message.next(self.first.wrapping_add(self.sent as u32), fragment, charge, false);
        if message.sent == message.packets() {
            self.sent += 1;
        }
        Some(next)
    }

    /// The number and the length of the message that would begin next, given so much room, if it goes by bulk lanes and nothing goes
    /// before it
    pub(super) fn next_bulk(&self, room: u32) -> Option<(u32, u64)> {
        let message = self.messages.get(self.sent).filter(|message| message.has_next(room))?;
        let is_next = message.kind == PacketKind::Announce && self.lost.is_empty();
        is_next.then_some((self.first.wrapping_add(self.sent as u32), message.len))
    }

    /// Whether the message that is [next](Self::next_bulk) waits for grants, because the three before it were granted whole and have not
    /// arrived: their arrival brings the next grants
    ///
    /// Two messages take longer than grants are under way.
    pub(super) fn waits_for_grants(&self) -> bool {
        let is_expected = |message: &OutgoingMessage| message.is_unannounced && !message.is_done;
        let first = self.sent.checked_sub(3);
        first.is_some_and(|first| self.messages.range(first..self.sent).all(is_expected))
    }

    /// Begins the message that is [next](Self::next_bulk) without announcing it
    pub(super) fn begin_unannounced(&mut self) {
        if let Some(message) = self.messages.get_mut(self.sent) {
            (message.sent, message.is_unannounced) = (1, true);
            self.sent += 1;
        }
    }

    /// Announces messages that only their last part announces, because it may be lost; whether there are any
    pub(super) fn announce(&mut self) -> bool {
        let before = self.lost.len();
        for (index, message) in self.messages.iter_mut().enumerate().take(self.sent) {
            if std::mem::take(&mut message.is_unannounced) && !message.is_done {
                self.lost.push_back((self.first.wrapping_add(index as u32), 0));
            }
        }
        self.lost.len() > before
    }

    /// Notes that a packet was lost
    pub(super) fn lost(&mut self, message: u32, fragment: u8) {
        let lacks = self.get(message).is_some_and(|message| message.lacks(fragment));
        if lacks {
            self.lost.push_back((message, fragment));
        }
    }

    /// Notes that the peer has a packet; returns the token of its message if that is complete
    pub(super) fn acknowledged(&mut self, number: u32, fragment: u8) -> Option<Token> {
        let message = self.get(number)?;
        message.acknowledged |= 1 << fragment;
        let is_complete = message.acknowledged.count_ones() == u32::from(message.packets());
        if is_complete && message.kind != PacketKind::Announce { self.done(number) } else { None }
    }

    /// Notes that the peer has all of a message of the bulk lane; returns its token
    pub(super) fn arrived(&mut self, number: u32) -> Option<Token> {
        let is_bulk =
            |message: &mut OutgoingMessage| message.kind == PacketKind::Announce && message.sent > 0;
        if self.get(number).is_some_and(is_bulk) { self.done(number) } else { None }
    }

    /// What can be sent for a grant of bytes of a message, up to `end`
    pub(super) fn granted(&self, number: u32, end: u64) -> Granted {
        let index = number.wrapping_sub(self.first);
        match self.messages.get(index as usize) {
            Some(message) if message.kind != PacketKind::Announce || message.is_done || end > message.len => {
                Granted::Nothing
            }
            Some(message) if message.sent > 0 => {
                Granted::Message { token: message.token, is_last: end == message.len }
            }
            None if self.is_finished || index > u32::MAX / 2 => Granted::Nothing,
            Some(_) | None => Granted::NotYet,
        }
    }

    /// Packets of a message that has begun, and that were not sent yet
    pub(super) fn begun(&self) -> u32 {
        let message = self.messages.get(self.sent).filter(|message| message.sent > 0);
        message.map_or(0, |message| u32::from(message.packets() - message.sent))
    }

    /// The tokens of the messages that the peer may not have, when nothing more is sent
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = Token> {
        self.lost.clear();
        self.sent = 0;
        let open = |message: &OutgoingMessage| !message.is_done && message.kind != PacketKind::Finish;
        self.messages.drain(..).filter(open).map(|message| message.token)
    }

    fn get(&mut self, number: u32) -> Option<&mut OutgoingMessage> {
        self.messages.get_mut(number.wrapping_sub(self.first) as usize)
    }

    fn done(&mut self, number: u32) -> Option<Token> {
        let message = self.get(number).filter(|message| !message.is_done)?;
        message.is_done = true;
        let token = (message.kind != PacketKind::Finish).then_some(message.token);
        while self.messages.front().is_some_and(|message| message.is_done) {
            self.messages.pop_front();
            self.first = self.first.wrapping_add(1);
            self.sent -= 1;
        }
        token
    }
}

impl OutgoingMessage {
    fn lacks(&self, fragment: u8) -> bool {
        !self.is_done && self.acknowledged >> fragment & 1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::FRAGMENT;
    use super::*;

    fn sent(stream: &mut OutgoingStream) -> Vec<(u32, u8)> {
        std::iter::from_fn(|| stream.next(Some(100))).map(|next| (next.message, next.fragment)).collect()
    }

    /// Catches a loss that is sent twice, or after its message is done.
    #[test]
    fn a_lost_packet_is_sent_again_until_the_peer_has_it() {
        let mut stream = OutgoingStream::default();
        stream.push(Token(1), 2 * FRAGMENT as u64);
        stream.push(Token(2), 0);
        assert_eq!(sent(&mut stream), [(0, 0), (0, 1), (1, 0)]);
        stream.lost(0, 0);
        assert_eq!(stream.acknowledged(1, 0), Some(Token(2)), "a later message may be done first");
        assert_eq!(stream.acknowledged(1, 0), None, "once");
        assert_eq!(stream.acknowledged(0, 1), None);
        assert!(stream.has_next(None));
        assert_eq!(sent(&mut stream), [(0, 0)]);
        stream.lost(0, 0);
        assert_eq!(stream.acknowledged(0, 0), Some(Token(1)));
        assert_eq!(sent(&mut stream), []);
        assert!(stream.is_acknowledged());
        stream.push(Token(3), 1);
        assert_eq!(sent(&mut stream), [(2, 0)]);
    }

    #[test]
    fn new_packets_wait_for_room_and_lost_ones_do_not() {
        let mut stream = OutgoingStream::default();
        stream.push(Token(1), 1);
        for room in [None, Some(0)] {
            assert!(!stream.has_next(room));
            assert_eq!(stream.next(room), None);
        }
        assert!(stream.has_next(Some(1)));
        assert_eq!(stream.next(Some(1)).map(|next| next.charge), Some(1));
        stream.lost(0, 0);
        assert_eq!(stream.next(None).map(|next| next.charge), Some(0));
    }

    /// Catches a message that begins with room for a part of it.
    #[test]
    fn a_message_begins_when_there_is_room_for_all_of_it() {
        let mut stream = OutgoingStream::default();
        stream.push(Token(1), 2 * FRAGMENT as u64);
        assert_eq!((stream.has_next(Some(1)), stream.next(Some(1))), (false, None));
        assert_eq!(stream.next(Some(2)).map(|next| next.charge), Some(2));
        assert_eq!(stream.next(Some(0)).map(|next| next.charge), Some(0), "it has begun");
    }

    /// Catches an announcement whose report is taken for the message.
    #[test]
    fn a_bulk_message_is_done_when_it_arrived_and_not_when_it_was_announced() {
        let mut stream = OutgoingStream::default();
        let len = MAX_EAGER as u64 + 1;
        stream.push(Token(1), len);
        assert_eq!(stream.granted(0, 1), Granted::NotYet, "it was not announced");
        assert_eq!(stream.arrived(0), None, "the peer cannot have it");
        assert_eq!(sent(&mut stream), [(0, 0)]);
        assert_eq!(stream.acknowledged(0, 0), None);
        let bytes = |is_last| Granted::Message { token: Token(1), is_last };
        assert_eq!([len - 1, len].map(|end| stream.granted(0, end)), [bytes(false), bytes(true)]);
        assert_eq!(stream.granted(0, len + 1), Granted::Nothing, "it is not that long");
        assert_eq!(stream.arrived(0), Some(Token(1)));
        assert_eq!((stream.arrived(0), stream.granted(0, 1)), (None, Granted::Nothing));
    }

    #[test]
    fn the_end_follows_the_last_message_once() {
        let mut stream = OutgoingStream::default();
        stream.push(Token(1), 1);
        stream.finish();
        stream.finish();
        assert_eq!(sent(&mut stream), [(0, 0), (1, 0)]);
        assert_eq!(stream.acknowledged(1, 0), None);
        assert!(!stream.is_acknowledged());
        assert_eq!(stream.acknowledged(0, 0), Some(Token(1)));
        assert!(stream.is_acknowledged());
    }

    #[test]
    fn messages_that_the_peer_may_not_have_are_abandoned() {
        let mut stream = OutgoingStream::default();
        for number in 1..=3 {
            stream.push(Token(number), 1);
        }
        stream.finish();
        sent(&mut stream);
        stream.acknowledged(1, 0);
        assert_eq!(stream.abandon().collect::<Vec<_>>(), [Token(1), Token(3)]);
        assert_eq!(sent(&mut stream), []);
    }
}
