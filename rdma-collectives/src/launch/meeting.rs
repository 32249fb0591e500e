//! How ranks find each other: all come to rank 0, which tells each where its neighbours listen

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher as _;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::error::LaunchError;
use super::wire::{Answer, Greeting, Hello, Protocol, is_temporary, read, write};

/// One rank on its way to the others
pub(super) struct Meeting {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) neighbours: Vec<usize>,
    /// Differs from that of another device matrix
    pub(super) matrix: u64,
    /// Its node, as sessions name it
    pub(super) node: String,
    pub(super) coordinator: String,
    pub(super) timeout: Duration,
    /// Nobody waits for the result any more.
    pub(super) is_dropped: Arc<AtomicBool>,
}

/// A connection to a neighbour
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) rank: usize,
    pub(super) stream: TcpStream,
    /// The node of a neighbour of higher rank, which connects
    pub(super) node: Option<String>,
}

/// A rank that has come to rank 0
struct Come {
    stream: TcpStream,
    /// Where it listens for its neighbours
    address: SocketAddr,
}

/// A stranger says nothing for longer.
const FIRST_LINE: Duration = Duration::from_secs(5);
/// So many connections may have said nothing yet; then the oldest is closed for the next.
const MOST_SILENT: usize = 64;
/// Between two looks at what waits.
const LOOK: Duration = Duration::from_millis(10);
/// Between two attempts to reach a rank that may not have begun.
const ATTEMPT: Duration = Duration::from_millis(100);
/// How long one attempt takes at most.
const MOST_OF_ATTEMPT: Duration = Duration::from_secs(2);
/// How much longer ranks wait than rank 0, which says which ranks are missing.
const GRACE: Duration = Duration::from_secs(5);

#[expect(clippy::disallowed_methods, reason = "ranks meet before there is a node whose clock could be asked")]
fn now() -> Instant {
    Instant::now()
}

impl Meeting {
    /// Connections to all neighbours
    pub(super) fn meet(&self) -> Result<Vec<Neighbour>, LaunchError> {
        let (listener, token, addresses) = if self.rank == 0 { self.host()? } else { self.come()? };
        self.visit(listener, &token, &addresses)
    }

    /// As rank 0: waits for all others, and tells each where they are
    fn host(&self) -> Result<(TcpListener, String, Vec<SocketAddr>), LaunchError> {
        let failed = |reason| LaunchError::Coordinator { coordinator: self.coordinator.clone(), reason };
        let door = TcpListener::bind(&*self.coordinator).map_err(failed)?;
        let own = door.local_addr().and_then(|at| TcpListener::bind((at.ip(), 0))).map_err(failed)?;
        let address = own.local_addr().map_err(failed)?;
        let mut door = Door::new(door).map_err(failed)?;
        let mut come = BTreeMap::new();
        let answer = self.gather(&mut door, &mut come).map_err(failed)?.unwrap_or_else(|| {
            // Random keys of the standard library: nobody guesses them, and those of another run differ.
            let token = [(); 2].map(|()| format!("{:016x}", RandomState::new().hash_one(0))).concat();
            let others = come.values().map(|come: &Come| come.address);
            Answer::All { token, addresses: [address].into_iter().chain(others).collect() }
        });
        for come in come.values_mut() {
            // One that has gone meanwhile is found by its neighbours.
            let _has_gone = write(&mut come.stream, &answer);
        }
        let (token, addresses) = answer.all()?;
        Ok((own, token, addresses))
    }

    /// Waits until all have come; returns why they have not
    fn gather(&self, door: &mut Door<Hello>, come: &mut BTreeMap<usize, Come>) -> io::Result<Option<Answer>> {
        let until = now() + self.timeout;
        while come.len() + 1 < self.size {
            come.retain(|_, come| !has_gone(&come.stream));
            if self.is_dropped.load(Ordering::Relaxed) {
                // The others find that rank 0 has gone.
                return Err(io::ErrorKind::Interrupted.into());
            }
            if now() >= until {
                let ranks = (1..self.size).filter(|rank| !come.contains_key(rank)).collect();
                return Ok(Some(Answer::Missing { ranks, timeout: self.timeout }));
            }
            let Some((hello, stream, from)) = door.next()? else { continue };
            let (rank, address) = (hello.rank, SocketAddr::new(from.ip(), hello.port));
            let earlier = come.insert(rank, Come { stream, address });
            if hello.matrix != self.matrix || !(1..self.size).contains(&rank) {
                return Ok(Some(Answer::OtherMatrix { rank }));
            }
            if let Some(mut earlier) = earlier.filter(|earlier| !has_gone(&earlier.stream)) {
                let answer = Answer::Duplicate { rank, addresses: [earlier.address, address] };
                let _has_gone = write(&mut earlier.stream, &answer);
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// As another rank: goes to rank 0, and waits until all have come there
    fn come(&self) -> Result<(TcpListener, String, Vec<SocketAddr>), LaunchError> {
        let until = now() + self.timeout;
        let unreachable = |reason| LaunchError::Unreachable {
            coordinator: self.coordinator.clone(),
            timeout: self.timeout,
            reason,
        };
        let coordinator = || self.coordinator.to_socket_addrs().map(Vec::from_iter);
        let mut stream = self.reach(coordinator, until).map_err(unreachable)?;
        let own = stream.local_addr().and_then(|at| TcpListener::bind((at.ip(), 0))).map_err(unreachable)?;
        let port = own.local_addr().map_err(unreachable)?.port();
        let hello = Hello { protocol: Protocol::V1, rank: self.rank, matrix: self.matrix, port };
        let gone = |_| LaunchError::CoordinatorGone { coordinator: self.coordinator.clone() };
        write(&mut stream, &hello).map_err(gone)?;
        let until = now() + self.timeout + GRACE;
        let answer: Answer = read(&mut stream, || self.is_over(until)).map_err(gone)?;
        let (token, mut addresses) = answer.all()?;
        if addresses.len() != self.size {
            return Err(LaunchError::OtherMatrix { rank: self.rank });
        }
        // Rank 0 does not know by which of its addresses it is reached.
        addresses[0].set_ip(stream.peer_addr().map_err(gone)?.ip());
        Ok((own, token, addresses))
    }

    /// Connects to the neighbours of lower rank, and waits for those of higher rank
    fn visit(
        &self,
        listener: TcpListener,
        token: &str,
        addresses: &[SocketAddr],
    ) -> Result<Vec<Neighbour>, LaunchError> {
        let until = now() + self.timeout;
        let mut found = Vec::with_capacity(self.neighbours.len());
        for &rank in self.neighbours.iter().filter(|rank| **rank < self.rank) {
            let failed =
                |reason| LaunchError::NeighbourUnreachable { rank, address: addresses[rank], reason };
            let mut stream = self.reach(|| Ok(vec![addresses[rank]]), until).map_err(failed)?;
            let (token, node) = (token.to_owned(), self.node.clone());
            let greeting = Greeting { protocol: Protocol::V1, token, rank: self.rank, node };
            write(&mut stream, &greeting).map_err(failed)?;
            found.push(Neighbour { rank, stream, node: None });
        }
        let mut missing: Vec<_> = self.neighbours.iter().copied().filter(|rank| *rank > self.rank).collect();
        let failed = |reason| LaunchError::Listen { reason };
        let mut door: Door<Greeting> = Door::new(listener).map_err(failed)?;
        while !missing.is_empty() {
            if self.is_over(until) {
                return Err(LaunchError::Missing { ranks: missing, timeout: self.timeout });
            }
            let Some((Greeting { token: shown, rank, node, .. }, stream, _)) = door.next().map_err(failed)?
            else {
                continue;
            };
            // Others are of another run.
            if shown == token && missing.contains(&rank) {
                missing.retain(|other| *other != rank);
                found.push(Neighbour { rank, stream, node: Some(node) });
            }
        }
        Ok(found)
    }

    /// A connection to one of these addresses, once something listens there
    fn reach(
        &self,
        addresses: impl Fn() -> io::Result<Vec<SocketAddr>>,
        until: Instant,
    ) -> io::Result<TcpStream> {
        loop {
            let connect = |address| TcpStream::connect_timeout(&address, MOST_OF_ATTEMPT);
            let none = Err(io::ErrorKind::AddrNotAvailable.into());
            let attempt =
                addresses().and_then(|all| all.into_iter().map(connect).reduce(Result::or).unwrap_or(none));
            match attempt {
                Ok(stream) => return Ok(stream),
                Err(error) if self.is_over(until) => return Err(error),
                Err(_) => thread::sleep(ATTEMPT),
            }
        }
    }

    fn is_over(&self, until: Instant) -> bool {
        now() >= until || self.is_dropped.load(Ordering::Relaxed)
    }
}

/// Whether the other end of a connection on which it has nothing to say is closed
fn has_gone(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    !looked.is_err_and(|error| is_temporary(&error))
}

/// Connections that come, each with its first line; those that say something else, or nothing, keep nobody waiting
struct Door<T> {
    listener: TcpListener,
    sender: SyncSender<(T, TcpStream, SocketAddr)>,
    receiver: Receiver<(T, TcpStream, SocketAddr)>,
    /// The connections that have said nothing yet, oldest first, each with what its thread drops when it ends
    silent: VecDeque<(Weak<()>, TcpStream)>,
}

impl<T: DeserializeOwned + Send + 'static> Door<T> {
    fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (sender, receiver) = sync_channel(MOST_SILENT);
        Ok(Self { listener, sender, receiver, silent: VecDeque::new() })
    }

    /// The next one whose first line is there, if there is one soon
    fn next(&mut self) -> io::Result<Option<(T, TcpStream, SocketAddr)>> {
        // What is kept here would keep open what the thread has closed.
        self.silent.retain(|(thread, _)| thread.strong_count() > 0);
        for _ in 0..MOST_SILENT {
            let (mut stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if is_temporary(&error) => break,
                // A connection that was closed before it was accepted; nothing of the listener.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            if self.silent.len() == MOST_SILENT
                && let Some((_, oldest)) = self.silent.pop_front()
            {
                // Its thread may have closed it.
                let _is_closed = oldest.shutdown(Shutdown::Both);
            }
            let (sender, thread) = (self.sender.clone(), Arc::new(()));
            self.silent.push_back((Arc::downgrade(&thread), stream.try_clone()?));
            let until = now() + FIRST_LINE;
            let listen = move || {
                let line = read(&mut stream, || now() >= until);
                drop(thread);
                // If nobody waits for it any more, it is closed.
                let _is_over = line.map(|line| sender.send((line, stream, from)));
            };
            thread::Builder::new().name("rdma-launch".to_owned()).spawn(listen)?;
        }
        Ok(self.receiver.recv_timeout(LOOK).ok())
    }
}
