//! The queue pairs of all devices, their numbers, and which of them are connected

mod delivery;
mod posting;
mod queue_pair;
mod remote_ops;
mod work;

use std::iter;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use rdma_core::{Cause, Error, Invalid, QpCapacity, QpInit, QpType, Qpn, Resource, Status, Time, Verb};
use slotmap::{Key as _, SlotMap};

pub(crate) use self::delivery::Piece;
pub(crate) use self::posting::Admission;
pub(crate) use self::queue_pair::QueuePair;
pub(crate) use self::remote_ops::REQUEST_BYTES;
use self::work::Receive;
pub(crate) use self::work::{EndedReceive, Head, opcode};

use super::event::Event;
use super::ids::{CqKey, DeviceIndex, QpKey, QpRef, Span};
use super::object_counts::ObjectCounts;
use crate::Model;
use crate::catalogue::rule;
use crate::remote::{FIRST_HOP, MAX_PROCESSES};
use crate::rules::{FrameMatch, QueueGrant, QueueReadBack, QueueUnit};

/// The queue pairs of all devices
pub(crate) struct QueuePairs {
    all: SlotMap<QpKey, QueuePair>,
    devices: Vec<PerDevice>,
    numbers: Numbers,
    /// How long a queue pair can rest.
    idle_ns: u64,
    max_qp: u32,
    max_frames: u32,
    grant: QueueGrant,
    read_back: QueueReadBack,
    unit: QueueUnit,
    frame_match: FrameMatch,
}

struct PerDevice {
    keys: Vec<QpKey>,
    /// Where the search for a free number begins.
    next_hop: u32,
}

/// The hops that numbers are made of: each process of a host has its own
#[derive(Clone, Copy)]
struct Numbers {
    first: u32,
    step: u32,
}

/// How the bytes of a piece get from a send into a receive
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceTarget {
    pub(super) from: Span,
    pub(super) into: Span,
    /// The receive takes no bytes any more.
    pub(super) is_refused: bool,
    /// The receive is full.
    pub(super) is_full: bool,
}

/// The trace has room for numbers up to this hop.
const LAST_HOP: u32 = 0xfff;
/// How long a reliable queue pair tries to reach a peer: seven times half a second, as common adapters do.
const RETRY: Duration = Duration::from_millis(3_500);

impl QueuePairs {
    pub(super) fn new(devices: usize, model: &Model) -> Self {
        let per_device = || PerDevice { keys: Vec::new(), next_hop: FIRST_HOP };
        let idle = model.rules.idle_death.and_then(|idle| u64::try_from(idle.as_nanos()).ok());
        Self {
            all: SlotMap::with_key(),
            devices: iter::repeat_with(per_device).take(devices).collect(),
            numbers: Numbers { first: FIRST_HOP, step: 1 },
            idle_ns: idle.unwrap_or(u64::MAX),
            max_qp: model.caps.max_qp,
            max_frames: model.caps.max_queue_frames,
            grant: model.rules.queue_grant,
            read_back: model.rules.queue_read_back,
            unit: model.rules.queue_unit,
            frame_match: model.rules.frame_match,
        }
    }

    /// Leaves the numbers of other processes alone from now on: this is the one with that number
    pub(crate) fn share_numbers(&mut self, process: u32) {
        let first = FIRST_HOP + process % MAX_PROCESSES;
        self.numbers = Numbers { first, step: MAX_PROCESSES };
        self.devices.iter_mut().for_each(|device| device.next_hop = first);
    }

    // ─── Coming and going ───

    /// Creates a queue pair in the reset state, beside `leaked` ones that count and that no process has
    pub(super) fn create(
        &mut self,
        device: DeviceIndex,
        cqs: [CqKey; 2],
        init: &QpInit,
        leaked: u32,
        now: Time,
        objects: &mut ObjectCounts,
    ) -> Result<QpKey, Error> {
        let fail = |cause| Error::new(Verb::CreateQp, cause);
        let QpCapacity { recv_frames, send_frames } = init.capacity;
        let max = self.max_frames;
        let frames = recv_frames.max(send_frames);
        if frames > max {
            return Err(fail(Invalid::QueueFrames { frames, max }.into()));
        }
        let grant = |asked| self.grant.accepts(asked, max);
        let capacity = QpCapacity { recv_frames: grant(recv_frames), send_frames: grant(send_frames) };
        let (own, limit) = (self.of(device).len() as u32, self.max_qp.min(self.numbers.count()));
        objects.add(device, Resource::QueuePairs, [own, leaked], limit).map_err(fail)?;
        let qpn = self.take_qpn(device);
        Ok(self.insert(QueuePair::new(device, cqs, qpn, init.qp_type, capacity, self.unit, now)))
    }

    /// The capacity that a queue pair reports for which `asked` was asked
    pub(super) fn read_back(&self, key: QpKey, asked: QpCapacity) -> QpCapacity {
        match self.read_back {
            QueueReadBack::Accepted => self.all[key].capacity,
            QueueReadBack::Asked => asked,
            QueueReadBack::Limit => QpCapacity { recv_frames: self.max_frames, send_frames: self.max_frames },
        }
    }

    fn insert(&mut self, qp: QueuePair) -> QpKey {
        let device = qp.device;
        let key = self.all.insert(qp);
        self.devices[device.position()].keys.push(key);
        key
    }

    /// The next free number of a device
    ///
    /// Numbers are taken in turn: that of a queue pair that was destroyed comes back only after all others, so that its last
    /// completions do not pass for those of a successor.
    fn take_qpn(&mut self, device: DeviceIndex) -> Qpn {
        let mut hop = self.devices[device.position()].next_hop;
        while self.find(device, Qpn(hop << 8)).is_some() {
            hop = self.numbers.after(hop);
        }
        self.devices[device.position()].next_hop = self.numbers.after(hop);
        Qpn(hop << 8)
    }

    pub(super) fn remove(&mut self, key: QpKey) {
        if let Some(qp) = self.all.remove(key) {
            self.devices[qp.device.position()].keys.retain(|other| *other != key);
        }
    }

    /// Takes away all queue pairs of a device, and returns their keys
    pub(super) fn remove_all(&mut self, device: DeviceIndex) -> Vec<QpKey> {
        let keys = std::mem::take(&mut self.devices[device.position()].keys);
        for key in &keys {
            self.all.remove(*key);
        }
        keys
    }

    // ─── Finding ───

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, key: QpKey) -> Option<&QueuePair> {
        self.all.get(key)
    }

    pub(super) fn require(&mut self, key: QpKey, verb: Verb) -> Result<&mut QueuePair, Error> {
        self.all.get_mut(key).ok_or_else(|| Error::new(verb, Cause::DeviceGone))
    }

    /// Whether no queue pair of its port is older
    pub(super) fn is_first_of_port(&self, key: QpKey) -> bool {
        self.of(self.all[key].device).first() == Some(&key)
    }

    /// The queue pairs of a device
    pub(super) fn of(&self, device: DeviceIndex) -> &[QpKey] {
        &self.devices[device.position()].keys
    }

    /// The queue pairs of a device, as the trace calls them
    pub(super) fn subjects_of(&self, device: DeviceIndex) -> impl Iterator<Item = u32> + '_ {
        self.of(device).iter().map(|key| self.all[*key].subject())
    }

    pub(super) fn for_each_of(&mut self, device: DeviceIndex, change: impl Fn(&mut QueuePair)) {
        for key in &self.devices[device.position()].keys {
            change(&mut self.all[*key]);
        }
    }

    /// The queue pairs that receive
    pub(super) fn receiving(&self) -> Vec<QpKey> {
        let receiving = self.all.iter().filter(|(_, qp)| qp.is_up() && qp.is_alive());
        receiving.map(|(key, _)| key).collect()
    }

    pub(super) fn find(&self, device: DeviceIndex, qpn: Qpn) -> Option<QpKey> {
        self.of(device).iter().copied().find(|key| self.all[*key].qpn == qpn)
    }

    /// The queue pair of that number on `device`, if it receives from the number `from`
    pub(super) fn find_receiver(&self, device: DeviceIndex, qpn: Qpn, from: Qpn) -> Option<QpKey> {
        let key = self.find(device, qpn)?;
        let qp = &self.all[key];
        (qp.is_up() && qp.peer == from && qp.is_alive()).then_some(key)
    }

    pub(super) fn at(&self, key: QpKey) -> QpRef {
        self.all[key].in_epoch(key)
    }

    /// The queue pair, unless the work that `qp` belonged to is over
    pub(super) fn live(&mut self, qp: QpRef) -> Option<&mut QueuePair> {
        self.all.get_mut(qp.key).filter(|found| found.epoch == qp.epoch)
    }

    /// The queue pair that `key` is connected to, if it is connected back; it is on the device that `neighbour` returns
    pub(super) fn connected_peer(
        &mut self,
        key: QpKey,
        neighbour: impl FnOnce(DeviceIndex) -> Option<DeviceIndex>,
    ) -> Option<QpKey> {
        let qp = &self.all[key];
        let is_peer = |other: QpKey| self.all.get(other).is_some_and(|other| other.is_connected_to(qp));
        if let Some(known) = qp.peer_key.filter(|known| is_peer(*known)) {
            return Some(known);
        }
        let found = self.of(neighbour(qp.device)?).iter().copied().find(|other| is_peer(*other));
        self.all[key].peer_key = found;
        found
    }

    /// The number of the rule by which `key` has no [peer](Self::connected_peer)
    pub(super) fn rule_without_peer(
        &self,
        key: QpKey,
        neighbour: impl FnOnce(DeviceIndex) -> Option<DeviceIndex>,
    ) -> usize {
        let qp = &self.all[key];
        let peer =
            neighbour(qp.device).and_then(|device| self.find(device, qp.peer)).map(|key| &self.all[key]);
        match peer {
            Some(peer) if peer.is_dead() => rule!("idle-death"),
            Some(peer) if !peer.is_up() => rule!("peer-readiness"),
            _ => rule!("pairing"),
        }
    }

    // ─── Shadows of queue pairs in other processes ───

    /// Keeps the shadow of a queue pair that another process has made ready to receive from `peer`
    pub(super) fn shadow(
        &mut self,
        device: DeviceIndex,
        qpn: Qpn,
        peer: Qpn,
        qp_type: QpType,
        now: Time,
    ) -> QpKey {
        if let Some(old) = self.find(device, qpn) {
            self.remove(old);
        }
        let capacity = QpCapacity { recv_frames: 0, send_frames: 0 };
        let cqs = [CqKey::null(); 2];
        let mut qp = QueuePair::new(device, cqs, qpn, qp_type, capacity, QueueUnit::Frames, now);
        qp.receive_from(peer, 0, now, now);
        self.insert(qp)
    }

    /// Adds a receive to a shadow, `visible` to senders from then on, and returns whether it is the next one to be filled
    pub(super) fn push_announced(&mut self, key: QpKey, len: usize, visible: Time) -> bool {
        let span = Span { len, ..Span::empty() };
        self.all[key].push_announced(span, visible)
    }

    // ─── Transmitting ───

    /// A send of `qp` has reached the transmitter; returns the queue pair if it has to join the queue for it
    pub(super) fn ring(&mut self, qp: QpRef) -> Option<QpKey> {
        self.live(qp)?.ring().then_some(qp.key)
    }

    /// A receive has become visible to `qp`; returns the queue pair if it has waited for one
    pub(super) fn credit(&mut self, qp: QpRef) -> Option<QpKey> {
        self.live(qp)?.is_stalled().then_some(qp.key)
    }

    /// Marks a queue pair as being in the queue of the transmitter, and returns its device
    pub(super) fn make_ready(&mut self, key: QpKey) -> DeviceIndex {
        let qp = &mut self.all[key];
        qp.make_ready();
        qp.device
    }

    /// What a queue pair has to send, if it can send
    #[inline(always)]
    pub(super) fn head(&mut self, key: QpKey, now: Time) -> Option<Head> {
        let idle_ns = self.idle_ns;
        let qp = self.all.get_mut(key)?;
        if !qp.is_ready_to_send() || qp.expire_if_idle(now, idle_ns) {
            return None;
        }
        Some(qp.head())
    }

    /// The [peer](Self::connected_peer) of `key`, unless it has rested for too long, and when its oldest open receive becomes visible to `key`
    #[inline(always)]
    pub(super) fn receiver(
        &mut self,
        key: QpKey,
        now: Time,
        neighbour: impl FnOnce(DeviceIndex) -> Option<DeviceIndex>,
    ) -> (Option<QpKey>, Option<Time>) {
        let idle_ns = self.idle_ns;
        let Some(key) = self.connected_peer(key, neighbour) else { return (None, None) };
        let peer = &mut self.all[key];
        if peer.expire_if_idle(now, idle_ns) {
            return (None, None);
        }
        (Some(key), peer.oldest_open().map(|receive| receive.visible))
    }

    /// Whether a queue pair of `device` is dead because it has rested for too long
    pub(super) fn has_idled(&mut self, device: DeviceIndex, now: Time) -> bool {
        let idle_ns = self.idle_ns;
        let keys = &self.devices[device.position()].keys;
        keys.iter().any(|key| self.all[*key].expire_if_idle(now, idle_ns))
    }

    /// Takes the next piece, of at most `batch` frames, from the send of `key`, and fills the oldest open receive of `peer` with it, if
    /// there is a peer
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        key: QpKey,
        peer: Option<QpKey>,
        batch: u64,
        now: Time,
    ) -> (Piece, Option<PieceTarget>) {
        // In turn: to borrow two queue pairs at once takes longer.
        let room = peer.and_then(|peer| self.all[peer].oldest_open()).map_or(u32::MAX, Receive::room);
        let (piece, from, is_split) = self.all[key].transmit(room, batch, now);
        let Some(peer) = peer else { return (piece, None) };
        let receive = self.all[peer].oldest_open_mut(now).expect("the sender has seen a receive");
        let into = delivery::fill(self.frame_match, is_split, receive, &piece);
        let target = PieceTarget { from, into, is_refused: receive.is_refused(), is_full: receive.is_full() };
        if target.is_full && !piece.is_last {
            self.all[key].outgrow_receive(self.frame_match);
        }
        (piece, Some(target))
    }

    /// Takes `len` bytes that a process has sent to `key`, and returns where they go, and whether the receive refuses them
    pub(super) fn take_data(&mut self, key: QpKey, len: usize, now: Time) -> Option<(Span, bool)> {
        let receive = self.all[key].oldest_open_mut(now)?;
        let into = receive.take(rdma_core::frames(len) as u32, len);
        Some((into, receive.is_refused()))
    }

    /// Ends the oldest open receive of `key` as the process of its sender says; false if there is none
    pub(super) fn end_receive(&mut self, key: QpKey, len: u32, status: Status, now: Time) -> bool {
        let receive = self.all[key].oldest_open_mut(now);
        receive.map(|receive| receive.end(len, status)).is_some()
    }

    // ─── Events to schedule ───

    /// The event by which the sender of `receiver` learns at `visible` of a receive, if it waits for one
    pub(super) fn announce_credit(
        &mut self,
        receiver: QpKey,
        visible: Time,
        neighbour: impl FnOnce(DeviceIndex) -> Option<DeviceIndex>,
    ) -> Option<(Time, Event)> {
        let sender = self.connected_peer(receiver, neighbour)?;
        self.all[sender].is_stalled().then(|| (visible, Event::Credit(self.at(sender))))
    }

    /// The events by which operations take place at `time` that have arrived before `target` was ready for them
    pub(super) fn announce_ready(
        &mut self,
        target: QpKey,
        time: Time,
        neighbour: impl FnOnce(DeviceIndex) -> Option<DeviceIndex>,
    ) -> impl Iterator<Item = (Time, Event)> {
        let sender = self.connected_peer(target, neighbour);
        let early = sender.map(|sender| (self.take_early(sender), Event::OneSided(self.at(sender))));
        early.into_iter().flat_map(move |(count, event)| iter::repeat_n((time, event), count))
    }

    /// How many one-sided operations of `key` have arrived before its peer could be reached; they count no more
    pub(super) fn take_early(&mut self, key: QpKey) -> usize {
        self.all[key].take_early()
    }

    /// The event by which a reliable queue pair looks whether its peer can be reached, if none is scheduled
    pub(super) fn arm_retry_timer(&mut self, key: QpKey, now: Time) -> Option<(Time, Event)> {
        self.all[key].arm_retry_timer().then(|| (now + RETRY, Event::Retry(self.at(key))))
    }

    /// The retry timer has expired; the queue pair, if the timer was for it as it is now
    pub(super) fn retry_expired(&mut self, qp: QpRef) -> Option<&mut QueuePair> {
        let found = self.live(qp)?;
        found.retry_expired();
        Some(found)
    }
}

impl Numbers {
    /// How many there are
    fn count(self) -> u32 {
        (LAST_HOP - self.first) / self.step + 1
    }

    /// The hop after `hop`, in turn
    fn after(self, hop: u32) -> u32 {
        if hop + self.step > LAST_HOP { self.first } else { hop + self.step }
    }
}

impl Index<QpKey> for QueuePairs {
    type Output = QueuePair;

    #[inline(always)]
    fn index(&self, key: QpKey) -> &QueuePair {
        &self.all[key]
    }
}

impl IndexMut<QpKey> for QueuePairs {
    #[inline(always)]
    fn index_mut(&mut self, key: QpKey) -> &mut QueuePair {
        &mut self.all[key]
    }
}
