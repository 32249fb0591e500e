//! How a path is made: what asks the device runs beside the task, and comes back to it

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use rdma_core::session::{
    ControlMessage, Features, HelloError, LinkId, LostReason, Offer, PathEnd, PathId, PortName, Side,
};
use rdma_core::{Cause, Device, Time};

use super::{Control, Making, PathState, concerns_both_ports, is_unreachable};
use crate::blocked_call::DeviceCall;
use crate::error::ConnectError;
use crate::node::goodbye::lost_reason;
use crate::node::inner::{Attempt, NodeInner};
use crate::node::pairing::RETRY_INTERVAL;
use crate::node::path::PreparedPath;
use crate::node::port::Port;
use crate::port_refusal::PortRefusal;

/// Runs `make` where it may block; the attempt lasts until the call has returned, or is reported as blocked
fn make<D: Device>(
    attempt: &Arc<Attempt<D>>,
    port: usize,
    call: DeviceCall,
    make: impl FnOnce(&Weak<Attempt<D>>, &Arc<NodeInner<D>>) -> Result<PreparedPath<D>, ConnectError>
    + Send
    + 'static,
) -> Making<D> {
    let node = Arc::clone(attempt.node());
    let (calls, weak, attempt) =
        (Arc::clone(&node.ports[port].calls), Arc::downgrade(attempt), Arc::clone(attempt));
    Box::pin(async move { calls.run(call, move || make(&weak, &node), attempt).await? })
}

/// Notes what became of an attempt to answer an offer with this name of its cable on a port
fn note_attempt<D: Device>(port: &Port<D>, link: Option<LinkId>, error: Option<&ConnectError>) {
    match (error, link) {
        (None, _) => port.trust.forget(),
        (Some(error), Some(link)) if is_unreachable(error) && port.link() == Some(link) => {
            port.trust.on_wrong_name(link);
        }
        _ => (),
    }
}

impl<D: Device> Control<D> {
    /// Begins to create this side's end of a path, for port `port` of the peer
    pub(super) fn begin_offer(&mut self, index: usize, port: u32) {
        self.epochs[index] = self.epochs[index].wrapping_add(1);
        let epoch = self.epochs[index];
        // A name that did not help may be that of a cable which was moved, unless another peer is at its end.
        let link = self.node.ports[index].link();
        let is_named = self.pairings[index].is_named(self.now()) || self.leads_elsewhere(index);
        let link = link.filter(|_| is_named);
        let fragment = self.bulk_fragment();
        self.making[index] = Some(make(&self.attempt, index, DeviceCall::Prepare, move |attempt, node| {
            let found = &node.ports[index];
            if found.current().is_some() && !found.is_active() {
                return Err(rdma_core::Error::new(rdma_core::Verb::QueryPort, Cause::PortDown).into());
            }
            PreparedPath::new((node, attempt), PathId(index as u32), index, epoch, fragment)
        }));
        self.paths[index] = PathState::Preparing { port, link };
    }

    /// Begins to connect this side's end of an offered path to the peer's
    pub(super) fn on_answer(&mut self, theirs: PathEnd, port: u32) -> Result<(), ConnectError> {
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
        let connecting = PathState::Connecting { theirs };
        let offered = std::mem::replace(&mut self.paths[index], connecting);
        let PathState::Offered { prepared, .. } = offered else { return Ok(()) };
        self.pairings[index].on_answer(port);
        let (peer_timeout, own) = (self.peer_timeout, index);
        self.making[index] = Some(make(&self.attempt, own, DeviceCall::Connect, move |_, _| {
            prepared.connect(&theirs, peer_timeout, None)
        }));
        Ok(())
    }

    /// Begins to make this side's end of a path that the peer offers
    pub(super) fn on_offer(&mut self, offer: Offer) -> Result<(), ConnectError> {
        let theirs = offer.end;
        let (path, epoch) = (theirs.path, theirs.epoch);
        let index = path.0 as usize;
        if index >= self.paths.len() {
            // The Hello of the peer counts fewer ports.
            self.on_violation();
            return Ok(());
        }
        // The peer has lost the path, if there is one.
        self.making[index] = None;
        self.peering.lose_path(path);
        if let Some(error) = self.peering.error() {
            return Err(error.into());
        }
        self.epochs[index] = epoch;
        if self.peering.update(|state, _| state.is_stopping(path)) {
            self.paths[index] = PathState::Waiting { offer, from: self.now() };
            return Ok(());
        }
        let port = match self.find_port(&offer) {
            Ok(port) => port,
            Err((port, error)) => return self.refuse(index, port, error),
        };
        let found = &self.node.ports[port];
        // The offer names no cable, and that of this port has a name: the attempt is a trial.
        let trial = match offer.link.is_none() && found.link().is_some() {
            true => match found.trust.begin_trial() {
                None => return self.refuse(index, port, self.no_path()),
                trial => trial,
            },
            false => None,
        };
        self.paths[index] = PathState::Answering { offer, port };
        let (peer_timeout, transport, none) = (self.peer_timeout, offer.transport, self.no_path());
        let fragment = self.bulk_fragment();
        self.making[index] = Some(make(&self.attempt, port, DeviceCall::Prepare, move |attempt, node| {
            if node.open_port(port)?.device().caps().transport != transport {
                return Err(none);
            }
            let prepared = PreparedPath::new((node, attempt), path, port, epoch, fragment)?;
            let made = prepared.connect(&theirs, peer_timeout, trial);
            note_attempt(&node.ports[port], offer.link, made.as_ref().err());
            made
        }));
        Ok(())
    }

    /// The longest part of a message of the bulk lane, in bytes
    fn bulk_fragment(&self) -> u32 {
        self.peering.update(|state, _| state.bulk_fragment())
    }

    /// Tells the peer that the path it has offered cannot be made
    fn refuse(&mut self, index: usize, port: usize, error: ConnectError) -> Result<(), ConnectError> {
        let (path, epoch, reason) = (PathId(index as u32), self.epochs[index], lost_reason(&error));
        let name = self.node.ports.get(port).map(|found| found.name(port));
        if let Some(first) = self.first.as_mut().filter(|_| concerns_both_ports(&error)) {
            let port = name.clone().unwrap_or_else(|| format!("device {port}"));
            let peer_port = format!("device {index}");
            first.note_refusal(PortRefusal { port, peer_port, reason, error: error.of_device() });
        }
        let name = name.filter(|_| self.features.has(Features::PORT_NAMES));
        let port = name.and_then(|name| PortName::new(&name));
        self.paths[index] = PathState::Down { from: self.now() };
        self.send(ControlMessage::Lost { path, epoch, reason, port });
        Err(error)
    }

    /// The port of this side at the other end of an offered path
    ///
    /// # Errors
    ///
    /// Why the path cannot be made, and on which port.
    fn find_port(&self, offer: &Offer) -> Result<usize, (usize, ConnectError)> {
        let (ports, Offer { link, .. }) = (&self.node.ports, *offer);
        let asked = offer.port as usize;
        let is_joined =
            |port: &Port<D>| link.is_some() && port.link() == link && !port.trust.is_misnamed(link);
        let joined = ports.iter().position(is_joined);
        let is_open = |port: &Port<D>| match port.link() {
            None => true,
            // A port leads elsewhere if its cable has another name.
            Some(_) => link.is_none() && !self.leads_elsewhere(asked),
        };
        let found = joined.or_else(|| ports.get(asked).filter(|port| is_open(port)).map(|_| asked));
        let found = found.ok_or_else(|| (asked, self.no_path()))?;
        let is_used = |(path, state): (usize, &PathState<D>)| {
            let used = match state {
                PathState::Up { port, .. } => Some(*port),
                PathState::Answering { port, .. } => Some(*port),
                _ => None,
            };
            path != offer.end.path.0 as usize && used == Some(found)
        };
        if self.paths.iter().enumerate().any(is_used) {
            return Err((found, HelloError::Unexpected.into()));
        }
        Ok(found)
    }

    /// Whether another peer has been found at the end of the cable of a port of this side
    fn leads_elsewhere(&self, port: usize) -> bool {
        self.node
            .routes()
            .iter()
            .any(|route| route.port == port && !Arc::ptr_eq(&route.peering, &self.peering))
    }

    /// Handles the outcome of a call of a device for a path
    pub(super) fn on_made(
        &mut self,
        index: usize,
        made: Result<PreparedPath<D>, ConnectError>,
    ) -> Result<(), ConnectError> {
        self.making[index] = None;
        let now = self.now();
        let place = std::mem::replace(&mut self.paths[index], PathState::Down { from: now });
        if let Err(ConnectError::Blocked(blocked)) = &made {
            self.peering.update(|state, _| state.note_blocked(PathId(index as u32), *blocked));
        }
        match place {
            PathState::Preparing { port, link } => match made {
                Ok(prepared) => {
                    let (end, transport) = (prepared.end(), prepared.transport());
                    self.paths[index] = PathState::Offered { prepared: Box::new(prepared), since: now };
                    self.send(ControlMessage::Offer(Offer { end, port, transport, link }));
                    Ok(())
                }
                Err(error) if self.is_short_of_objects(Some(&error)) => {
                    self.pause(index);
                    self.note_shortage(index, error);
                    Ok(())
                }
                Err(error) => {
                    let is_down =
                        matches!(&error, ConnectError::Device(error) if error.cause == Cause::PortDown);
                    if is_down && self.first.is_none() && self.node.ports[index].current().is_some() {
                        self.pairings[index].on_unplug();
                        self.pause(index);
                    } else {
                        self.retry_later(index, false);
                    }
                    Err(error)
                }
            },
            PathState::Connecting { theirs } => {
                let depth = self.node.ports[index].depth();
                if let Err(error) = made.and_then(|prepared| self.open(index, prepared, &theirs, index)) {
                    if self.node.ports[index].depth() < depth && is_shorter(&error) {
                        // The next path has the window that the device takes, which is smaller each time.
                        self.paths[index] = PathState::Down { from: now };
                        return Ok(());
                    }
                    if is_unreachable(&error) {
                        self.pairings[index].on_wrong_name(now);
                        let (path, reason) = (PathId(index as u32), LostReason::Unreachable);
                        self.note_refusal(path, reason, None, error.of_device());
                    }
                    // The peer has its end.
                    let PathEnd { path, epoch, .. } = theirs;
                    self.send(ControlMessage::Lost { path, epoch, reason: lost_reason(&error), port: None });
                    self.retry_later(index, is_unreachable(&error));
                    return Err(error);
                }
                Ok(())
            }
            PathState::Answering { offer, .. } if self.is_short_of_objects(made.as_ref().err()) => {
                self.paths[index] = PathState::Waiting { offer, from: now + RETRY_INTERVAL };
                if let Err(error) = made {
                    self.note_shortage(index, error);
                }
                Ok(())
            }
            PathState::Answering { offer, port } => {
                let opened = made.and_then(|prepared| {
                    let end = prepared.end();
                    let window = self.open(index, prepared, &offer.end, port)?;
                    Ok(PathEnd { window, ..end })
                });
                match opened {
                    Ok(end) => {
                        self.send(ControlMessage::Answer { end, port: port as u32 });
                        Ok(())
                    }
                    Err(error) => self.refuse(index, port, error),
                }
            }
            other => {
                self.paths[index] = other;
                Ok(())
            }
        }
    }

    /// Delays the next attempt of a path that did not reach the peer
    fn pause(&mut self, index: usize) {
        let now = self.now();
        for path in &mut self.paths {
            // The path has waited for the port of the peer that this one has tried. Others have times of their own, or two would wake each other.
            if let PathState::Down { from: from @ Time::MAX } = path {
                *from = now;
            }
        }
        self.paths[index] = PathState::Down { from: now + RETRY_INTERVAL };
    }

    /// Hands a path with connected queue pairs to the peering
    fn open(
        &mut self,
        index: usize,
        prepared: PreparedPath<D>,
        theirs: &PathEnd,
        port: usize,
    ) -> Result<u32, ConnectError> {
        let (epoch, probes) = (prepared.end().epoch, self.side == Side::Connecting);
        let (peer, device) = (self.peering.peer, prepared.device());
        let span =
            tracing::info_span!(parent: &self.peering.span, "path", %peer, path = index, device, epoch);
        let span = Arc::new(span);
        let _entered = span.enter();
        let of_path = Arc::clone(&span);
        let window = prepared.open(&self.node, &self.peering, theirs, self.peer_timeout, probes, of_path)?;
        tracing::info!(path = index, port, "path up");
        self.paths[index] = PathState::Up { epoch, port, since: self.now() };
        // Another path may have waited for its port of the peer.
        self.look_for_paths();
        Ok(window)
    }

    /// Whether the device has no objects left for a path, and other attempts of this node may have them for a moment
    ///
    /// Each attempt takes two queue pairs of the ten of Apple's device, on each port.
    fn is_short_of_objects(&self, error: Option<&ConnectError>) -> bool {
        let is_short = matches!(error, Some(ConnectError::Device(error)) if matches!(error.cause, Cause::Exhausted { .. }));
        is_short && self.node.has_other_peers()
    }

    /// Notes that a path is not made again for lack of objects; as long as there was no path, nothing was tried with the peer
    fn note_shortage(&mut self, index: usize, error: ConnectError) {
        if self.first.is_none() {
            self.note_failure(index, error);
        }
    }

    /// Makes the paths that the peer has offered while their devices had not given up what they had for them before
    pub(super) fn begin_waiting(&mut self) {
        for index in 0..self.paths.len() {
            if let PathState::Waiting { offer, from } = &self.paths[index]
                && self.now() >= *from
            {
                let offer = *offer;
                if let Err(error) = self.on_offer(offer) {
                    self.note_failure(index, error);
                }
            }
        }
    }

    pub(super) fn poll_made(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(usize, Result<PreparedPath<D>, ConnectError>)> {
        for (index, making) in self.making.iter_mut().enumerate() {
            if let Some(future) = making
                && let Poll::Ready(made) = future.as_mut().poll(cx)
            {
                *making = None;
                return Poll::Ready((index, made));
            }
        }
        Poll::Pending
    }

    // ─── Ports ───

    /// Asks the ports of all paths whether they are active
    ///
    /// Returns whether all of them are asked from now on: an answer that is under way may be from before a change.
    pub(super) fn query_ports(&mut self) -> bool {
        let mut are_all_asked = true;
        for index in 0..self.paths.len() {
            let port = match &self.paths[index] {
                PathState::Up { port, .. } => *port,
                // Of the accepting side, no port belongs to a path that is down.
                PathState::Down { .. } if !self.pairings.is_empty() && self.first.is_none() => index,
                _ => continue,
            };
            let found = &self.node.ports[port];
            let blocked = found.blocked();
            let in_query = blocked.filter(|blocked| blocked.call == DeviceCall::Query);
            if let (Some(blocked), PathState::Up { .. }) = (in_query, &self.paths[index]) {
                // The query may be that of the monitor.
                self.peering.update(|state, _| state.note_blocked(PathId(index as u32), blocked));
            }
            if self.queries[port].is_some() || found.current().is_none() || blocked.is_some() {
                are_all_asked &= self.queries[port].is_none();
                continue;
            }
            let (calls, node) = (Arc::clone(&found.calls), Arc::clone(&self.node));
            let is_active = async move {
                calls.run(DeviceCall::Query, move || node.ports[port].is_active(), ()).await.ok()
            };
            self.queries[port] = Some(Box::pin(is_active));
        }
        are_all_asked
    }

    pub(super) fn poll_queried(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Option<bool>)> {
        for (port, query) in self.queries.iter_mut().enumerate() {
            if let Some(future) = query
                && let Poll::Ready(is_active) = future.as_mut().poll(cx)
            {
                *query = None;
                return Poll::Ready((port, is_active));
            }
        }
        Poll::Pending
    }

    /// A port was asked whether it is active; `None` if its device does not answer, which the peer's silence may show
    pub(super) fn on_queried(&mut self, port: usize, is_active: Option<bool>) {
        let now = self.now();
        let calls = &self.node.ports[port].calls;
        for index in 0..self.paths.len() {
            let path = PathId(index as u32);
            match (&self.paths[index], is_active) {
                (PathState::Up { port: own, .. }, Some(false)) if *own == port => {
                    self.peering.lose_path(path)
                }
                (PathState::Up { port: own, .. }, None) if *own == port => {
                    if let Some(blocked) = calls.blocked() {
                        self.peering.update(|state, _| state.note_blocked(path, blocked));
                    }
                }
                (PathState::Down { from }, Some(false)) if index == port && !self.pairings.is_empty() => {
                    let from = (*from).min(now + RETRY_INTERVAL);
                    self.pairings[index].on_unplug();
                    self.paths[index] = PathState::Down { from };
                }
                _ => (),
            }
        }
    }
}

/// Whether a path was not made because a queue has refused a receive that it should have room for
fn is_shorter(error: &ConnectError) -> bool {
    let full = rdma_core::Error::new(rdma_core::Verb::PostRecv, Cause::QueueFull);
    matches!(error, ConnectError::Device(error) if *error == full)
}
