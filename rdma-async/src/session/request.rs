//! Requests and their answers, each on a stream of its own

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use rdma_core::Device;
use rdma_core::session::Priority;

use super::{Message, Session, Stream};
use crate::error::{RequestError, SendError};
use crate::pool::Lease;

impl<D: Device> Session<D> {
    /// Sends the request in `lease` on a stream of its own, and receives the answer
    ///
    /// Requests do not wait for each other. As many are under way at once as [streams](Self::open_stream) can be open; more wait in
    /// turn, with their leases: the node's [`send_memory`](crate::NodeOptions::send_memory) must hold these and the answers that this side
    /// gives. The peer [answers](Stream::answer) each stream that it accepts.
    ///
    /// # Errors
    ///
    /// [`RequestError`] says at which step the request failed; [`RequestError::Unanswered`] if the peer has dropped it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request: the peer is notified, and drops its work on the answer.
    pub async fn request(&self, lease: Lease) -> Result<Message, RequestError> {
        let stream = self.open_stream(Priority::Normal).await?;
        stream.send(lease).await.map_err(|failed| failed.error)?;
        // Not finished before the answer is here: the end of the stream is what cancels a request.
        stream.recv().await?.ok_or(RequestError::Unanswered)
    }
}

impl<D: Device> Stream<D> {
    /// Receives the request of a stream that was accepted, and sends the answer of `handler`
    ///
    /// Drops the future of `handler` when the peer has cancelled the request, and returns whether it was answered.
    ///
    /// # Errors
    ///
    /// [`RequestError::Recv`] or [`RequestError::Send`] if the session is lost or closed before the answer is sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the request: the peer learns that it is [unanswered](RequestError::Unanswered).
    pub async fn answer(self, handler: impl AsyncFnOnce(Message) -> Lease) -> Result<bool, RequestError> {
        let Some(request) = self.recv().await? else { return Ok(false) };
        let (mut answer, mut cancelled) = (pin!(handler(request)), pin!(self.recv()));
        let answer = poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Ok(Some(answer))),
            // The peer sends nothing more: this is the end, or an error.
            Poll::Pending => cancelled.as_mut().poll(cx).map(|end| end.map(|_| None)),
        });
        let Some(answer) = answer.await? else { return Ok(false) };
        match self.send(answer).await.map_err(|failed| failed.error) {
            Err(SendError::StreamDropped) => Ok(false),
            sent => sent.map(|_| true).map_err(RequestError::from),
        }
    }
}
