use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_sink::Sink;
use rdma_core::Device;

use super::futures::Messages;
use super::message::Message;
use super::sink::MessageSink;
use super::stream::Stream;
use crate::error::{RecvError, SendError};
use crate::pool::Lease;

/// Both directions of a stream in one, for code that speaks a [`Stream`](futures_core::Stream) which is also a [`Sink`], such as the
/// transports of libraries for remote procedure calls
///
/// As [`Messages`](crate::future::Messages) and [`MessageSink`], which it is made of.
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// use futures::{SinkExt as _, StreamExt as _};
///
/// // Numbers, as what carries them may send and receive them.
/// let numbers = |session: &Session<_>| {
///     let duplex = session.main_stream().duplex();
///     let session = session.clone();
///     let sent = duplex.with(move |number: u32| {
///         let session = session.clone();
///         async move {
///             let mut lease = session.alloc(4).await.expect("numbers are short");
///             lease.extend_from_slice(&number.to_le_bytes());
///             Ok::<_, SendError>(lease)
///         }
///     });
///     sent.map(|message| Ok::<_, RecvError>(u32::from_le_bytes(message?[..].try_into().expect("a number"))))
/// };
/// let (here, there) = (numbers(&session), numbers(&peer));
/// futures::pin_mut!(here, there);
/// here.send(7).await?;
/// assert_eq!(there.next().await, Some(Ok(7)));
/// there.send(8).await?;
/// assert_eq!(here.next().await, Some(Ok(8)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Errors
///
/// Those of [`Stream::recv`](crate::Stream::recv) and of [`Stream::send`](crate::Stream::send).
///
/// # Cancel safety
///
/// Dropping it loses no message.
#[must_use = "sinks and streams do nothing unless polled"]
pub struct MessageDuplex<D: Device> {
    messages: Messages<D>,
    sink: MessageSink<D>,
}

impl<D: Device> Stream<D> {
    /// Both directions in one: the [messages](Self::messages) and the [sink](Self::sink)
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses no message.
    pub fn duplex(&self) -> MessageDuplex<D> {
        MessageDuplex { messages: self.messages(), sink: self.sink() }
    }
}

impl<D: Device> futures_core::Stream for MessageDuplex<D> {
    type Item = Result<Message, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.messages).poll_next(cx)
    }
}

impl<D: Device> Sink<Lease> for MessageDuplex<D> {
    type Error = SendError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Pin::new(&mut self.sink).poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, lease: Lease) -> Result<(), SendError> {
        Pin::new(&mut self.sink).start_send(lease)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Pin::new(&mut self.sink).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Pin::new(&mut self.sink).poll_close(cx)
    }
}

impl<D: Device> fmt::Debug for MessageDuplex<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MessageDuplex").field(&self.sink).finish()
    }
}
