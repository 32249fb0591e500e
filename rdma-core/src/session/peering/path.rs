//! A path of a peering

use std::time::Duration;

use super::super::bulk::{BulkReceiver, BulkSender};
use super::super::lane::{Due, Lane, LaneConfig};
use super::super::rate::{Rate, SHORT_ROUND_TRIP};
use super::super::{Address, MAX_ARRIVALS, MAX_GRANTS, SessionId, StreamId};
use crate::{FRAME, Time};

/// The part of a path's timeout for which a grant waits for its message, so that its receiver does not take the lane for stalled
const PART_OF_TIMEOUT: u32 = 4;

/// Time without a message on a bulk lane after which one keeps its queue pair alive
///
/// On Apple's device a queue pair that rests for about 23 minutes dies (field reports).
const BULK_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Packets ahead of one from which on its time says how fast the lane is
const MIN_AHEAD: u32 = 16;

/// Both lanes of a path
#[derive(Debug)]
pub(super) struct Path {
    pub(super) epoch: u16,
    pub(super) lane: Lane<Content>,
    pub(super) receiver: BulkReceiver,
    pub(super) sender: BulkSender,
    /// How fast the eager lane is
    pub(super) rate: Rate,
    pub(super) timeout: Duration,
    /// Packets that the caller has posted, and whose sends have not completed.
    pub(super) unsent: u32,
    /// Whether this side asks first.
    pub(super) probes: bool,
    /// Whether a packet of the peer has arrived.
    pub(super) is_proven: bool,
    /// When it is given up without one, if the peer asks first.
    proof_until: Time,
}

impl Path {
    pub(super) fn new(epoch: u16, rate: u64, config: LaneConfig, now: Time, probes: bool) -> Self {
        Self {
            epoch,
            lane: Lane::new(config, now, probes),
            receiver: BulkReceiver::new(now, config.bulk_slots, rate),
            sender: BulkSender::new(config.bulk_slots, config.timeout / PART_OF_TIMEOUT),
            rate: Rate::new(rate),
            timeout: config.timeout,
            unsent: 0,
            probes,
            is_proven: false,
            proof_until: now + config.proof_timeout,
        }
    }

    /// Notes how long it took until a packet was reported that was sent after `ahead` others
    pub(super) fn note_report(&mut self, now: Time, took: Duration, ahead: u32) {
        if ahead >= MIN_AHEAD {
            let unused = SHORT_ROUND_TRIP + self.lane.report_delay(ahead);
            self.rate.note(now, FRAME as u64, took.saturating_sub(unused) / ahead);
        }
    }

    /// When the bulk lane counts as stalled
    pub(super) fn bulk_deadline(&self) -> Time {
        if self.receiver.is_empty() { Time::MAX } else { self.receiver.last_progress() + self.timeout }
    }

    /// When time changes something
    pub(super) fn next_timeout(&self) -> Time {
        let lane = if self.may_ask() {
            self.lane.next_timeout().min(self.receiver.question_at())
        } else {
            self.silent_at()
        };
        lane.min(self.bulk_deadline()).min(self.keep_alive_at()).min(self.sender.waits_until())
    }

    /// When the path counts as lost
    pub(super) fn lost_at(&self) -> Time {
        self.silent_at().min(self.bulk_deadline())
    }

    /// When the path has brought nothing for too long
    pub(super) fn silent_at(&self) -> Time {
        if self.may_ask() { self.lane.silent_at() } else { self.proof_until }
    }

    /// The packet without content that should be sent now, if nothing else is
    pub(super) fn due(&self, now: Time) -> Option<Due> {
        let is_stalled = now >= self.receiver.question_at();
        let due = if is_stalled { Some(Due::Question) } else { self.lane.due(now) };
        due.filter(|_| self.may_ask())
    }

    /// Whether packets without content may be sent
    pub(super) fn may_ask(&self) -> bool {
        self.is_proven || self.probes
    }

    /// When to send something on the bulk lane, lest it dies of rest
    pub(super) fn keep_alive_at(&self) -> Time {
        if self.is_proven && self.receiver.is_empty() {
            self.receiver.last_progress() + BULK_KEEP_ALIVE
        } else {
            Time::MAX
        }
    }
}

/// What a packet contains, as far as it must be sent again if it is lost
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) part: Part,
    /// The session whose room it reports; zero for none
    pub(super) room_of: Option<(SessionId, StreamId)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Nothing,
    /// A fragment, an announcement, or an end
    Message {
        address: Address,
        fragment: u8,
    },
    /// The first so many receives of the same path, and the first so many messages that have arrived
    Bulk {
        slots: [u32; MAX_GRANTS],
        grants: u8,
        addresses: [Address; MAX_ARRIVALS],
        arrivals: u8,
    },
    /// A message about another path
    Control {
        number: u32,
    },
    Reset {
        session: SessionId,
        code: u64,
    },
    Stop {
        session: SessionId,
        stream: StreamId,
    },
}
