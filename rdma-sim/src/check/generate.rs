//! Runs of a check from the bytes of a fuzzer, and from the strategies of proptest

use super::replay::Replay;
use super::settings::Check;
use crate::{FaultPlan, Scheduler};

impl Check {
    /// The run with these faults and choices
    fn generated(&self, faults: FaultPlan, choices: Vec<u32>) -> Replay {
        let faults = self.faults.0.iter().cloned().chain(faults.0).collect();
        let scheduler = self.scheduler.unwrap_or(Scheduler::Random);
        let scheduler = match scheduler {
            // Nothing was measured: as many steps as a small test has.
            Scheduler::Pct { depth, steps: 0 } => Scheduler::Pct { depth, steps: 1000 },
            scheduler => scheduler,
        };
        Replay { setup: Some(self.setup()), choices: Some(choices), scheduler, faults, ..Replay::default() }
    }

    /// The run that the bytes of a fuzzer stand for, to be [repeated](Self::replay)
    ///
    /// ```
    /// use rdma_sim::{Check, RandomFaults, check};
    ///
    /// // The body of a fuzz target:
    /// fn target(bytes: &[u8]) {
    ///     let settings = Check::new().random_faults(RandomFaults::up_to(3));
    ///     let run = settings.from_bytes(bytes);
    ///     check(settings.replay(run), async |net| {
    ///         assert!(net.pick(10) < 10);
    ///     });
    /// }
    /// target(b"the bytes of a fuzzer");
    /// ```
    #[cfg(feature = "arbitrary")]
    pub fn from_bytes(&self, bytes: &[u8]) -> Replay {
        let mut bytes = arbitrary::Unstructured::new(bytes);
        let faults =
            FaultPlan::arbitrary(&mut bytes, &self.topology, &self.random_faults).unwrap_or_default();
        let rest = bytes.take_rest();
        let choices =
            rest.chunks(2).map(|pair| pair.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        self.generated(faults, choices.collect())
    }

    /// The runs of a check as a strategy of proptest: faults, and up to `choices` choices, to be [repeated](Self::replay)
    ///
    /// Shrinks to fewer and earlier faults and to fewer choices.
    ///
    /// ```
    /// use proptest::test_runner::{Config, TestRunner};
    /// use rdma_sim::{Check, RandomFaults, try_check};
    ///
    /// let settings = Check::new().random_faults(RandomFaults::up_to(3));
    /// let mut runner = TestRunner::new(Config { cases: 10, failure_persistence: None, ..Config::default() });
    /// runner.run(&settings.strategy(64), |run| {
    ///     try_check(settings.clone().replay(run), async |net| {
    ///         assert!(net.pick(10) < 10);
    ///     })?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "proptest")]
    pub fn strategy(&self, choices: usize) -> impl proptest::strategy::Strategy<Value = Replay> + use<> {
        use proptest::prelude::*;

        let check = self.clone();
        let faults = crate::fault::strategies::fault_plans(&self.topology, &self.random_faults);
        let choices = prop::collection::vec(any::<u32>(), 0..=choices);
        (faults, choices).prop_map(move |(faults, choices)| check.generated(faults, choices))
    }
}

#[cfg(all(test, feature = "proptest", feature = "arbitrary"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{RandomFaults, try_check};

    proptest! {
        #[test]
        fn generated_runs_can_be_repeated_by_their_line(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            run in Check::new().random_faults(RandomFaults::up_to(4)).strategy(20),
        ) {
            let settings = Check::new().random_faults(RandomFaults::up_to(4));
            for run in [settings.from_bytes(&bytes), run] {
                prop_assert_eq!(run.line().parse(), Ok(run.clone()));
                prop_assert!(try_check(settings.clone().replay(run), async |_| ()).is_ok());
            }
        }
    }
}
