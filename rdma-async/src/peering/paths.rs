//! Paths of a peering, and how it ends

use rdma_core::probe::{self, ProtocolState};
use rdma_core::session::{LaneConfig, PathId, PathLoss};
use rdma_core::{Device, Time};

use super::body::{Body, Effects};
use super::lanes::{BulkReceive, Lanes, SCRATCH};
use super::state::{LostPath, State, find_stream};
use crate::error::{ConnectError, SessionError};
use crate::pool::{AdoptedMemory, Lease, Zone};

/// A path with connected queue pairs
pub(crate) struct NewPath<D: Device> {
    pub(crate) path: PathId,
    pub(crate) epoch: u16,
    /// Bytes per second, to compare paths.
    pub(crate) rate: u64,
    pub(crate) config: LaneConfig,
    pub(crate) lanes: Lanes<D>,
    /// Frames for the receives of the eager lane.
    pub(crate) receives: Vec<Lease>,
    /// Whether this side asks first.
    pub(crate) probes: bool,
}

fn note_end(error: &SessionError) {
    let state = match error {
        SessionError::PeerLost(_) => ProtocolState::PeerLostSilent,
        SessionError::PeerGone => ProtocolState::PeerLostGone,
        SessionError::Protocol(_) => ProtocolState::PeerLostViolation,
        SessionError::Overlong { .. } | SessionError::UnknownCompletion(_) | SessionError::Unstopped => {
            ProtocolState::PeerLostDevice
        }
        SessionError::Abandoned(_)
        | SessionError::Aborted
        | SessionError::Reset(_)
        | SessionError::RuntimeGone => return,
    };
    probe::reached(state);
}

impl<D: Device> State<D> {
    /// Adds a path, and posts its receives
    pub(crate) fn add_path(
        &mut self,
        new: NewPath<D>,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), ConnectError> {
        if let Some(error) = &self.end {
            return Err(error.clone().into());
        }
        let NewPath { path, epoch, rate, config, mut lanes, receives, probes } = new;
        let count = receives.len();
        lanes.open(receives)?;
        let index = path.0 as usize;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, || None);
            self.epochs.resize(index + 1, 0);
        }
        self.epochs[index] = epoch;
        self.lanes[index] = Some(lanes);
        self.core.add_path(now, path, epoch, rate, config, probes);
        self.abandoned.restart(now);
        (0..count).for_each(|_| self.core.packet_receive_posted(path));
        self.pump(now, effects);
        Ok(())
    }

    /// Lets a path send from memory of the application
    pub(crate) fn adopt(&mut self, path: PathId, memory: &AdoptedMemory) -> Result<(), rdma_core::Error> {
        let lanes = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut);
        lanes.map_or(Ok(()), |lanes| lanes.adopt(memory))
    }

    /// Lets a path forget all memory of the application but this; returns what is to be dropped after unlocking
    pub(crate) fn retain_adopted(&mut self, path: PathId, adopted: &[AdoptedMemory]) -> Vec<AdoptedMemory> {
        let lanes = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut);
        lanes.map(|lanes| lanes.retain_adopted(adopted)).unwrap_or_default()
    }

    pub(crate) fn lose_path(&mut self, path: PathId, reason: PathLoss, now: Time, effects: &mut Effects) {
        self.core.lose_path(path, reason);
        self.handle_events(now, effects);
    }

    /// Ends the queue pairs of a path that has failed
    pub(super) fn stop_path(
        &mut self,
        path: PathId,
        reason: PathLoss,
        was_proven: bool,
        now: Time,
        effects: &mut Effects,
    ) {
        let Some(lanes) = self.lanes.get_mut(path.0 as usize).and_then(Option::take) else { return };
        let (key, epoch) = (lanes.key(), self.epochs[path.0 as usize]);
        let payload = lanes.payload;
        let mut stopped = lanes.stop();
        let adopted = std::mem::take(&mut stopped.adopted);
        self.lost_paths.push(LostPath { path, epoch, key, reason, was_proven, _adopted: adopted });
        if !stopped.is_quiesced {
            // Nothing that was posted may be used again: what is counted as posted stays so for good.
            stopped.leases.into_iter().for_each(std::mem::forget);
            stopped.bulk_sends.into_iter().for_each(|token| self.quarantine(token, effects));
            return self.fail(&SessionError::Unstopped, effects);
        }
        effects.drop(stopped.leases.into_iter().map(Body::Lease));
        self.frames.stopped(key);
        let buffers = stopped.bulk_receives.into_iter().filter_map(|receive| match receive {
            BulkReceive::Payload { buffer, .. } => Some(buffer),
            BulkReceive::Trailer { .. } => None,
        });
        for buffer in buffers.chain(payload.map(|(buffer, ..)| buffer)).collect::<Vec<_>>() {
            effects.drop(self.incoming.completed(buffer));
        }
        for token in stopped.bulk_sends {
            self.on_bulk_sent(token, effects);
        }
        self.core.path_stopped(path);
        effects.wake_reactor();
        self.pump(now, effects);
    }

    pub(super) fn lose_all_paths(&mut self, now: Time, effects: &mut Effects) {
        for index in 0..self.lanes.len() {
            self.lose_path(PathId(index as u32), PathLoss::Device, now, effects);
        }
    }

    /// Keeps the bytes of a message from being used again: a device may still read them
    fn quarantine(&mut self, token: u32, effects: &mut Effects) {
        if token == SCRATCH {
            return std::mem::forget(self.scratch.take());
        }
        let Some(message) = self.outgoing.get_mut(token as usize) else { return };
        if let (Some(stream), Some(slot)) =
            (find_stream(&mut self.sessions, message.stream), message.slot.take())
        {
            std::mem::forget(stream.ops.revoke(slot, SessionError::Unstopped.into(), effects));
        }
    }

    /// Ends the peering and all of its sessions
    pub(crate) fn fail(&mut self, error: &SessionError, effects: &mut Effects) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(error.clone());
        note_end(error);
        effects.wake_reactor();
        self.announced.clear();
        self.pool.leave(Zone::Bulk, &mut self.memory.frames, effects);
        self.pool.leave_freed(&mut self.memory.freed, effects);
        self.lose_all_paths(Time::ZERO, effects);
        for session in self.sessions.values_mut() {
            session.fail(error, effects);
        }
        for (_, message) in &mut self.outgoing {
            if let (Some(stream), Some(slot)) =
                (find_stream(&mut self.sessions, message.stream), message.slot.take())
            {
                stream.ops.complete(slot, Err(error.clone().into()), effects);
            }
        }
        self.outgoing.clear();
        // Others need the memory, also while handles of ended sessions are kept.
        effects.drop(self.frames.take_free().chain(self.scratch.take()).map(Body::Lease));
        effects.drop(self.incoming.take_free());
        self.sessions.retain(|_, session| !session.is_unused());
    }
}
