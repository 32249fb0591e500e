//! Messages on a bootstrap stream

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker, ready};

use rdma_core::session::{ByeReason, ControlMessage, Hello, HelloError};

use crate::bootstrap_stream::{BoxedStream, read_exact};
use crate::error::{ConnectError, SessionError};

/// A bootstrap stream: from the messages on, it writes while it reads, so that two sides that write at once do not wait for each other
pub(super) struct ControlStream {
    /// `None` once it has ended.
    stream: Option<BoxedStream>,
    received: [u8; ControlMessage::LEN],
    received_len: usize,
    /// Bytes that the stream has not taken.
    unsent: VecDeque<u8>,
    /// Why the stream takes no more bytes.
    failed: Option<io::ErrorKind>,
    is_flushed: bool,
    /// Whether the hello of this side was appended.
    has_hello: bool,
    /// Whether this side has said goodbye, which is the last thing that it says.
    says_goodbye: bool,
}

/// More than a peer that reads can leave unread.
const MAX_UNSENT: usize = 64 * ControlMessage::LEN;

impl ControlStream {
    pub(super) fn new(stream: BoxedStream) -> Self {
        Self {
            stream: Some(stream),
            received: [0; ControlMessage::LEN],
            received_len: 0,
            unsent: VecDeque::new(),
            failed: None,
            is_flushed: true,
            has_hello: false,
            says_goodbye: false,
        }
    }

    /// Whether the peer may still be heard
    pub(super) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the peer may still be sent messages
    pub(super) fn takes_messages(&self) -> bool {
        self.is_open() && self.failed.is_none()
    }

    /// Ends the stream
    fn end(&mut self) {
        self.stream = None;
    }

    /// Appends the hello of this side, once
    pub(super) fn push_hello(&mut self, hello: &Hello) {
        if !std::mem::replace(&mut self.has_hello, true) {
            self.push_bytes(&hello.to_bytes());
        }
    }

    /// Fills `bytes` with what precedes the messages of the peer
    pub(super) async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match &mut self.stream {
            Some(stream) => read_exact(stream, bytes).await,
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Appends a message, which [`poll_next`](Self::poll_next) and [`flush`](Self::flush) write
    pub(super) fn push(&mut self, message: ControlMessage) {
        if self.says_goodbye {
            return;
        }
        self.says_goodbye = matches!(message, ControlMessage::Bye(_));
        self.push_bytes(&message.to_bytes());
    }

    /// Appends what is no message, as [`push`](Self::push) does
    fn push_bytes(&mut self, bytes: &[u8]) {
        if self.takes_messages() {
            self.unsent.extend(bytes);
            self.is_flushed = false;
        }
        if self.unsent.len() > MAX_UNSENT {
            self.end();
        }
    }

    /// Says why this side ends the peering, as far as the stream takes it now
    pub(super) fn say_goodbye(&mut self, reason: ByeReason) {
        self.push(ControlMessage::Bye(reason));
        // The peer sees the end of the stream in any case.
        let _ = self.poll_write(&mut Context::from_waker(Waker::noop()));
    }

    /// Writes what the stream takes now; ready when that is everything, or the stream takes no more
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(kind.into()));
        }
        let written = self.poll_unsent(cx);
        if let Poll::Ready(Err(error)) = &written {
            self.failed = Some(error.kind());
            self.unsent.clear();
        }
        written
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while !self.unsent.is_empty() {
            match ready!(stream.poll_write(cx, self.unsent.as_slices().0))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => drop(self.unsent.drain(..n)),
            }
        }
        if !self.is_flushed {
            ready!(stream.poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        while self.received_len < ControlMessage::LEN {
            match ready!(stream.poll_read(cx, &mut self.received[self.received_len..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                n => self.received_len += n,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next message, once; an error if the stream has just ended. Pending if it ended before
    ///
    /// After [`ConnectError::Peer`], for a message that cannot be read, the stream is open for a goodbye.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<ControlMessage, ConnectError>> {
        // What the peer said before it went may be on its way although the stream takes no more: only its end ends the reading.
        let _ = self.poll_write(cx);
        Poll::Ready(match ready!(self.poll_read(cx)) {
            Ok(()) => {
                self.received_len = 0;
                ControlMessage::from_bytes(&self.received).map_err(ConnectError::from)
            }
            Err(error) => {
                self.end();
                Err(error.into())
            }
        })
    }

    /// The next message
    ///
    /// # Errors
    ///
    /// [`ConnectError::Stream`] if the stream has ended, [`ConnectError::Peer`] if the message cannot be read.
    pub(super) async fn next(&mut self) -> Result<ControlMessage, ConnectError> {
        if !self.is_open() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Waits for the first [`Offer`](ControlMessage::Offer), which [`next`](Self::next) then returns
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next), [`ConnectError::Lost`] if the peer says goodbye, and [`ConnectError::Peer`] if it sends a message that needs an
    /// offer before it.
    pub(super) async fn wait_for_offer(&mut self) -> Result<(), ConnectError> {
        let offered = poll_fn(|cx| match ready!(self.poll_next(cx))? {
            ControlMessage::Offer(_) => Poll::Ready(Ok::<_, ConnectError>(())),
            ControlMessage::Alive => {
                // A peer that sends many of them does not keep the thread.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            ControlMessage::Bye(reason) => Poll::Ready(Err(SessionError::PeerGone(reason).into())),
            _ => Poll::Ready(Err(HelloError::Unexpected.into())),
        });
        offered.await?;
        // Its bytes are still there.
        self.received_len = ControlMessage::LEN;
        Ok(())
    }

    /// Waits until everything is written
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_write(cx)).await
    }
}
