//! The state of a peering and its steps; the caller holds its lock and passes the time

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rdma_core::probe::PeeringState;
use rdma_core::session::{
    ControlMessage, IncomingId, Integrity, PathCounts, PathId, PathLoss, PathStatus, Peering, SessionId,
    SessionWaits, Side,
};
use rdma_core::{Device, Histogram, Time, frames};
use slab::Slab;
use tracing::Span;

use super::abandoned::Abandoned;
use super::body::{Body, Effects};
use super::frames::TransmitFrames;
use super::incoming::IncomingBuffers;
use super::lanes::{Hardware, Lanes};
use super::memory_line::MemoryLine;
use super::outgoing::OutgoingMessage;
use super::posted::{BulkReceive, Posted};
use super::session_state::SessionState;
use super::stream_state::{StreamKey, StreamState};
use crate::blocked_call::BlockedCall;
use crate::device_calls::DeviceCalls;
use crate::error::{ConnectError, SessionError};
use crate::id_map::IdMap;
use crate::pool::{Lease, Pool};
use crate::wait_queue::{WaitQueue, Waiter};

/// The protocol, its paths and its tables
///
/// Not synchronized: [`PeeringShared`](super::shared::PeeringShared) holds the lock, and runs the effects after unlocking.
pub(crate) struct State<D: Device> {
    pub(super) pool: Pool,
    pub(super) core: Peering,
    pub(super) integrity: Integrity,
    pub(super) lanes: Vec<Option<Lanes<D>>>,
    /// The incarnation of each path.
    pub(super) epochs: Vec<u16>,
    pub(super) frames: TransmitFrames,
    pub(super) outgoing: Slab<OutgoingMessage>,
    pub(super) incoming: IncomingBuffers,
    /// Announced messages that wait for memory.
    pub(super) announced: VecDeque<Announced>,
    pub(super) memory: MemoryLine,
    /// Arbitrary bytes, which answer a grant after this side has given up the granted message.
    ///
    /// `None` if a device that has not stopped may still read it.
    pub(super) scratch: Option<Lease>,
    pub(super) sessions: IdMap<SessionId, SessionState>,
    pub(super) had_session: bool,
    /// Whether the task that makes paths waits until one carries packets in both directions.
    awaits_proof: bool,
    /// Sessions without a handle whose queued messages are still sent.
    pub(super) abandoned: Abandoned,
    /// Sessions of the peer that the application has not accepted, and how many there may be.
    pub(super) unaccepted: u32,
    pub(super) max_unaccepted: u32,
    pub(super) max_in_flight: u32,
    /// Length of the longest message that this side takes.
    longest: usize,
    /// Frames for the longest message of each other peer that there may be.
    pub(super) other_shares: u32,
    /// Sessions that the peer has opened, for the listener.
    pub(super) opened: Vec<SessionId>,
    /// Paths that failed and were stopped, for the task that makes new ones.
    pub(super) lost_paths: Vec<LostPath>,
    pub(super) stopping: Vec<StoppingPath<D>>,
    /// Whether a path has stopped since the task that makes paths has looked.
    pub(super) has_stop_news: bool,
    /// How many paths carry data.
    pub(super) paths_up: WaitQueue<usize>,
    /// The latest call of a device for each path that it did not return from in time, until the path is made.
    pub(super) blocked: Vec<(PathId, BlockedCall)>,
    /// Why a path could not be made again, at the latest attempt, until it is made.
    pub(super) failures: Vec<(PathId, Arc<ConnectError>)>,
    /// Messages whose operation has ended, and that a device may still read.
    pub(super) limbo: Vec<Body>,
    /// When the reactor looks at this peering at the latest.
    pub(super) armed: Time,
    pub(super) end: Option<SessionError>,
}

/// A long message that waits for memory
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) id: IncomingId,
    pub(super) stream: StreamKey,
    pub(super) len: u64,
}

/// What the task that makes paths has to know
pub(crate) struct News {
    /// Sessions that the peer opened
    pub(crate) opened: Vec<SessionId>,
    /// Paths that failed
    pub(crate) lost: Vec<LostPath>,
    /// What the peer says about paths
    pub(crate) messages: Vec<ControlMessage>,
}

/// A path that failed
pub(crate) struct LostPath {
    pub(crate) path: PathId,
    pub(crate) epoch: u16,
    /// Its name in requests.
    pub(crate) key: u32,
    pub(crate) reason: PathLoss,
    /// Whether the peer was ever heard on it
    pub(crate) was_proven: bool,
    /// That of the path
    pub(crate) span: Arc<Span>,
}

/// A path that has ended, and that its device has not given up yet
pub(super) struct StoppingPath<D: Device> {
    pub(super) path: PathId,
    /// Its name in requests.
    pub(super) key: u32,
    /// What the device has for it, until it is given up elsewhere, without the lock.
    pub(super) to_stop: Option<EndedPath<D>>,
    /// Whether it was given up, and that proves that the device has stopped; set before the peering learns the outcome
    pub(super) is_quiesced: Arc<AtomicBool>,
    pub(super) posted: Posted,
    /// The payload that the bulk lane has received without its trailer.
    pub(super) payload: Option<(u32, u64, u32)>,
}

impl<D: Device> StoppingPath<D> {
    /// The keys of the buffers with receives that have not completed, one for each receive
    pub(super) fn buffers(&self) -> impl Iterator<Item = u32> {
        let posted = self.posted.bulk_receives.iter().filter_map(|receive| match receive {
            BulkReceive::Payload { buffer, .. } => Some(*buffer),
            BulkReceive::Trailer { .. } => None,
        });
        posted.chain(self.payload.map(|(buffer, ..)| buffer))
    }
}

/// What a device has to give up for a path that has ended
pub(super) struct EndedPath<D: Device> {
    /// The name of the path in requests.
    pub(super) key: u32,
    pub(super) hardware: Hardware<D>,
    pub(super) calls: Arc<DeviceCalls>,
    /// Kept alive until the device has given it up, or is reported
    pub(super) attempt: Option<Arc<dyn Send + Sync>>,
    pub(super) is_quiesced: Arc<AtomicBool>,
    /// That of the path
    pub(super) span: Arc<Span>,
}

/// What a peering is made of
pub(crate) struct Parts {
    pub(crate) pool: Pool,
    pub(crate) core: Peering,
    pub(crate) integrity: Integrity,
    pub(crate) scratch: Lease,
    pub(crate) transmit: Vec<Lease>,
    pub(crate) max_in_flight: u32,
    pub(crate) max_unaccepted: u32,
    /// Length of the longest message that this side takes.
    pub(crate) longest: usize,
    pub(crate) peer_timeout: Duration,
    /// How many other peers the node may have.
    pub(crate) other_peers: u32,
}

/// The code with which a node resets sessions that the application does not accept, or that it gives up.
pub(super) const REFUSED: u64 = u64::MAX;

/// The stream, if its session and it are there
pub(super) fn find_stream(
    sessions: &mut IdMap<SessionId, SessionState>,
    key: StreamKey,
) -> Option<&mut StreamState> {
    sessions.get_mut(&key.session)?.stream(key.stream)
}

impl<D: Device> State<D> {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            pool: parts.pool,
            core: parts.core,
            integrity: parts.integrity,
            lanes: Vec::new(),
            epochs: Vec::new(),
            frames: TransmitFrames::new(parts.transmit.into_iter()),
            outgoing: Slab::new(),
            incoming: IncomingBuffers::default(),
            announced: VecDeque::new(),
            memory: MemoryLine::default(),
            scratch: Some(parts.scratch),
            sessions: IdMap::default(),
            had_session: false,
            awaits_proof: true,
            abandoned: Abandoned::new(parts.peer_timeout),
            unaccepted: 0,
            max_unaccepted: parts.max_unaccepted,
            max_in_flight: parts.max_in_flight,
            longest: parts.longest,
            other_shares: (frames(parts.longest) as u32).saturating_mul(parts.other_peers),
            opened: Vec::new(),
            lost_paths: Vec::new(),
            stopping: Vec::new(),
            has_stop_news: false,
            paths_up: WaitQueue::for_all("a path to come or go", 0, 0),
            blocked: Vec::new(),
            failures: Vec::new(),
            limbo: Vec::new(),
            armed: Time::ZERO,
            end: None,
        }
    }

    pub(crate) fn session(&mut self, id: SessionId) -> Option<&mut SessionState> {
        self.sessions.get_mut(&id)
    }

    #[inline]
    pub(crate) fn stream(&mut self, key: StreamKey) -> Option<&mut StreamState> {
        find_stream(&mut self.sessions, key)
    }

    /// A session that has just begun
    pub(super) fn new_session(&mut self, id: SessionId) {
        self.had_session = true;
        self.sessions.insert(id, SessionState::new(self.max_in_flight, self.core.max_streams()));
    }

    /// Whether announced messages wait for memory
    pub(super) fn waits_for_memory(&self) -> bool {
        !self.announced.is_empty()
    }

    /// Whether there is something for the task that accepts sessions and makes paths
    pub(super) fn has_news(&self) -> bool {
        (!self.opened.is_empty() && self.core.has_confirmed_path())
            || !self.lost_paths.is_empty()
            || self.core.has_control()
            || self.has_stop_news
            || self.end.is_some()
            || self.is_idle(false)
            || (self.awaits_proof && self.core.has_confirmed_path())
    }

    /// Whether a path carries packets in both directions; once it does, no task waits for it any more
    pub(crate) fn take_proof(&mut self) -> bool {
        let has_proof = self.core.has_confirmed_path();
        self.awaits_proof &= !has_proof;
        has_proof
    }

    /// What has happened since the last call
    ///
    /// Sessions wait until a path carries packets in both directions: a peer that is given up before has opened none.
    pub(crate) fn take_news(&mut self) -> News {
        self.has_stop_news = false;
        let opened =
            if self.core.has_confirmed_path() { std::mem::take(&mut self.opened) } else { Vec::new() };
        let lost = std::mem::take(&mut self.lost_paths);
        News { opened, lost, messages: std::iter::from_fn(|| self.core.poll_control()).collect() }
    }

    /// Sends a message about a path by another one; false if none carries data
    pub(crate) fn send_control(&mut self, message: ControlMessage, now: Time, effects: &mut Effects) -> bool {
        let is_sent = self.core.send_control(message);
        self.pump(now, effects);
        is_sent
    }

    /// Whether the last session is over, and none will be opened
    pub(crate) fn is_idle(&self, is_closed: bool) -> bool {
        (self.had_session || is_closed) && self.sessions.is_empty() && self.core.is_quiet()
    }

    /// Whether it is as good as idle for a side that has no path: the application holds no session, the peer has all its messages, and
    /// both know, or no path has brought anything for `timeout`
    ///
    /// A short message has no operation any more when it was posted.
    pub(crate) fn needs_no_path(&self, now: Time, timeout: Duration) -> bool {
        let is_released = self.had_session && self.sessions.values().all(SessionState::is_released);
        let is_silent = now >= self.core.last_heard() + timeout;
        is_released && (is_silent && self.outgoing.is_empty() || self.core.lacks_one_report())
    }

    /// When the latest packet arrived
    pub(crate) fn last_heard(&self) -> Time {
        self.core.last_heard()
    }

    /// A session that the peer opened was accepted
    pub(crate) fn accepted(&mut self) {
        self.unaccepted -= 1;
    }

    /// Ends a session that the peer opened and that no task accepts any more
    pub(crate) fn refuse(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.release();
        }
        self.unaccepted -= 1;
        self.reset(id, REFUSED, now, effects);
        self.remove_if_unused(id, effects);
    }

    pub(crate) fn error(&self) -> Option<&SessionError> {
        self.end.as_ref()
    }

    /// How many paths there have been at once
    pub(crate) fn path_count(&self) -> u32 {
        let blocked = self.blocked.iter().map(|(path, _)| path.0 as usize + 1);
        blocked.fold(self.lanes.len(), usize::max) as u32
    }

    /// How a path is, what it has done, and how long round trips and parts of long messages took on it
    pub(crate) fn path(&self, path: PathId) -> (PathStatus, PathCounts, [Histogram; 2]) {
        let times = [self.core.round_trips(path), self.core.part_times(path)];
        (self.core.path_status(path), self.core.path_counts(path), times)
    }

    /// How fast the lanes of a path were measured, where that is less than half of what the ports report
    pub(crate) fn measured_rates(&self, path: PathId, now: Time) -> [Option<u64>; 2] {
        self.core.measured_rates(path, now)
    }

    /// How long the peer may be silent
    pub(crate) fn peer_timeout(&self) -> Duration {
        self.abandoned.timeout()
    }

    /// How many paths carry data
    pub(crate) fn paths_up(&self) -> usize {
        *self.paths_up.value()
    }

    /// Waits until another number of paths than `known` carries data
    pub(crate) fn poll_paths_up(
        &mut self,
        known: usize,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects,
    ) -> Poll<usize> {
        self.paths_up.poll_take(waiter, cx, effects, |up| (*up != known).then_some(*up))
    }

    pub(crate) fn leave_paths_up(&mut self, waiter: &mut Waiter, effects: &mut Effects) {
        self.paths_up.leave(waiter, effects);
    }

    /// A device did not return in time from a call for a path
    pub(crate) fn note_blocked(&mut self, path: PathId, blocked: BlockedCall) {
        self.blocked.retain(|(other, _)| *other != path);
        self.blocked.push((path, blocked));
    }

    /// The call for a path that its device did not return from in time, since the path was made
    pub(crate) fn blocked_on(&self, path: PathId) -> Option<BlockedCall> {
        self.blocked.iter().find(|(other, _)| *other == path).map(|(_, blocked)| *blocked)
    }

    /// A path could not be made; if there was one before, the snapshot says why
    pub(crate) fn note_failure(&mut self, path: PathId, error: ConnectError) {
        if (path.0 as usize) < self.lanes.len() {
            self.failures.retain(|(other, _)| *other != path);
            self.failures.push((path, Arc::new(error)));
        }
    }

    /// Why a path could not be made again at the latest attempt
    pub(crate) fn failure_of(&self, path: PathId) -> Option<Arc<ConnectError>> {
        self.failures.iter().find(|(other, _)| *other == path).map(|(_, error)| Arc::clone(error))
    }

    /// The device that a path is on, while there is one
    pub(crate) fn device_of(&self, path: PathId) -> Option<String> {
        let lanes = self.lanes.get(path.0 as usize).and_then(Option::as_ref);
        lanes.map(|lanes| lanes.device().name().to_owned())
    }

    pub(crate) fn side(&self) -> Side {
        self.core.side()
    }

    /// The state of the protocol, for the observer of a simulation
    pub(crate) fn probe(&self) -> PeeringState {
        self.core.state()
    }

    pub(crate) fn session_waits(&self, id: SessionId) -> SessionWaits {
        self.core.session_waits(id)
    }

    /// How many long messages of a session wait for memory
    pub(crate) fn wants_memory(&self, id: SessionId) -> usize {
        self.announced.iter().filter(|announced| announced.stream.session == id).count()
    }

    /// The longest message that this side takes, in bytes
    pub(crate) fn longest_received(&self) -> usize {
        self.longest
    }

    /// The longest part of a message of the bulk lane, in bytes
    pub(crate) fn bulk_fragment(&self) -> u32 {
        self.core.bulk_fragment()
    }

    /// The longest message that the peer takes
    pub(crate) fn max_message(&self) -> u64 {
        self.core.max_message()
    }
}

impl<D: Device> Drop for State<D> {
    fn drop(&mut self) {
        // The runtime has ended before the peering learned the outcome.
        for path in self.stopping.extract_if(.., |path| path.is_quiesced.load(Ordering::Acquire)) {
            self.frames.stopped(path.key);
            path.buffers().for_each(|buffer| drop(self.incoming.completed(buffer)));
        }
        self.incoming.forget_posted();
        if !self.stopping.is_empty() {
            // Their devices have not stopped.
            std::mem::forget(self.scratch.take());
            self.limbo.drain(..).for_each(std::mem::forget);
            self.stopping.drain(..).flat_map(|path| path.posted.leases).for_each(std::mem::forget);
        }
    }
}
