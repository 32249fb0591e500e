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
    pub(super) from: usize,
    pub(crate) len: usize,
    /// It begins the message.
    pub(crate) is_first: bool,
    /// It ends the message.
    pub(crate) is_last: bool,
}

/// The next piece of `send`: at most `batch` frames, and no more than `receive` has room for
pub(super) fn plan(send: &Send, receive: Option<&Receive>, batch: u64) -> Piece {
    let total = send.span.frames();
    let room = receive.map_or(u32::MAX, |receive| receive.span.frames() - receive.frames_in);
    let frames = u64::from((total - send.sent).min(room)).min(batch).max(1) as u32;
    let from = send.sent as usize * FRAME;
    let len = (send.span.len - from).min(frames as usize * FRAME);
    Piece { frames, from, len, is_first: send.sent == 0, is_last: send.sent + frames == total }
}

/// Fills `receive` with a piece of `send`, and returns where its bytes go
pub(super) fn fill(rule: FrameMatch, send: &mut Send, receive: &mut Receive, piece: &Piece) -> Span {
    let into = receive.take(piece.frames, piece.len);
    let (is_full, is_last) = (receive.is_full(), piece.is_last);
    let fits = match rule {
        FrameMatch::Exact => is_last == is_full && !send.is_split,
        FrameMatch::Fits => is_last || !is_full,
    };
    if into.len < piece.len || (is_last || is_full) && !fits {
        receive.status = Status::LocalLength;
    }
    if is_full && !is_last {
        match rule {
            FrameMatch::Exact => send.is_split = true,
            FrameMatch::Fits => send.is_lost = true,
        }
    }
    into
}

impl Receive {
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
