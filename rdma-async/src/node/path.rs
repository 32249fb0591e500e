//! One end of a path, from its queue pairs to the peering

use std::sync::{Arc, Weak};
use std::time::Duration;

use rdma_core::session::{HelloError, LaneConfig, MAX_SLOTS, MIN_WINDOW, PathEnd, PathId, lane_config};
use rdma_core::{Cause, Device, FRAME, Invalid, QpCapacity, QpInit, QpType, Transport, Verb};
use tracing::Span;

use super::inner::{Attempt, NodeInner, Route};
use super::link_trust::Trial;
use super::options::{PART, WINDOW};
use crate::error::ConnectError;
use crate::peering::lanes::Lanes;
use crate::peering::paths::NewPath;
use crate::peering::shared::PeeringShared;
use crate::peering::staging::STAGING;
use crate::pool::{Registration, Zone};

/// Queue pairs that are not connected yet
pub(super) struct PreparedPath<D: Device> {
    lanes: Lanes<D>,
    port: usize,
    end: PathEnd,
    bulk_slots: u32,
    /// How long the device of the peer may take.
    device_timeout: Duration,
}

impl<D: Device> PreparedPath<D> {
    /// Creates the queue pairs on a port of this side; may block
    pub(super) fn new(
        (node, attempt): (&NodeInner<D>, &Weak<Attempt<D>>),
        path: PathId,
        port: usize,
        epoch: u16,
        bulk_fragment: u32,
    ) -> Result<Self, ConnectError> {
        let try_new = || Self::try_new((node, attempt), path, port, epoch, bulk_fragment);
        match try_new() {
            // A device may have vanished while there was no peer.
            Err(error) if node.ports[port].forget_if_gone(&error) => try_new(),
            made => made,
        }
    }

    fn try_new(
        (node, attempt): (&NodeInner<D>, &Weak<Attempt<D>>),
        path: PathId,
        index: usize,
        epoch: u16,
        bulk_fragment: u32,
    ) -> Result<Self, ConnectError> {
        let port = node.open_port(index)?;
        let found = port.device().caps().max_message;
        if found < bulk_fragment {
            let port = port.device().name().to_owned();
            return Err(ConnectError::ShortMessages { port, found, min: bulk_fragment });
        }
        let mut registrations = vec![node.pool.register(port.device())?];
        for memory in node.adopted() {
            registrations.push(Registration::adopted(&memory, port.device())?);
        }
        let trailers = node.pool.try_lease(Zone::Eager, 1).ok_or(ConnectError::Memory)?;
        let staging = [(); STAGING].map(|()| node.pool.try_lease(Zone::Transmit, PART));
        let staging = staging.into_iter().collect::<Option<Vec<_>>>().ok_or(ConnectError::Memory)?;
        let max = port.device().caps().max_queue_frames;
        let qp = |frames: u32| QpInit {
            capacity: QpCapacity { recv_frames: frames.min(max), send_frames: frames.min(max) },
            qp_type: QpType::Uc,
        };
        // Each part of a long message, and the trailer behind it.
        let part = bulk_fragment / FRAME as u32 + 1;
        let key = node.next_key();
        let mut lanes = Lanes::new(
            port.cq(),
            key,
            &qp(2 * WINDOW),
            &qp(MAX_SLOTS * part),
            registrations,
            trailers,
            staging,
            Arc::clone(&port) as _,
        )?;
        lanes.attempt = Weak::clone(attempt) as _;
        let [eager, bulk] = lanes.capacities();
        // What a device reports may be more than it takes.
        let depth = node.ports[index].depth();
        let window = WINDOW.min(eager.recv_frames).min(depth);
        let bulk_frames = bulk.recv_frames.min(bulk.send_frames).min(depth);
        let bulk_slots = (bulk_frames / part).min(MAX_SLOTS);
        if window < MIN_WINDOW || bulk_slots == 0 {
            let recv_frames = eager.recv_frames.min(bulk_frames);
            return Err(
                rdma_core::Error::new(Verb::CreateQp, Invalid::ShortQueue { recv_frames }.into()).into()
            );
        }
        let [eager, bulk] = lanes.addresses();
        if eager.gid.is_zero() {
            return Err(rdma_core::Error::new(Verb::ModifyQp, Cause::GidTableEmpty).into());
        }
        let (rate, device_timeout) = (port.device().port()?.bits_per_second / 8, node.options.device_timeout);
        Ok(Self {
            lanes,
            port: index,
            end: PathEnd { path, epoch, window, rate, eager, bulk },
            bulk_slots,
            device_timeout,
        })
    }

    /// This side's end, for the peer
    pub(super) fn end(&self) -> PathEnd {
        self.end
    }

    /// The name of the device
    pub(super) fn device(&self) -> &str {
        self.lanes.device().name()
    }

    pub(super) fn transport(&self) -> Transport {
        self.lanes.device().caps().transport
    }

    /// Connects the queue pairs to those of the peer; may block
    pub(super) fn connect(
        self,
        theirs: &PathEnd,
        peer_timeout: Duration,
        trial: Option<Trial>,
    ) -> Result<Self, ConnectError> {
        if !self.config(theirs, peer_timeout).is_usable() {
            return Err(HelloError::Unusable.into());
        }
        if let Some(trial) = trial {
            trial.count();
        }
        match self.lanes.connect(&[theirs.eager, theirs.bulk]) {
            Ok(()) => Ok(self),
            Err(error) if error.cause == Cause::Busy => {
                Err(ConnectError::PortBusy { port: self.lanes.device().name().to_owned(), error })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn config(&self, theirs: &PathEnd, peer_timeout: Duration) -> LaneConfig {
        lane_config(peer_timeout, self.device_timeout, self.end.window.min(theirs.window), self.bulk_slots)
    }

    /// Posts receives on connected queue pairs, and hands the path to the peering; returns the window, which may be smaller than it was
    ///
    /// Receives come after the transition to ready to send: before, Apple's device has been reported to refuse them.
    pub(super) fn open(
        self,
        node: &NodeInner<D>,
        peering: &Arc<PeeringShared<D>>,
        theirs: &PathEnd,
        peer_timeout: Duration,
        probes: bool,
        span: Arc<Span>,
    ) -> Result<u32, ConnectError> {
        let config = self.config(theirs, peer_timeout);
        let Self { mut lanes, port, end, .. } = self;
        lanes.span = span;
        let window = end.window.min(theirs.window);
        let receives = node.pool.try_leases(Zone::Eager, window).ok_or(ConnectError::Memory)?;
        let key = lanes.key();
        // The reactor looks at devices that were just opened.
        node.wake_reactor();
        node.add_route(key, Route { peering: Arc::clone(peering), path: end.path, port });
        let rate = end.rate.min(theirs.rate);
        let added = peering.with(|state, now, effects| {
            let PathEnd { path, epoch, .. } = end;
            let new = NewPath { path, epoch, rate, config, lanes, receives, probes };
            state.add_path(new, now, effects)
        });
        if added.is_err() {
            node.remove_route(key);
        }
        // What was given up since the queue pairs were made.
        node.forget_on(peering, end.path);
        added
    }
}
