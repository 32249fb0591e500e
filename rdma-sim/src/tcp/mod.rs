//! TCP over Thunderbolt as a byte stream, slow beside RDMA

mod listener;
mod listening;
mod pipe;

pub use self::listener::SimListener;
pub(crate) use self::listening::Listening;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_core::{Timer, probe};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::pipe::{Pipes, close};
use crate::net::Net;
use crate::sync::{lock, replace};

/// From one program to the other: half of the 300 µs that were measured for a round trip (published comparisons of RDMA and
/// TCP over Thunderbolt 5).
const ONE_WAY: Duration = Duration::from_micros(150);
/// Bytes per second: the faster end of what was measured for `rsync` over Thunderbolt networking (MLX issue 3207).
const RATE: u64 = 500_000_000;
/// Most bytes in flight
const BUFFER: usize = 256 << 10;

/// One end of a TCP connection between two simulated hosts
///
/// For bootstrapping connections as programs on Macs do, with the time that it takes. Pulled cables do not affect it: such
/// streams usually go over another network.
///
/// ```
/// use rdma_sim::Sim;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let run = Sim::new().run(|net| async move {
///     let (mut a, mut b) = net.tcp();
///     a.write_all(b"hello").await.unwrap();
///     let mut received = [0; 5];
///     b.read_exact(&mut received).await.unwrap();
///     received
/// });
/// assert_eq!(run.value, *b"hello");
/// assert_eq!(run.time.as_nanos(), 150_010, "150 µs one way, and 10 ns for five bytes");
/// ```
#[derive(Debug)]
pub struct SimStream {
    pipes: Pipes,
    net: Net,
    timer: Pin<Box<dyn Timer>>,
}

impl Net {
    /// Two ends of a TCP connection with the speed of one over Thunderbolt: a round trip takes 300 µs
    ///
    /// It belongs to no cable and to no host, and no fault ends it.
    /// Both belong to the caller. Hosts with processes that die and start anew [listen](crate::SimHost::listen) and
    /// [dial](crate::SimHost::dial).
    pub fn tcp(&self) -> (SimStream, SimStream) {
        self.sim_runtime().share();
        let [one, other] = Pipes::pair();
        (SimStream::new(self, one), SimStream::new(self, other))
    }
}

impl SimStream {
    fn new(net: &Net, pipes: Pipes) -> Self {
        Self { pipes, net: net.clone(), timer: net.runtime().timer() }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { pipes: Pipes { incoming, .. }, net, timer } = &mut *self;
        loop {
            let mut pipe = lock(incoming);
            let Some((arrival, bytes)) = pipe.chunks.front_mut() else {
                if pipe.is_closed {
                    return Poll::Ready(Ok(()));
                }
                let replaced = replace(&mut pipe.reader, cx.waker());
                drop(pipe);
                drop(replaced);
                probe::waits_for(format_args!("bytes of a TCP stream"));
                return Poll::Pending;
            };
            if *arrival > net.now() {
                let arrival = *arrival;
                drop(pipe);
                timer.as_mut().reset(arrival);
                match timer.as_mut().poll_expired(cx) {
                    Poll::Ready(()) => continue,
                    Poll::Pending => return Poll::Pending,
                }
            }
            let n = bytes.len().min(into.remaining());
            let (head, tail) = bytes.as_slices();
            let from_head = head.len().min(n);
            into.put_slice(&head[..from_head]);
            into.put_slice(&tail[..n - from_head]);
            bytes.drain(..n);
            if bytes.is_empty() {
                pipe.chunks.pop_front();
            }
            pipe.len -= n;
            let writer = pipe.writer.take();
            drop(pipe);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.pipes.outgoing);
        if pipe.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let n = bytes.len().min(BUFFER - pipe.len);
        if n == 0 && !bytes.is_empty() {
            let replaced = replace(&mut pipe.writer, cx.waker());
            drop(pipe);
            drop(replaced);
            probe::waits_for(format_args!("room in a TCP stream"));
            return Poll::Pending;
        }
        let wire = Duration::from_nanos(n as u64 * 1_000_000_000 / RATE);
        pipe.busy_until = pipe.busy_until.max(self.net.now()) + wire;
        let late = Duration::from_nanos(self.net.late_ns());
        let arrival = (pipe.busy_until + ONE_WAY + late).max(pipe.last_arrival);
        pipe.last_arrival = arrival;
        pipe.chunks.push_back((arrival, bytes[..n].iter().copied().collect()));
        pipe.len += n;
        let reader = pipe.reader.take();
        drop(pipe);
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        close(&self.pipes.outgoing);
        Poll::Ready(Ok(()))
    }
}
