//! Posted requests

use rdma_core::{Opcode, SendOp, Status, Time, WrId};

use crate::fabric::ids::Span;

/// A posted send, write, read or atomic operation
#[derive(Clone, Copy, Debug)]
pub(super) struct Send {
    pub(super) id: WrId,
    pub(super) op: SendOp,
    pub(super) opcode: Opcode,
    pub(super) span: Span,
    pub(super) is_signaled: bool,
    /// Frames that have left.
    pub(super) sent: u32,
    /// It goes nowhere: it was lost, or found no receive.
    pub(super) is_lost: bool,
    /// It does not fit the receives that it found.
    pub(super) is_split: bool,
    /// It has taken effect in the memory of the peer.
    pub(super) is_applied: bool,
    /// Its completion came before it had left.
    pub(super) is_reported: bool,
    /// When its completion becomes visible, once that is known.
    pub(super) ends: Option<Time>,
    pub(super) status: Status,
}

/// A posted receive
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) id: WrId,
    pub(super) span: Span,
    /// When it becomes visible to the sender.
    pub(super) visible: Time,
    /// Frames that have come.
    pub(super) frames_in: u32,
    pub(super) bytes_in: u32,
    /// It was posted beyond the end of the ring.
    pub(super) is_beyond: bool,
    pub(super) status: Status,
}

/// What a queue pair has to send next
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) id: WrId,
    pub(crate) opcode: Opcode,
    pub(crate) span: Span,
    /// No frame of it has left.
    pub(crate) is_first: bool,
    pub(crate) is_lost: bool,
    pub(crate) is_reliable: bool,
}

/// A send that has ended and left its queue
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedSend {
    pub(crate) id: WrId,
    pub(crate) opcode: Opcode,
    pub(crate) status: Status,
    /// The program asked for its completion and has not got it yet.
    pub(crate) is_due: bool,
    /// The program did not ask for its completion.
    pub(crate) is_unsignaled: bool,
}

/// A receive that has ended and left its queue
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedReceive {
    pub(crate) id: WrId,
    pub(crate) span: Span,
    pub(crate) byte_len: u32,
    pub(crate) status: Status,
}

/// The oldest one-sided operation that has left and not been done
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneSided {
    /// Its position in the send queue.
    pub(crate) position: usize,
    pub(crate) id: WrId,
    pub(crate) op: SendOp,
    pub(crate) span: Span,
}

impl Send {
    // Inlined, as all through which a request passes on its way into the queue: copies of what was just written are slow.
    #[inline(always)]
    pub(super) fn new(id: WrId, op: SendOp, span: Span, is_signaled: bool) -> Self {
        Self {
            id,
            op,
            opcode: opcode(op),
            span,
            is_signaled,
            sent: 0,
            is_lost: false,
            is_split: false,
            is_applied: false,
            is_reported: false,
            ends: None,
            status: Status::Success,
        }
    }
}

impl Receive {
    #[inline(always)]
    pub(super) fn new(id: WrId, span: Span, visible: Time, is_beyond: bool, status: Status) -> Self {
        Self { id, span, visible, frames_in: 0, bytes_in: 0, is_beyond, status }
    }
}

#[inline]
pub(crate) fn opcode(op: SendOp) -> Opcode {
    match op {
        SendOp::Write { .. } => Opcode::Write,
        SendOp::Read { .. } => Opcode::Read,
        SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => Opcode::Atomic,
        _ => Opcode::Send,
    }
}
