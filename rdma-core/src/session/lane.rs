use std::time::Duration;

use super::packets::{Fate, MAX_UNREPORTED, ReceivedPackets, SentPackets};
use super::{MAX_SLOTS, PacketTrailer, Report, Violation};
use crate::Time;

/// Configuration of the lanes of a path
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LaneConfig {
    /// Receives that this side keeps posted, [`MIN_WINDOW`] to [`MAX_UNREPORTED`]
    pub window: u32,
    /// Receives that the peer keeps posted, in the same bounds
    pub peer_window: u32,
    /// Parts of long messages for which this side posts receives at once, and that it sends at once, 1 to
    /// [`MAX_SLOTS`](super::MAX_SLOTS)
    pub bulk_slots: u32,
    /// How long a packet may wait for its report
    pub report_delay: Duration,
    /// Time without a packet from the peer after which this side asks for a report
    pub heartbeat: Duration,
    /// Time without a packet from the peer after which the path counts as dead, two to sixteen heartbeats
    pub timeout: Duration,
    /// How long a side that does not ask first waits for the first packet of the peer, whose device still connects: at least `timeout`
    pub proof_timeout: Duration,
}

/// The fewest receives with which a lane works
pub const MIN_WINDOW: u32 = 16;
/// Packets that are kept back from data for other packets of the protocol.
const CONTROL_RESERVE: u32 = 4;
/// More than the questions that a side asks before the path counts as dead.
const MAX_QUESTIONS: u32 = 64;
/// The shortest time after which a packet without a report is asked about.
const MIN_PATIENCE: Duration = Duration::from_micros(200);

impl LaneConfig {
    /// Whether a lane can work so
    pub fn is_usable(&self) -> bool {
        let windows = MIN_WINDOW..=MAX_UNREPORTED;
        windows.contains(&self.window)
            && windows.contains(&self.peer_window)
            && (1..=MAX_SLOTS).contains(&self.bulk_slots)
            && self.heartbeat >= MIN_PATIENCE
            && (self.heartbeat * 2..=self.heartbeat * 16).contains(&self.timeout)
            && self.proof_timeout >= self.timeout
    }
}

/// The eager lane of a path: numbers its packets, counts receives, and notices what is lost
#[derive(Debug)]
pub(super) struct Lane<T> {
    config: LaneConfig,
    sent: SentPackets<Sent<T>>,
    received: ReceivedPackets,
    /// Number of the first packet that the peer has posted no receive for.
    peer_limit: u32,
    /// Receives that are posted.
    posted: u32,
    /// Packets without a fate that the peer must report.
    eliciting: u32,
    /// Packets that were received since the last report.
    unreported: u32,
    /// When a report must be sent.
    report_at: Time,
    /// When to ask for a report.
    question_at: Time,
    /// How long to wait for an answer.
    patience: Duration,
    round_trip: Option<Duration>,
    last_received: Time,
}

#[derive(Debug)]
struct Sent<T> {
    content: T,
    at: Time,
    /// Packets that had no fate when it was sent
    ahead: u32,
    is_eliciting: bool,
}

/// A packet without content that a lane wants to send
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Due {
    /// A report for the peer
    Report,
    /// A question after the peer's report
    Question,
}

impl<T> Lane<T> {
    /// A lane whose peer has posted its receives; this side has posted none, and asks for a report at once if it `probes`
    pub(super) fn new(config: LaneConfig, now: Time, probes: bool) -> Self {
        assert!(config.is_usable(), "unusable lane: {config:?}");
        Self {
            config,
            sent: SentPackets::new(),
            received: ReceivedPackets::default(),
            peer_limit: config.peer_window,
            posted: 0,
            eliciting: 0,
            unreported: 0,
            report_at: Time::MAX,
            question_at: if probes { now } else { now + config.heartbeat },
            patience: MIN_PATIENCE,
            round_trip: None,
            last_received: now,
        }
    }

    /// Packets of data that can be sent now
    #[inline]
    pub(super) fn data_room(&self) -> u32 {
        self.control_room().saturating_sub(CONTROL_RESERVE)
    }

    /// Packets of the protocol itself that can be sent now, but for reports and questions
    ///
    /// Some are kept back for these, so that both sides can always say how many receives they have posted: a side sends a bare
    /// report at most once for each quarter of a window that it has received.
    #[inline]
    pub(super) fn control_room(&self) -> u32 {
        self.room().saturating_sub(self.config.peer_window / 4 + 2)
    }

    /// How long the peer may wait until it reports a packet that was sent after `ahead` others
    pub(super) fn report_delay(&self, ahead: u32) -> Duration {
        if ahead < self.config.peer_window / 4 { self.config.report_delay } else { Duration::ZERO }
    }

    /// Packets that were sent and have no fate
    #[inline]
    pub(super) fn unreported_sent(&self) -> u32 {
        self.sent.len()
    }

    /// Packets that can be sent now
    #[inline]
    fn room(&self) -> u32 {
        let credits = self.peer_limit.wrapping_sub(self.sent.next());
        // Questions may go beyond the limit.
        let credits = if credits > u32::MAX / 2 { 0 } else { credits };
        credits.min(MAX_UNREPORTED.saturating_sub(self.sent.len()))
    }

    /// Numbers a packet, and fills in what its trailer reports
    pub(super) fn send(&mut self, now: Time, content: T, trailer: &mut PacketTrailer) {
        let is_eliciting = trailer.kind.is_eliciting() || trailer.wants_report;
        if is_eliciting {
            if self.eliciting == 0 {
                self.question_at = now + self.patience;
            }
            self.eliciting += 1;
        }
        trailer.number = self.sent.push(Sent { content, at: now, ahead: self.sent.len(), is_eliciting });
        trailer.limit = self.received.report().next.wrapping_add(self.posted);
        trailer.report = self.received.report();
        self.unreported = 0;
        self.report_at = Time::MAX;
    }

    /// Takes in the trailer of a packet that arrived; false if it was repeated or overtaken
    pub(super) fn receive(&mut self, now: Time, trailer: &PacketTrailer) -> Result<bool, Violation> {
        if !self.sent.is_possible(trailer.report) {
            return Err(Violation::Report(trailer.report.next));
        }
        let ahead = trailer.limit.wrapping_sub(self.sent.next());
        if ahead <= u32::MAX / 2 && ahead > self.config.peer_window {
            return Err(Violation::Limit(trailer.limit));
        }
        let limit = self.received.report().next.wrapping_add(self.config.window + MAX_QUESTIONS);
        let ahead = limit.wrapping_sub(trailer.number);
        if ahead == 0 || ahead > u32::MAX / 2 {
            return Err(Violation::Number(trailer.number));
        }
        self.last_received = now;
        if self.eliciting == 0 {
            self.question_at = now + self.config.heartbeat;
        }
        let is_new = self.received.insert(trailer.number);
        if is_new {
            // A limit never shrinks but for a damaged packet, whose receive is soon posted again.
            if trailer.limit.wrapping_sub(self.peer_limit) <= u32::MAX / 2 {
                self.peer_limit = trailer.limit;
            }
            self.unreported += 1;
            let is_due = trailer.wants_report || self.unreported >= self.config.window / 4;
            if is_due {
                self.report_at = self.report_at.min(now);
            } else if trailer.kind.is_eliciting() {
                self.report_at = self.report_at.min(now + self.config.report_delay);
            }
        }
        Ok(is_new)
    }

    /// The oldest packet whose fate `report` decides, how long that took, and how many packets were before it; call until there is none
    pub(super) fn pop(&mut self, now: Time, report: Report) -> Option<(T, Fate, Duration, u32)> {
        let (Sent { content, at, ahead, is_eliciting }, fate) = self.sent.pop(report)?;
        let sample = now - at;
        if is_eliciting {
            self.eliciting -= 1;
            let mean = self.round_trip.map_or(sample, |mean| (mean * 7 + sample) / 8);
            self.round_trip = Some(mean);
            self.patience = (mean * 4).clamp(MIN_PATIENCE, self.config.heartbeat);
            let wait = if self.eliciting > 0 { self.patience } else { self.config.heartbeat };
            self.question_at = now + wait;
        }
        Some((content, fate, sample, ahead))
    }

    /// What the packets contain that have no fate, when the path is gone
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.eliciting = 0;
        self.sent.drain().map(|sent| sent.content)
    }

    /// A receive was posted
    pub(super) fn receive_posted(&mut self) {
        self.posted += 1;
    }

    /// A receive has completed, whatever it brought
    pub(super) fn receive_completed(&mut self) {
        self.posted -= 1;
    }

    /// The packet without content that should be sent now, if nothing else is
    pub(super) fn due(&self, now: Time) -> Option<Due> {
        // A question goes even if all packets up to the limit are lost: no report could raise the limit then.
        if now >= self.question_at {
            Some(Due::Question)
        } else {
            (now >= self.report_at && self.room() > 0).then_some(Due::Report)
        }
    }

    /// Notes that a question goes out at `now`
    pub(super) fn asked(&mut self, now: Time) {
        self.patience = (self.patience * 2).min(self.config.heartbeat);
        self.question_at = now + self.patience;
    }

    /// When [`due`](Self::due) or whether it is [silent](Self::silent_at) changes by itself
    pub(super) fn next_timeout(&self) -> Time {
        let silent_at = self.silent_at();
        let report_at = if self.room() > 0 { self.report_at } else { Time::MAX };
        silent_at.min(self.question_at).min(report_at)
    }

    /// When the lane counts as silent, if nothing arrives until then
    pub(super) fn silent_at(&self) -> Time {
        self.last_received + self.config.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::super::PacketKind;
    use super::*;

    const CONFIG: LaneConfig = LaneConfig {
        window: 32,
        peer_window: 32,
        bulk_slots: MAX_SLOTS,
        report_delay: Duration::from_micros(25),
        heartbeat: Duration::from_millis(10),
        timeout: Duration::from_millis(50),
        proof_timeout: Duration::from_millis(50),
    };

    /// Two lanes with all receives posted
    fn lanes() -> [Lane<u32>; 2] {
        [(); 2].map(|()| {
            let mut lane = Lane::new(CONFIG, Time::ZERO, false);
            (0..CONFIG.window).for_each(|_| lane.receive_posted());
            lane
        })
    }

    fn send(from: &mut Lane<u32>, now: Time, kind: PacketKind) -> PacketTrailer {
        let mut trailer = PacketTrailer { kind, ..PacketTrailer::default() };
        from.send(now, 0, &mut trailer);
        trailer
    }

    fn receive(to: &mut Lane<u32>, now: Time, trailer: &PacketTrailer) -> Vec<Fate> {
        assert_eq!(to.receive(now, trailer), Ok(true));
        to.receive_completed();
        to.receive_posted();
        std::iter::from_fn(|| to.pop(now, trailer.report)).map(|(_, fate, ..)| fate).collect()
    }

    /// Catches a limit that is not checked, or that refuses its own value.
    #[test]
    fn lanes_that_cannot_work_are_refused() {
        type Change = fn(&mut LaneConfig);
        let is_usable = |change: Change| {
            let mut config = CONFIG;
            change(&mut config);
            config.is_usable()
        };
        let usable: [Change; _] = [
            |_| (),
            |config| config.window = MIN_WINDOW,
            |config| config.window = MAX_UNREPORTED,
            |config| config.bulk_slots = 1,
            |config| config.timeout = config.heartbeat * 2,
            |config| {
                config.timeout = config.heartbeat * 16;
                config.proof_timeout = config.timeout;
            },
            |config| config.proof_timeout *= 2,
        ];
        assert!(usable.into_iter().all(is_usable));
        let unusable: [Change; _] = [
            |config| config.window = MIN_WINDOW - 1,
            |config| config.window = MAX_UNREPORTED + 1,
            |config| config.peer_window = MIN_WINDOW - 1,
            |config| config.peer_window = MAX_UNREPORTED + 1,
            |config| config.bulk_slots = 0,
            |config| config.bulk_slots = MAX_SLOTS + 1,
            |config| {
                config.heartbeat = MIN_PATIENCE - Duration::from_nanos(1);
                config.timeout = config.heartbeat * 4;
            },
            |config| config.timeout = config.heartbeat * 2 - Duration::from_nanos(1),
            |config| {
                config.timeout = config.heartbeat * 16 + Duration::from_nanos(1);
                config.proof_timeout = config.timeout;
            },
            |config| config.proof_timeout = config.timeout - Duration::from_nanos(1),
        ];
        assert!(!unusable.into_iter().any(is_usable));
    }

    /// Catches a lane without a reserve: full of data both ways, neither side could say that it posted receives.
    #[test]
    fn data_leaves_room_for_reports() {
        let [mut a, mut b] = lanes();
        let mut trailers = Vec::new();
        while a.data_room() > 0 {
            trailers.push(send(&mut a, Time::ZERO, PacketKind::Fragment));
        }
        assert_eq!((trailers.len(), a.control_room(), a.room()), (18, 4, 14));
        while b.data_room() > 0 {
            send(&mut b, Time::ZERO, PacketKind::Fragment);
        }
        for trailer in &trailers {
            receive(&mut b, Time::ZERO, trailer);
        }
        assert_eq!(b.due(Time::ZERO), Some(Due::Report));
        let report = send(&mut b, Time::ZERO, PacketKind::Report);
        assert_eq!(report.limit, 50);
        a.receive(Time::ZERO, &report).unwrap();
        assert_eq!(std::iter::from_fn(|| a.pop(Time::ZERO, report.report)).count(), 18);
        assert_eq!(a.data_room(), 18);
        assert_eq!(b.due(Time::ZERO), None, "it was sent");
    }

    /// Catches a report that is sent at once, one that is never sent, and one that asks for a report itself.
    #[test]
    fn a_report_waits_for_company_and_not_for_long() {
        let [mut a, mut b] = lanes();
        let fragment = send(&mut a, Time::ZERO, PacketKind::Fragment);
        receive(&mut b, Time::ZERO, &fragment);
        let at = Time::ZERO + CONFIG.report_delay;
        assert_eq!((b.due(Time::ZERO), b.next_timeout(), b.due(at)), (None, at, Some(Due::Report)));
        let report = send(&mut b, at, PacketKind::Report);
        assert_eq!(receive(&mut a, at, &report), [Fate::Received]);
        assert_eq!(a.due(at + CONFIG.report_delay), None);
        assert!(a.next_timeout() >= at + CONFIG.heartbeat);
    }

    /// Catches a packet that is lost last and never missed, and questions that come faster and faster.
    #[test]
    fn the_loss_of_the_last_packet_is_found_by_questions() {
        let [mut a, mut b] = lanes();
        send(&mut a, Time::ZERO, PacketKind::Fragment);
        let mut asked_at = Vec::new();
        let mut now = Time::ZERO;
        for _ in 0..3 {
            now = a.next_timeout();
            assert_eq!(a.due(now), Some(Due::Question));
            a.asked(now);
            asked_at.push(now);
            let mut question = PacketTrailer { wants_report: true, ..PacketTrailer::default() };
            a.send(now, 0, &mut question);
            if asked_at.len() == 3 {
                receive(&mut b, now, &question);
            }
        }
        let gaps = [asked_at[1] - asked_at[0], asked_at[2] - asked_at[1]];
        assert_eq!(gaps, [MIN_PATIENCE * 2, MIN_PATIENCE * 4]);
        assert_eq!(b.due(now), Some(Due::Report), "at once");
        let report = send(&mut b, now, PacketKind::Report);
        assert_eq!(receive(&mut a, now, &report), [Fate::Lost, Fate::Lost, Fate::Lost, Fate::Received]);
    }

    #[test]
    fn a_peer_that_says_nothing_is_silent_after_the_timeout() {
        let [mut a, mut b] = lanes();
        let at = Time::ZERO + CONFIG.heartbeat;
        assert_eq!((a.next_timeout(), a.due(at)), (at, Some(Due::Question)));
        let report = send(&mut b, at, PacketKind::Report);
        receive(&mut a, at, &report);
        let end = at + CONFIG.timeout;
        assert_eq!(a.silent_at(), end);
    }

    #[test]
    fn impossible_trailers_are_violations() {
        let [mut a, mut b] = lanes();
        let good = send(&mut a, Time::ZERO, PacketKind::Fragment);
        let receive = |lane: &mut Lane<u32>, trailer| lane.receive(Time::ZERO, &trailer);
        let report = Report { next: 1, bitmap: 1 };
        assert_eq!(receive(&mut b, PacketTrailer { report, ..good }), Err(Violation::Report(1)));
        assert_eq!(receive(&mut b, PacketTrailer { limit: 33, ..good }), Err(Violation::Limit(33)));
        assert_eq!(receive(&mut b, PacketTrailer { number: 96, ..good }), Err(Violation::Number(96)));
        assert_eq!(receive(&mut b, PacketTrailer { number: 31, ..good }), Ok(true), "the others were lost");
        assert_eq!(receive(&mut b, good), Ok(false), "it was overtaken");
    }
}
