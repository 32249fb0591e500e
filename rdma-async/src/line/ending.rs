//! How a connection ends

use rdma_core::{Device, Teardown};

use super::{Line, State};
use crate::error::{CloseError, ConnectionError, RecvError, SendError};
use crate::later::Later;
use crate::pool::Zone;

impl<D: Device> Line<D> {
    /// Ends the connection in good order
    pub(super) fn end(&self, state: &mut State<D>, later: &mut Later) {
        let is_complete = state.protocol.is_acknowledged() || !state.is_refused;
        let result = if is_complete { Ok(()) } else { Err(CloseError::PeerClosed) };
        tracing::debug!(line = self.id, "connection closed");
        let error = if state.protocol.is_peer_finished() { SendError::PeerClosed } else { SendError::Closed };
        // What was posted and has not completed has arrived: the peer says so.
        let posted = if state.protocol.is_closed() { Ok(()) } else { Err(error.clone()) };
        self.tear_down(state, error, posted, later);
        state.conclude(Ok(()), result, later);
    }

    /// Ends the connection because of `error`
    pub(super) fn lose(&self, state: &mut State<D>, error: ConnectionError, later: &mut Later) {
        if state.queues.is_none() {
            return;
        }
        later.wake_reactor();
        if state.protocol.can_end_without_peer() {
            return self.end(state, later);
        }
        tracing::warn!(line = self.id, %error, "connection lost");
        state.error = Some(error.clone());
        self.tear_down(state, error.clone().into(), Err(error.clone().into()), later);
        state.conclude(Err(error.clone().into()), Err(error.into()), later);
    }

    /// Destroys the queue pairs: new sends get `error`, those in flight `posted`
    fn tear_down(
        &self,
        state: &mut State<D>,
        error: SendError,
        posted: Result<(), SendError>,
        later: &mut Later,
    ) {
        let Some(mut queues) = state.queues.take() else { return };
        later.wake(self.hub.pool.leave(Zone::Bulk, &mut state.memory));
        // Unposted sends are quarantined too if the device did not stop: rare, and safe.
        let keep = queues.destroy(later) == Teardown::Unknown;
        let posted = if keep { Err(error.clone()) } else { posted };
        later.wake(state.ops.close(error));
        for slot in state.ops.indices() {
            let (lease, next) = state.ops.complete(slot, posted.clone(), keep);
            match lease {
                Some(lease) if keep => lease.quarantine(),
                lease => later.free(lease),
            }
            later.wake(next);
        }
    }
}

impl<D: Device> State<D> {
    /// Tells who receives, and who waits for the end
    fn conclude(
        &mut self,
        received: Result<(), RecvError>,
        closed: Result<(), CloseError>,
        later: &mut Later,
    ) {
        let (rest, next) = self.inbox.close(received);
        later.free(rest);
        later.wake(next);
        later.wake(self.end.update(|end| end.get_or_insert(closed).is_ok()).1);
    }

    /// Why there is no connection any more
    pub(super) fn lost(&self) -> ConnectionError {
        self.error.clone().unwrap_or(ConnectionError::Aborted)
    }

    /// Why nothing can be sent
    pub(super) fn send_error(&self) -> SendError {
        match &self.error {
            Some(error) => SendError::Lost(error.clone()),
            None if self.protocol.is_peer_finished() => SendError::PeerClosed,
            None => SendError::Closed,
        }
    }
}
