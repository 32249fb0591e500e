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

    /// Sends the next frame of the round, if there is one that may leave
    pub(super) fn transmit(&mut self, cable: u32, end: u8) {
        self.cables[cable as usize].directions[usize::from(end)].is_clocked = false;
        while let Some(key) = self.cables[cable as usize].directions[usize::from(end)].round.pop_front() {
            if self.transmit_frame(cable, end, key) {
                break;
            }
        }
        self.clock(cable, end);
    }

    /// Sends one frame of `key`, unless it has to wait for a receive
    fn transmit_frame(&mut self, cable: u32, end: u8, key: QpKey) -> bool {
        if !self.qps.get(key).is_some_and(|qp| qp.state == QpState::ReadyToSend) {
            return false;
        }
        let peer = self.connected_peer(key);
        let receive = peer.and_then(|peer| {
            let peer = &self.qps[peer];
            peer.receives.get(peer.filled).map(|receive| receive.visible)
        });
        let (Some(peer), true) = (peer, receive.is_some_and(|visible| visible <= self.now)) else {
            self.cables[cable as usize].directions[usize::from(end)].stats.stalls += 1;
            self.qps[key].tx = Tx::Stalled;
            if let Some(visible) = receive {
                self.schedule.add(visible, Event::Credit(key));
            }
            return false;
        };

        let [qp, peer_qp] = self.qps.get_disjoint_mut([key, peer]).expect("a queue pair is not its own peer");
        let send = &mut qp.sends[qp.transmitted];
        let receive = &mut peer_qp.receives[peer_qp.filled];
        let offset = send.sent as usize * FRAME;
        let len = (send.memory.len - offset).min(FRAME);
        let is_first = send.sent == 0;
        send.sent += 1;
        let is_last = send.sent == send.memory.frames();

        // What exceeds the receive is not written; both sides spanning the same frames is checked at the last one.
        let into = receive.frames_in as usize * FRAME;
        let space = receive.memory.len.saturating_sub(into);
        if len > space {
            receive.status = Status::LocalLength;
        }
        match (self.regions.get(send.memory.region), self.regions.get(receive.memory.region)) {
            (Some(from), Some(to)) => {
                let (from_offset, to_offset) = (send.memory.offset + offset, receive.memory.offset + into);
                let copied = memory::copy(from, from_offset, to, to_offset, len.min(space));
                debug_assert!(copied, "posted memory was checked to be inside its region");
            }
            (None, _) => send.status = Status::LocalProtection,
            (_, None) => receive.status = Status::LocalProtection,
        }
        receive.frames_in += 1;
        receive.bytes_in += len as u32;
        let is_full = receive.frames_in == receive.memory.frames();
        if is_last != is_full {
            receive.status = Status::LocalLength;
        }

        let timing = &self.model.timing;
        let cable_ref = &mut self.cables[cable as usize];
        let mut busy = cable_ref.rate.frame_ns(len);
        if is_first {
            busy += timing.per_message_ns;
        }
        let end_of_frame = self.now + nanos(busy);
        let direction = &mut cable_ref.directions[usize::from(end)];
        direction.busy_until = end_of_frame;
        direction.stats.frames += 1;
        direction.stats.payload_bytes += len as u64;
        direction.stats.wire_bytes += cable_ref.rate.wire_bytes(len);

        if is_last {
            direction.stats.messages += 1;
            qp.transmitted += 1;
            self.schedule.add(end_of_frame + nanos(timing.send_completion_ns), Event::Sent(key));
        }
        if is_last || is_full {
            peer_qp.filled += 1;
            let jitter = u64::from(self.choices.pick(timing.jitter_ns + 1));
            let delivery = end_of_frame + nanos(timing.propagation_ns + timing.delivery_ns + jitter);
            peer_qp.last_delivery = peer_qp.last_delivery.max(delivery);
            self.schedule.add(peer_qp.last_delivery, Event::Delivered(peer));
        }
        self.trace.record(self.now, 5, qp.qpn.0, len as u64);

        if qp.transmitted < qp.rung {
            direction.round.push_back(key);
        } else {
            qp.tx = Tx::Idle;
        }
        true
    }
}
