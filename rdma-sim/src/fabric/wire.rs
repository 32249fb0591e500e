//! Cables: the transmitter of each direction, its round over the queue pairs, and credits
//!
//! A credit is a posted receive of the peer. The transmitter looks at the peer's receive queue, as it was one propagation
//! time ago, and sends a frame only into a receive that it can see. Bytes move when their frame is transmitted, straight
//! from the sender's memory to the receiver's; the receiving program cannot look before its completion.

use std::collections::VecDeque;
use std::time::Duration;

use rdma_core::{FRAME, QpType, SendOp, Status, Time};

use super::queue_pair::{QpRef, Tx};
use super::{DeviceIndex, Event, Fabric, QpKey, memory, nanos};
use crate::LineRate;
use crate::remote::LinkMessage;
use crate::rules::{FrameMatch, SendCompletion};
use crate::trace::RecordKind;

#[derive(Debug)]
pub(super) struct Cable {
    pub(super) rate: LineRate,
    /// Whether bytes take time.
    is_timed: bool,
    /// Of its rate that is left, in percent.
    pub(super) percent: u32,
    pub(super) is_plugged: bool,
    pub(super) devices: [DeviceIndex; 2],
    /// By the end that transmits.
    pub(super) directions: [Direction; 2],
}

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// Queue pairs that have a frame to send, in turn.
    pub(super) round: VecDeque<QpKey>,
    pub(super) busy_until: Time,
    /// Whether a [`Event::Free`] is on its way.
    is_clocked: bool,
    /// Frames to damage.
    pub(super) corrupt: u32,
    /// Frames of messages to lose.
    pub(super) lose: u32,
    /// Faults that wait for so many frames, last first.
    pub(super) triggers: Vec<(u64, u32)>,
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

/// How long a reliable queue pair asks a peer that is not there: seven times half a second, as common adapters do.
const GIVE_UP: Duration = Duration::from_millis(3_500);

impl Cable {
    pub(super) fn new(rate: LineRate, is_timed: bool) -> Self {
        let directions = Default::default();
        Self { rate, is_timed, percent: 100, is_plugged: true, devices: [DeviceIndex(0); 2], directions }
    }

    /// How long a frame of `len` bytes of payload occupies the line as it is now
    pub(super) fn frame_ns(&self, len: usize) -> u64 {
        let ns = if self.is_timed { self.rate.frame_ns(len) } else { 0 };
        if self.percent == 100 { ns } else { ns * 100 / u64::from(self.percent) }
    }
}

impl Direction {
    fn next_trigger(&self) -> u64 {
        self.triggers.last().map_or(u64::MAX, |(frames, _)| *frames)
    }

    /// A fault that waited for no more frames than have been sent
    pub(super) fn pop_triggered(&mut self) -> Option<u32> {
        let sent = self.stats.frames;
        self.triggers.pop_if(|(frames, _)| *frames <= sent).map(|(_, fault)| fault)
    }
}

impl Fabric {
    /// What has passed over the cable of `device`, from this end and from the other
    pub(crate) fn cable_stats(&self, device: DeviceIndex) -> Option<[CableStats; 2]> {
        let (cable, end) = self.device(device).cable?;
        let directions = &self.cables[cable as usize].directions;
        let end = usize::from(end);
        Some([directions[end].stats, directions[1 - end].stats])
    }

    pub(super) fn direction(&mut self, cable: u32, end: u8) -> &mut Direction {
        &mut self.cables[cable as usize].directions[usize::from(end)]
    }

    /// A send has reached the transmitter
    pub(super) fn doorbell(&mut self, qp: QpRef) {
        let Some(found) = self.live(qp) else { return };
        found.rung += 1;
        if found.tx == Tx::Idle {
            self.join_round(qp.key);
        }
    }

    /// A receive of the peer has become visible to a queue pair that may wait for one
    pub(super) fn credit(&mut self, qp: QpRef) {
        if self.live(qp).is_some_and(|found| found.tx == Tx::Stalled) {
            self.join_round(qp.key);
        }
    }

    /// Tells `sender` of a receive that becomes visible at `visible`, if it waits for one
    pub(super) fn announce_credit(&mut self, sender: QpKey, visible: Time) {
        if self.qps[sender].tx == Tx::Stalled {
            self.schedule.add(visible, Event::Credit(self.qp_ref(sender)));
        }
    }

    pub(super) fn join_round(&mut self, key: QpKey) {
        let qp = &mut self.qps[key];
        qp.tx = Tx::Ready;
        let Some((cable, end)) = self.devices[qp.device.0 as usize].cable else { return };
        let now = self.now;
        let direction = self.direction(cable, end);
        direction.round.push_back(key);
        if direction.busy_until <= now {
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
        self.direction(cable, end).is_clocked = false;
        while let Some(key) = self.direction(cable, end).round.pop_front() {
            if self.transmit_next(cable, end, key) {
                break;
            }
        }
        self.clock(cable, end);
    }

    /// Sends something of `key`, unless it has to wait for a receive
    fn transmit_next(&mut self, cable: u32, end: u8, key: QpKey) -> bool {
        if !self.qps.get(key).is_some_and(super::queue_pair::QueuePair::is_ready_to_send)
            || self.has_worn_out(key)
        {
            return false;
        }
        let qp = &self.qps[key];
        let waits = self.model.caps.send_waits_for_receive || qp.qp_type == QpType::Rc;
        if qp.sends[qp.transmitted].op != SendOp::Send {
            self.transmit_one_sided(cable, end, key);
            return true;
        }
        let peer = self.connected_peer(key).filter(|peer| !self.has_worn_out(*peer));
        let visible = peer.and_then(|peer| {
            let peer = &self.qps[peer];
            peer.receives.get(peer.filled).map(|receive| receive.visible)
        });
        // What does not wait leaves at once, and finds at its arrival even a receive that is not visible here.
        let is_ready = visible.is_some_and(|visible| visible <= self.now || !waits);
        let qp = &mut self.qps[key];
        let is_reliable = qp.qp_type == QpType::Rc;
        let send = &mut qp.sends[qp.transmitted];
        if send.sent == 0 && (is_ready || !waits) {
            let direction = &mut self.cables[cable as usize].directions[usize::from(end)];
            let is_unlucky = direction.lose > 0 && !is_reliable;
            if is_unlucky {
                direction.lose = direction.lose.saturating_sub(send.memory.frames());
            }
            send.is_lost = is_unlucky || !is_ready;
        }
        match peer {
            _ if send.is_lost => self.transmit_frames(cable, end, key, None),
            Some(peer) if is_ready => self.transmit_frames(cable, end, key, Some(peer)),
            _ => {
                self.stall(cable, end, key, visible);
                return false;
            }
        }
        true
    }

    /// Whether a queue pair has rested for too long
    fn has_worn_out(&mut self, key: QpKey) -> bool {
        let (limit, now) = (self.idle_ns, self.now.as_nanos());
        let qp = &mut self.qps[key];
        if !qp.is_dead && now - qp.last_active.as_nanos() > limit {
            qp.is_dead = true;
            qp.freeze();
        }
        qp.is_dead
    }

    /// Sends a frame of `key` into a receive of `peer`, or nowhere
    ///
    /// And also those of the same message and receive that would follow without anything else happening before, as if each
    /// had been sent by an event of its own.
    fn transmit_frames(&mut self, cable_index: u32, end: u8, key: QpKey, peer: Option<QpKey>) {
        if self.model.rules.send_completion == SendCompletion::HandOff {
            self.report_early(key);
        }
        self.check_send(key, self.qps[key].transmitted);
        let far = peer.and_then(|peer| self.far_name(peer));
        let room = far.map_or(u32::MAX, |(host, _)| self.room_towards(host));
        if room == 0 {
            return self.wait_for_room(key);
        }
        let cable = &mut self.cables[cable_index as usize];
        let (frame_ns, rate) = (cable.frame_ns(FRAME), cable.rate);
        let (percent, is_timed) = (cable.percent, cable.is_timed);
        let direction = &mut cable.directions[usize::from(end)];
        let [qp, mut peer_qp] = match peer {
            Some(peer) => {
                let both = self.qps.get_disjoint_mut([key, peer]);
                both.expect("a queue pair is not its own peer").map(Some)
            }
            None => [self.qps.get_mut(key), None],
        };
        let qp = qp.expect("the sender is there");
        let send = &mut qp.sends[qp.transmitted];
        let mut receive = peer_qp.as_mut().map(|peer| {
            peer.last_active = self.now;
            let filled = peer.filled;
            &mut peer.receives[filled]
        });
        qp.last_active = self.now;
        let timing = &self.model.timing;

        // When the first frame after this one could leave, and each after that.
        let message_ns = if send.sent == 0 { timing.per_message_ns } else { 0 };
        let second = self.now + nanos(message_ns + frame_ns);
        let last_start = match self.schedule.next() {
            Some(next) => self.limit.min(Time::from_nanos(next.as_nanos().saturating_sub(1))),
            None => self.limit,
        };
        let more = if direction.round.is_empty() && second <= last_start {
            let time = last_start.as_nanos() - second.as_nanos();
            1 + time.checked_div(frame_ns).unwrap_or(1 << 32)
        } else {
            0
        };
        let space = receive.as_ref().map_or(u32::MAX, |receive| receive.memory.frames() - receive.frames_in);
        let left = (send.memory.frames() - send.sent).min(space);
        let until_trigger = direction.next_trigger() - direction.stats.frames;
        let frames =
            u64::from(left).min(more.saturating_add(1)).min(until_trigger).min(room.into()).max(1) as u32;

        let from = send.sent as usize * FRAME;
        let len = (send.memory.len - from).min(frames as usize * FRAME);
        send.sent += frames;
        let is_last = send.sent == send.memory.frames();
        let mut is_full = false;
        if let Some(receive) = &mut receive {
            let into = receive.frames_in as usize * FRAME;
            receive.frames_in += frames;
            receive.bytes_in += len as u32;
            is_full = receive.frames_in == receive.memory.frames();
            let space = receive.memory.len.saturating_sub(into);
            let fits = match self.model.rules.frame_match {
                FrameMatch::Exact => is_last == is_full && !send.is_split,
                FrameMatch::Fits => is_last || !is_full,
            };
            // What exceeds the receive is not written.
            if len > space || (is_last || is_full) && !fits {
                receive.status = Status::LocalLength;
            }
            if is_full && !is_last {
                match self.model.rules.frame_match {
                    FrameMatch::Exact => send.is_split = true,
                    FrameMatch::Fits => send.is_lost = true,
                }
            }
            let source = self.regions.get(send.memory.region);
            match (source, self.regions.get(receive.memory.region)) {
                (Some(source), None) if let (Some((host, to)), Some(far)) = (far, &mut self.remotes) => {
                    let (offset, boundary) = (send.memory.offset + from, self.model.rules.boundary);
                    let shown = source.show(offset, len.min(space), boundary, |bytes| {
                        far.transport.send(host, &LinkMessage::Data { to, from: qp.qpn, bytes });
                    });
                    debug_assert!(shown.is_some(), "posted memory was checked to be inside its region");
                    let damaged = direction.corrupt.min(frames);
                    if damaged > 0 {
                        direction.corrupt -= damaged;
                        receive.status = Status::BadResponse;
                    }
                }
                (Some(source), Some(target)) if receive.status != Status::LocalProtection => {
                    let (from, into) = (send.memory.offset + from, receive.memory.offset + into);
                    let boundary = self.model.rules.boundary;
                    let copied = memory::copy(source, from, target, into, len.min(space), boundary);
                    debug_assert!(copied, "posted memory was checked to be inside its region");
                    let damaged = direction.corrupt.min(frames);
                    if (damaged > 0 || receive.is_beyond) && len.min(space) > 0 {
                        let byte = target.bytes(into, 1)[0];
                        target.write(into, &[!byte]);
                    }
                    if damaged > 0 {
                        direction.corrupt -= damaged;
                        receive.status = Status::BadResponse;
                    }
                }
                (None, _) => send.status = Status::LocalProtection,
                (_, None) => receive.status = Status::LocalProtection,
                _ => (),
            }
        }

        let mut start = self.now;
        let mut rest = len;
        for number in 0..frames {
            let bytes = rest.min(FRAME);
            rest -= bytes;
            self.trace.record(start, RecordKind::Frame, qp.name(), bytes as u64);
            let extra = if number == 0 { message_ns } else { 0 };
            let ns = match bytes {
                FRAME => frame_ns,
                _ if is_timed => rate.frame_ns(bytes) * 100 / u64::from(percent),
                _ => 0,
            };
            start = start + nanos(extra + ns);
            direction.stats.wire_bytes += rate.wire_bytes(bytes);
        }
        let end_of_frames = start;
        direction.busy_until = end_of_frames;
        direction.stats.frames += u64::from(frames);
        direction.stats.payload_bytes += len as u64;
        while let Some(fault) = direction.pop_triggered() {
            self.schedule.add(end_of_frames, Event::Fault(fault));
        }
        if is_last {
            direction.stats.messages += 1;
            qp.transmitted += 1;
        }
        let has_more = qp.transmitted < qp.rung;
        if has_more {
            direction.round.push_back(key);
        } else {
            qp.tx = Tx::Idle;
        }
        let mut acknowledged = None;
        if let Some(peer) = peer
            && (is_last || is_full)
        {
            let jitter = u64::from(self.choices.pick(self.model.timing.jitter_ns + 1));
            let timing = &self.model.timing;
            let arrival = end_of_frames + nanos(timing.propagation_ns + timing.delivery_ns + jitter);
            let delivery = self.visible_at(self.qps[peer].device, arrival);
            let peer_qp = &mut self.qps[peer];
            peer_qp.last_delivery = peer_qp.last_delivery.max(delivery);
            let delivery = peer_qp.last_delivery;
            acknowledged = Some(delivery + nanos(self.model.timing.propagation_ns));
            if let Some((host, to)) = far {
                self.send_filled(host, to, key, peer, delivery);
            } else {
                peer_qp.filled += 1;
                self.schedule.add(delivery, Event::Delivered(self.qp_ref(peer)));
            }
        }
        if is_last {
            let departure = end_of_frames + nanos(self.model.timing.send_completion_ns);
            let is_reliable = self.qps[key].qp_type == QpType::Rc;
            let end = acknowledged.filter(|_| is_reliable).unwrap_or(departure);
            self.complete_send_at(key, self.qps[key].transmitted - 1, end);
        }
    }

    /// Has a transmitted send of `key`, by its position in the queue, complete at `time`, or after those before it
    pub(super) fn complete_send_at(&mut self, key: QpKey, position: usize, time: Time) {
        let (time, event) = (self.visible_at(self.qps[key].device, time), Event::Sent(self.qp_ref(key)));
        let qp = &mut self.qps[key];
        qp.sends[position].ends = Some(time);
        while let Some(ends) = qp.sends.get(qp.ending).and_then(|send| send.ends) {
            qp.ending += 1;
            qp.last_departure = qp.last_departure.max(ends);
            self.schedule.add(qp.last_departure, event);
        }
    }

    /// Takes a queue pair out of the round, whatever it has to send
    pub(super) fn leave_round(&mut self, key: QpKey) {
        if let Some((cable, end)) = self.device(self.qps[key].device).cable {
            self.direction(cable, end).round.retain(|other| *other != key);
        }
    }

    /// Has `key` wait for a receive of its peer, of which one may become visible at `visible`
    fn stall(&mut self, cable: u32, end: u8, key: QpKey, visible: Option<Time>) {
        self.direction(cable, end).stats.stalls += 1;
        let qp = &mut self.qps[key];
        qp.tx = Tx::Stalled;
        let (name, is_reliable) = (qp.name(), qp.qp_type == QpType::Rc);
        self.record(RecordKind::Stall, name, 0);
        if let Some(visible) = visible {
            self.schedule.add(visible, Event::Credit(self.qp_ref(key)));
        } else if is_reliable {
            self.be_patient(key);
        }
    }

    /// Has a reliable queue pair look in a while whether its peer is there
    pub(super) fn be_patient(&mut self, key: QpKey) {
        if !std::mem::replace(&mut self.qps[key].is_giving_up, true) {
            self.schedule.add(self.now + GIVE_UP, Event::GiveUp(self.qp_ref(key)));
        }
    }
}
