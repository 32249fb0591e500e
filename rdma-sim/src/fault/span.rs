//! When faults fire and end, and which of them belong together

use std::time::Duration;

use rdma_core::Time;

use super::kind::FaultKind;
use super::plan::{Fault, FaultPlan, Trigger};

/// How long a fault waits for frames before a check of liveness forgets it
const FRAMES: Duration = Duration::from_secs(1);

impl Fault {
    /// When the fault fires; zero if it waits for frames
    pub(crate) fn time(&self) -> Time {
        match self.trigger {
            Trigger::At(time) => time,
            Trigger::AfterFrames(_) => Time::ZERO,
        }
    }
}

impl FaultPlan {
    pub(super) fn sorted(mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(Fault::time);
        Self(faults)
    }

    /// The faults that belong together, by their positions: what lasts, and what ends it
    pub(crate) fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut by_time: Vec<_> = self.0.iter().enumerate().collect();
        by_time.sort_by_key(|(_, fault)| fault.time());
        for (position, fault) in by_time {
            let ends = |group: &&mut Vec<usize>| {
                let begun = &self.0[group[0]];
                group.len() == 1
                    && begun.target == fault.target
                    && begun.kind.end().as_ref() == Some(&fault.kind)
            };
            // One that waits for frames may begin later than the end.
            let waits = |group: &&mut Vec<usize>| matches!(self.0[group[0]].trigger, Trigger::AfterFrames(_));
            match groups.iter_mut().filter(ends).min_by_key(waits) {
                Some(group) => group.push(position),
                None => groups.push(vec![position]),
            }
        }
        groups
    }

    /// When the last fault has ended; those that wait for frames count as if they fired within a second
    pub(crate) fn end(&self) -> Time {
        let ends = self.0.iter().map(|fault| {
            let lasting = match fault.kind {
                FaultKind::Flap { down } | FaultKind::Reboot { down } => down,
                _ => Duration::ZERO,
            };
            match fault.trigger {
                Trigger::At(time) => time + lasting,
                Trigger::AfterFrames(_) => Time::ZERO + FRAMES + lasting,
            }
        });
        ends.max().unwrap_or(Time::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_and_its_end_are_a_group() {
        let text = "at 1ms a sleep; at 2ms b:rdma_en2 unplug; at 3ms a wake; at 4ms b:rdma_en2 slow 50%; \
                    at 5ms b:rdma_en2 replug; at 6ms a wake; at 7ms b:rdma_en2 slow 100%";
        let plan: FaultPlan = text.parse().unwrap();
        assert_eq!(plan.groups(), [vec![0, 2], vec![1, 4], vec![3, 6], vec![5]]);
        // Regression: the end was that of the fault which waits for frames.
        let plan: FaultPlan = "after 5 frames a kill; at 5ms a kill; at 8ms a restart".parse().unwrap();
        assert_eq!(plan.groups(), [vec![0], vec![1, 2]]);
        let plan: FaultPlan = "after 5 frames a kill; at 8ms a restart".parse().unwrap();
        assert_eq!(plan.groups(), [vec![0, 1]]);
    }
}
