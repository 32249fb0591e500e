//! A session as its peering keeps it

use super::body::{Body, Effects};
use crate::error::{CloseError, RecvError, SendError, SessionError};
use crate::inbox::Inbox;
use crate::op_table::OpTable;
use crate::wait_queue::WaitQueue;

/// Where the futures of a session wait
pub(crate) struct SessionState {
    pub(crate) ops: OpTable<Body, SendError>,
    pub(crate) inbox: Inbox<Body, RecvError>,
    /// How the session ended, for this side.
    pub(crate) end: WaitQueue<Option<Result<(), CloseError>>>,
    /// Whether the application still holds a handle.
    pub(super) is_held: bool,
    /// Futures that wait for the end, and keep no session open.
    pub(crate) watchers: u32,
    pub(crate) counts: Counts,
    /// Frames of longer messages that arrive or are unread.
    pub(super) bulk_frames: u32,
    /// Whether the protocol has forgotten the session.
    pub(crate) is_over: bool,
    /// Why nothing can be sent any more.
    closed: Option<SendError>,
}

/// What a session has done so far
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) queued: u64,
    pub(crate) delivered: u64,
    pub(crate) received: u64,
    /// Packets and parts of messages that were sent, and messages that the peer has.
    pub(crate) progress: u64,
}

impl SessionState {
    pub(super) fn new(max_in_flight: u32) -> Self {
        Self {
            ops: OpTable::new(max_in_flight),
            inbox: Inbox::new(8),
            end: WaitQueue::for_all("its session to end", None, 4),
            is_held: true,
            watchers: 0,
            counts: Counts::default(),
            bulk_frames: 0,
            is_over: false,
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

    /// Refuses messages from now on
    pub(super) fn refuse(&mut self, error: SendError, effects: &mut Effects) {
        if self.closed.is_none() {
            self.closed = Some(error.clone());
            self.ops.close(error, effects);
        }
    }

    /// Ends the session for this side, in good order
    pub(super) fn conclude(&mut self, effects: &mut Effects) {
        self.is_over = true;
        self.inbox.close(Ok(()), effects);
        self.set_end(Ok(()), effects);
    }

    /// Ends the session at once
    pub(super) fn fail(&mut self, error: &SessionError, effects: &mut Effects) {
        self.refuse(error.clone().into(), effects);
        self.is_over = true;
        self.inbox.close(Err(error.clone().into()), effects);
        self.set_end(Err(error.clone().into()), effects);
    }

    pub(super) fn set_end(&mut self, result: Result<(), CloseError>, effects: &mut Effects) {
        self.end.update(effects, |end| {
            end.get_or_insert(result);
        });
    }

    /// Whether neither the application nor a message needs it
    pub(super) fn is_unused(&self) -> bool {
        !self.is_held && self.watchers == 0 && self.ops.in_use() == 0 && self.is_over
    }
}
