//! The task beside a peering that keeps the bootstrap stream: it makes paths, and makes them again

mod first_paths;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rdma_core::session::{ControlMessage, HelloError, Offer, PathEnd, PathId, Side};
use rdma_core::{Cause, Device, Time, Timer};

use super::inner::NodeInner;
use super::pairing::{Pairing, RETRY_INTERVAL};
use super::path::PreparedPath;
use super::port_watch::Watcher;
use super::wire::ControlStream;
use crate::bootstrap_stream::BootstrapStream;
use crate::error::{ConnectError, SessionError};
use crate::peering::shared::PeeringShared;
use crate::peering::state::LostPath;
use crate::time::timeout;
use crate::wait_queue::Waiter;

/// How often a port is looked at that is down, or whose device does not tell of changes.
const PORT_INTERVAL: Duration = Duration::from_millis(4);
/// How long a path must have been up to be made again at once.
const LASTING: Duration = Duration::from_secs(1);

/// A path as this side knows it
enum PathState<D: Device> {
    /// It carries data on a port of this side, since this time
    Up { epoch: u16, port: usize, since: Time },
    /// The peer was asked for its end
    Offered { prepared: Box<PreparedPath<D>>, until: Time },
    /// It is to be made from this time on
    Down { from: Time },
}

pub(super) struct Control<D: Device, S> {
    node: Arc<NodeInner<D>>,
    peering: Arc<PeeringShared<D>>,
    stream: ControlStream<S>,
    side: Side,
    peer_timeout: Duration,
    /// A path for each port of the connecting side.
    paths: Vec<PathState<D>>,
    epochs: Vec<u16>,
    /// Where each port leads, at the connecting side.
    pairings: Vec<Pairing>,
    peer_ports: u32,
    timer: Pin<Box<dyn Timer>>,
    news: Waiter,
    watcher: Watcher,
    /// Whether a port has changed since this side looked.
    has_changed: bool,
    /// When the latest message of the peer arrived on the stream.
    heard: Time,
    /// When this side looks at its ports again; never, as long as no port needs it.
    port_at: Time,
    /// When this side sends `Alive`, if it sends nothing else on the stream before.
    alive_at: Time,
}

enum Input {
    Message(ControlMessage),
    StreamEnded,
    News,
    /// A port may have changed, or the node is closed
    Changed,
    Tick,
}

impl<D: Device, S: BootstrapStream + Send + 'static> Control<D, S> {
    pub(super) fn new(
        node: &Arc<NodeInner<D>>,
        peering: Arc<PeeringShared<D>>,
        stream: ControlStream<S>,
        side: Side,
        peer_timeout: Duration,
        peer_ports: u32,
    ) -> Self {
        let now = node.runtime.now();
        let count = match side {
            Side::Connecting => node.ports.len(),
            Side::Accepting => peer_ports as usize,
        };
        Self {
            node: Arc::clone(node),
            peering,
            stream,
            side,
            peer_timeout,
            paths: (0..count).map(|_| PathState::Down { from: now }).collect(),
            epochs: vec![0; count],
            pairings: match side {
                Side::Connecting => (0..count).map(|index| Pairing::new(index, peer_ports)).collect(),
                Side::Accepting => Vec::new(),
            },
            peer_ports,
            timer: node.runtime.timer(),
            news: Waiter::default(),
            watcher: Watcher::default(),
            has_changed: false,
            heard: now,
            port_at: now,
            alive_at: now,
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
        let taken = self.paths.iter().zip(&self.pairings).enumerate();
        let taken =
            taken.filter(|(other, (path, _))| *other != index && !matches!(path, PathState::Down { .. }));
        let taken = taken.map(|(_, (_, pairing))| pairing.port()).collect::<Vec<_>>();
        let now = self.now();
        self.pairings[index].find(now, |port| taken.contains(&port))
    }

    /// Creates this side's end of a path, and the offer of it
    fn prepare_offer(&mut self, index: usize, port: u32) -> Result<Offer, ConnectError> {
        self.epochs[index] = self.epochs[index].wrapping_add(1);
        let prepared = PreparedPath::new(&self.node, PathId(index as u32), index, self.epochs[index])?;
        let (end, transport) = (prepared.end(), prepared.transport());
        // A name that did not help may be that of a cable which was moved.
        let link = self.node.ports[index].link().filter(|_| !self.pairings[index].has_failed());
        let until = self.now() + self.peer_timeout;
        self.paths[index] = PathState::Offered { prepared: Box::new(prepared), until };
        Ok(Offer { end, port, transport, link })
    }

    /// Connects this side's end of an offered path to the peer's
    fn on_answer(&mut self, theirs: &PathEnd, port: u32) -> Result<(), ConnectError> {
        let index = theirs.path.0 as usize;
        let Some(place) = self.paths.get_mut(index) else { return Ok(()) };
        if let Some(error) = self.peering.error() {
            return Err(error.into());
        }
        let is_expected =
            matches!(place, PathState::Offered { prepared, .. } if prepared.end().epoch == theirs.epoch);
        if !is_expected {
            return Ok(());
        }
        let down = PathState::Down { from: self.now() };
        let offered = std::mem::replace(&mut self.paths[index], down);
        let PathState::Offered { prepared, .. } = offered else { return Ok(()) };
        self.pairings[index].on_answer(port);
        match prepared.open(&self.node, &self.peering, theirs, self.peer_timeout, true) {
            Ok(()) => {
                tracing::info!(path = index, port, "path up");
                self.paths[index] = PathState::Up { epoch: theirs.epoch, port: index, since: self.now() };
                Ok(())
            }
            Err(error) => {
                self.retry_later(index, is_unreachable(&error));
                Err(error)
            }
        }
    }

    /// Makes this side's end of a path that the peer offers
    fn on_offer(&mut self, offer: &Offer) -> Result<(), ConnectError> {
        let theirs = &offer.end;
        let (path, epoch) = (theirs.path, theirs.epoch);
        let index = path.0 as usize;
        if index >= self.paths.len() {
            return Err(HelloError::Unexpected.into());
        }
        // The peer has lost the path, if there is one.
        self.peering.lose_path(path);
        if let Some(error) = self.peering.error() {
            return Err(error.into());
        }
        self.epochs[index] = epoch;
        let made = self.find_port(offer).and_then(|port| {
            let prepared = PreparedPath::new(&self.node, path, port, epoch)?;
            let end = prepared.end();
            prepared.open(&self.node, &self.peering, theirs, self.peer_timeout, false)?;
            Ok((end, port))
        });
        match made {
            Ok((end, port)) => {
                tracing::info!(path = index, port, "path up");
                self.paths[index] = PathState::Up { epoch, port, since: self.now() };
                self.send(ControlMessage::Answer { end, port: port as u32 });
                Ok(())
            }
            Err(error) => {
                self.send(ControlMessage::Lost { path, epoch, is_unreachable: is_unreachable(&error) });
                Err(error)
            }
        }
    }

    /// The port of this side at the other end of an offered path
    fn find_port(&self, offer: &Offer) -> Result<usize, ConnectError> {
        let (ports, Offer { link, transport, .. }) = (&self.node.ports, *offer);
        let links = ports.iter().map(|port| link.and_then(|_| port.link())).collect::<Vec<_>>();
        let joined = links.iter().position(|other| other.is_some() && *other == link);
        // A port whose cable has another name leads elsewhere.
        let asked = Some(offer.port as usize).filter(|port| links.get(*port).is_some_and(Option::is_none));
        let found = joined.or(asked).ok_or_else(|| self.no_path())?;
        let is_used = |(path, state): (usize, &PathState<D>)| {
            let is_other = path != offer.end.path.0 as usize;
            is_other && matches!(state, PathState::Up { port, .. } if *port == found)
        };
        if self.paths.iter().enumerate().any(is_used) {
            return Err(HelloError::Unexpected.into());
        }
        let is_alike = ports[found].open(&self.node.port_watch)?.device.caps().transport == transport;
        if is_alike { Ok(found) } else { Err(self.no_path()) }
    }

    fn no_path(&self) -> ConnectError {
        ConnectError::NoPath { ports: self.port_names(), peer_ports: self.peer_ports }
    }

    fn port_names(&self) -> Vec<String> {
        self.node.ports.iter().enumerate().map(|(index, port)| port.name(index)).collect()
    }

    /// Sends a message on the stream
    fn send(&mut self, message: ControlMessage) {
        self.stream.push(message);
        self.alive_at = self.now() + self.peer_timeout / 4;
    }

    /// Notes that a path could not be made, or failed at once
    fn retry_later(&mut self, index: usize, is_unreachable: bool) {
        let now = self.now();
        if let Some(pairing) = self.pairings.get_mut(index) {
            pairing.on_failure(now, is_unreachable);
        }
        self.paths[index] = PathState::Down { from: now };
    }

    /// Runs until the peering is over
    pub(super) async fn run(mut self) {
        while !self.is_over() {
            self.step().await;
        }
        match self.peering.error() {
            Some(error) => tracing::warn!(%error, "peer lost"),
            None => tracing::info!("peer left: the last session is over"),
        }
        self.send(ControlMessage::Bye);
        // A peer that does not read learns of the end by its own timeout.
        let _ = timeout(&*self.node.runtime, self.peer_timeout, self.stream.flush()).await;
    }

    async fn step(&mut self) {
        match self.next().await {
            Input::Message(message) => self.on_message(message),
            Input::StreamEnded => (),
            Input::Changed => self.has_changed = true,
            Input::News => self.on_news(),
            Input::Tick => self.on_tick(),
        }
    }

    fn is_over(&mut self) -> bool {
        let is_closed = self.node.is_closed();
        self.peering.update(|state, _| state.error().is_some() || state.is_idle(is_closed))
    }

    /// Waits for something to do
    async fn next(&mut self) -> Input {
        let at = self.next_tick();
        self.timer.as_mut().reset(at);
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Input> {
        if self.timer.as_mut().poll_expired(cx).is_ready() {
            return Poll::Ready(Input::Tick);
        }
        if let Poll::Ready(received) = self.stream.poll_next(cx) {
            return Poll::Ready(received.map_or(Input::StreamEnded, Input::Message));
        }
        if self.peering.poll_news(&mut self.news, cx).is_ready() {
            return Poll::Ready(Input::News);
        }
        if self.node.port_watch.poll_changed(&mut self.watcher, cx).is_ready() {
            return Poll::Ready(Input::Changed);
        }
        Poll::Pending
    }

    /// Whether there are paths that carry data, and their devices tell when that may end; other paths have times of their own
    fn needs_no_look(&self) -> bool {
        let needs_no_look = |path: &PathState<D>| match path {
            PathState::Up { port, .. } => self.node.ports[*port].needs_no_look(),
            PathState::Offered { .. } | PathState::Down { .. } => true,
        };
        !self.has_changed && self.has_path() && self.paths.iter().all(needs_no_look)
    }

    fn next_tick(&mut self) -> Time {
        if self.needs_no_look() {
            self.port_at = Time::MAX;
        } else if self.port_at == Time::MAX {
            // As late as without a device that tells: how soon a failure is noticed does not depend on the device.
            let nanos = self.now().as_nanos().next_multiple_of(PORT_INTERVAL.as_nanos() as u64);
            self.port_at = Time::from_nanos(nanos);
        }
        let mut at = self.port_at;
        for path in &self.paths {
            match path {
                PathState::Offered { until, .. } => at = at.min(*until),
                PathState::Down { from } if self.side == Side::Connecting => at = at.min(*from),
                PathState::Up { .. } | PathState::Down { .. } => (),
            }
        }
        if self.stream.is_open() { at.min(self.alive_at) } else { at }
    }

    fn on_message(&mut self, message: ControlMessage) {
        self.heard = self.now();
        match message {
            ControlMessage::Offer(offer) if self.side == Side::Accepting => {
                if let Err(error) = self.on_offer(&offer) {
                    tracing::debug!(path = offer.end.path.0, %error, "no path");
                }
            }
            ControlMessage::Answer { end, port } => {
                if let Err(error) = self.on_answer(&end, port) {
                    tracing::debug!(path = end.path.0, %error, "no path");
                }
            }
            ControlMessage::Lost { path, epoch, is_unreachable } => self.on_lost(path, epoch, is_unreachable),
            ControlMessage::Bye => self.peering.fail(&SessionError::PeerGone),
            ControlMessage::Alive => (),
            ControlMessage::Confirm(_) | ControlMessage::Offer(_) => self.stream.end(),
        }
        self.on_news();
    }

    /// The peer has no such path
    fn on_lost(&mut self, path: PathId, epoch: u16, is_unreachable: bool) {
        match self.paths.get(path.0 as usize) {
            Some(PathState::Up { epoch: current, .. }) if *current == epoch => self.peering.lose_path(path),
            Some(PathState::Offered { prepared, .. }) if prepared.end().epoch == epoch => {
                self.retry_later(path.0 as usize, is_unreachable);
            }
            _ => (),
        }
    }

    /// Hands opened sessions to the node, and begins to make lost paths again
    pub(super) fn on_news(&mut self) {
        let (opened, lost) = self.peering.update(|state, _| state.take_news());
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
        if !lost.is_empty() {
            // Their ports of the peer are free.
            let now = self.now();
            for path in &mut self.paths {
                if let PathState::Down { from } = path {
                    *from = (*from).min(now);
                }
            }
        }
        for LostPath { path, epoch, key, reason, was_proven, .. } in lost {
            self.node.remove_route(key);
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
                    self.send(ControlMessage::Lost { path, epoch, is_unreachable: false });
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
        if self.stream.is_open() && now >= self.alive_at {
            self.send(ControlMessage::Alive);
        }
        for index in 0..self.paths.len() {
            let path = PathId(index as u32);
            match &self.paths[index] {
                PathState::Up { port, .. } => {
                    if !self.node.ports[*port].is_active() {
                        self.peering.lose_path(path);
                    }
                }
                PathState::Offered { until, .. } if now >= *until => {
                    self.retry_later(index, false);
                }
                PathState::Down { from } if self.side == Side::Connecting => {
                    let (from, port) = (*from, &self.node.ports[index]);
                    if has_changed || port.current().is_some() && !port.is_active() {
                        self.pairings[index].on_unplug();
                        self.paths[index] = PathState::Down { from: from.min(now + RETRY_INTERVAL) };
                    }
                    if now >= from {
                        self.offer(index);
                    }
                }
                PathState::Offered { .. } | PathState::Down { .. } => (),
            }
        }
        self.on_news();
        if !self.has_path() {
            let heard = self.peering.update(|state, _| state.last_heard()).max(self.heard);
            if now >= heard + self.peer_timeout {
                self.peering.fail(&SessionError::PeerLost(self.peer_timeout));
            }
        }
    }

    /// Offers the peer a path that is down, if its port is up
    fn offer(&mut self, index: usize) {
        let now = self.now();
        let port = &self.node.ports[index];
        if !self.stream.is_open() || port.current().is_some() && !port.is_active() {
            self.paths[index] = PathState::Down { from: now + RETRY_INTERVAL };
            return;
        }
        let prepared = match self.find_candidate(index) {
            Ok(port) => self.prepare_offer(index, port),
            Err(from) => {
                self.paths[index] = PathState::Down { from };
                return;
            }
        };
        match prepared {
            Ok(offer) => self.send(ControlMessage::Offer(offer)),
            Err(error) => {
                tracing::debug!(path = index, %error, "no path");
                self.retry_later(index, false);
            }
        }
    }
}

/// Whether a path cannot be made because no cable joins the two ports
fn is_unreachable(error: &ConnectError) -> bool {
    match error {
        ConnectError::NoPath { .. } => true,
        ConnectError::Device(error) => matches!(error.cause, Cause::NoNeighbour | Cause::PeerUnreachable),
        _ => false,
    }
}

impl<D: Device, S> Drop for Control<D, S> {
    /// Ends the peering: also if the attempt to make it is given up, or the runtime drops the task
    fn drop(&mut self) {
        self.node.port_watch.leave(&mut self.watcher);
        self.peering.fail(&SessionError::RuntimeGone);
        let (opened, lost) = self.peering.update(|state, _| state.take_news());
        lost.iter().for_each(|lost| self.node.remove_route(lost.key));
        for id in opened {
            self.peering.with(|state, now, effects| state.refuse(id, now, effects));
        }
    }
}
