//! A bootstrap stream that only programs with the shared key can read and write
//!
//! Noise with the pattern `NNpsk0`: each side proves that it has the key, and both draw keys for this stream alone.

use std::io;
use std::task::{Context, Poll, ready};

use rdma_core::session::{Hello, HelloError, Side};
use snow::{Builder, TransportState};

use crate::bootstrap_stream::{BootstrapStream, BoxedStream, read_exact, write_all};
use crate::error::ConnectError;
use crate::shared_key::SharedKey;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const TAG: usize = 16;
/// Each record begins with its length.
const PREFIX: usize = 2;
/// The most bytes of a record before it is encrypted.
const MAX_PLAIN: usize = 4096;

/// A bootstrap stream, encrypted and authenticated
pub(super) struct SealedStream {
    stream: BoxedStream,
    noise: TransportState,
    /// The record that arrives: its prefix, and then its bytes.
    incoming: Vec<u8>,
    incoming_len: usize,
    /// Bytes of the latest record, and how many of them were read.
    plain: Vec<u8>,
    read: usize,
    /// The record that is sent, and how much of it was.
    outgoing: Vec<u8>,
    written: usize,
}

impl SealedStream {
    /// Makes sure that the peer has `key`
    ///
    /// # Errors
    ///
    /// [`ConnectError::Peer`] if it has none, or another one; the peer learns the same.
    pub(super) async fn new(
        mut stream: BoxedStream,
        key: &SharedKey,
        side: Side,
    ) -> Result<Self, ConnectError> {
        let head = Hello::sealed_head();
        let builder = Builder::new(PATTERN.parse().expect("the pattern is supported")).psk(0, &key.0);
        let builder = builder.and_then(|builder| builder.prologue(&head)).expect("neither was set before");
        let mut noise = match side {
            Side::Connecting => builder.build_initiator(),
            Side::Accepting => builder.build_responder(),
        }
        .expect("the pattern needs nothing else");
        let mut ours = [0; Hello::PROOF_LEN];
        if side == Side::Connecting {
            noise.write_message(&[], &mut ours).expect("it is this side's turn, and the message fits");
            write_all(&mut stream, &[head.as_slice(), &ours].concat()).await?;
        }
        let mut theirs = [0; Hello::PROOF_LEN];
        let read = match read_handshake(&mut stream, &mut theirs).await {
            Err(error @ ConnectError::Stream(_)) => return Err(error),
            read => read,
        };
        let read = read.and_then(|()| {
            noise.read_message(&theirs, &mut []).map(drop).map_err(|_| HelloError::WrongKey.into())
        });
        if side == Side::Accepting {
            // A peer that is refused learns why: what follows the head is nothing that its key opens.
            if read.is_ok() {
                noise.write_message(&[], &mut ours).expect("it is this side's turn, and the message fits");
            }
            write_all(&mut stream, &[head.as_slice(), &ours].concat()).await?;
        }
        read?;
        let noise = noise.into_transport_mode().expect("both messages were exchanged");
        Ok(Self {
            stream,
            noise,
            incoming: vec![0; PREFIX + MAX_PLAIN + TAG],
            incoming_len: 0,
            plain: Vec::with_capacity(MAX_PLAIN),
            read: 0,
            outgoing: Vec::with_capacity(PREFIX + MAX_PLAIN + TAG),
            written: 0,
        })
    }

    /// Reads until `len` bytes of the record are there; false at the end of the stream
    fn poll_fill(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<io::Result<bool>> {
        while self.incoming_len < len {
            match ready!(self.stream.poll_read(cx, &mut self.incoming[self.incoming_len..len]))? {
                0 => return Poll::Ready(Ok(false)),
                n => self.incoming_len += n,
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Writes the record that is being sent
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.outgoing.len() {
            match ready!(self.stream.poll_write(cx, &self.outgoing[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.written += n,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads the peer's head and its message of the handshake
async fn read_handshake(stream: &mut BoxedStream, message: &mut [u8]) -> Result<(), ConnectError> {
    let mut head = [0; Hello::HEAD_LEN];
    read_exact(stream, &mut head).await?;
    let checked = Hello::check_sealed_head(&head);
    if checked == Err(HelloError::KeyMissing) {
        // It reads nothing before it has written the rest of its hello.
        read_exact(stream, &mut [0; Hello::LEN - Hello::HEAD_LEN]).await?;
    }
    checked?;
    read_exact(stream, message).await?;
    Ok(())
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a record was not sealed with the key of this stream")
}

impl BootstrapStream for SealedStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.read == self.plain.len() {
            if !ready!(self.poll_fill(cx, PREFIX))? {
                return Poll::Ready(Ok(0));
            }
            let len = usize::from(u16::from_le_bytes([self.incoming[0], self.incoming[1]]));
            if !(TAG + 1..=MAX_PLAIN + TAG).contains(&len) {
                return Poll::Ready(Err(refused()));
            }
            if !ready!(self.poll_fill(cx, PREFIX + len))? {
                return Poll::Ready(Ok(0));
            }
            self.incoming_len = 0;
            self.plain.resize(len - TAG, 0);
            let opened = self.noise.read_message(&self.incoming[PREFIX..][..len], &mut self.plain);
            opened.map_err(|_| refused())?;
            self.read = 0;
        }
        let len = bytes.len().min(self.plain.len() - self.read);
        bytes[..len].copy_from_slice(&self.plain[self.read..][..len]);
        self.read += len;
        Poll::Ready(Ok(len))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let len = bytes.len().min(MAX_PLAIN);
        self.outgoing.resize(PREFIX + len + TAG, 0);
        let (prefix, record) = self.outgoing.split_at_mut(PREFIX);
        prefix.copy_from_slice(&((len + TAG) as u16).to_le_bytes());
        self.noise.write_message(&bytes[..len], record).map_err(io::Error::other)?;
        self.written = 0;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        self.stream.poll_flush(cx)
    }
}
