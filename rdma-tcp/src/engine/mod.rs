//! The I/O thread of a device
//!
//! It sleeps until a socket is ready, a queue pair has work, or a handshake has taken too long. Then each queue pair that may have
//! something to do has its turn.

mod joining;
mod turns;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use self::joining::Joining;
use self::turns::{Turn, Turns};
use crate::endpoint::{Endpoint, Scratch};
use crate::mailbox::Notices;
use crate::shared::Shared;
use crate::sync::{now, wake};
use crate::wire::STAGING;

/// The token of the mailbox.
pub(crate) const MAILBOX: Token = Token(0);
/// The token of the listener.
const LISTENER: Token = Token(1);
/// Events taken from the system at once.
const EVENTS: usize = 128;

/// The state of the I/O thread
pub(crate) struct Engine {
    shared: Arc<Shared>,
    poll: Poll,
    joining: Joining,
    links: HashMap<Token, Arc<Endpoint>>,
    turns: Turns<Endpoint>,
    /// Empty between rounds.
    taken: Vec<Turn<Endpoint>>,
    scratch: Scratch,
}

impl Engine {
    pub(crate) fn new(shared: &Arc<Shared>, poll: Poll, mut listener: TcpListener) -> io::Result<Self> {
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let joining = Joining::new(shared, poll.registry().try_clone()?, listener, LISTENER.0 + 1);
        Ok(Self {
            shared: Arc::clone(shared),
            poll,
            joining,
            links: HashMap::new(),
            turns: Turns::default(),
            taken: Vec::new(),
            scratch: Scratch { staging: Box::new([0; STAGING]), finished: Vec::new() },
        })
    }

    /// Runs until the device is closed
    pub(crate) fn run(mut self) {
        let _gone = SetGone(Arc::clone(&self.shared));
        let mut events = Events::with_capacity(EVENTS);
        let mut notices = Notices::default();
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Ok(()) => (),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "the I/O thread cannot wait for events");
                    return;
                }
            }
            self.shared.mailbox.take(&mut notices);
            if notices.is_closed {
                return;
            }
            self.on_events(&events);
            self.on_notices(&mut notices);
            self.join();
            self.take_turns();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.turns.is_empty() {
            return Some(Duration::ZERO);
        }
        self.joining.next_deadline().map(|at| at.saturating_duration_since(now()))
    }

    fn on_events(&mut self, events: &Events) {
        for event in events {
            let token = event.token();
            if let Some(endpoint) = self.links.get(&token) {
                let is_broken = event.is_error();
                let is_readable = event.is_readable() || event.is_read_closed() || is_broken;
                let is_writable = event.is_writable() || event.is_write_closed() || is_broken;
                self.turns.add(Arc::clone(endpoint), is_readable, is_writable);
            } else if token == LISTENER {
                self.joining.accept(now());
            } else if token != MAILBOX {
                self.joining.on_event(token, now());
            }
        }
    }

    fn on_notices(&mut self, notices: &mut Notices) {
        for endpoint in notices.changed.drain(..) {
            if !endpoint.is_linked() {
                self.unlink(&endpoint);
            }
            self.joining.on_changed(&endpoint, now());
        }
        notices.posted.drain(..).for_each(|endpoint| self.turns.add(endpoint, false, false));
    }

    /// Brings handshakes forward, and uses the connections that are made
    fn join(&mut self) {
        for waker in self.joining.on_time() {
            wake(waker);
        }
        for (token, endpoint) in self.joining.take_joined() {
            self.unlink(&endpoint);
            self.links.insert(token, Arc::clone(&endpoint));
            self.turns.add(endpoint, true, true);
        }
    }

    fn unlink(&mut self, endpoint: &Arc<Endpoint>) {
        self.links.retain(|_, other| !Arc::ptr_eq(other, endpoint));
    }

    fn take_turns(&mut self) {
        // Those that are not done have another turn after a look at the events.
        let mut taken = std::mem::take(&mut self.taken);
        self.turns.swap(&mut taken);
        for Turn { endpoint, is_readable, is_writable } in taken.drain(..) {
            let outcome = endpoint.turn(is_readable, is_writable, &mut self.scratch);
            outcome.waker.into_iter().for_each(wake);
            if outcome.has_ended {
                self.unlink(&endpoint);
            } else if outcome.is_ready {
                self.turns.add(endpoint, false, false);
            }
        }
        self.taken = taken;
    }
}

/// Reports the device as gone when the I/O thread ends, in whatever way
struct SetGone(Arc<Shared>);

impl Drop for SetGone {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Release);
        self.0.endpoints().iter().filter_map(|endpoint| endpoint.fail()).for_each(wake);
        self.0.completion_queues().iter().filter_map(|queue| queue.take_waker()).for_each(wake);
        self.0.take_port_watcher().into_iter().for_each(wake);
    }
}
