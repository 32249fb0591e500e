//! The one-sided operations of a queue pair, and the pieces in which another process does them

use rdma_core::{Opcode, SendOp, Time};

use super::queue_pair::QueuePair;
use super::work::{OneSided, Send, opcode};
use crate::fabric::ids::Span;

/// A piece of a one-sided operation for the process of the peer
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: SendOp,
    pub(crate) span: Span,
}

/// What the answer to a request means
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The operation's position in the send queue.
    pub(crate) position: usize,
    /// Where the returned bytes go, if any are expected.
    pub(crate) into: Option<Span>,
    /// No further request follows for this operation.
    pub(crate) is_over: bool,
}

/// Bytes of a request for the process of a peer
pub(crate) const REQUEST_BYTES: usize = 32 * 1024;

impl QueuePair {
    /// The next one-sided operation leaves; true if the queue pair has more to send
    pub(crate) fn transmit_one_sided(&mut self, now: Time) -> bool {
        self.last_active = now;
        self.finish_piece(true)
    }

    pub(crate) fn oldest_one_sided(&self) -> Option<OneSided> {
        let mut sent = self.sends.iter().take(self.transmitted);
        let position = sent.position(|send| send.op != SendOp::Send && !send.is_applied)?;
        let Send { id, op, span, .. } = self.sends[position];
        Some(OneSided { position, id, op, span })
    }

    pub(crate) fn set_applied(&mut self, position: usize) {
        self.sends[position].is_applied = true;
    }

    /// Whether a request to the process of the peer is unanswered
    pub(crate) fn is_requesting(&self) -> bool {
        self.requested.is_some()
    }

    /// The next piece to ask the process of the peer for
    pub(crate) fn request(&mut self) -> Option<Request> {
        let done = *self.requested.get_or_insert(0);
        let OneSided { op, span, .. } = self.oldest_one_sided()?;
        let len = (span.len - done).min(REQUEST_BYTES);
        Some(Request { op: further(op, done as u64), span: span.part(done, len) })
    }

    /// The process of the peer has answered the oldest request
    pub(crate) fn on_response(&mut self, is_ok: bool) -> Option<Answered> {
        let done = self.requested.take()?;
        let OneSided { position, op, span, .. } = self.oldest_one_sided()?;
        let len = (span.len - done).min(REQUEST_BYTES);
        let returns_bytes = is_ok && !matches!(op, SendOp::Write { .. });
        let into = returns_bytes.then(|| span.part(done, len));
        let is_over = !is_ok || opcode(op) == Opcode::Atomic || done + len == span.len;
        if is_over {
            self.sends[position].is_applied = true;
        } else {
            self.requested = Some(done + len);
        }
        Some(Answered { position, into, is_over })
    }
}

/// The same operation, `by` bytes further on
fn further(op: SendOp, by: u64) -> SendOp {
    match op {
        SendOp::Write { remote_addr, rkey } => {
            SendOp::Write { remote_addr: remote_addr.wrapping_add(by), rkey }
        }
        SendOp::Read { remote_addr, rkey } => {
            SendOp::Read { remote_addr: remote_addr.wrapping_add(by), rkey }
        }
        op => op,
    }
}
