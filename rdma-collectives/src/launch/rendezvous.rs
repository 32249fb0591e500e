//! How ranks find each other: all register at rank 0, which sends each where its neighbours listen

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::now;
use super::error::LaunchError;
use super::first_lines::FirstLines;
use super::wire::{Answer, MAX_ANSWER, NeighbourHello, Protocol, Registration, is_temporary, read, write};

/// What one rank needs to find the others
pub(super) struct Rendezvous {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) neighbours: Vec<usize>,
    /// Differs from that of another device matrix
    pub(super) matrix: u64,
    /// The node of the rank, as sessions name it
    pub(super) node: String,
    pub(super) coordinator: String,
    pub(super) timeout: Duration,
    /// The future that waits for the result was dropped
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

/// A rank that has registered at rank 0
struct Registered {
    stream: TcpStream,
    /// Where it listens for its neighbours
    address: SocketAddr,
}

/// All ranks, and the listener of this one
struct Roster {
    listener: TcpListener,
    token: String,
    addresses: Vec<SocketAddr>,
}

/// Between two attempts to connect to a rank, or to listen
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long one attempt to connect takes at most
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long neighbours that have registered may take until they are connected
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(10);
/// How long rank 0 answers others with the error after it has failed
const LINGER: Duration = Duration::from_secs(2);
/// How much longer than rank 0 others wait, so that they learn from it which ranks are missing
const GRACE: Duration = Duration::from_secs(10);
/// The longest timeout
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

impl Rendezvous {
    /// Connections to all neighbours
    pub(super) fn run(&self) -> Result<Vec<Neighbour>, LaunchError> {
        let roster = if self.rank == 0 { self.coordinate()? } else { self.register()? };
        self.connect_neighbours(roster)
    }

    fn timeout(&self) -> Duration {
        self.timeout.min(MAX_TIMEOUT)
    }

    fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed)
    }

    fn is_over(&self, until: Instant) -> bool {
        self.is_dropped() || now() >= until
    }

    /// As rank 0: waits until all others have registered, and sends each the roster
    fn coordinate(&self) -> Result<Roster, LaunchError> {
        let failed = |reason| LaunchError::Coordinator { coordinator: self.coordinator.clone(), reason };
        let until = now() + self.timeout();
        let coordinator = loop {
            match TcpListener::bind(&*self.coordinator) {
                Ok(listener) => break listener,
                // A rank 0 that was there before may just be ending.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && !self.is_over(until) => {
                    thread::sleep(RETRY_INTERVAL);
                }
                Err(error) => return Err(failed(error)),
            }
        };
        let listener = listen(coordinator.local_addr().map_err(failed)?.ip())?;
        let own = listener.local_addr().map_err(|reason| LaunchError::Listen { reason })?;
        let mut lines = FirstLines::new(coordinator).map_err(failed)?;
        let mut registered = BTreeMap::new();
        let error = self.gather(&mut lines, &mut registered, until);
        if self.is_dropped() {
            // The others find that rank 0 has ended.
            return Err(failed(io::ErrorKind::Interrupted.into()));
        }
        let answer = match error {
            Some(error) => error,
            None => {
                // Random keys of the standard library: those of another run differ.
                let token = [(); 2].map(|()| format!("{:016x}", RandomState::new().hash_one(0))).concat();
                let others = registered.values().map(|rank: &Registered| rank.address);
                Answer::Roster { token, addresses: [own].into_iter().chain(others).collect() }
            }
        };
        for rank in registered.values() {
            // One that has ended meanwhile is missed by its neighbours.
            let _has_ended = write(&rank.stream, &answer);
        }
        match answer.clone().into_error() {
            Ok(Answer::Roster { token, addresses }) => Ok(Roster { listener, token, addresses }),
            Ok(_) => unreachable!("rank 0 answers with the roster or an error"),
            Err(error) => {
                self.linger(&mut lines, &answer, registered.into_keys().collect());
                Err(error)
            }
        }
    }

    /// Waits until all have registered; returns the error that keeps them from it
    fn gather(
        &self,
        lines: &mut FirstLines<Registration>,
        registered: &mut BTreeMap<usize, Registered>,
        until: Instant,
    ) -> Option<Answer> {
        while registered.len() + 1 < self.size {
            registered.retain(|_, rank| !has_ended(&rank.stream));
            if self.is_over(until) {
                let ranks = (1..self.size).filter(|rank| !registered.contains_key(rank)).collect();
                return Some(Answer::Missing { ranks, timeout: self.timeout() });
            }
            let Some((Registration { rank, matrix, port, .. }, stream, mut address)) = lines.next() else {
                continue;
            };
            address.set_port(port);
            let error = if matrix != self.matrix || !(1..self.size).contains(&rank) {
                Some(Answer::OtherMatrix { rank })
            } else {
                let earlier = registered.get(&rank).filter(|earlier| !has_ended(&earlier.stream));
                earlier.map(|earlier| Answer::Duplicate { rank, addresses: [earlier.address, address] })
            };
            if let Some(error) = error {
                // One that has ended needs no answer.
                let _has_ended = write(&stream, &error);
                return Some(error);
            }
            registered.insert(rank, Registered { stream, address });
        }
        None
    }

    /// Answers ranks that register after an error with this error, for a while
    fn linger(&self, lines: &mut FirstLines<Registration>, error: &Answer, mut answered: Vec<usize>) {
        let until = now() + LINGER;
        while answered.len() + 1 < self.size && !self.is_over(until) {
            if let Some((Registration { rank, .. }, stream, _)) = lines.next() {
                // One that has ended needs no answer.
                let _has_ended = write(&stream, error);
                answered.push(rank);
            }
        }
    }

    /// As another rank: registers at rank 0, and waits until all have
    fn register(&self) -> Result<Roster, LaunchError> {
        let unreachable = |reason| LaunchError::Unreachable {
            coordinator: self.coordinator.clone(),
            timeout: self.timeout(),
            reason,
        };
        let until = now() + self.timeout();
        let coordinator = || self.coordinator.to_socket_addrs().map(Vec::from_iter);
        let stream = self.connect_until(coordinator, until, |_| true).map_err(unreachable)?;
        let gone = |reason| LaunchError::CoordinatorGone { coordinator: self.coordinator.clone(), reason };
        let at = stream.peer_addr().map_err(gone)?;
        let listener = listen(at.ip())?;
        let port = listener.local_addr().map_err(|reason| LaunchError::Listen { reason })?.port();
        let (protocol, rank, matrix) = (Protocol::V1, self.rank, self.matrix);
        write(&stream, &Registration { protocol, rank, matrix, port }).map_err(gone)?;
        let until = now() + self.timeout() + GRACE;
        let answer: Answer = read(&stream, MAX_ANSWER, || self.is_over(until)).map_err(gone)?;
        match answer.into_error()? {
            Answer::Roster { token, addresses } if addresses.len() == self.size => {
                let addresses =
                    addresses.into_iter().enumerate().map(|(rank, address)| seen(rank, address, at));
                Ok(Roster { listener, token, addresses: addresses.collect() })
            }
            _ => Err(gone(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Connects to the neighbours of lower rank, and accepts those of higher rank
    ///
    /// Returns when all neighbours of lower rank say that theirs are connected: no session waits for a rank that has ended.
    fn connect_neighbours(&self, roster: Roster) -> Result<Vec<Neighbour>, LaunchError> {
        let Roster { listener, token, addresses } = roster;
        let unreachable = |rank: usize| move |reason| LaunchError::NeighbourUnreachable { rank, reason };
        let until = now() + NEIGHBOUR_TIMEOUT;
        let mut lower = Vec::with_capacity(self.neighbours.len());
        for &rank in self.neighbours.iter().filter(|rank| **rank < self.rank) {
            // It listens before it registers: one that refuses has ended.
            let retries = |error: &io::Error| error.kind() != io::ErrorKind::ConnectionRefused;
            let stream = self.connect_until(|| Ok(vec![addresses[rank]]), until, retries);
            let stream = stream.map_err(unreachable(rank))?;
            let (protocol, token, node) = (Protocol::V1, token.clone(), self.node.clone());
            let hello = NeighbourHello { protocol, token, rank: self.rank, node };
            write(&stream, &hello).map_err(unreachable(rank))?;
            lower.push(Neighbour { rank, stream, node: None });
        }
        let mut higher = Vec::new();
        let answer = self.accept_neighbours(listener, &token, until, &mut higher).and_then(|()| {
            let until = now() + self.timeout() + GRACE;
            for Neighbour { rank, stream, .. } in &lower {
                let answer: Answer =
                    read(stream, MAX_ANSWER, || self.is_over(until)).map_err(unreachable(*rank))?;
                answer.into_error()?;
            }
            Ok(())
        });
        let said = match &answer {
            Ok(()) => Some(Answer::Connected),
            Err(LaunchError::Missing { ranks, timeout }) => {
                Some(Answer::Missing { ranks: ranks.clone(), timeout: *timeout })
            }
            // Closed without an answer.
            Err(_) => None,
        };
        for Neighbour { stream, .. } in &higher {
            // One that has ended is missed when the session is made.
            let _has_ended = said.as_ref().map(|said| write(stream, said));
        }
        answer.map(|()| lower.into_iter().chain(higher).collect())
    }

    /// Waits for the neighbours of higher rank
    fn accept_neighbours(
        &self,
        listener: TcpListener,
        token: &str,
        until: Instant,
        found: &mut Vec<Neighbour>,
    ) -> Result<(), LaunchError> {
        let mut missing: Vec<_> = self.neighbours.iter().copied().filter(|rank| *rank > self.rank).collect();
        let mut lines: FirstLines<NeighbourHello> =
            FirstLines::new(listener).map_err(|reason| LaunchError::Listen { reason })?;
        while !missing.is_empty() {
            if self.is_over(until) {
                return Err(LaunchError::Missing { ranks: missing, timeout: NEIGHBOUR_TIMEOUT });
            }
            let Some((NeighbourHello { token: shown, rank, node, .. }, stream, _)) = lines.next() else {
                continue;
            };
            // Other tokens are of another run.
            if shown == token && missing.contains(&rank) {
                missing.retain(|other| *other != rank);
                found.push(Neighbour { rank, stream, node: Some(node) });
            }
        }
        Ok(())
    }

    /// A connection to one of these addresses; tries again until then after errors for which `retries` holds
    fn connect_until(
        &self,
        addresses: impl Fn() -> io::Result<Vec<SocketAddr>>,
        until: Instant,
        retries: impl Fn(&io::Error) -> bool,
    ) -> io::Result<TcpStream> {
        loop {
            let none = Err(io::ErrorKind::AddrNotAvailable.into());
            let attempt =
                addresses().and_then(|all| all.into_iter().map(connect).reduce(Result::or).unwrap_or(none));
            match attempt {
                Ok(stream) => return Ok(stream),
                Err(error) if self.is_over(until) || !retries(&error) => return Err(error),
                Err(_) => thread::sleep(RETRY_INTERVAL),
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    // Where nothing listens, a connection may have the same port at both ends, and so be connected to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    Ok(stream)
}

/// A listener at a port that the system chooses, on all addresses of the family of this one
fn listen(family: IpAddr) -> Result<TcpListener, LaunchError> {
    let all: IpAddr = match family {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    TcpListener::bind((all, 0)).map_err(|reason| LaunchError::Listen { reason })
}

/// The address of a rank as a rank sees it that sees rank 0 at `coordinator`
pub(super) fn seen(rank: usize, address: SocketAddr, coordinator: SocketAddr) -> SocketAddr {
    // Rank 0 does not know by which of its addresses it is reached.
    let mut seen = if rank == 0 { coordinator } else { address };
    seen.set_port(address.port());
    if let (SocketAddr::V6(seen), SocketAddr::V6(coordinator)) = (&mut seen, coordinator)
        && seen.ip().is_unicast_link_local()
    {
        // The number of an interface counts on one host alone.
        seen.set_scope_id(coordinator.scope_id());
    }
    seen
}

/// Whether the other end of a connection, which has nothing to say, is closed
fn has_ended(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    !looked.is_err_and(|error| is_temporary(&error))
}
