//! The delivery rule: how the frames of a send fill the receives of its peer
//!
//! The rule is the same whether the peer is simulated here or by another process. The sender [plans](plan) a piece, and
//! [fills](fill) the receive with it; of a receive in another process it has a shadow, and the bytes travel as messages. The
//! process of the receive [takes](Receive::take) the bytes, and [ends](Receive::end) the receive as the sender says.

use rdma_core::{FRAME, Status};

use super::work::{Receive, Send};
use crate::fabric::ids::Span;
use crate::rules::FrameMatch;

/// Frames of one send that leave together
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) frames: u32,
    /// Bytes of the message before it.
    pub(crate) from: usize,
    pub(crate) len: usize,
    /// It begins the message.
    pub(crate) is_first: bool,
    /// It ends the message.
    pub(crate) is_last: bool,
}

/// The next piece of `send`: at most `batch` frames, and no more than there is `room` for
#[inline(always)]
pub(super) fn plan(send: &Send, room: u32, batch: u64) -> Piece {
    let total = send.span.frames();
    let frames = u64::from((total - send.sent).min(room)).min(batch).max(1) as u32;
    let from = send.sent as usize * FRAME;
    let len = (send.span.len - from).min(frames as usize * FRAME);
    Piece { frames, from, len, is_first: send.sent == 0, is_last: send.sent + frames == total }
}

/// Fills `receive` with a piece, and returns where its bytes go; the send of the piece fits no receive if it `is_split`
///
/// A send that has more pieces when the receive is full [outgrows](Send::outgrow) it.
#[inline(always)]
pub(super) fn fill(rule: FrameMatch, is_split: bool, receive: &mut Receive, piece: &Piece) -> Span {
    let into = receive.take(piece.frames, piece.len);
    let (is_full, is_last) = (receive.is_full(), piece.is_last);
    let fits = match rule {
        FrameMatch::Exact => is_last == is_full && !is_split,
        FrameMatch::Fits => is_last || !is_full,
    };
    if into.len < piece.len || (is_last || is_full) && !fits {
        receive.status = Status::LocalLength;
    }
    into
}

impl Send {
    /// Its receive is full, and it has more pieces
    pub(super) fn outgrow(&mut self, rule: FrameMatch) {
        match rule {
            FrameMatch::Exact => self.is_split = true,
            FrameMatch::Fits => self.is_lost = true,
        }
    }
}

impl Receive {
    /// How many more frames it takes
    pub(super) fn room(&self) -> u32 {
        self.span.frames() - self.frames_in
    }

    /// Takes frames with `len` bytes, and returns where the bytes go; those beyond the receive are not written
    pub(super) fn take(&mut self, frames: u32, len: usize) -> Span {
        let into = (self.frames_in as usize * FRAME).min(self.span.len);
        self.frames_in = self.frames_in.saturating_add(frames);
        self.bytes_in = self.bytes_in.saturating_add(len as u32);
        self.span.part(into, len.min(self.span.len - into))
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames_in == self.span.frames()
    }

    /// Whether its memory must not be written any more
    pub(super) fn is_refused(&self) -> bool {
        self.status == Status::LocalProtection
    }

    /// Ends as the sender in another process says
    pub(super) fn end(&mut self, len: u32, status: Status) {
        self.bytes_in = len;
        if self.status == Status::Success {
            let is_too_long = status == Status::Success && len as usize > self.span.len;
            self.status = if is_too_long { Status::LocalLength } else { status };
        }
    }

    /// Its bytes, if one of them is damaged: on the way, or because it lies beyond the end of the ring
    pub(super) fn damaged(&self) -> Option<Span> {
        let len = self.span.len.min(self.bytes_in as usize);
        let is_damaged = (self.status == Status::BadResponse || self.is_beyond) && len > 0;
        is_damaged.then(|| self.span.part(0, len))
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::{SendOp, Time, WrId};

    use super::*;
    use crate::fabric::ids::RegionKey;

    fn span(offset: usize, len: usize) -> Span {
        Span { region: RegionKey::default(), offset, len }
    }

    fn send(len: usize, sent: u32) -> Send {
        Send { sent, ..Send::new(WrId(1), SendOp::Send, span(0, len), true) }
    }

    fn receive(len: usize, frames_in: u32) -> Receive {
        Receive { frames_in, ..Receive::new(WrId(2), span(100, len), Time::ZERO, false, Status::Success) }
    }

    fn fill_from(rule: FrameMatch, send: &mut Send, receive: &mut Receive, piece: &Piece) -> Span {
        let into = fill(rule, send.is_split, receive, piece);
        if receive.is_full() && !piece.is_last {
            send.outgrow(rule);
        }
        into
    }

    /// Sends a message into receives of the lengths `into`, whole as far as they have room; the status of each receive
    fn deliver(rule: FrameMatch, send: &mut Send, into: &[usize]) -> Vec<Status> {
        let statuses = into.iter().map(|&len| {
            let mut receive = receive(len, 0);
            let piece = plan(send, receive.room(), u64::MAX);
            fill_from(rule, send, &mut receive, &piece);
            send.sent += piece.frames;
            receive.status
        });
        statuses.collect()
    }

    /// Catches each operator of `plan` replaced.
    #[test]
    fn a_piece_has_at_most_the_frames_that_remain_that_fit_and_that_may_leave_together() {
        // Ten frames, the last of which has 136 bytes.
        let len = 37_000;
        for (sent, receive, batch, frames, bytes) in [
            (0, None, 100, 10, 37_000),
            (3, None, 100, 7, 24_712),
            (9, None, 100, 1, 136),
            (0, None, 4, 4, 16_384),
            (8, None, 2, 2, 4232),
            (7, None, 2, 2, 8192),
            (2, Some(receive(9 * FRAME, 3)), 100, 6, 24_576),
            (2, Some(receive(9 * FRAME, 8)), 100, 1, 4096),
            (2, None, 0, 1, 4096),
        ] {
            let room = receive.map_or(u32::MAX, |receive| receive.room());
            let piece = plan(&send(len, sent), room, batch);
            assert_eq!((piece.frames, piece.from, piece.len), (frames, sent as usize * FRAME, bytes));
            assert_eq!((piece.is_first, piece.is_last), (sent == 0, sent + frames == 10));
        }
    }

    #[test]
    fn an_empty_message_is_one_frame_without_bytes() {
        let piece = plan(&send(0, 0), receive(0, 0).room(), 100);
        assert_eq!((piece.frames, piece.len), (1, 0));
        assert!(piece.is_first && piece.is_last);
    }

    /// Catches each operator of the exact rule replaced.
    #[test]
    fn by_the_exact_rule_a_message_and_its_receive_span_the_same_frames() {
        let deliver = |len, into: &[usize]| deliver(FrameMatch::Exact, &mut send(len, 0), into);
        assert_eq!(deliver(2 * FRAME, &[2 * FRAME]), [Status::Success]);
        assert_eq!(deliver(FRAME + 1, &[2 * FRAME]), [Status::Success], "the frames count, not the bytes");
        assert_eq!(deliver(2 * FRAME, &[FRAME + 1]), [Status::LocalLength], "the last bytes have no place");
        assert_eq!(deliver(FRAME, &[2 * FRAME]), [Status::LocalLength]);
        // The rest fills the second receive, which is not the receive of the message.
        assert_eq!(deliver(3 * FRAME, &[2 * FRAME, FRAME]), [Status::LocalLength; 2]);
    }

    /// Catches each operator of the other rule replaced.
    #[test]
    fn by_the_rule_of_roce_a_message_is_no_longer_than_its_receive() {
        let deliver = |len, into: &[usize]| deliver(FrameMatch::Fits, &mut send(len, 0), into);
        assert_eq!(deliver(2 * FRAME, &[2 * FRAME]), [Status::Success]);
        assert_eq!(deliver(FRAME, &[2 * FRAME]), [Status::Success]);
        assert_eq!(deliver(FRAME + 2, &[FRAME + 1]), [Status::LocalLength]);
        assert_eq!(deliver(3 * FRAME, &[2 * FRAME]), [Status::LocalLength]);
    }

    #[test]
    fn a_message_that_outgrows_its_receive_is_split_by_the_exact_rule_and_otherwise_lost() {
        for (rule, is_split, is_lost) in [(FrameMatch::Exact, true, false), (FrameMatch::Fits, false, true)] {
            let mut long = send(3 * FRAME, 0);
            deliver(rule, &mut long, &[2 * FRAME]);
            assert_eq!((long.is_split, long.is_lost), (is_split, is_lost));
            let mut matching = send(2 * FRAME, 0);
            deliver(rule, &mut matching, &[2 * FRAME]);
            assert!(!matching.is_split && !matching.is_lost);
        }
    }

    #[test]
    fn a_receive_that_is_not_full_waits_for_the_next_piece() {
        for rule in [FrameMatch::Exact, FrameMatch::Fits] {
            let (mut send, mut receive) = (send(2 * FRAME, 0), receive(2 * FRAME, 0));
            let piece = plan(&send, receive.room(), 1);
            fill_from(rule, &mut send, &mut receive, &piece);
            assert_eq!((receive.status, receive.is_full()), (Status::Success, false));
            assert!(!send.is_split && !send.is_lost);
            send.sent += 1;
            let piece = plan(&send, receive.room(), 1);
            assert_eq!(fill_from(rule, &mut send, &mut receive, &piece), span(100 + FRAME, FRAME));
            assert_eq!((receive.status, receive.is_full()), (Status::Success, true));
        }
    }

    /// Catches bytes beyond the receive, which belong to the memory behind it.
    #[test]
    fn bytes_go_behind_the_previous_ones_and_never_beyond_the_receive() {
        let mut receive = receive(5000, 0);
        assert_eq!(receive.take(1, FRAME), span(100, FRAME));
        assert_eq!(receive.take(1, FRAME), span(100 + FRAME, 904));
        assert_eq!(receive.take(1, 10), span(5100, 0));
        assert_eq!((receive.frames_in, receive.bytes_in), (3, 8202));
    }

    #[test]
    fn a_receive_without_access_to_its_memory_refuses_bytes() {
        assert!(Receive { status: Status::LocalProtection, ..receive(1, 0) }.is_refused());
        assert!(!receive(1, 0).is_refused());
    }

    #[test]
    fn a_receive_ends_as_the_sender_says_unless_it_has_failed_by_itself() {
        let ended = |mut receive: Receive, len, status| {
            receive.end(len, status);
            (receive.bytes_in, receive.status)
        };
        let success = Status::Success;
        assert_eq!(ended(receive(10, 0), 9, success), (9, success));
        assert_eq!(ended(receive(10, 0), 10, success), (10, success));
        assert_eq!(ended(receive(10, 0), 11, success), (11, Status::LocalLength));
        for len in [10, 11] {
            assert_eq!(ended(receive(10, 0), len, Status::BadResponse), (len, Status::BadResponse));
        }
        let refused = Receive { status: Status::LocalProtection, ..receive(10, 0) };
        assert_eq!(ended(refused, 11, success), (11, Status::LocalProtection));
    }

    #[test]
    fn damage_is_in_the_bytes_that_have_come() {
        let damaged =
            |status, is_beyond, bytes_in| Receive { status, is_beyond, bytes_in, ..receive(10, 0) }.damaged();
        assert_eq!(damaged(Status::Success, false, 9), None);
        for (status, is_beyond) in [(Status::BadResponse, false), (Status::Success, true)] {
            assert_eq!(damaged(status, is_beyond, 9), Some(span(100, 9)));
            assert_eq!(damaged(status, is_beyond, 11), Some(span(100, 10)));
            assert_eq!(damaged(status, is_beyond, 0), None);
        }
    }
}
