//! What the name of a port's cable is worth, as far as attempts to connect have shown

use std::sync::Arc;

use rdma_core::session::LinkId;

use crate::sync::Mutex;

/// How often a port with a named cable is tried with ports that do not have this name: three failures may wedge it.
const MAX_TRIALS: u32 = 2;

#[derive(Debug, Default)]
struct Evidence {
    /// The name under which the port at the other end was not reached.
    wrong: Option<LinkId>,
    /// How often a port was not reached that has another name, or none.
    trials: u32,
    /// How often all of this was forgotten: a trial that began before has nothing to take back.
    forgotten: u32,
}

/// What attempts have shown about the name of a port's cable, for all peers
#[derive(Clone, Debug, Default)]
pub(super) struct LinkTrust(Arc<Mutex<Evidence>>);

impl LinkTrust {
    /// Whether no port was reached that has the same name of its cable
    pub(super) fn is_misnamed(&self, link: Option<LinkId>) -> bool {
        link.is_some() && self.0.lock().wrong == link
    }

    /// Begins to try a port of a peer that does not have the name of the cable, which may be wrong; `None` if that was done too often
    pub(super) fn begin_trial(&self) -> Option<Trial> {
        let mut evidence = self.0.lock();
        let may_try = evidence.trials < MAX_TRIALS;
        evidence.trials += u32::from(may_try);
        may_try.then(|| Trial { trust: Some(self.clone()), forgotten: evidence.forgotten })
    }

    /// The port at the other end of the cable was not reached under this name
    pub(super) fn on_wrong_name(&self, link: LinkId) {
        let mut evidence = self.0.lock();
        evidence.trials += 1;
        evidence.wrong = Some(link);
    }

    /// Forgets the evidence: a port was reached, or another cable may be plugged in
    pub(super) fn forget(&self) {
        let mut evidence = self.0.lock();
        *evidence = Evidence { forgotten: evidence.forgotten.wrapping_add(1), ..Evidence::default() };
    }
}

/// A trial that does not count unless the device is asked to reach the peer
#[derive(Debug)]
pub(super) struct Trial {
    /// `None` once it counts for good.
    trust: Option<LinkTrust>,
    forgotten: u32,
}

impl Trial {
    /// Keeps the trial counted: the device is about to be asked
    pub(super) fn count(mut self) {
        self.trust = None;
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Some(trust) = self.trust.take() {
            let mut evidence = trust.0.lock();
            if evidence.forgotten == self.forgotten {
                evidence.trials = evidence.trials.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches trials that count although nothing was tried, as those of offers that were withdrawn, and trials without an end.
    #[test]
    fn only_trials_that_reach_the_device_count() {
        let trust = LinkTrust::default();
        (0..10).for_each(|_| drop(trust.begin_trial().unwrap()));
        (0..MAX_TRIALS).for_each(|_| trust.begin_trial().unwrap().count());
        assert!(trust.begin_trial().is_none());
        trust.forget();
        assert!(trust.begin_trial().is_some());
    }

    /// Catches a trial of an earlier cable that takes back one of this cable.
    #[test]
    fn a_trial_takes_back_nothing_that_has_begun_after_the_evidence_was_forgotten() {
        let trust = LinkTrust::default();
        let early = trust.begin_trial().unwrap();
        trust.forget();
        trust.begin_trial().unwrap().count();
        drop(early);
        trust.begin_trial().unwrap().count();
        assert!(trust.begin_trial().is_none());
    }
}
