//! Faults and schedules for `proptest` and `arbitrary`

use super::plan::FaultPlan;
use super::random::RandomFaults;
use crate::choices::Bytes;
use crate::topology::Topology;

/// How many bytes of a generator make one fault
const SEED: usize = 24;

/// The faults that such bytes make
fn from_bytes(seeds: Vec<[u8; SEED]>, topology: &Topology, faults: &RandomFaults) -> FaultPlan {
    let mut all = FaultPlan::none();
    for seed in seeds {
        all.0.extend(faults.draw_one(&mut Bytes::new(seed), topology));
    }
    FaultPlan::sorted(all.0)
}

/// Strategies for `proptest`
#[cfg(feature = "proptest")]
pub mod strategies {
    use proptest::prelude::*;

    use super::{SEED, from_bytes};
    use crate::{FaultPlan, RandomFaults, Recorded, Topology};

    /// Plans of `faults` for a simulation of `topology`
    ///
    /// Shrinks to fewer and earlier faults.
    pub fn fault_plans(
        topology: &Topology,
        faults: &RandomFaults,
    ) -> impl Strategy<Value = FaultPlan> + use<> {
        let (topology, faults) = (topology.clone(), faults.clone());
        let seeds = prop::collection::vec(any::<[u8; SEED]>(), 0..=faults.most());
        seeds.prop_map(move |seeds| from_bytes(seeds, &topology, &faults))
    }

    /// Up to `count` choices of the simulation, and the plain case after them
    ///
    /// Shrinks to fewer choices, and to the plain case.
    pub fn schedules(count: usize) -> impl Strategy<Value = Recorded> {
        prop::collection::vec(any::<u32>(), 0..=count).prop_map(Recorded::new)
    }
}

#[cfg(feature = "arbitrary")]
mod arbitrary_impls {
    use arbitrary::{Arbitrary, Result, Unstructured};

    use super::{SEED, from_bytes};
    use crate::{Bytes, FaultPlan, RandomFaults, Topology};

    impl FaultPlan {
        /// A plan of `faults` for a simulation of `topology`, from the bytes of a fuzzer
        ///
        /// # Errors
        ///
        /// None today: bytes that end too early are read as zeros. Later versions may return an [`arbitrary::Error`].
        pub fn arbitrary(
            bytes: &mut Unstructured<'_>,
            topology: &Topology,
            faults: &RandomFaults,
        ) -> Result<Self> {
            let count = bytes.int_in_range(0..=faults.most())?;
            let seeds = (0..count).map(|_| bytes.arbitrary::<[u8; SEED]>()).collect::<Result<Vec<_>>>()?;
            Ok(from_bytes(seeds, topology, faults))
        }
    }

    /// A schedule: all choices of a simulation
    impl<'a> Arbitrary<'a> for Bytes {
        fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
            Ok(Self::new(<Vec<u8>>::arbitrary(bytes)?))
        }
    }
}

#[cfg(all(test, feature = "proptest", feature = "arbitrary"))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::topology::strategies::topologies;

    fn faults() -> RandomFaults {
        RandomFaults::up_to(8).within(Duration::from_secs(1))
    }

    proptest! {
        #[test]
        fn generated_plans_fit_their_topology(
            (topology, plan) in topologies().prop_flat_map(|topology| {
                let plans = strategies::fault_plans(&topology, &faults());
                (Just(topology), plans)
            }),
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assert_eq!(plan.check(&topology), Ok(()));
            prop_assert_eq!(plan.to_string().parse::<FaultPlan>(), Ok(plan));
            let mut bytes = arbitrary::Unstructured::new(&bytes);
            let plan = FaultPlan::arbitrary(&mut bytes, &topology, &faults()).unwrap();
            prop_assert_eq!(plan.check(&topology), Ok(()));
        }
    }
}
