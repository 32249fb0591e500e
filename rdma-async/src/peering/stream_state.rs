//! A stream of a session as its peering keeps it

use rdma_core::session::{SessionId, StreamId};

use super::body::{Body, Effects};
use crate::error::{RecvError, SendError};
use crate::inbox::Inbox;
use crate::op_table::OpTable;

/// Names a stream of a peering
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct StreamKey {
    pub(crate) session: SessionId,
    pub(crate) stream: StreamId,
}

impl StreamKey {
    /// The stream that session `session` has from the start
    pub(crate) fn main(session: SessionId) -> Self {
        Self { session, stream: StreamId::MAIN }
    }
}

/// Where the futures of a stream wait
pub(crate) struct StreamState {
    pub(crate) ops: OpTable<Body, SendError>,
    pub(crate) inbox: Inbox<Body, RecvError>,
    /// Whether the application holds a handle, or may still accept the stream.
    pub(super) is_held: bool,
    /// Whether this side has opened it.
    pub(super) is_own: bool,
    /// Whether the protocol has forgotten it.
    pub(super) is_over: bool,
    /// Frames of longer messages that arrive or are unread.
    pub(super) bulk_frames: u32,
    /// Why nothing can be sent any more.
    closed: Option<SendError>,
}

impl StreamState {
    pub(super) fn new(max_in_flight: u32, is_own: bool) -> Self {
        Self {
            ops: OpTable::new(max_in_flight),
            inbox: Inbox::new("a message of its peer", 8),
            is_held: true,
            is_own,
            is_over: false,
            bulk_frames: 0,
            closed: None,
        }
    }

    /// Why nothing can be sent, if so
    pub(crate) fn refusal(&self) -> Option<SendError> {
        self.closed.clone()
    }

    /// Why nothing can be sent
    pub(super) fn send_error(&self) -> SendError {
        self.refusal().unwrap_or(SendError::Closed)
    }

    /// Refuses messages from now on; the first reason counts
    pub(super) fn refuse(&mut self, error: SendError, effects: &mut Effects) {
        if self.closed.is_none() {
            self.closed = Some(error.clone());
            self.ops.close(error, effects);
        }
    }

    /// Whether neither the application nor a message needs it
    pub(super) fn is_unused(&self) -> bool {
        !self.is_held && self.ops.in_use() == 0
    }
}
