//! Cables: the transmitter of each direction, its round over the queue pairs, and credits
//!
//! A credit is a posted receive of the peer. The transmitter looks at the peer's receive queue, as it was one propagation
//! time ago, and sends a frame only into a receive that it can see. Bytes move when their frame is transmitted, straight
//! from the sender's memory to the receiver's; the receiving program cannot look before its completion.

use std::collections::VecDeque;

use rdma_core::{FRAME, QpState, Status, Time};

use super::memory;
use super::queue_pair::{Tx, nanos};
use super::{DeviceIndex, Event, Fabric, QpKey};
use crate::LineRate;

#[derive(Debug)]
pub(super) struct Cable {
    pub(super) rate: LineRate,
    pub(super) devices: [DeviceIndex; 2],
    /// By the end that transmits.
    pub(super) directions: [Direction; 2],
}

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Queue pairs that have a frame to send, in turn.
    round: VecDeque<QpKey>,
    busy_until: Time,
    /// Whether a [`Event::Free`] is on its way.
    is_clocked: bool,
    pub(super) stats: CableStats,
}

/// What has passed over one direction of a cable
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CableStats {
    /// Frames
    pub frames: u64,
    /// Messages, counted when their last frame left
    pub messages: u64,
    /// Bytes of messages
    pub payload_bytes: u64,
    /// How often a queue pair had to wait for a receive of its peer
    pub stalls: u64,
    /// Bytes on the wire, with the overhead of packets
    pub wire_bytes: u64,
}

impl Cable {
    pub(super) fn new(rate: LineRate) -> Self {
        Self { rate, devices: [DeviceIndex(0); 2], directions: Default::default() }
    }
}

impl Fabric {
    /// A send has reached the transmitter
    pub(super) fn doorbell(&mut self, key: QpKey) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        qp.rung += 1;
        if qp.tx == Tx::Idle {
            self.join_round(key);
        }
    }

    /// A receive of the peer has become visible to a queue pair that may wait for one
    pub(super) fn credit(&mut self, key: QpKey) {
        if self.qps.get(key).is_some_and(|qp| qp.tx == Tx::Stalled) {
            self.join_round(key);
        }
    }

    /// Tells `sender` of a receive that becomes visible at `visible`, if it waits for one
    pub(super) fn announce_credit(&mut self, sender: QpKey, visible: Time) {
        if self.qps[sender].tx == Tx::Stalled {
            self.schedule.add(visible, Event::Credit(sender));
        }
    }

    fn join_round(&mut self, key: QpKey) {
        let qp = &mut self.qps[key];
        qp.tx = Tx::Ready;
        let Some((cable, end)) = self.devices[qp.device.0 as usize].cable else { return };
        let direction = &mut self.cables[cable as usize].directions[usize::from(end)];
        direction.round.push_back(key);
        if direction.busy_until <= self.now {
            if !direction.is_clocked {
                self.transmit(cable, end);
            }
        } else {
            self.clock(cable, end);
        }
    }

    /// Makes sure that the transmitter goes on when it is free
    fn clock(&mut self, cable: u32, end: u8) {
        let direction = &mut self.cables[cable as usize].directions[usize::from(end)];
        if !direction.is_clocked && !direction.round.is_empty() {
            direction.is_clocked = true;
            self.schedule.add(direction.busy_until, Event::Free { cable, end });
        }
    }

    /// Sends what is next in the round, if there is something that may leave
    pub(super) fn transmit(&mut self, cable: u32, end: u8) {
        self.cables[cable as usize].directions[usize::from(end)].is_clocked = false;
        while let Some(key) = self.cables[cable as usize].directions[usize::from(end)].round.pop_front() {
            if self.transmit_frames(cable, end, key) {
                break;
            }
        }
        self.clock(cable, end);
    }

    /// Sends a frame of `key`, unless it has to wait for a receive
    ///
    /// And also those of the same message and receive that would follow without anything else happening before, as if each
    /// had been sent by an event of its own.
    fn transmit_frames(&mut self, cable: u32, end: u8, key: QpKey) -> bool {
        if !self.qps.get(key).is_some_and(|qp| qp.state == QpState::ReadyToSend) {
            return false;
        }
        let peer = self.connected_peer(key);
        let visible = peer.and_then(|peer| {
            let peer = &self.qps[peer];
            peer.receives.get(peer.filled).map(|receive| receive.visible)
        });
        let (Some(peer), true) = (peer, visible.is_some_and(|visible| visible <= self.now)) else {
            self.stall(cable, end, key, visible);
            return false;
        };

        let cable = &mut self.cables[cable as usize];
        let direction = &mut cable.directions[usize::from(end)];
        let [qp, peer_qp] = self.qps.get_disjoint_mut([key, peer]).expect("a queue pair is not its own peer");
        let send = &mut qp.sends[qp.transmitted];
        let receive = &mut peer_qp.receives[peer_qp.filled];
        let timing = &self.model.timing;

        // When the first frame after this one could leave, and each after that.
        let message_ns = if send.sent == 0 { timing.per_message_ns } else { 0 };
        let frame_ns = cable.rate.frame_ns(FRAME);
        let second = self.now + nanos(message_ns + frame_ns);
        let left = (send.memory.frames() - send.sent).min(receive.memory.frames() - receive.frames_in);
        let last_start = match self.schedule.next() {
            Some(next) => self.limit.min(Time::from_nanos(next.as_nanos().saturating_sub(1))),
            None => self.limit,
        };
        let more = if direction.round.is_empty() && second <= last_start {
            1 + (last_start - second).as_nanos() as u64 / frame_ns
        } else {
            0
        };
        let frames = left.min(u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1));

        let (from, into) = (send.sent as usize * FRAME, receive.frames_in as usize * FRAME);
        let len = (send.memory.len - from).min(frames as usize * FRAME);
        send.sent += frames;
        receive.frames_in += frames;
        receive.bytes_in += len as u32;
        let is_last = send.sent == send.memory.frames();
        let is_full = receive.frames_in == receive.memory.frames();

        // Both sides must span the same frames, and what exceeds the receive is not written.
        let space = receive.memory.len.saturating_sub(into);
        if len > space || is_last != is_full && (is_last || is_full) {
            receive.status = Status::LocalLength;
        }
        match (self.regions.get(send.memory.region), self.regions.get(receive.memory.region)) {
            (Some(source), Some(target)) => {
                let (from, into) = (send.memory.offset + from, receive.memory.offset + into);
                let copied = memory::copy(source, from, target, into, len.min(space));
                debug_assert!(copied, "posted memory was checked to be inside its region");
            }
            (None, _) => send.status = Status::LocalProtection,
            (_, None) => receive.status = Status::LocalProtection,
        }

        let mut start = self.now;
        let mut rest = len;
        for number in 0..frames {
            let bytes = rest.min(FRAME);
            rest -= bytes;
            self.trace.record(start, 5, qp.qpn.0, bytes as u64);
            let extra = if number == 0 { message_ns } else { 0 };
            start += nanos(extra + cable.rate.frame_ns(bytes));
            direction.stats.wire_bytes += cable.rate.wire_bytes(bytes);
        }
        let end_of_frames = start;
        direction.busy_until = end_of_frames;
        direction.stats.frames += u64::from(frames);
        direction.stats.payload_bytes += len as u64;

        if is_last {
            direction.stats.messages += 1;
            qp.transmitted += 1;
            self.schedule.add(end_of_frames + nanos(timing.send_completion_ns), Event::Sent(key));
        }
        if is_last || is_full {
            peer_qp.filled += 1;
            let jitter = u64::from(self.choices.pick(timing.jitter_ns + 1));
            let delivery = end_of_frames + nanos(timing.propagation_ns + timing.delivery_ns + jitter);
            peer_qp.last_delivery = peer_qp.last_delivery.max(delivery);
            self.schedule.add(peer_qp.last_delivery, Event::Delivered(peer));
        }
        if qp.transmitted < qp.rung {
            direction.round.push_back(key);
        } else {
            qp.tx = Tx::Idle;
        }
        true
    }

    /// Has `key` wait for a receive of its peer, of which one may become visible at `visible`
    fn stall(&mut self, cable: u32, end: u8, key: QpKey, visible: Option<Time>) {
        self.cables[cable as usize].directions[usize::from(end)].stats.stalls += 1;
        self.qps[key].tx = Tx::Stalled;
        if let Some(visible) = visible {
            self.schedule.add(visible, Event::Credit(key));
        }
    }
}
