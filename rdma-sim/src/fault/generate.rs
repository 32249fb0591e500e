//! Faults and schedules for `proptest` and `arbitrary`

use std::time::Duration;

use super::plan::FaultPlan;
use super::random::random_fault;
use crate::choices::Bytes;
use crate::topology::Topology;

/// How many bytes of a generator make one fault
const SEED: usize = 24;

/// The faults that such bytes make
fn from_bytes<'a>(
    seeds: impl IntoIterator<Item = &'a [u8]>,
    topology: &Topology,
    horizon: Duration,
) -> FaultPlan {
    let ports = FaultPlan::ports(topology);
    if ports.is_empty() {
        return FaultPlan::none();
    }
    let faults = |seed: &[u8]| random_fault(&mut Bytes::new(seed), &ports, horizon).into_iter().flatten();
    FaultPlan::sorted(seeds.into_iter().flat_map(faults).collect())
}

/// Strategies for `proptest`
#[cfg(feature = "proptest")]
pub mod strategies {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{SEED, from_bytes};
    use crate::{FaultPlan, Recorded, Topology};

    /// Up to `count` faults in the first `horizon` of a simulation of `topology`; see [`FaultPlan::random`]
    ///
    /// Shrinks to fewer and earlier faults.
    pub fn fault_plans(
        topology: &Topology,
        count: usize,
        horizon: Duration,
    ) -> impl Strategy<Value = FaultPlan> + use<> {
        let topology = topology.clone();
        let seeds = prop::collection::vec(any::<[u8; SEED]>(), 0..=count);
        seeds.prop_map(move |seeds| from_bytes(seeds.iter().map(<[u8; SEED]>::as_slice), &topology, horizon))
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
    use std::time::Duration;

    use arbitrary::{Arbitrary, Result, Unstructured};

    use super::{SEED, from_bytes};
    use crate::{Bytes, FaultPlan, Topology};

    impl FaultPlan {
        /// Up to `count` faults in the first `horizon` of a simulation of `topology`, from the bytes of a fuzzer
        ///
        /// # Errors
        ///
        /// None today: bytes that end too early are read as zeros. Later versions may return an [`arbitrary::Error`].
        pub fn arbitrary(
            bytes: &mut Unstructured<'_>,
            topology: &Topology,
            count: usize,
            horizon: Duration,
        ) -> Result<Self> {
            let count = bytes.int_in_range(0..=count)?;
            let seeds = (0..count).map(|_| bytes.arbitrary::<[u8; SEED]>()).collect::<Result<Vec<_>>>()?;
            Ok(from_bytes(seeds.iter().map(<[u8; SEED]>::as_slice), topology, horizon))
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
    use proptest::prelude::*;

    use super::*;
    use crate::topology::strategies::topologies;

    proptest! {
        #[test]
        fn generated_plans_fit_their_topology(
            (topology, plan) in topologies().prop_flat_map(|topology| {
                let plans = strategies::fault_plans(&topology, 8, Duration::from_secs(1));
                (Just(topology), plans)
            }),
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assert_eq!(plan.check(&topology), Ok(()));
            prop_assert_eq!(plan.to_string().parse::<FaultPlan>(), Ok(plan));
            let mut bytes = arbitrary::Unstructured::new(&bytes);
            let plan = FaultPlan::arbitrary(&mut bytes, &topology, 8, Duration::from_secs(1)).unwrap();
            prop_assert_eq!(plan.check(&topology), Ok(()));
        }
    }
}
