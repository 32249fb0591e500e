//! Paths of a peering, and how it ends

use std::sync::Arc;

use rdma_core::probe::{self, ProtocolState};
use rdma_core::session::{LaneConfig, MIN_WINDOW, PathId, PathLoss};
use rdma_core::{Cause, Device, FRAME, Invalid, Time, Verb};

use super::body::{Body, Effects};
use super::copies::CopiedMessage;
use super::lanes::{DeviceHandle, Lanes};
use super::request::SCRATCH;
use super::state::{EndedPath, LostPath, State, StoppingPath, find_stream};
use crate::blocked_call::BlockedCall;
use crate::device_calls::DeviceCalls;
use crate::error::{ConnectError, SessionError};
use crate::pool::{AdoptedMemory, Lease, Registration, Zone};

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
        SessionError::PeerGone(_) => ProtocolState::PeerLostGone,
        SessionError::Protocol(_) => ProtocolState::PeerLostViolation,
        SessionError::Overlong { .. }
        | SessionError::UnknownCompletion(_)
        | SessionError::Unstopped
        | SessionError::Blocked(_) => ProtocolState::PeerLostDevice,
        SessionError::Abandoned(_)
        | SessionError::Aborted
        | SessionError::Reset(_)
        | SessionError::RuntimeGone => return,
    };
    probe::reached(state);
}

impl<D: Device> State<D> {
    /// Adds a path, and posts its receives; returns how many the device has taken, which is the window
    ///
    /// The side that asks first has sent the peer its window: if the device takes less, the path is not added.
    pub(crate) fn add_path(
        &mut self,
        new: NewPath<D>,
        now: Time,
        effects: &mut Effects,
    ) -> Result<u32, ConnectError> {
        if let Some(error) = &self.end {
            return Err(error.clone().into());
        }
        let NewPath { path, epoch, rate, mut config, mut lanes, receives, probes } = new;
        let wanted = receives.len();
        let refused = lanes.open(receives)?;
        let count = wanted - refused.len();
        effects.drop(refused.into_iter().map(Body::Lease));
        if count < wanted {
            let count = count as u32;
            let slots = count / (self.core.bulk_fragment() / FRAME as u32 + 1);
            if count < MIN_WINDOW || slots == 0 {
                let cause = Invalid::ShortQueue { recv_frames: count }.into();
                return Err(rdma_core::Error::new(Verb::CreateQp, cause).into());
            }
            if probes {
                return Err(rdma_core::Error::new(Verb::PostRecv, Cause::QueueFull).into());
            }
            let bulk_slots = config.bulk_slots.min(slots);
            config = LaneConfig { window: count, peer_window: count, bulk_slots, ..config };
        }
        let index = path.0 as usize;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, || None);
            self.epochs.resize(index + 1, 0);
        }
        self.epochs[index] = epoch;
        self.blocked.retain(|(other, _)| *other != path);
        self.failures.retain(|(other, _)| *other != path);
        self.lanes[index] = Some(lanes);
        self.core.add_path(now, path, epoch, rate, config, probes);
        self.abandoned.restart(now);
        (0..count).for_each(|_| self.core.packet_receive_posted(path));
        self.pump(now, effects);
        Ok(count as u32)
    }

    fn lanes_mut(&mut self, path: PathId) -> Option<&mut Lanes<D>> {
        self.lanes.get_mut(path.0 as usize)?.as_mut()
    }

    /// The device with which memory of the application is to be registered for a path, if the path has not registered it
    pub(crate) fn wants(
        &self,
        path: PathId,
        memory: &AdoptedMemory,
    ) -> Option<(u32, Arc<dyn DeviceHandle<D>>)> {
        let lanes = self.lanes.get(path.0 as usize)?.as_ref()?;
        Some((lanes.key(), lanes.wants(memory)?))
    }

    /// Lets the incarnation `key` of a path send from memory that was registered for it; gives it back if that is gone
    pub(crate) fn adopt(
        &mut self,
        path: PathId,
        key: u32,
        registration: Registration<D>,
    ) -> Option<Registration<D>> {
        match self.lanes_mut(path).filter(|lanes| lanes.key() == key) {
            Some(lanes) => {
                lanes.adopt(registration);
                None
            }
            None => Some(registration),
        }
    }

    /// Lets a path forget all memory of the application but this; returns what is to be deregistered after unlocking
    pub(crate) fn retain_adopted(
        &mut self,
        path: PathId,
        adopted: &[AdoptedMemory],
    ) -> Option<(Arc<DeviceCalls>, Vec<Registration<D>>)> {
        let lanes = self.lanes_mut(path)?;
        let forgotten = lanes.retain_adopted(adopted);
        (!forgotten.is_empty()).then(|| (Arc::clone(lanes.calls()), forgotten))
    }

    pub(crate) fn lose_path(&mut self, path: PathId, reason: PathLoss, now: Time, effects: &mut Effects) {
        self.core.lose_path(path, reason);
        self.handle_events(now, effects);
    }

    /// Ends a path that has failed; the device gives up what it has for it afterwards, without the lock
    pub(super) fn stop_path(&mut self, path: PathId, reason: PathLoss, was_proven: bool) {
        let Some(lanes) = self.lanes.get_mut(path.0 as usize).and_then(Option::take) else { return };
        let (key, epoch, span) = (lanes.key(), self.epochs[path.0 as usize], Arc::clone(&lanes.span));
        let (payload, calls, attempt) = (lanes.payload, Arc::clone(lanes.calls()), lanes.attempt.upgrade());
        let (hardware, posted) = lanes.stop();
        self.lost_paths.push(LostPath { path, epoch, key, reason, was_proven, span: Arc::clone(&span) });
        let Some(hardware) = hardware else { return };
        let is_quiesced = Arc::default();
        let to_stop =
            Some(EndedPath { key, hardware, calls, attempt, is_quiesced: Arc::clone(&is_quiesced), span });
        self.stopping.push(StoppingPath { path, key, to_stop, is_quiesced, posted, payload });
    }

    /// Takes what the device has to give up for paths that have ended
    pub(super) fn take_ended(&mut self) -> Vec<EndedPath<D>> {
        self.stopping.iter_mut().filter_map(|path| path.to_stop.take()).collect()
    }

    /// Whether the device has not given up yet what it has for a path that has ended
    pub(crate) fn is_stopping(&self, path: PathId) -> bool {
        self.stopping.iter().any(|stopping| stopping.path == path)
    }

    /// Whether every path that has ended was given up by its device
    pub(super) fn has_stopped(&self) -> bool {
        self.stopping.is_empty()
    }

    /// The device has given up what it had for the path with this name in requests; whether that proves that it has stopped, or that the
    /// device did not return in time
    pub(super) fn path_stopped(
        &mut self,
        key: u32,
        outcome: Result<bool, BlockedCall>,
        now: Time,
        effects: &mut Effects,
    ) {
        let Some(index) = self.stopping.iter().position(|stopping| stopping.key == key) else { return };
        let stopping = self.stopping.swap_remove(index);
        self.has_stop_news = true;
        let buffers = stopping.buffers().collect::<Vec<_>>();
        let StoppingPath { path, posted, .. } = stopping;
        // No device has it.
        effects.drop(posted.unused.into_iter().map(Body::Lease));
        if outcome == Ok(true) {
            effects.drop(posted.leases.into_iter().map(Body::Lease));
            self.frames.stopped(key);
            for buffer in buffers {
                effects.drop(self.incoming.completed(buffer));
            }
            for sent in posted.bulk_sends {
                self.on_bulk_sent(sent.message, effects);
            }
            self.core.path_stopped(path);
            effects.wake_reactor();
            self.pump(now, effects);
        } else {
            // Nothing that was posted may be used again: what is counted as posted stays so for good.
            let is_stranded = !buffers.is_empty() || !posted.bulk_sends.is_empty();
            posted.leases.into_iter().for_each(std::mem::forget);
            posted.bulk_sends.into_iter().for_each(|sent| self.quarantine(sent.message, effects));
            if let Err(blocked) = outcome {
                self.note_blocked(path, blocked);
            }
            match outcome {
                Err(blocked) if is_stranded || !self.lanes.iter().any(Option::is_some) => {
                    self.fail(&SessionError::Blocked(blocked), effects);
                }
                // Packets go by other paths. The device is left alone, so the path is not made again while it is blocked.
                Err(_) => self.core.path_stopped(path),
                Ok(_) => self.fail(&SessionError::Unstopped, effects),
            }
        }
        self.release_if_over(effects);
    }

    pub(super) fn lose_all_paths(&mut self, reason: PathLoss, now: Time, effects: &mut Effects) {
        for index in 0..self.lanes.len() {
            self.lose_path(PathId(index as u32), reason, now, effects);
        }
    }

    /// Keeps the bytes of a message from being used again: a device may still read them
    fn quarantine(&mut self, token: u32, effects: &mut Effects) {
        if token == SCRATCH {
            return std::mem::forget(self.scratch.take());
        }
        // Of a peering that is over, it is not known which of them the device may still read.
        self.limbo.drain(..).for_each(std::mem::forget);
        let Some(message) = self.outgoing.get_mut(token as usize) else { return };
        if let (Some(stream), Some(slot)) =
            (find_stream(&mut self.sessions, message.stream), message.slot.take())
        {
            match stream.ops.revoke(slot, SessionError::Unstopped.into(), effects) {
                // No device knows it: the device reads the staging memory of the path.
                heap @ Some(Body::Copy(CopiedMessage::Heap(..))) => effects.drop(heap),
                body => std::mem::forget(body),
            }
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
        self.lose_all_paths(PathLoss::Device, Time::ZERO, effects);
        for session in self.sessions.values_mut() {
            session.fail(error, effects);
        }
        let posted = self.posted_messages();
        for (token, message) in &mut self.outgoing {
            let (Some(stream), Some(slot)) =
                (find_stream(&mut self.sessions, message.stream), message.slot.take())
            else {
                continue;
            };
            let is_on_heap = matches!(stream.ops.buffer(slot), Some(Body::Copy(CopiedMessage::Heap(..))));
            if posted.contains(&(token as u32)) && !is_on_heap {
                // A device may still read it.
                self.limbo.extend(stream.ops.revoke(slot, error.clone().into(), effects));
            } else {
                stream.complete(slot, Err(error.clone().into()), effects);
            }
        }
        self.outgoing.clear();
        self.release_if_over(effects);
        self.sessions.retain(|_, session| !session.is_unused());
    }

    /// Messages that were posted on lost paths, while the device has not stopped
    fn posted_messages(&self) -> Vec<u32> {
        let posted = self.stopping.iter().flat_map(|stopping| &stopping.posted.bulk_sends);
        posted.map(|sent| sent.message).collect()
    }

    /// Gives up the memory of a peering that is over: others need it, also while handles of ended sessions are kept
    fn release_if_over(&mut self, effects: &mut Effects) {
        if self.end.is_none() {
            return;
        }
        effects.drop(self.frames.take_free().map(Body::Lease));
        effects.drop(self.incoming.take_free());
        if self.stopping.is_empty() {
            effects.drop(self.scratch.take().map(Body::Lease).into_iter().chain(self.limbo.drain(..)));
        }
    }
}
