//! Connections that are accepted, each with its first line

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::clock::now;
use super::wire::{MAX_FIRST_LINE, is_temporary, read};

/// The connections of a listener with their first lines; those that say something else, or nothing, delay no other one
pub(super) struct FirstLines<T> {
    listener: TcpListener,
    sender: Sender<(T, TcpStream, SocketAddr)>,
    receiver: Receiver<(T, TcpStream, SocketAddr)>,
    /// The connections that have said nothing yet, oldest first
    silent: VecDeque<Weak<Connection>>,
}

struct Connection {
    stream: TcpStream,
    /// Its first line was read, or it was closed for a newer one
    is_decided: AtomicBool,
}

/// How long a connection may say nothing
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most connections that have said nothing yet; the oldest is closed for the next
const MAX_SILENT: usize = 16;
/// Between two looks at what has arrived
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl<T: DeserializeOwned + Send + 'static> FirstLines<T> {
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        Ok(Self { listener, sender, receiver, silent: VecDeque::new() })
    }

    /// The next connection with its first line; `None` if no line arrives within [`POLL_INTERVAL`]
    pub(super) fn next(&mut self) -> Option<(T, TcpStream, SocketAddr)> {
        // Those that have spoken are taken before others are accepted, so that their number is bounded.
        if let Ok(next) = self.receiver.try_recv() {
            return Some(next);
        }
        for _ in 0..MAX_SILENT {
            match self.listener.accept().and_then(|(stream, from)| self.begin(stream, from)) {
                Ok(()) => (),
                Err(error) if is_temporary(&error) => break,
                // Of this connection alone: it was reset, or this process has no descriptor or thread for it.
                Err(_) => {
                    thread::sleep(POLL_INTERVAL);
                    break;
                }
            }
        }
        self.receiver.recv_timeout(POLL_INTERVAL).ok()
    }

    /// Reads the first line of a connection on a thread
    fn begin(&mut self, stream: TcpStream, from: SocketAddr) -> io::Result<()> {
        self.silent.retain(|connection| connection.strong_count() > 0);
        if self.silent.len() == MAX_SILENT {
            self.silent.pop_front().iter().for_each(close);
        }
        let connection = Arc::new(Connection { stream, is_decided: AtomicBool::new(false) });
        let (sender, weak) = (self.sender.clone(), Arc::downgrade(&connection));
        let until = now() + FIRST_LINE_TIMEOUT;
        let read_line = move || {
            let line = read(&connection.stream, MAX_FIRST_LINE, || now() >= until);
            let Ok(line) = line else { return };
            if connection.is_decided.swap(true, Ordering::Relaxed) {
                return;
            }
            let stream = match Arc::try_unwrap(connection) {
                Ok(connection) => Ok(connection.stream),
                // It is just looked at, as one that could be closed.
                Err(shared) => shared.stream.try_clone(),
            };
            if let Ok(stream) = stream {
                // Without a receiver the connection is closed.
                let _is_over = sender.send((line, stream, from));
            }
        };
        thread::Builder::new().name("rdma-launch".to_owned()).spawn(read_line)?;
        self.silent.push_back(weak);
        Ok(())
    }
}

impl<T> Drop for FirstLines<T> {
    fn drop(&mut self) {
        self.silent.iter().for_each(close);
    }
}

/// Closes a connection that has said nothing, if that is still so
fn close(connection: &Weak<Connection>) {
    if let Some(connection) = connection.upgrade()
        && !connection.is_decided.swap(true, Ordering::Relaxed)
    {
        // The peer may have closed it.
        let _is_closed = connection.stream.shutdown(Shutdown::Both);
    }
}
