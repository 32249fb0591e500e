//! The transmitters at the ends of cables: their queues, their rates, and what they have sent

use std::collections::VecDeque;

use rdma_core::{FRAME, Time};

use super::buses::Buses;
use super::event::{Event, Nanos};
use super::ids::{LinkEnd, QpKey};
use super::queue_pairs::Piece;
use crate::{LineRate, Timing};

/// The transmitters of all cables
pub(crate) struct Links {
    cables: Vec<Cable>,
    /// Whether anything was counted since [`take_counted`](Self::take_counted).
    has_counted: bool,
    /// What each message occupies the transmitter for, beside its bytes.
    per_message: Nanos,
    /// What bounds the ports of a host together, if anything does.
    buses: Option<Buses>,
    /// How many frames in a row the first queue pair of a port sends.
    turns: u32,
    /// Whether a fault has waited for frames, or damages or loses some.
    has_faults: bool,
}

struct Cable {
    rate: LineRate,
    timing: Timing,
    /// Of its rate that is left, in percent.
    percent: u32,
    /// A full frame on the cable as it is now.
    full_frame: Frame,
    /// The frame that was sent last: messages are often as long as the one before.
    last_frame: Frame,
    /// By the end that transmits.
    transmitters: [Transmitter; 2],
}

/// What a frame takes of a cable
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    /// Bytes of payload
    len: usize,
    ns: u64,
    wire_bytes: u64,
}

#[derive(Default)]
struct Transmitter {
    /// Queue pairs with something to send, in turn.
    tx_queue: VecDeque<QpKey>,
    busy_until: Time,
    /// How many frames in a row were those of the first queue pair.
    streak: u32,
    /// An event at the end of the current frame is scheduled.
    is_armed: bool,
    /// Frames to damage.
    corrupt: u32,
    /// Frames of messages to lose.
    lose: u32,
    /// Faults that wait for a number of frames, last first.
    triggers: Vec<(u64, u32)>,
    stats: CableStats,
}

/// What has passed over one direction of a cable
///
/// ```
/// use rdma_sim::Sim;
///
/// Sim::new().run(|net| async move {
///     let [sent, received] = net.cable_stats("a", "rdma_en2").expect("a cable is in the port");
///     assert_eq!((sent.frames, received.messages), (0, 0));
/// });
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
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

impl std::ops::Add for CableStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            // They may come from memory that other processes write.
            frames: self.frames.saturating_add(other.frames),
            messages: self.messages.saturating_add(other.messages),
            payload_bytes: self.payload_bytes.saturating_add(other.payload_bytes),
            stalls: self.stalls.saturating_add(other.stalls),
            wire_bytes: self.wire_bytes.saturating_add(other.wire_bytes),
        }
    }
}

/// When a transmitter looks at a queue pair that has joined its queue
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TxStart {
    /// At an event that is scheduled already
    Armed,
    /// At an event to be scheduled at this time
    At(Time),
    /// Now
    Now,
}

impl Cable {
    fn new(rate: LineRate, timing: &Timing) -> Self {
        let mut cable = Self {
            rate,
            timing: timing.clone(),
            percent: 100,
            full_frame: Frame::default(),
            last_frame: Frame::default(),
            transmitters: [Transmitter::new(), Transmitter::new()],
        };
        cable.slow(100);
        cable
    }

    /// Has so much of its rate left from now on
    fn slow(&mut self, percent: u32) {
        self.percent = percent;
        self.full_frame = self.measure(FRAME);
        self.last_frame = self.full_frame;
    }

    /// What a frame of `len` bytes of payload takes of the cable as it is now
    #[inline(always)]
    fn frame(&mut self, len: usize) -> Frame {
        if self.last_frame.len != len {
            self.measure_next(len);
        }
        self.last_frame
    }

    #[cold]
    fn measure_next(&mut self, len: usize) {
        self.last_frame = if len == FRAME { self.full_frame } else { self.measure(len) };
    }

    fn measure(&self, len: usize) -> Frame {
        let ns = self.timing.line_ns(self.rate, len);
        // Thunderbolt networking takes its part of what is left.
        let left = u64::from(self.percent) * u64::from(100 - self.timing.ip_percent.min(99));
        let ns = if left == 10_000 { ns } else { ns * 10_000 / left };
        Frame { len, ns, wire_bytes: self.rate.wire_bytes(len) }
    }
}

impl Links {
    /// The transmitters of cables with these rates, between these hosts
    pub(super) fn new(
        rates: impl Iterator<Item = LineRate>,
        hosts: impl Iterator<Item = [u32; 2]>,
        timing: &Timing,
    ) -> Self {
        Self {
            cables: rates.map(|rate| Cable::new(rate, timing)).collect(),
            has_counted: false,
            per_message: Nanos(timing.per_message_ns),
            buses: Buses::new(timing.mac_bytes_per_us, hosts),
            turns: timing.turns,
            has_faults: false,
        }
    }

    /// What has left this end of a cable, and the other
    pub(crate) fn stats(&self, link: LinkEnd) -> [CableStats; 2] {
        [link, link.opposite()]
            .map(|LinkEnd { cable, end }| self.cables[cable as usize].transmitters[usize::from(end)].stats)
    }

    /// Whether anything was counted since the last call
    pub(crate) fn take_counted(&mut self) -> bool {
        std::mem::take(&mut self.has_counted)
    }

    fn transmitter(&mut self, LinkEnd { cable, end }: LinkEnd) -> &mut Transmitter {
        &mut self.cables[cable as usize].transmitters[usize::from(end)]
    }

    // ─── Queues ───

    /// Puts a queue pair at the end of the queue, unless it is next and the transmitter is free
    pub(super) fn enqueue_tx(&mut self, link: LinkEnd, key: QpKey, now: Time) -> TxStart {
        let transmitter = self.transmitter(link);
        // A transmitter that is not armed has an empty queue.
        if !transmitter.is_armed && transmitter.busy_until <= now {
            return TxStart::Now;
        }
        transmitter.tx_queue.push_back(key);
        if std::mem::replace(&mut transmitter.is_armed, true) {
            TxStart::Armed
        } else {
            TxStart::At(transmitter.busy_until)
        }
    }

    /// Notes that the event at the end of a frame is past, so that the transmitter is free; returns the queue pair whose turn it is
    pub(super) fn disarm_transmitter(&mut self, link: LinkEnd) -> Option<QpKey> {
        self.transmitter(link).is_armed = false;
        self.pop(link)
    }

    /// When the transmitter has to look at its queue again, if no event is scheduled for that
    pub(super) fn arm_transmitter(&mut self, link: LinkEnd) -> Option<Time> {
        let transmitter = self.transmitter(link);
        if transmitter.is_armed || transmitter.tx_queue.is_empty() {
            return None;
        }
        transmitter.is_armed = true;
        Some(transmitter.busy_until)
    }

    /// The queue pair whose turn it is
    pub(super) fn pop(&mut self, link: LinkEnd) -> Option<QpKey> {
        self.transmitter(link).tx_queue.pop_front()
    }

    /// Whether a queue pair is in the queue
    pub(super) fn has_next(&self, LinkEnd { cable, end }: LinkEnd) -> bool {
        !self.cables[cable as usize].transmitters[usize::from(end)].tx_queue.is_empty()
    }

    /// Puts a queue pair that has more to send at the end of the queue, unless it is the first of its port and has more turns
    pub(super) fn requeue(&mut self, link: LinkEnd, key: QpKey, is_first: impl FnOnce() -> bool) {
        let turns = self.turns;
        let transmitter = self.transmitter(link);
        if turns > 1 && transmitter.streak + 1 < turns && is_first() {
            transmitter.streak += 1;
            transmitter.tx_queue.push_front(key);
        } else {
            transmitter.streak = 0;
            transmitter.tx_queue.push_back(key);
        }
    }

    /// Takes a queue pair out of the queue, whatever it has to send
    pub(super) fn remove(&mut self, link: LinkEnd, key: QpKey) {
        self.transmitter(link).tx_queue.retain(|other| *other != key);
    }

    /// Takes all queue pairs out of the queues of both ends of a cable
    pub(super) fn clear(&mut self, cable: u32) {
        self.cables[cable as usize].transmitters.iter_mut().for_each(|one| one.tx_queue.clear());
    }

    // ─── Transmitting ───

    /// How many frames of one message can leave, as long as no other event can come between them
    ///
    /// Other events are those scheduled, of which the next comes after `quiet_until`, and the turns of other queue pairs.
    pub(super) fn batch(&self, link: LinkEnd, now: Time, quiet_until: Time, is_first: bool) -> u64 {
        let Cable { full_frame: Frame { ns: full_frame_ns, .. }, transmitters, .. } =
            &self.cables[link.cable as usize];
        let transmitter = &transmitters[usize::from(link.end)];
        let second = now + Nanos(self.start_ns(is_first) + full_frame_ns);
        // Frames of several ports take turns at the bus.
        let is_alone = transmitter.tx_queue.is_empty() && self.buses.is_none();
        let more = if is_alone && second <= quiet_until {
            let time = quiet_until.as_nanos() - second.as_nanos();
            1 + time.checked_div(*full_frame_ns).unwrap_or(1 << 32)
        } else {
            0
        };
        let trigger = transmitter.triggers.last().map_or(u64::MAX, |(frames, _)| *frames);
        more.saturating_add(1).min(trigger - transmitter.stats.frames)
    }

    /// Sends the frames of a piece, calls `on_frame` with the start and the end of each, and returns when the last has left
    #[inline(always)]
    pub(super) fn transmit(
        &mut self,
        link: LinkEnd,
        now: Time,
        piece: &Piece,
        mut on_frame: impl FnMut([Time; 2], usize),
    ) -> Time {
        let (mut start, mut rest) = (now, piece.len);
        let mut head_ns = self.start_ns(piece.is_first);
        let cable = &mut self.cables[link.cable as usize];
        let mut wire_bytes = 0;
        for _ in 0..piece.frames {
            let frame = cable.frame(rest.min(FRAME));
            rest -= frame.len;
            let mut end = start + Nanos(std::mem::take(&mut head_ns) + frame.ns);
            if let Some(buses) = &mut self.buses {
                end = end.max(buses.pass(link, start, frame.len));
            }
            on_frame([start, end], frame.len);
            start = end;
            wire_bytes += frame.wire_bytes;
        }
        let transmitter = &mut cable.transmitters[usize::from(link.end)];
        self.has_counted = true;
        transmitter.busy_until = start;
        transmitter.count(piece.frames.into(), piece.is_last, piece.len, wire_bytes);
        start
    }

    /// Occupies the transmitter with a message of `len` bytes in one piece, and returns when it has left
    pub(super) fn occupy(&mut self, link: LinkEnd, now: Time, len: usize) -> Time {
        let head_ns = self.start_ns(true);
        let cable = &mut self.cables[link.cable as usize];
        let frames = rdma_core::frames(len) as u64;
        let last = cable.frame(len - (frames as usize - 1) * FRAME);
        let ns = head_ns + (frames - 1) * cable.full_frame.ns + last.ns;
        let wire_bytes = cable.rate.wire_bytes(len);
        self.has_counted = true;
        let transmitter = &mut cable.transmitters[usize::from(link.end)];
        let start = transmitter.busy_until.max(now);
        let passed = self.buses.as_mut().map(|buses| buses.pass(link, start, len));
        transmitter.busy_until = passed.unwrap_or(start).max(start + Nanos(ns));
        transmitter.count(frames, true, len, wire_bytes);
        transmitter.busy_until
    }

    fn start_ns(&self, is_first: bool) -> u64 {
        if is_first { self.per_message.0 } else { 0 }
    }

    /// Counts a queue pair that has to wait for a receive of its peer
    pub(super) fn count_stall(&mut self, link: LinkEnd) {
        self.has_counted = true;
        self.transmitter(link).stats.stalls += 1;
    }

    // ─── Faults ───

    /// The faults that waited for the frames which have been sent: they fire when the last of these has left
    pub(super) fn triggered(&mut self, link: LinkEnd) -> Option<impl Iterator<Item = (Time, Event)>> {
        if !self.has_faults {
            return None;
        }
        let transmitter = self.transmitter(link);
        let (sent, at) = (transmitter.stats.frames, transmitter.busy_until);
        Some(std::iter::from_fn(move || {
            let (_, fault) = transmitter.triggers.pop_if(|(frames, _)| *frames <= sent)?;
            Some((at, Event::Fault(fault)))
        }))
    }

    /// Makes a fault wait until `frames` frames are sent; false if they have been sent
    pub(super) fn add_trigger(&mut self, link: LinkEnd, frames: u64, fault: u32) -> bool {
        self.has_faults = true;
        let (frames, transmitter) = (frames.max(1), self.transmitter(link));
        if transmitter.stats.frames >= frames {
            return false;
        }
        transmitter.triggers.push((frames, fault));
        transmitter.triggers.sort_by_key(|trigger| std::cmp::Reverse(*trigger));
        true
    }

    pub(super) fn corrupt(&mut self, link: LinkEnd, frames: u32) {
        self.has_faults = true;
        let corrupt = &mut self.transmitter(link).corrupt;
        *corrupt = corrupt.saturating_add(frames);
    }

    pub(super) fn lose(&mut self, link: LinkEnd, frames: u32) {
        self.has_faults = true;
        let lose = &mut self.transmitter(link).lose;
        *lose = lose.saturating_add(frames);
    }

    /// How many cables there are
    pub(super) fn count(&self) -> usize {
        self.cables.len()
    }

    /// How much of its rate a cable has left, in percent
    pub(super) fn percent(&self, cable: u32) -> u32 {
        self.cables[cable as usize].percent
    }

    pub(super) fn slow(&mut self, cable: u32, percent: u32) {
        self.cables[cable as usize].slow(percent);
    }

    /// Ends all faults, and forgets those that wait for a number of frames
    pub(super) fn repair(&mut self) {
        for cable in &mut self.cables {
            cable.slow(100);
            for transmitter in &mut cable.transmitters {
                (transmitter.corrupt, transmitter.lose) = (0, 0);
                transmitter.triggers.clear();
            }
        }
    }

    /// How many frames are still to be damaged, and to be lost
    pub(super) fn pending_faults(&self, LinkEnd { cable, end }: LinkEnd) -> [u32; 2] {
        let Transmitter { corrupt, lose, .. } = self.cables[cable as usize].transmitters[usize::from(end)];
        [corrupt, lose]
    }

    /// Whether one of the next `frames` frames is damaged; each damage is used once
    #[inline]
    pub(super) fn take_damage(&mut self, link: LinkEnd, frames: u32) -> bool {
        self.has_faults && self.damages(link, frames)
    }

    fn damages(&mut self, link: LinkEnd, frames: u32) -> bool {
        let transmitter = self.transmitter(link);
        let damaged = transmitter.corrupt.min(frames);
        transmitter.corrupt -= damaged;
        damaged > 0
    }

    /// Whether the next message, of `frames` frames, is lost; each loss is used once
    #[inline]
    pub(super) fn take_loss(&mut self, link: LinkEnd, frames: u32) -> bool {
        self.has_faults && self.loses(link, frames)
    }

    fn loses(&mut self, link: LinkEnd, frames: u32) -> bool {
        let transmitter = self.transmitter(link);
        let is_lost = transmitter.lose > 0;
        transmitter.lose = transmitter.lose.saturating_sub(frames);
        is_lost
    }
}

impl Transmitter {
    fn new() -> Self {
        // Not when queue pairs wait for the first time: a run takes no more memory the longer it is.
        Self { tx_queue: VecDeque::with_capacity(4), ..Self::default() }
    }

    fn count(&mut self, frames: u64, is_last: bool, len: usize, wire_bytes: u64) {
        self.stats.frames += frames;
        self.stats.messages += u64::from(is_last);
        self.stats.payload_bytes += len as u64;
        self.stats.wire_bytes += wire_bytes;
    }
}
