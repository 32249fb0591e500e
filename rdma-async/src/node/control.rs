//! The task beside a peering that keeps the bootstrap stream: it makes paths, and makes them again, over the stream or another path

mod deadlines;
mod first_paths;
mod making;
mod messages;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rdma_core::session::{
    ByeReason, ControlMessage, Features, LinkId, LostReason, Offer, PathEnd, PathId, Side, Violation,
};
use rdma_core::{Device, Time, Timer};

use super::first_failures::FirstFailures;
use super::goodbye::{bye_reason, lost_reason};
use super::inner::{Attempt, NodeInner};
use super::pairing::{Pairing, PortUse, RETRY_INTERVAL};
use super::path::PreparedPath;
use super::port_monitor::PORT_INTERVAL;
use super::port_watch::Watcher;
use super::wire::ControlStream;
use crate::error::{ConnectError, SessionError};
use crate::peering::shared::PeeringShared;
use crate::peering::state::{LostPath, News};
use crate::time::{sleep, timeout};
use crate::wait_queue::Waiter;

/// How long a path must have been up to be made again at once.
const LASTING: Duration = Duration::from_secs(1);

/// What a device does for a path
type Making<D> = Pin<Box<dyn Future<Output = Result<PreparedPath<D>, ConnectError>> + Send>>;

/// Whether a port is active, if its device answers
type Query = Pin<Box<dyn Future<Output = Option<bool>> + Send>>;

/// A path as this side knows it
enum PathState<D: Device> {
    /// It carries data on a port of this side, since this time
    Up { epoch: u16, port: usize, since: Time },
    /// The device makes this side's end, for this port of the peer, over the cable of this name
    Preparing { port: u32, link: Option<LinkId> },
    /// The peer was asked for its end
    Offered { prepared: Box<PreparedPath<D>>, since: Time },
    /// The peer has answered, and the device connects this side's end to the peer's
    Connecting { theirs: PathEnd },
    /// The peer has offered it, and the device makes and connects this side's end on this port
    Answering { offer: Offer, port: usize },
    /// The peer has offered it, and the device has not given up yet what it had for this path before, or has for other attempts;
    /// not before this time
    Waiting { offer: Offer, from: Time },
    /// It is to be made from this time on
    Down { from: Time },
}

pub(super) struct Control<D: Device> {
    node: Arc<NodeInner<D>>,
    peering: Arc<PeeringShared<D>>,
    stream: ControlStream,
    side: Side,
    peer_timeout: Duration,
    /// A path for each port of the connecting side.
    paths: Vec<PathState<D>>,
    epochs: Vec<u16>,
    /// What devices do for the paths.
    making: Vec<Option<Making<D>>>,
    /// Questions to the ports of this side.
    queries: Vec<Option<Query>>,
    /// Where each port leads, at the connecting side.
    pairings: Vec<Pairing>,
    peer_ports: u32,
    /// What both sides can do.
    features: Features,
    /// The reason that the peer is sent if this is dropped.
    on_drop: ByeReason,
    /// What went wrong as long as no path was made.
    first: Option<FirstFailures>,
    timer: Pin<Box<dyn Timer>>,
    news: Waiter,
    watcher: Watcher,
    /// Whether a port has changed since this side looked.
    has_changed: bool,
    /// Whether a port was being asked when this side looked because of a change.
    asks_again: bool,
    /// When the latest message of the peer arrived on the stream.
    heard: Time,
    /// When this side looks at its ports again; never, as long as no port needs it.
    port_at: Time,
    /// When this side sends `Alive`, if it sends nothing else on the stream before.
    alive_at: Time,
    // Dropped last: what is dropped before keeps it alive as long as a device has something.
    attempt: Arc<Attempt<D>>,
}

enum Input<D: Device> {
    Message(ControlMessage),
    /// A message that cannot be read
    Unreadable,
    /// What the device did for a path is done
    Made(usize, Box<Result<PreparedPath<D>, ConnectError>>),
    /// A port was asked whether it is active
    Queried(usize, Option<bool>),
    StreamEnded,
    News,
    /// A port may have changed, or the node is closed
    Changed,
    Tick,
}

impl<D: Device> Control<D> {
    pub(super) fn new(
        attempt: Attempt<D>,
        peering: Arc<PeeringShared<D>>,
        stream: ControlStream,
        side: Side,
        peer_timeout: Duration,
        (peer_ports, features): (u32, Features),
    ) -> Self {
        let node = Arc::clone(attempt.node());
        let now = node.runtime.now();
        let count = match side {
            Side::Connecting => node.ports.len(),
            Side::Accepting => peer_ports as usize,
        };
        Self {
            attempt: Arc::new(attempt),
            peering,
            stream,
            side,
            peer_timeout,
            paths: (0..count).map(|_| PathState::Down { from: now }).collect(),
            epochs: vec![0; count],
            making: (0..count).map(|_| None).collect(),
            queries: node.ports.iter().map(|_| None).collect(),
            pairings: match side {
                Side::Connecting => (0..count).map(|index| Pairing::new(index, peer_ports)).collect(),
                Side::Accepting => Vec::new(),
            },
            peer_ports,
            features,
            on_drop: ByeReason::Cancelled,
            first: Some(FirstFailures::default()),
            timer: node.runtime.timer(),
            news: Waiter::default(),
            watcher: node.port_watch.watcher(),
            has_changed: false,
            asks_again: false,
            heard: now,
            port_at: now,
            alive_at: now,
            node,
        }
    }

    fn now(&self) -> Time {
        self.node.runtime.now()
    }

    fn has_path(&self) -> bool {
        self.paths.iter().any(|path| matches!(path, PathState::Up { .. }))
    }

    /// The port of the peer to try, or when there may be one
    fn find_candidate(&mut self, index: usize) -> Result<u32, Time> {
        let others = self.paths.iter().zip(&self.pairings).enumerate().filter(|(other, _)| *other != index);
        let uses = others.filter_map(|(_, (path, pairing))| match path {
            PathState::Down { .. } => None,
            PathState::Up { .. } => Some((pairing.port(), PortUse::Taken)),
            _ => Some((pairing.port(), PortUse::Tried)),
        });
        let uses = uses.collect::<Vec<_>>();
        let use_of =
            |port| uses.iter().find(|(other, _)| *other == port).map_or(PortUse::Free, |(_, found)| *found);
        let now = self.now();
        self.pairings[index].find(now, use_of)
    }

    fn no_path(&self) -> ConnectError {
        let refusals = self.first.as_ref().map_or_else(Vec::new, |first| first.refusals().to_vec());
        ConnectError::NoPath { ports: self.port_names(), peer_ports: self.peer_ports, refusals }
    }

    fn port_names(&self) -> Vec<String> {
        self.node.ports.iter().enumerate().map(|(index, port)| port.name(index)).collect()
    }

    /// Notes that a path could not be made, or failed at once
    fn retry_later(&mut self, index: usize, is_unreachable: bool) {
        let now = self.now();
        if let Some(pairing) = self.pairings.get_mut(index) {
            pairing.on_failure(now, is_unreachable);
        }
        self.paths[index] = PathState::Down { from: now };
        self.look_for_paths();
    }

    /// Notes why an attempt to make a path has failed
    fn note_failure(&mut self, path: usize, error: ConnectError) {
        tracing::debug!(path, %error, "no path");
        match &mut self.first {
            Some(first) => first.note(error),
            None => self.peering.update(|state, _| state.note_failure(PathId(path as u32), error)),
        }
    }

    /// Lets each path that is down look for a port of the peer: one may be free
    fn look_for_paths(&mut self) {
        let now = self.now();
        for path in &mut self.paths {
            if let PathState::Down { from } = path {
                *from = (*from).min(now);
            }
        }
    }

    /// Runs until the peering is over
    pub(super) async fn run(mut self) {
        self.on_drop = ByeReason::RuntimeGone;
        while !self.is_over() {
            self.step().await;
        }
        let reason = self.goodbye(ByeReason::Done);
        match self.peering.error() {
            Some(SessionError::PeerGone(reason)) => tracing::info!("peer left: {reason}"),
            Some(error) => tracing::warn!(%error, "peer lost"),
            None => tracing::info!("peer left: the last session is over"),
        }
        self.send_on_stream(ControlMessage::Bye(reason));
        // A peer that does not read learns of the end by its own timeout.
        let _ = timeout(&*self.node.runtime, self.peer_timeout, self.stream.flush()).await;
        self.peering.fail(&SessionError::RuntimeGone);
        // Devices give up what they have for the paths, or are reported: the peer counts until then.
        while !self.peering.has_stopped() {
            sleep(&*self.node.runtime, PORT_INTERVAL).await;
        }
    }

    /// The reason to send for the end: `otherwise` if nothing else has ended the peering
    fn goodbye(&self, otherwise: ByeReason) -> ByeReason {
        match self.peering.error() {
            Some(error) => bye_reason(&error),
            None if self.node.is_closed() => ByeReason::Closed,
            None => otherwise,
        }
    }

    /// Ends the peering: no correct peer sends such a message
    fn on_violation(&mut self) {
        self.peering.fail(&Violation::Control.into());
    }

    async fn step(&mut self) {
        match self.next().await {
            Input::Message(message) => {
                self.heard = self.now();
                self.on_message(message);
                self.on_news();
            }
            Input::Unreadable => self.on_violation(),
            Input::Made(index, made) => {
                if let Err(error) = self.on_made(index, *made) {
                    self.note_failure(index, error);
                }
                self.on_news();
            }
            Input::Queried(port, is_active) => {
                self.on_queried(port, is_active);
                self.on_news();
            }
            Input::StreamEnded => (),
            Input::Changed => {
                self.has_changed = true;
                self.port_at = self.now();
            }
            Input::News => self.on_news(),
            Input::Tick => self.on_tick(),
        }
    }

    fn is_over(&mut self) -> bool {
        let (is_closed, has_path) = (self.node.is_closed(), self.has_path());
        let (now, timeout) = (self.now(), self.peer_timeout);
        self.peering.update(|state, _| {
            let is_idle = state.is_idle(is_closed) || (!has_path && state.needs_no_path(now, timeout));
            state.error().is_some() || is_idle
        })
    }

    /// Waits for something to do
    async fn next(&mut self) -> Input<D> {
        let at = self.next_tick();
        self.timer.as_mut().reset(at);
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Input<D>> {
        if let Poll::Ready((port, is_active)) = self.poll_queried(cx) {
            return Poll::Ready(Input::Queried(port, is_active));
        }
        if let Poll::Ready((index, made)) = self.poll_made(cx) {
            return Poll::Ready(Input::Made(index, Box::new(made)));
        }
        if self.timer.as_mut().poll_expired(cx).is_ready() {
            return Poll::Ready(Input::Tick);
        }
        if let Poll::Ready(received) = self.stream.poll_next(cx) {
            return Poll::Ready(match received {
                Ok(message) => Input::Message(message),
                Err(ConnectError::Peer(_)) => Input::Unreadable,
                Err(_) => Input::StreamEnded,
            });
        }
        if self.peering.poll_news(&mut self.news, cx).is_ready() {
            return Poll::Ready(Input::News);
        }
        if self.node.port_watch.poll_changed(&mut self.watcher, cx).is_ready() {
            return Poll::Ready(Input::Changed);
        }
        Poll::Pending
    }

    /// Hands opened sessions to the node, and begins to make lost paths again
    pub(super) fn on_news(&mut self) {
        let News { opened, lost, messages } = self.peering.update(|state, _| state.take_news());
        for id in opened {
            let route = (Arc::clone(&self.peering), id);
            let refused = self.node.opened.update(|opened| match opened {
                Some(opened) => {
                    opened.push_back(route);
                    None
                }
                None => Some(route),
            });
            if let Some((peering, id)) = refused {
                peering.with(|state, now, effects| state.refuse(id, now, effects));
            }
        }
        messages.into_iter().for_each(|message| self.on_message(message));
        if !lost.is_empty() {
            // Their ports of the peer are free.
            self.look_for_paths();
        }
        self.begin_waiting();
        for LostPath { path, epoch, key, reason, was_proven, span } in lost {
            self.node.remove_route(key);
            let _entered = span.enter();
            tracing::info!(path = path.0, %reason, "path lost");
            let (index, now) = (path.0 as usize, self.now());
            if let Some(&PathState::Up { epoch: current, since, .. }) = self.paths.get(index)
                && current == epoch
            {
                let has_lasted = now >= since + LASTING;
                if let Some(pairing) = self.pairings.get_mut(index).filter(|_| was_proven) {
                    pairing.on_proof(has_lasted);
                }
                // A path that fails at once is made again after a pause.
                if has_lasted {
                    self.paths[index] = PathState::Down { from: now };
                } else {
                    self.retry_later(index, false);
                }
                if self.side == Side::Accepting {
                    self.send(ControlMessage::Lost { path, epoch, reason: LostReason::Lost, port: None });
                }
            }
        }
    }

    fn on_tick(&mut self) {
        let now = self.now();
        let looks = now >= self.port_at;
        if looks {
            self.port_at = now + PORT_INTERVAL;
        }
        let has_changed = looks && std::mem::take(&mut self.has_changed);
        if looks {
            let are_all_asked = self.query_ports();
            self.asks_again = !are_all_asked && (has_changed || self.asks_again);
        }
        if self.stream.takes_messages() && now >= self.alive_at {
            self.send_on_stream(ControlMessage::Alive);
        }
        for index in 0..self.paths.len() {
            match &self.paths[index] {
                PathState::Offered { since, .. } if now >= self.answer_until(*since) => {
                    self.retry_later(index, false);
                }
                PathState::Down { from } if self.side == Side::Connecting => {
                    let from = *from;
                    if has_changed && self.first.is_none() {
                        self.pairings[index].on_unplug();
                        self.paths[index] = PathState::Down { from: from.min(now + RETRY_INTERVAL) };
                    }
                    if now >= from {
                        self.offer(index);
                    }
                }
                _ => (),
            }
        }
        self.on_news();
        if now >= self.silent_at() {
            self.peering.fail(&SessionError::PeerLost(self.peer_timeout));
        }
    }

    /// Offers the peer a path that is down, if its port is up
    fn offer(&mut self, index: usize) {
        let from = self.now() + RETRY_INTERVAL;
        let blocked = self.node.ports[index].blocked();
        if let Some(blocked) = blocked.filter(|_| self.first.is_some()) {
            // It has kept no port of the peer from other paths: they need not look.
            let now = self.now();
            self.pairings[index].on_failure(now, false);
            self.paths[index] = PathState::Down { from };
            return self.note_failure(index, ConnectError::Blocked(blocked));
        }
        let is_stopping = self.peering.update(|state, _| state.is_stopping(PathId(index as u32)));
        if !self.reaches_peer() || blocked.is_some() || is_stopping {
            self.paths[index] = PathState::Down { from };
            return;
        }
        if self.first.is_some() && self.pairings[index].has_tried_all() {
            self.paths[index] = PathState::Down { from: Time::MAX };
            return;
        }
        match self.find_candidate(index) {
            Ok(port) => self.begin_offer(index, port),
            Err(from) => self.paths[index] = PathState::Down { from },
        }
    }
}

/// Whether a path cannot be made because no cable joins the two ports
fn is_unreachable(error: &ConnectError) -> bool {
    lost_reason(error) == LostReason::Unreachable
}

/// Whether a path cannot be made because of the two ports: others may be joined
fn concerns_both_ports(error: &ConnectError) -> bool {
    matches!(lost_reason(error), LostReason::PortUsed | LostReason::Unreachable)
}

impl<D: Device> Drop for Control<D> {
    /// Ends the peering: also if the attempt to make it is given up, or the runtime drops the task
    fn drop(&mut self) {
        self.node.port_watch.leave(&mut self.watcher);
        if !self.node.runtime.is_killed() {
            let reason = self.goodbye(self.on_drop);
            self.stream.say_goodbye(reason);
        }
        self.peering.fail(&SessionError::RuntimeGone);
        let News { opened, lost, .. } = self.peering.update(|state, _| state.take_news());
        lost.iter().for_each(|lost| self.node.remove_route(lost.key));
        for id in opened {
            self.peering.with(|state, now, effects| state.refuse(id, now, effects));
        }
    }
}
