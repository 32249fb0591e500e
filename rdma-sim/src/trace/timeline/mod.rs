//! The records of a history as spans: what pictures show

mod faults;
mod queue;

use std::collections::BTreeMap;
use std::fmt;

use rdma_core::Status;

pub(super) use self::faults::FaultSpan;
use self::faults::Faults;
use self::queue::Queue;
use super::history::{Names, port_of};
use super::record::{Ending, Wait};
use super::{History, Record, RecordKind};

/// Messages, frames, waits, faults and states, with their beginnings and ends in nanoseconds
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// In the order of the first record about each
    pub(super) qps: Vec<Qp>,
    /// In the order in which they were posted
    pub(super) messages: Vec<Message>,
    pub(super) frames: Vec<Frame>,
    pub(super) stalls: Vec<Stall>,
    pub(super) faults: Vec<FaultSpan>,
    pub(super) states: Vec<State>,
    pub(super) end: u64,
}

/// A queue pair
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) subject: u32,
    /// The position of the queue pair that it was connected to last
    pub(super) peer: Option<usize>,
    /// How many frames its posted receives have room for, from each time on
    pub(super) credits: Vec<(u64, u64)>,
}

/// A posted send, or operation on the memory of the peer
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) qp: usize,
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) posted: u64,
    /// When its first frame began to leave
    pub(super) first: Option<u64>,
    /// When its last frame so far had left
    pub(super) left: Option<u64>,
    /// When its send completed
    pub(super) sent: Option<u64>,
    /// When its receive completed
    pub(super) delivered: Option<u64>,
    /// When its receive was posted
    pub(super) receive: Option<u64>,
    /// The queue pair that received it
    pub(super) to: Option<usize>,
    /// When it was dropped, and why, as an ending of records
    pub(super) dropped: Option<(u64, u64)>,
    pub(super) is_one_sided: bool,
    pub(super) is_lost: bool,
    pub(super) is_damaged: bool,
    /// The status of its completions: the first that was no success
    pub(super) status: u64,
    /// The fault that delayed or ended it
    pub(super) fault: Option<u32>,
    /// The position of its first stall
    pub(super) stall: Option<usize>,
    /// How long it has stalled
    pub(super) stalled: u64,
}

/// What became of a message
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// It completed at both ends
    Delivered,
    /// It went nowhere
    Lost,
    /// It completed with an error
    Failed,
    /// Its queue pair, or that of its receive, dropped it
    Dropped,
    /// It had not completed when the run ended, which ends all queue pairs
    Unfinished,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) qp: usize,
    pub(super) message: Option<usize>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) bytes: u64,
}

/// A time during which a queue pair waited for a receive of its peer
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    pub(super) qp: usize,
    pub(super) message: Option<usize>,
    pub(super) start: u64,
    pub(super) end: Option<u64>,
    pub(super) why: u64,
    /// When the receive that ended it was posted
    pub(super) receive: Option<u64>,
    pub(super) fault: Option<u32>,
}

/// A time during which a host, a port or a cable is in another state than at first
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) of: RecordKind,
    pub(super) subject: u32,
    pub(super) value: u64,
    pub(super) start: u64,
    pub(super) end: Option<u64>,
    pub(super) fault: Option<u32>,
}

impl Timeline {
    pub(super) fn of(history: &History) -> Self {
        let mut builder = Builder {
            timeline: Self { end: history.end.as_nanos(), ..Self::default() },
            queues: Vec::new(),
            positions: BTreeMap::new(),
            faults: Faults::new(&history.names.faults),
            first: &history.names,
            names: history.names.clone(),
        };
        history.records.iter().for_each(|record| builder.add(record));
        builder.timeline.faults = builder.faults.spans;
        builder.timeline.forget_end();
        builder.timeline
    }

    /// What the end of the run destroyed was not dropped: it was under way
    fn forget_end(&mut self) {
        let by_end = (self.end, Ending::Destroyed as u64);
        for message in &mut self.messages {
            message.dropped = message.dropped.filter(|dropped| *dropped != by_end);
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delivered => "delivered",
            Self::Lost => "lost",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::Unfinished => "under way when the run ended",
        })
    }
}

impl Message {
    pub(super) fn outcome(&self) -> Outcome {
        let is_done = self.sent.is_some() && (self.delivered.is_some() || self.is_one_sided);
        match () {
            () if self.status != 0 => Outcome::Failed,
            () if is_done => Outcome::Delivered,
            () if self.is_lost => Outcome::Lost,
            () if self.dropped.is_some() => Outcome::Dropped,
            () => Outcome::Unfinished,
        }
    }

    /// When it was over, or the run
    pub(super) fn end(&self, end: u64) -> u64 {
        let known = [self.sent, self.delivered, self.dropped.map(|(at, _)| at)].into_iter().flatten().max();
        match self.outcome() {
            Outcome::Unfinished => end,
            _ => known.or(self.left).unwrap_or(end),
        }
        .max(self.posted)
    }

    fn take_status(&mut self, status: u64) {
        if self.status == u64::from(Status::Success.code()) {
            self.status = status;
        }
    }
}

struct Builder<'a> {
    timeline: Timeline,
    /// By the position of the queue pair
    queues: Vec<Queue>,
    positions: BTreeMap<u32, usize>,
    faults: Faults<'a>,
    first: &'a Names,
    /// As they are now
    names: Names,
}

impl Builder<'_> {
    fn add(&mut self, record: &Record) {
        let Record { kind, subject, value, detail, .. } = *record;
        let now = record.time.as_nanos();
        match kind {
            RecordKind::Fault => self.faults.fire(&self.names, subject, now),
            RecordKind::Process | RecordKind::Port | RecordKind::Cable => self.change(record, now),
            RecordKind::Moved | RecordKind::Renamed => self.names.follow(self.first, record),
            RecordKind::Calm => self.faults.calm(now),
            RecordKind::Plugged => (),
            RecordKind::Connect => {
                let (qp, peer) = (self.qp(subject), self.qp(detail as u32));
                if value == 1 {
                    self.timeline.qps[qp].peer = Some(peer);
                }
            }
            RecordKind::PostSend => self.post_send(subject, value, detail, now),
            RecordKind::PostRecv => {
                let qp = self.qp(subject);
                let credits = self.queues[qp].post_receive(value, now);
                self.count(qp, now, credits);
            }
            RecordKind::Stall => self.stall(subject, detail, now),
            RecordKind::Frame => self.frame(subject, value, now, detail),
            RecordKind::OneSided => self.one_sided(subject, now, detail),
            RecordKind::Lost => {
                let qp = self.qp(subject);
                if let Some(&message) = self.queues[qp].leaving.front() {
                    let message = &mut self.timeline.messages[message];
                    message.is_lost = true;
                    if value == 1 {
                        message.fault = self.faults.lose(port_of(subject), now, detail == 0);
                    }
                }
            }
            RecordKind::Damaged => {
                let qp = self.qp(subject);
                let sender = self.timeline.qps[qp].peer.map(|peer| port_of(self.timeline.qps[peer].subject));
                self.queues[qp].damage =
                    Some(sender.and_then(|port| self.faults.damage(port, now, detail == 0)));
            }
            RecordKind::Filled => self.filled(subject, value as u32),
            RecordKind::Sent => self.sent(subject, value, now),
            RecordKind::Delivered => self.delivered(subject, value & 0xff, now),
            RecordKind::Dropped => self.dropped(subject, value, now),
        }
    }

    /// The position of a queue pair
    fn qp(&mut self, subject: u32) -> usize {
        *self.positions.entry(subject).or_insert_with(|| {
            self.timeline.qps.push(Qp { subject, peer: None, credits: Vec::new() });
            self.queues.push(Queue::default());
            self.queues.len() - 1
        })
    }

    fn count(&mut self, qp: usize, at: u64, credits: u64) {
        let steps = &mut self.timeline.qps[qp].credits;
        match steps.last_mut() {
            Some((_, count)) if *count == credits => (),
            Some((last, count)) if *last >= at => *count = credits,
            _ => steps.push((at, credits)),
        }
    }

    /// A host, a port or a cable changes
    fn change(&mut self, record: &Record, now: u64) {
        let Record { kind, subject, value, .. } = *record;
        let is_same =
            |state: &&mut State| (state.of, state.subject) == (kind, subject) && state.end.is_none();
        if let Some(open) = self.timeline.states.iter_mut().rfind(is_same) {
            open.end = Some(now);
        }
        let usual = if kind == RecordKind::Cable { 100 } else { 1 };
        if value != usual {
            let fault = self.faults.last_at(now);
            self.timeline.states.push(State { of: kind, subject, value, start: now, end: None, fault });
        }
        match kind {
            RecordKind::Process => self.faults.process(subject, value, now),
            RecordKind::Cable => self.faults.cable(subject, value, now),
            _ => (),
        }
    }

    // ─── Sends ───

    fn post_send(&mut self, subject: u32, bytes: u64, id: u64, now: u64) {
        let qp = self.qp(subject);
        let number = self.timeline.messages.len();
        self.queues[qp].sends.push_back(number);
        self.queues[qp].leaving.push_back(number);
        self.timeline.messages.push(Message {
            qp,
            id,
            bytes,
            posted: now,
            first: None,
            left: None,
            sent: None,
            delivered: None,
            receive: None,
            to: None,
            dropped: None,
            is_one_sided: false,
            is_lost: false,
            is_damaged: false,
            status: 0,
            fault: None,
            stall: None,
            stalled: 0,
        });
    }

    fn stall(&mut self, subject: u32, why: u64, now: u64) {
        let qp = self.qp(subject);
        if self.queues[qp].stall.is_some() {
            return;
        }
        let message = self.queues[qp].leaving.front().copied();
        let number = self.timeline.stalls.len();
        let fault = self.fault_of_wait(qp, why);
        self.queues[qp].stall = Some(number);
        let stall = Stall { qp, message, start: now, end: None, why, receive: None, fault };
        self.timeline.stalls.push(stall);
        if let Some(message) = message {
            self.timeline.messages[message].stall.get_or_insert(number);
        }
    }

    /// The fault because of which a queue pair waits: its peer does not run, or its cable is out
    fn fault_of_wait(&self, qp: usize, why: u64) -> Option<u32> {
        let Qp { subject, peer, .. } = self.timeline.qps[qp];
        let port = |subject| self.names.ports.get(port_of(subject) as usize);
        let host = peer.and_then(|peer| port(self.timeline.qps[peer].subject)).map(|port| port.host);
        let by_host = host.and_then(|host| self.faults.of_host(host));
        let cable = port(subject).and_then(|port| port.cable).filter(|_| why == Wait::NoPeer as u64);
        by_host.or_else(|| self.faults.of_cable(cable?))
    }

    fn end_stall(&mut self, qp: usize, now: u64, receive: Option<u64>) {
        let Some(number) = self.queues[qp].stall.take() else { return };
        let stall = &mut self.timeline.stalls[number];
        (stall.end, stall.receive) = (Some(now), receive);
        if let Some(message) = stall.message {
            let message = &mut self.timeline.messages[message];
            message.stalled += now.saturating_sub(stall.start);
            message.fault = message.fault.or(stall.fault);
        }
    }

    fn frame(&mut self, subject: u32, bytes: u64, start: u64, end: u64) {
        let qp = self.qp(subject);
        let peer = self.timeline.qps[qp].peer;
        let receive = peer.and_then(|peer| self.queues[peer].oldest_receive());
        self.end_stall(qp, start, receive);
        let head = self.queues[qp].leaving.front().copied();
        let slow = self.fault_of_rate(subject);
        if let Some(number) = head {
            let message = &mut self.timeline.messages[number];
            message.first.get_or_insert(start);
            message.left = Some(end);
            message.fault = message.fault.or(slow);
            self.queues[qp].frame_left(number, message.bytes);
            if !message.is_lost
                && let Some(peer) = peer
            {
                let credits = self.queues[peer].take_frame();
                self.count(peer, start, credits);
            }
        }
        self.timeline.frames.push(Frame { qp, message: head, start, end, bytes });
    }

    /// The fault that slows the cable of a queue pair
    fn fault_of_rate(&self, subject: u32) -> Option<u32> {
        if self.faults.is_quiet() {
            return None;
        }
        self.faults.of_rate(self.names.ports.get(port_of(subject) as usize)?.cable?)
    }

    fn one_sided(&mut self, subject: u32, start: u64, end: u64) {
        let qp = self.qp(subject);
        self.end_stall(qp, start, None);
        let peer = self.timeline.qps[qp].peer;
        let Some(number) = self.queues[qp].leaving.pop_front() else { return };
        let message = &mut self.timeline.messages[number];
        (message.first, message.left, message.to) = (Some(start), Some(end), peer);
        message.is_one_sided = true;
        let frame = Frame { qp, message: Some(number), start, end, bytes: message.bytes };
        self.timeline.frames.push(frame);
    }

    fn sent(&mut self, subject: u32, status: u64, now: u64) {
        let qp = self.qp(subject);
        let Some(number) = self.queues[qp].sends.pop_front() else { return };
        self.queues[qp].leaving.retain(|other| *other != number);
        let message = &mut self.timeline.messages[number];
        message.sent = Some(now);
        message.take_status(status);
    }

    // ─── Receives ───

    fn filled(&mut self, subject: u32, from: u32) {
        let (to, from) = (self.qp(subject), self.qp(from));
        let (receive, credits) = self.queues[to].fill();
        let Some(number) = self.queues[from].current else { return };
        let message = &mut self.timeline.messages[number];
        (message.to, message.receive) = (Some(to), receive.or(message.receive));
        if let Some(fault) = self.queues[to].damage.take() {
            message.is_damaged = true;
            message.fault = fault.or(message.fault);
        }
        message.fault = message.fault.or_else(|| self.faults.of_receives(port_of(subject)));
        let at = message.left.unwrap_or(message.posted);
        self.queues[to].filled.push_back(number);
        self.count(to, at, credits);
    }

    fn delivered(&mut self, subject: u32, status: u64, now: u64) {
        let qp = self.qp(subject);
        let Some(number) = self.queues[qp].filled.pop_front() else { return };
        let message = &mut self.timeline.messages[number];
        message.delivered = Some(now);
        message.take_status(status);
    }

    /// A queue pair drops its requests, and what has been filled and not delivered
    fn dropped(&mut self, subject: u32, why: u64, now: u64) {
        let qp = self.qp(subject);
        // What waited behind a message that waited for the peer waited for the peer, too.
        let waited = self.queues[qp].stall.and_then(|stall| self.timeline.stalls[stall].fault);
        self.end_stall(qp, now, None);
        let fault = self.faults.last_at(now);
        let messages = self.queues[qp].clear();
        for number in messages {
            let message = &mut self.timeline.messages[number];
            message.dropped.get_or_insert((now, why));
            message.fault = fault.or(message.fault).or(waited);
        }
        if self.timeline.qps[qp].credits.last().is_some_and(|(_, credits)| *credits > 0) {
            self.count(qp, now, 0);
        }
    }
}
