//! Which port of the peer a port of this side is joined to, found by trial

use std::time::Duration;

/// The pause after an attempt to make a path that failed; longer after several.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Failures that come of a cable that was just plugged in, after which the pauses grow.
const QUICK_RETRIES: u32 = 3;
/// How often the pause doubles: repeated failures wedge a port of Apple's device until it restarts (field reports).
const MAX_DOUBLINGS: u32 = 6;
/// As [`MAX_DOUBLINGS`], for a port that has never led to this peer: its cable may lead elsewhere.
const MAX_DOUBLINGS_UNPROVEN: u32 = 14;

/// Where one port of the connecting side leads, as far as is known
///
/// Ports are first tried with those of the same number. A device tells only by a failure that a port leads elsewhere.
pub(super) struct Pairing {
    /// How many ports the peer has.
    count: u32,
    /// The port of the peer that is tried next, or that a path goes to.
    port: u32,
    /// Whether data of the peer has ever come here.
    is_proven: bool,
    /// Failures since the last path that lasted.
    failures: u32,
    /// The ports of the peer that no cable joins to this port, a bit for each.
    apart: u64,
}

impl Pairing {
    pub(super) fn new(index: usize, count: u32) -> Self {
        Self { count, port: index as u32 % count, is_proven: false, failures: 0, apart: 0 }
    }

    /// The port of the peer
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    /// The next port of the peer to try, if one is free
    ///
    /// Ports that are known to be apart are tried again only if `is_needed`: each attempt may do harm.
    pub(super) fn find(&mut self, is_needed: bool, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        let (first, count, apart) = (self.port, self.count, if is_needed { 0 } else { self.apart });
        let is_free = |port: &u32| apart >> port & 1 == 0 && !is_taken(*port);
        let found = (0..count).map(|shift| (first + shift) % count).find(is_free)?;
        self.port = found;
        Some(found)
    }

    /// Notes the port that the peer has answered on
    pub(super) fn answered(&mut self, port: u32) {
        self.port = port % self.count;
    }

    /// Notes that data has come here, and whether for long
    pub(super) fn proven(&mut self, has_lasted: bool) {
        self.is_proven = true;
        self.apart = 0;
        if has_lasted {
            self.failures = 0;
        }
    }

    /// Notes that the port of this side has no cable: another one may be plugged in
    pub(super) fn unplugged(&mut self) {
        (self.failures, self.apart) = (0, 0);
    }

    /// Notes that a path could not be made, perhaps because no cable joins the two ports, or failed at once; returns the pause
    /// before the next attempt
    pub(super) fn failed(&mut self, is_unreachable: bool) -> Duration {
        self.apart |= u64::from(is_unreachable) << self.port;
        let doublings = if self.is_proven {
            self.failures.saturating_sub(QUICK_RETRIES).min(MAX_DOUBLINGS)
        } else {
            // Once for each time that all ports of the peer were tried.
            (self.failures / self.count).min(MAX_DOUBLINGS_UNPROVEN)
        };
        if !self.is_proven || self.failures >= QUICK_RETRIES {
            self.port = (self.port + 1) % self.count;
        }
        self.failures = self.failures.saturating_add(1);
        RETRY_INTERVAL * (1 << doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(failed: Duration) -> u128 {
        failed.as_millis()
    }

    /// Catches a port that is not tried, and one that is tried although another path has it.
    #[test]
    fn every_free_port_is_tried_in_turn() {
        let mut pairing = Pairing::new(4, 3);
        let mut tried = Vec::new();
        for _ in 0..4 {
            tried.extend(pairing.find(false, |port| port == 0));
            pairing.failed(false);
        }
        assert_eq!(tried, [1, 2, 1, 2]);
        assert_eq!(pairing.find(true, |_| true), None);
    }

    /// Catches attempts on ports that are known to be apart, which harm Apple's device, and a port that is never tried again.
    #[test]
    fn ports_that_are_apart_are_left_alone() {
        let mut pairing = Pairing::new(0, 2);
        for expected in [Some(0), Some(1), None, None] {
            assert_eq!(pairing.find(false, |_| false), expected);
            pairing.failed(true);
        }
        assert!(pairing.find(true, |_| false).is_some(), "there is no other path");
        pairing.unplugged();
        assert!(pairing.find(false, |_| false).is_some());
    }

    /// Catches a pause that does not grow, one that grows for a port that worked before, and a cable that was moved and is not found.
    #[test]
    fn pauses_grow_and_a_proven_port_is_tried_again_first() {
        let mut pairing = Pairing::new(0, 2);
        let unproven = [0; 6].map(|_| ms(pairing.failed(false)));
        assert_eq!(unproven, [5, 5, 10, 10, 20, 20]);
        (0..40).for_each(|_| _ = pairing.failed(false));
        assert_eq!(ms(pairing.failed(false)), 81_920);
        pairing.unplugged();
        assert_eq!(ms(pairing.failed(false)), 5);

        pairing.answered(1);
        pairing.proven(true);
        let proven = [0; 5].map(|_| (pairing.port(), ms(pairing.failed(false))));
        assert_eq!(proven, [(1, 5), (1, 5), (1, 5), (1, 5), (0, 10)]);
        (0..40).for_each(|_| _ = pairing.failed(false));
        assert_eq!(ms(pairing.failed(false)), 320);
    }
}
