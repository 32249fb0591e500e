//! Which port of the peer a port of this side is joined to, found by trial

use std::time::Duration;

use rdma_core::Time;

/// The pause after an attempt to make a path that failed; longer after several.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// How long the name of a cable counts that the peer does not know: until then its port may turn out to lead to another peer.
const NAME_PATIENCE: Duration = Duration::from_secs(2);
/// Failures that come of a cable that was just plugged in, after which the pauses grow.
const QUICK_RETRIES: u32 = 3;
/// How often the pause doubles: repeated failures wedge a port of Apple's device until it restarts (field reports).
const MAX_DOUBLINGS: u32 = 6;
/// As [`MAX_DOUBLINGS`], for two ports that have never carried data: the peer's may have no cable.
const MAX_DOUBLINGS_UNPROVEN: u32 = 10;
/// As [`MAX_DOUBLINGS`], for two ports that have never carried data and cannot reach each other: no cable may join them.
const MAX_DOUBLINGS_APART: u32 = 20;

/// Where one port of the connecting side leads, as far as is known
///
/// Ports are first tried with those of the same number. Only a failure of the device shows that a port leads elsewhere.
pub(super) struct Pairing {
    /// The ports of the peer.
    candidates: Vec<Candidate>,
    /// The one that is tried next, or that a path goes to.
    port: usize,
    /// The one on which data has come.
    proven: Option<usize>,
    /// From when on the name of the cable does not count; set by the first failure.
    unnamed_from: Option<Time>,
}

/// What other paths do with a port of the peer
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PortUse {
    Free,
    /// One is being made
    Tried,
    /// One carries data
    Taken,
}

#[derive(Clone, Copy)]
struct Candidate {
    /// Since the last path that lasted.
    failures: u32,
    /// When it may be tried.
    from: Time,
}

const FRESH: Candidate = Candidate { failures: 0, from: Time::ZERO };

impl Pairing {
    pub(super) fn new(index: usize, count: u32) -> Self {
        let count = count as usize;
        Self { candidates: vec![FRESH; count], port: index % count, proven: None, unnamed_from: None }
    }

    /// The port of the peer
    pub(super) fn port(&self) -> u32 {
        self.port as u32
    }

    /// Whether the name of the cable counts: it has not failed with the port that is tried next, or the peer may just not be the one that it
    /// leads to
    pub(super) fn is_named(&self, now: Time) -> bool {
        self.candidates[self.port].failures == 0 || self.unnamed_from.is_none_or(|from| now < from)
    }

    /// Notes that the name of the cable is wrong: the ports that it names cannot reach each other
    pub(super) fn on_wrong_name(&mut self, now: Time) {
        self.unnamed_from = Some(now);
    }

    /// Whether an attempt with each port of the peer has failed
    pub(super) fn has_tried_all(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.failures > 0)
    }

    /// The next port of the peer to try, or when there may be one
    ///
    /// A port that has not failed comes before those that have, also if another path [tries](PortUse::Tried) it and it has to be waited
    /// for: else two paths could keep each other from the ports that they lead to.
    pub(super) fn find(&mut self, now: Time, use_of: impl Fn(u32) -> PortUse) -> Result<u32, Time> {
        let count = self.candidates.len();
        let is_taken = |port: usize| use_of(port as u32) == PortUse::Taken;
        let is_first = |&port: &usize| self.candidates[port].failures <= QUICK_RETRIES && !is_taken(port);
        let order = match self.proven.filter(is_first) {
            Some(proven) => proven..proven + 1,
            None => self.port..self.port + count,
        };
        let left = order.map(|port| port % count).filter(|&port| !is_taken(port));
        let is_tried = |port: usize| use_of(port as u32) == PortUse::Tried;
        let due = |candidate: Candidate| match candidate.failures {
            0 => Time::ZERO,
            _ => candidate.from.max(now),
        };
        let first = left.min_by_key(|&port| (due(self.candidates[port]), is_tried(port)));
        let Some(port) = first.filter(|&port| !is_tried(port)) else { return Err(Time::MAX) };
        let from = self.candidates[port].from;
        if from > now {
            return Err(from);
        }
        self.port = port;
        Ok(port as u32)
    }

    /// Notes the port that the peer has answered on
    pub(super) fn on_answer(&mut self, port: u32) {
        self.port = port as usize % self.candidates.len();
    }

    /// Notes that data has come on the path that is lost now, and whether for long
    pub(super) fn on_proof(&mut self, has_lasted: bool) {
        self.proven = Some(self.port);
        if has_lasted {
            self.on_unplug();
        }
    }

    /// Notes that the port of this side has no cable: another one may be plugged in
    pub(super) fn on_unplug(&mut self) {
        self.candidates.fill(FRESH);
        self.unnamed_from = None;
    }

    /// Notes that a path could not be made, perhaps because the ports cannot reach each other, or failed at once
    pub(super) fn on_failure(&mut self, now: Time, is_unreachable: bool) {
        let candidate = &mut self.candidates[self.port];
        let is_proven = self.proven == Some(self.port);
        let grown = candidate.failures.saturating_sub(QUICK_RETRIES);
        let doublings = match is_unreachable {
            _ if is_proven => grown.min(MAX_DOUBLINGS),
            false => grown.min(MAX_DOUBLINGS_UNPROVEN),
            true => candidate.failures.min(MAX_DOUBLINGS_APART),
        };
        candidate.failures = candidate.failures.saturating_add(1);
        candidate.from = now + RETRY_INTERVAL * (1 << doublings);
        self.unnamed_from.get_or_insert(now + NAME_PATIENCE);
        if !is_proven || candidate.failures > QUICK_RETRIES {
            self.port = (self.port + 1) % self.candidates.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    /// The attempts until `end`, each of which fails
    fn attempts(pairing: &mut Pairing, from: Time, end: Time, is_unreachable: bool) -> Vec<(u32, u64)> {
        let (mut now, mut attempts) = (from, Vec::new());
        while now < end {
            match pairing.find(now, |_| PortUse::Free) {
                Ok(port) => {
                    attempts.push((port, (now - from).as_millis() as u64));
                    pairing.on_failure(now, is_unreachable);
                }
                Err(at) => now = at,
            }
        }
        attempts
    }

    /// Catches a port that is not tried, and one that is tried although another path has it.
    #[test]
    fn every_free_port_is_tried_in_turn() {
        let mut pairing = Pairing::new(4, 3);
        let tried = [0, 100, 200, 300].map(|now| {
            let found = pairing.find(ms(now), |port| if port == 0 { PortUse::Taken } else { PortUse::Free });
            pairing.on_failure(ms(now), false);
            found
        });
        assert_eq!(tried, [Ok(1), Ok(2), Ok(1), Ok(2)]);
        assert_eq!(pairing.find(ms(400), |_| PortUse::Taken), Err(Time::MAX));
    }

    /// Catches two paths that keep each other from the ports that they lead to: each tries again what has failed while the other one does.
    #[test]
    fn a_port_that_another_path_tries_is_waited_for() {
        let mut pairing = Pairing::new(0, 2);
        let use_of = |port| if port == 1 { PortUse::Tried } else { PortUse::Free };
        assert_eq!(pairing.find(Time::ZERO, use_of), Ok(0));
        pairing.on_failure(Time::ZERO, true);
        assert_eq!(pairing.find(ms(1), use_of), Err(Time::MAX));
        assert_eq!(pairing.find(ms(6), use_of), Err(Time::MAX), "although the first one is due");
        assert_eq!(pairing.find(ms(6), |_| PortUse::Free), Ok(1));
    }

    /// Catches attempts without an end where no cable leads: each may harm Apple's device. A late neighbour is found all the same.
    #[test]
    fn ports_that_cannot_reach_each_other_are_tried_seldom() {
        let mut pairing = Pairing::new(0, 2);
        let early = attempts(&mut pairing, Time::ZERO, ms(76), true);
        let pauses = [0, 5, 15, 35, 75];
        assert_eq!(early, pauses.map(|at| [(0, at), (1, at)]).concat());
        let hours = attempts(&mut pairing, ms(155), ms(8 * 3_600_000), true);
        assert!(hours.len() <= 2 * 22, "{}", hours.len());
        pairing.on_unplug();
        assert_eq!(pairing.find(ms(8 * 3_600_000), |_| PortUse::Free), Ok(0));
    }

    /// Catches a port of a device that opens late, which is tried too seldom because others cannot be reached.
    #[test]
    fn a_port_that_failed_otherwise_is_tried_soon() {
        let mut pairing = Pairing::new(0, 2);
        let (mut now, mut tried) = (Time::ZERO, 0);
        while now < ms(100_000) {
            match pairing.find(now, |_| PortUse::Free) {
                Ok(port) => {
                    tried += u32::from(port == 1);
                    pairing.on_failure(now, port == 0);
                }
                Err(at) => now = at,
            }
        }
        assert!((25..35).contains(&tried), "{tried}");
    }

    /// Catches a proven port that is given up at once, and a cable that was moved and is not found.
    #[test]
    fn a_proven_port_is_tried_again_first() {
        let mut pairing = Pairing::new(0, 2);
        pairing.on_answer(1);
        pairing.on_proof(true);
        let tried = attempts(&mut pairing, Time::ZERO, ms(40), true);
        assert_eq!(tried[..6], [(1, 0), (1, 5), (1, 10), (1, 15), (0, 15), (1, 20)]);
        let mut taken = Pairing { proven: Some(1), ..Pairing::new(1, 2) };
        let use_of = |port| if port == 1 { PortUse::Taken } else { PortUse::Free };
        assert_eq!(taken.find(Time::ZERO, use_of), Ok(0));
        let proven =
            attempts(&mut pairing, ms(10_000), ms(20_000), true).into_iter().filter(|(port, _)| *port == 1);
        assert!((28..40).contains(&proven.count()));
    }
}
