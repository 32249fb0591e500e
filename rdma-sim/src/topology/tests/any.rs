use std::collections::BTreeSet;

use proptest::prelude::*;

use super::two_minis;
use crate::LineRate;
use crate::topology::Topology;
use crate::topology::build::MAX_RATE;
use crate::topology::generate::strategies::{models, topologies};

proptest! {
    #[test]
    fn names_of_models_are_read_as_they_are_written(model in models()) {
        prop_assert_eq!(model.to_string().parse(), Ok(model));
    }

    #[test]
    fn toml_is_read_as_it_is_written(topology in topologies()) {
        let text = topology.to_toml();
        prop_assert_eq!(Topology::from_toml(&text), Ok(topology), "{}", text);
    }

    #[test]
    fn matrices_are_read_as_they_are_written(topology in topologies()) {
        let matrix = topology.to_matrix();
        let read = Topology::from_matrix(&matrix).unwrap();
        prop_assert_eq!(read.to_matrix(), matrix);
        prop_assert_eq!(read.links().len(), topology.links().len());
    }

    #[test]
    fn rates_are_read_as_they_are_written(bits_per_second in 1..=MAX_RATE) {
        let rate = LineRate { bits_per_second };
        let topology = two_minis().cable(("left", 0), ("right", 0), rate);
        prop_assert_eq!(Topology::from_toml(&topology.to_toml()), Ok(topology));
    }

    #[test]
    fn generated_topologies_are_valid_and_connected(topology in topologies()) {
        prop_assert!((2..=6).contains(&topology.hosts().len()));
        let mut used = BTreeSet::new();
        let mut reached = BTreeSet::from(["a"]);
        for _ in topology.hosts() {
            for link in topology.links() {
                let [a, b] = link.ends.map(|end| end.host);
                if reached.contains(a) || reached.contains(b) {
                    reached.extend([a, b]);
                }
            }
        }
        prop_assert_eq!(reached.len(), topology.hosts().len());
        for link in topology.links() {
            let [a, b] = link.ends;
            prop_assert!(a.host != b.host);
            prop_assert!(used.insert((a.host, a.device)) && used.insert((b.host, b.device)));
        }
    }

    #[cfg(feature = "arbitrary")]
    #[test]
    fn bytes_make_valid_topologies(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let topology: Topology = arbitrary::Unstructured::new(&bytes).arbitrary().unwrap();
        prop_assert_eq!(Topology::from_toml(&topology.to_toml()), Ok(topology));
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in ".*") {
        let _ = Topology::from_toml(&text);
        let _ = Topology::from_matrix(&text);
    }
}
