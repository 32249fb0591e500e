use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::bootstrap_stream::BootstrapStream;

/// A TCP connection of the standard library as the [`BootstrapStream`] of a program that is not async
///
/// Two threads read and write. They end, and close the connection, when the stream is dropped and what was written is sent. A peer
/// that takes nothing for ten seconds is an error of the stream.
///
/// ```
/// use std::net::{Ipv4Addr, TcpListener, TcpStream};
///
/// let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// // For `Node::connect`; the peer gives what it accepts to `Node::serve`.
/// let stream = rdma_async::BlockingStream::new(stream)?;
/// # let _ = stream;
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct BlockingStream {
    read: Arc<Pipe>,
    write: Arc<Pipe>,
}

/// Bytes between a thread and the stream
#[derive(Default)]
struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    /// Why no more bytes come or are taken; a stream that has ended orderly has no error
    end: Option<Option<io::Error>>,
    /// The stream was dropped
    is_dropped: bool,
    waker: Option<Waker>,
}

/// The most bytes that wait in one direction; bootstrap messages are shorter.
const CAPACITY: usize = 64 << 10;
/// How long the peer may take nothing.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

impl BlockingStream {
    /// Starts the threads
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of the connection, or of a system that has no further thread.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let (read, write) = <(Arc<Pipe>, Arc<Pipe>)>::default();
        // Dropped on an error: a thread that has been started ends.
        let started = Self { read: Arc::clone(&read), write: Arc::clone(&write) };
        let writing = stream.try_clone()?;
        let spawn = |run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name("rdma-bootstrap".to_owned()).spawn(run).map(drop)
        };
        spawn(Box::new(move || write.write_to(writing)))?;
        spawn(Box::new(move || read.read_from(stream)))?;
        Ok(started)
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_due` or the stream was dropped
    fn wait(&self, is_due: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waits = |state: &mut State| !state.is_dropped && !is_due(state);
        self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state for the task, which is woken
    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Reads until the end of the connection
    fn read_from(&self, mut stream: TcpStream) {
        let mut buffer = [0; 4096];
        let end = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break None,
                Ok(_) if self.lock().is_dropped => (),
                Ok(n) => self.update(|state| state.bytes.extend(&buffer[..n])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => break Some(error),
            }
            drop(self.wait(|state| state.bytes.len() < CAPACITY));
        };
        self.update(|state| state.end = Some(end));
    }

    /// Writes until the stream is dropped, and closes the connection in both directions
    fn write_to(&self, mut stream: TcpStream) {
        loop {
            let bytes: Vec<u8> = {
                let mut state = self.wait(|state| !state.bytes.is_empty());
                state.bytes.drain(..).collect()
            };
            if bytes.is_empty() {
                break;
            }
            match stream.write_all(&bytes) {
                Ok(()) => self.update(|_| ()),
                Err(error) => {
                    self.update(|state| state.end = Some(Some(in_time(error))));
                    break;
                }
            }
        }
        // An error says that it is closed already. The thread that reads sees the end.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl State {
    /// The end of the stream, as often as it is asked for
    fn ended(&self) -> Option<io::Result<usize>> {
        let end = self.end.as_ref()?;
        Some(end.as_ref().map_or(Ok(0), |error| Err(io::Error::new(error.kind(), error.to_string()))))
    }

    fn wait(&mut self, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl BootstrapStream for BlockingStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.read.lock();
        if state.bytes.is_empty() {
            return state.ended().map_or_else(|| state.wait(cx), Poll::Ready);
        }
        let n = bytes.len().min(state.bytes.len());
        bytes.iter_mut().zip(state.bytes.drain(..n)).for_each(|(to, from)| *to = from);
        self.read.changed.notify_one();
        Poll::Ready(Ok(n))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.write.lock();
        if let Some(ended) = state.ended() {
            return Poll::Ready(ended);
        }
        let n = bytes.len().min(CAPACITY.saturating_sub(state.bytes.len()));
        if n == 0 && !bytes.is_empty() {
            return state.wait(cx);
        }
        state.bytes.extend(&bytes[..n]);
        self.write.changed.notify_one();
        Poll::Ready(Ok(n))
    }

    /// The thread that writes has them: nothing is left to do
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.write.lock().ended().map_or(Ok(()), |ended| ended.map(drop)))
    }
}

impl Drop for BlockingStream {
    fn drop(&mut self) {
        for pipe in [&self.read, &self.write] {
            pipe.lock().is_dropped = true;
            pipe.changed.notify_all();
        }
    }
}

impl fmt::Debug for BlockingStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingStream").finish_non_exhaustive()
    }
}

/// The error of a write, which the system calls one to repeat if the peer takes nothing for too long
fn in_time(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("the peer has taken no bytes for {WRITE_TIMEOUT:?}"),
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::block_on;
    use crate::bootstrap_stream::{BoxedStream, read_exact, write_all};

    fn connected() -> (BoxedStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Box::new(BlockingStream::new(stream).unwrap()), listener.accept().unwrap().0)
    }

    /// Catches bytes that are lost when the stream is dropped at once, and a connection that stays open.
    #[test]
    fn a_dropped_stream_sends_the_rest_and_closes() {
        let (mut stream, mut peer) = connected();
        block_on(write_all(&mut stream, &[7; 200_000])).unwrap();
        drop(stream);
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        assert_eq!(received, [7; 200_000]);
    }

    /// Catches bytes that are lost before the end, and a reader that waits for ever behind it.
    #[test]
    fn a_reader_gets_all_bytes_and_then_the_end() {
        let (mut stream, mut peer) = connected();
        peer.write_all(&[1; 3000]).unwrap();
        drop(peer);
        let mut bytes = [0; 3000];
        block_on(read_exact(&mut stream, &mut bytes)).unwrap();
        assert_eq!(bytes, [1; 3000]);
        let end = block_on(read_exact(&mut stream, &mut bytes[..1]));
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
