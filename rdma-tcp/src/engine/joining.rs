//! Connections that are being made

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use rdma_core::QpAddress;

use crate::endpoint::{Attempt, Endpoint};
use crate::handshake::{self, Handshake, LEN, Step};
use crate::shared::Shared;
use crate::sync::now;
use crate::transfer;
use crate::wire::Wire;

/// How long each step of a handshake may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(3);
/// Connections that have not named a queue pair of this device; for one more, the oldest is closed.
const MAX_STRANGERS: usize = 64;
/// Connections that are accepted before others have their turn.
const MAX_ACCEPTS: usize = 64;
/// The pause after the system refused to accept a connection: it may have no file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The pauses between calls of a peer that does not answer; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Connections whose handshake is not over, and queue pairs without a connection
pub(super) struct Joining {
    shared: Arc<Shared>,
    registry: Registry,
    listener: TcpListener,
    next_token: usize,
    handshakes: HashMap<Token, Joiner>,
    pending: Vec<Pending>,
    /// When to accept connections, without an event of the listener.
    accept_at: Option<Instant>,
    joined: Vec<(Token, Arc<Endpoint>)>,
}

/// A connection during its handshake
struct Joiner {
    stream: TcpStream,
    role: Role,
    buffer: [u8; LEN],
    filled: usize,
    deadline: Instant,
}

/// The step of the handshake that a connection has reached
enum Role {
    /// Accepted; no hello has arrived
    Stranger,
    /// The welcome is sent
    Welcomed { endpoint: Arc<Endpoint>, attempt: Attempt },
    /// This side dials
    Dialing { endpoint: Arc<Endpoint>, attempt: Attempt, is_hello_sent: bool },
}

/// A queue pair that is to be connected
struct Pending {
    endpoint: Arc<Endpoint>,
    attempt: Attempt,
    /// When it is given up.
    deadline: Instant,
    /// When this side dials again.
    dial_at: Option<Instant>,
    pause: Duration,
}

/// The outcome of an event
enum Progress {
    Ended,
    Joined(Arc<Endpoint>, Attempt),
    Waits,
}

impl Joining {
    pub(super) fn new(
        shared: &Arc<Shared>,
        registry: Registry,
        listener: TcpListener,
        first_token: usize,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            registry,
            listener,
            next_token: first_token,
            handshakes: HashMap::new(),
            pending: Vec::new(),
            accept_at: None,
            joined: Vec::new(),
        }
    }

    /// When [`on_time`](Self::on_time) has something to do
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let handshakes = self.handshakes.values().map(|joiner| joiner.deadline);
        let pending = self.pending.iter().flat_map(|pending| [Some(pending.deadline), pending.dial_at]);
        handshakes.chain(pending.flatten()).chain(self.accept_at).min()
    }

    /// The connections that were made
    pub(super) fn take_joined(&mut self) -> Vec<(Token, Arc<Endpoint>)> {
        std::mem::take(&mut self.joined)
    }

    /// Accepts connections
    pub(super) fn accept(&mut self, now: Instant) {
        self.accept_at = None;
        for _ in 0..MAX_ACCEPTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let strangers =
                        self.handshakes.iter().filter(|(_, other)| matches!(other.role, Role::Stranger));
                    let oldest =
                        strangers.clone().min_by_key(|(_, other)| other.deadline).map(|(token, _)| *token);
                    if strangers.count() >= MAX_STRANGERS
                        && let Some(oldest) = oldest
                    {
                        self.handshakes.remove(&oldest);
                    }
                    self.begin(stream, Role::Stranger, now + STEP_TIMEOUT);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => (),
                    _ => {
                        tracing::warn!(%error, "connections cannot be accepted");
                        self.accept_at = Some(now + ACCEPT_PAUSE);
                        return;
                    }
                },
            }
        }
        self.accept_at = Some(now);
    }

    fn begin(&mut self, mut stream: TcpStream, role: Role, deadline: Instant) -> bool {
        let token = Token(self.next_token);
        self.next_token += 1;
        let interests = Interest::READABLE | Interest::WRITABLE;
        let is_registered = self.registry.register(&mut stream, token, interests).is_ok();
        if is_registered {
            // Where it cannot be set, messages are late, and arrive.
            let _ = stream.set_nodelay(true);
            transfer::suppress_signals(&stream);
            self.handshakes.insert(token, Joiner { stream, role, buffer: [0; LEN], filled: 0, deadline });
        }
        is_registered
    }

    /// Ends late handshakes, gives up late attempts and dials again; returns wakers to be called
    pub(super) fn on_time(&mut self) -> Vec<Waker> {
        let Some(deadline) = self.next_deadline() else { return Vec::new() };
        let now = now();
        if deadline > now {
            return Vec::new();
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept(now);
        }
        let late: Vec<_> = self.handshakes.extract_if(|_, joiner| joiner.deadline <= now).collect();
        for (_, joiner) in late {
            self.end(&joiner.role, now);
        }
        let given_up: Vec<_> = self.pending.extract_if(.., |pending| pending.deadline <= now).collect();
        let to_dial = self.pending.iter_mut().filter(|pending| pending.dial_at.is_some_and(|at| at <= now));
        let to_dial: Vec<_> = to_dial
            .map(|pending| {
                pending.dial_at = None;
                (Arc::clone(&pending.endpoint), pending.attempt)
            })
            .collect();
        for (endpoint, attempt) in to_dial {
            self.dial(&endpoint, attempt, now);
        }
        let give_up = |pending: Pending| {
            tracing::debug!(qpn = pending.endpoint.address.qpn.0, "the peer was not reached in time");
            pending.endpoint.give_up(pending.attempt.number)
        };
        given_up.into_iter().filter_map(give_up).collect()
    }

    /// Begins to connect a queue pair whose state was changed, and ends its earlier attempts
    pub(super) fn on_changed(&mut self, endpoint: &Arc<Endpoint>, now: Instant) {
        let current = endpoint.attempt();
        let is_current =
            |other: &Arc<Endpoint>, attempt| !Arc::ptr_eq(other, endpoint) || Some(attempt) == current;
        self.pending.retain(|pending| is_current(&pending.endpoint, pending.attempt));
        let is_over = |_: &Token, joiner: &mut Joiner| match &joiner.role {
            Role::Stranger => false,
            Role::Welcomed { endpoint, attempt } | Role::Dialing { endpoint, attempt, .. } => {
                !is_current(endpoint, *attempt)
            }
        };
        for (_, joiner) in self.handshakes.extract_if(is_over) {
            // The peer may count on a connection for which it was welcomed.
            if let Role::Welcomed { .. } = joiner.role {
                Wire::new(joiner.stream).say_goodbye();
            }
        }
        let Some(attempt) = current else { return };
        if self.pending.iter().any(|pending| Arc::ptr_eq(&pending.endpoint, endpoint)) {
            return;
        }
        self.pending.push(Pending {
            endpoint: Arc::clone(endpoint),
            attempt,
            deadline: now + self.shared.options.connect_timeout,
            dial_at: None,
            pause: FIRST_PAUSE,
        });
        if handshake::dials(&endpoint.address, &attempt.peer) {
            self.dial(endpoint, attempt, now);
        }
    }

    fn dial(&mut self, endpoint: &Arc<Endpoint>, attempt: Attempt, now: Instant) {
        let stream =
            handshake::listener(&attempt.peer, self.shared.scope).and_then(|to| TcpStream::connect(to).ok());
        let role = Role::Dialing { endpoint: Arc::clone(endpoint), attempt, is_hello_sent: false };
        let is_begun = stream.is_some_and(|stream| self.begin(stream, role, now + STEP_TIMEOUT));
        if !is_begun {
            self.dial_later(endpoint, attempt, now);
        }
    }

    fn dial_later(&mut self, endpoint: &Arc<Endpoint>, attempt: Attempt, now: Instant) {
        let is_this =
            |pending: &&mut Pending| Arc::ptr_eq(&pending.endpoint, endpoint) && pending.attempt == attempt;
        if let Some(pending) = self.pending.iter_mut().find(is_this) {
            pending.dial_at = Some(now + pending.pause);
            pending.pause = (pending.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A connection has ended before its handshake
    fn end(&mut self, role: &Role, now: Instant) {
        if let Role::Dialing { endpoint, attempt, .. } = role {
            self.dial_later(endpoint, *attempt, now);
        }
    }

    /// Brings a handshake forward
    pub(super) fn on_event(&mut self, token: Token, now: Instant) {
        let Some(mut joiner) = self.handshakes.remove(&token) else { return };
        match self.advance(&mut joiner, now) {
            Progress::Waits => {
                self.handshakes.insert(token, joiner);
            }
            Progress::Ended => self.end(&joiner.role, now),
            Progress::Joined(endpoint, attempt) => {
                let confirm = Handshake { step: Step::Confirm, from: endpoint.address, to: attempt.peer };
                let confirm = matches!(joiner.role, Role::Dialing { .. }).then(|| confirm.encode());
                let attached =
                    endpoint.attach(joiner.stream, attempt.number, confirm.as_ref().map(|bytes| &bytes[..]));
                let Ok(is_attached) = attached else { return self.end(&joiner.role, now) };
                let is_this =
                    |other: &Pending| Arc::ptr_eq(&other.endpoint, &endpoint) && other.attempt == attempt;
                self.pending.retain(|pending| !is_this(pending));
                if is_attached {
                    self.joined.push((token, endpoint));
                }
            }
        }
    }

    fn advance(&mut self, joiner: &mut Joiner, now: Instant) -> Progress {
        if let Role::Dialing { endpoint, attempt, is_hello_sent } = &mut joiner.role
            && !*is_hello_sent
        {
            let hello = Handshake { step: Step::Hello, from: endpoint.address, to: attempt.peer };
            match joiner.stream.write(&hello.encode()) {
                Ok(LEN) => *is_hello_sent = true,
                Err(error) if is_not_yet(&error) => return Progress::Waits,
                Ok(_) | Err(_) => return Progress::Ended,
            }
        }
        loop {
            match joiner.stream.read(&mut joiner.buffer[joiner.filled..]) {
                Ok(0) => return Progress::Ended,
                Ok(n) => joiner.filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_not_yet(&error) => return Progress::Waits,
                Err(_) => return Progress::Ended,
            }
            if !handshake::may_begin(&joiner.buffer[..joiner.filled]) {
                return Progress::Ended;
            }
            if joiner.filled == LEN {
                joiner.filled = 0;
                let Some(message) = Handshake::decode(&joiner.buffer) else { return Progress::Ended };
                match self.on_message(joiner, &message, now) {
                    Progress::Waits => (),
                    over => return over,
                }
            }
        }
    }

    fn on_message(&mut self, joiner: &mut Joiner, message: &Handshake, now: Instant) -> Progress {
        let is_between = |endpoint: &Endpoint, attempt: &Attempt| {
            message.to == endpoint.address && message.from == attempt.peer
        };
        match (&joiner.role, message.step) {
            (Role::Stranger, Step::Hello) => match self.shared.endpoint(&message.to) {
                Some(endpoint) => self.welcome(joiner, &endpoint, message.from, now),
                None => Progress::Ended,
            },
            (Role::Dialing { endpoint, attempt, .. }, Step::Welcome)
            | (Role::Welcomed { endpoint, attempt }, Step::Confirm)
                if is_between(endpoint, attempt) =>
            {
                Progress::Joined(Arc::clone(endpoint), *attempt)
            }
            _ => Progress::Ended,
        }
    }

    /// Answers a hello for `endpoint`, unless it comes from another queue pair or too early: its sender dials again
    ///
    /// A later hello takes the place of an earlier one: its sender has given that up.
    fn welcome(
        &mut self,
        joiner: &mut Joiner,
        endpoint: &Arc<Endpoint>,
        from: QpAddress,
        now: Instant,
    ) -> Progress {
        let Some(attempt) = endpoint.attempt() else { return Progress::Ended };
        if attempt.peer != from || handshake::dials(&endpoint.address, &from) {
            return Progress::Ended;
        }
        let welcome = Handshake { step: Step::Welcome, from: endpoint.address, to: from };
        if !matches!(joiner.stream.write(&welcome.encode()), Ok(LEN)) {
            return Progress::Ended;
        }
        self.handshakes.retain(
            |_, other| !matches!(&other.role, Role::Welcomed { endpoint: other, .. } if Arc::ptr_eq(other, endpoint)),
        );
        joiner.role = Role::Welcomed { endpoint: Arc::clone(endpoint), attempt };
        joiner.deadline = now + STEP_TIMEOUT;
        Progress::Waits
    }
}

/// Whether the socket is not connected or has nothing for now
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}
