//! The state that the handle of a queue pair and the I/O thread share

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use mio::net::TcpStream;
use rdma_core::{Cause, Invalid, QpAddress, QpState, Status, Transition};

use crate::completions::{Completions, Finished};
use crate::frame_counts::{FrameCounts, NoSpace, Queue};
use crate::handshake;
use crate::regions::Regions;
use crate::sync::lock;
use crate::wire::{Ended, Resources, STAGING, Wire};
use crate::work::{Finisher, Request, Work};

/// A queue pair, for its handle and for the I/O thread
///
/// Locks are taken in the order of the fields `link`, `work`, those of the regions and that of the completion queue. The lock of
/// `link` is held during each access to posted memory. Wakers are called without a lock.
pub(crate) struct Endpoint {
    pub(crate) address: QpAddress,
    pub(crate) counts: Arc<FrameCounts>,
    completions: Arc<Completions>,
    regions: Arc<Regions>,
    max_message: u32,
    link: Mutex<Link>,
    work: Mutex<Work>,
    /// Whether the I/O thread is to look at it.
    pub(crate) is_queued: AtomicBool,
}

/// The connection of a queue pair
enum Link {
    /// There is none: not yet, or not any more
    None,
    Up(Wire),
    /// The peer has destroyed its queue pair: later messages are lost
    PeerGone,
}

/// A connection to be made
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Attempt {
    pub(crate) number: u64,
    pub(crate) peer: QpAddress,
}

/// The outcome of a turn
#[derive(Debug)]
pub(crate) struct Turn {
    /// Whether the connection is over
    pub(crate) has_ended: bool,
    /// Whether there may be more to do without another event
    pub(crate) is_ready: bool,
    pub(crate) waker: Option<Waker>,
}

/// Buffers of the I/O thread, for every turn
pub(crate) struct Scratch {
    pub(crate) staging: Box<[u8; STAGING]>,
    pub(crate) finished: Vec<Finished>,
}

impl Endpoint {
    pub(crate) fn new(
        address: QpAddress,
        counts: FrameCounts,
        completions: Arc<Completions>,
        regions: Arc<Regions>,
        max_message: u32,
    ) -> Self {
        Self {
            address,
            counts: Arc::new(counts),
            completions,
            regions,
            max_message,
            link: Mutex::new(Link::None),
            work: Mutex::new(Work { state: QpState::Init, ..Work::default() }),
            is_queued: AtomicBool::new(false),
        }
    }

    pub(crate) fn state(&self) -> QpState {
        lock(&self.work).state
    }

    fn finisher<'a>(&'a self, out: &'a mut Vec<Finished>) -> Finisher<'a> {
        Finisher { counts: &self.counts, qpn: self.address.qpn, out }
    }

    /// Makes a transition; the caller notifies the I/O thread and wakes the waker
    pub(crate) fn modify(&self, to: Transition) -> Result<Option<Waker>, Cause> {
        if let Transition::ReadyToReceive { peer } = to
            && (peer == self.address || handshake::listener(&peer, 0).is_none())
        {
            return Err(Cause::PeerUnreachable);
        }
        let mut link = lock(&self.link);
        lock(&self.work).change(to)?;
        Ok(match to {
            Transition::Reset => {
                self.discard(&mut link);
                None
            }
            Transition::Error => {
                say_goodbye(&link);
                let mut finished = Vec::new();
                self.flush(&mut link, &mut finished);
                self.completions.push(&mut finished)
            }
            _ => None,
        })
    }

    /// Refuses a queue pair that is destroyed
    pub(crate) fn check(&self) -> Result<(), Cause> {
        if lock(&self.work).is_destroyed { Err(Invalid::Destroyed.into()) } else { Ok(()) }
    }

    /// Posts a request; the caller notifies the I/O thread of a send, and wakes the waker
    pub(crate) fn post(&self, queue: Queue, request: Request) -> Result<Option<Waker>, Cause> {
        let mut work = lock(&self.work);
        let is_queued = work.admit(queue)?;
        self.counts.take(queue, request.frames).map_err(|refused| match refused {
            NoSpace::Now => Cause::QueueFull,
            NoSpace::Ever { capacity } => Cause::MessageTooLong {
                len: request.sge.len.into(),
                max: u64::from(capacity) * rdma_core::FRAME as u64,
            },
        })?;
        if is_queued {
            work.queue(queue).push_back(request);
            return Ok(None);
        }
        let mut finished = Vec::new();
        self.finisher(&mut finished).finish(queue, &request, Status::Flushed, 0);
        Ok(self.completions.push(&mut finished))
    }

    /// Ends all access to posted memory, without completions
    pub(crate) fn destroy(&self) {
        let mut link = lock(&self.link);
        {
            let mut work = lock(&self.work);
            work.is_destroyed = true;
            work.state = QpState::Error;
            work.attempt += 1;
            work.peer = None;
        }
        self.discard(&mut link);
    }

    /// Closes the connection and drops all requests without completions
    fn discard(&self, link: &mut Link) {
        say_goodbye(link);
        let begun = std::mem::replace(link, Link::None);
        let mut work = lock(&self.work);
        let work = &mut *work;
        if let Link::Up(wire) = begun {
            let (recv, sends) = wire.close();
            recv.iter().for_each(|request| self.counts.free(Queue::Recv, request.frames));
            sends.for_each(|request| self.counts.free(Queue::Send, request.frames));
        }
        work.recvs.drain(..).for_each(|request| self.counts.free(Queue::Recv, request.frames));
        work.sends.drain(..).for_each(|request| self.counts.free(Queue::Send, request.frames));
        self.counts.free(Queue::Send, self.counts.take_deferred());
    }

    /// Closes the connection, enters the error state and flushes all requests
    fn flush(&self, link: &mut Link, finished: &mut Vec<Finished>) {
        let begun = std::mem::replace(link, Link::None);
        let mut finisher = self.finisher(finished);
        let mut work = lock(&self.work);
        let work = &mut *work;
        work.state = QpState::Error;
        work.attempt += 1;
        if let Link::Up(wire) = begun {
            let (recv, sends) = wire.close();
            recv.iter().for_each(|request| finisher.finish(Queue::Recv, request, Status::Flushed, 0));
            sends.for_each(|request| finisher.finish(Queue::Send, &request, Status::Flushed, 0));
        }
        work.recvs.drain(..).for_each(|request| finisher.finish(Queue::Recv, &request, Status::Flushed, 0));
        work.sends.drain(..).for_each(|request| finisher.finish(Queue::Send, &request, Status::Flushed, 0));
    }

    /// The connection that is to be made, if there is none and the peer is known
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        let link = lock(&self.link);
        let work = lock(&self.work);
        let is_ready = matches!(work.state, QpState::ReadyToReceive | QpState::ReadyToSend);
        let peer = work.peer.filter(|_| is_ready && matches!(*link, Link::None))?;
        Some(Attempt { number: work.attempt, peer })
    }

    /// Whether there is a connection
    pub(crate) fn is_linked(&self) -> bool {
        matches!(*lock(&self.link), Link::Up(_))
    }

    /// Uses `stream` from now on, unless `attempt` is over; returns whether it does
    ///
    /// The side that dials sends `confirm` before: with the lock, so that the peer never counts on a connection of an attempt that is over.
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of a stream that does not take `confirm` at once.
    pub(crate) fn attach(
        &self,
        mut stream: TcpStream,
        attempt: u64,
        confirm: Option<&[u8]>,
    ) -> io::Result<bool> {
        let mut link = lock(&self.link);
        let is_current = matches!(*link, Link::None) && lock(&self.work).attempt == attempt;
        match confirm {
            Some(confirm) if is_current && stream.write(confirm)? < confirm.len() => {
                return Err(io::ErrorKind::WriteZero.into());
            }
            // The peer counts on the connection already.
            None if !is_current => Wire::new(stream).say_goodbye(),
            _ if is_current => *link = Link::Up(Wire::new(stream)),
            _ => (),
        }
        Ok(is_current)
    }

    /// Enters the error state if `attempt` is still under way; the caller wakes the waker
    pub(crate) fn give_up(&self, attempt: u64) -> Option<Waker> {
        let mut link = lock(&self.link);
        if !matches!(*link, Link::None) || lock(&self.work).attempt != attempt {
            return None;
        }
        let mut finished = Vec::new();
        self.flush(&mut link, &mut finished);
        self.completions.push(&mut finished)
    }

    /// Enters the error state; the caller wakes the waker
    pub(crate) fn fail(&self) -> Option<Waker> {
        let mut finished = Vec::new();
        self.flush(&mut lock(&self.link), &mut finished);
        self.completions.push(&mut finished)
    }

    /// Moves bytes, after the events of the socket
    pub(crate) fn turn(&self, is_readable: bool, is_writable: bool, scratch: &mut Scratch) -> Turn {
        self.is_queued.store(false, Ordering::Release);
        let mut link = lock(&self.link);
        let mut resources = Resources {
            work: &self.work,
            regions: &self.regions,
            finisher: self.finisher(&mut scratch.finished),
            staging: &mut scratch.staging,
            max_message: self.max_message,
        };
        let (mut is_ready, mut ended) = (false, None);
        if let Link::Up(wire) = &mut *link {
            wire.is_readable |= is_readable;
            wire.is_writable |= is_writable;
            ended = wire.receive(&mut resources).and_then(|()| wire.transmit(&mut resources)).err();
            is_ready = ended.is_none() && wire.is_ready(&self.work);
        }
        match ended {
            Some(Ended::Goodbye) => self.lose_peer(&mut link, &mut scratch.finished),
            Some(Ended::Lost) => self.flush(&mut link, &mut scratch.finished),
            None => (),
        }
        if matches!(*link, Link::PeerGone) {
            self.complete_sends(&mut scratch.finished);
        }
        let waker = self.completions.push(&mut scratch.finished);
        Turn { has_ended: ended.is_some(), is_ready, waker }
    }

    /// Closes the connection to a peer that destroyed its queue pair: receives wait for ever, and sends are lost
    fn lose_peer(&self, link: &mut Link, finished: &mut Vec<Finished>) {
        let Link::Up(wire) = std::mem::replace(link, Link::PeerGone) else { return };
        let (_, sends) = wire.close();
        let mut finisher = self.finisher(finished);
        sends.for_each(|request| finisher.finish(Queue::Send, &request, Status::Success, 0));
    }

    fn complete_sends(&self, finished: &mut Vec<Finished>) {
        let mut finisher = self.finisher(finished);
        let mut work = lock(&self.work);
        work.sends.drain(..).for_each(|request| finisher.finish(Queue::Send, &request, Status::Success, 0));
    }
}

fn say_goodbye(link: &Link) {
    if let Link::Up(wire) = link {
        wire.say_goodbye();
    }
}
