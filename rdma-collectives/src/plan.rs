use std::collections::BTreeMap;

use crate::{Cabling, Fingerprint, Ratio, Tree};

/// A collective operation
///
/// The *payload* is what times, bounds and shares are relative to: the vector of one host for [`AllReduce`](Self::AllReduce),
/// [`Broadcast`](Self::Broadcast) and [`Reduce`](Self::Reduce), and for the others all bytes of all hosts together, including
/// those that stay where they are. A host whose amounts are 0 takes no part in a scatter, gather or all_to_all, but may relay. Amounts of hosts are relative to each other: bytes, or 1 for each host.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Every host gets what all hosts have, with so much from each
    AllGather {
        /// By host
        amounts: Vec<u64>,
    },

    /// Every host gets the sum of the vectors of all hosts
    AllReduce,

    /// Each of some hosts gets the sum of the vectors of these; others may relay and add up
    AllReduceAmong {
        /// The hosts that take part
        members: Vec<usize>,
    },

    /// Every host sends so much to each other
    AllToAll {
        /// By sender, then by receiver; what a host keeps is on the diagonal
        amounts: Vec<Vec<u64>>,
    },

    /// Every host gets the vector of one
    Broadcast {
        /// The host that has it
        root: usize,
    },

    /// One host gets what all hosts have
    Gather {
        /// The host that gets it
        root: usize,
        /// By host
        amounts: Vec<u64>,
    },

    /// One host gets the sum of the vectors of all hosts
    Reduce {
        /// The host that gets it
        root: usize,
    },

    /// Every host gets its part of the sum of the vectors of all hosts
    ReduceScatter {
        /// The size of the part of each host
        amounts: Vec<u64>,
    },

    /// Every host gets its part of what one host has
    Scatter {
        /// The host that has it
        root: usize,
        /// The size of the part of each host
        amounts: Vec<u64>,
    },
}

impl Operation {
    /// Whether data goes over the arcs of trees away from their roots, and towards them
    pub(crate) fn directions(&self) -> [bool; 2] {
        match self {
            Self::AllReduce | Self::AllReduceAmong { .. } => [true, true],
            Self::Gather { .. } | Self::Reduce { .. } | Self::ReduceScatter { .. } => [false, true],
            Self::AllGather { .. }
            | Self::AllToAll { .. }
            | Self::Broadcast { .. }
            | Self::Scatter { .. } => [true, false],
        }
    }
}

/// A plan, and the cabling that it is for: all that [`verify`](crate::verify()) needs
///
/// ```
/// use rdma_collectives::{Cabling, PlanFile, all_reduce, verify};
///
/// let cabling = Cabling::ring(4, 9_200_000_000);
/// let file = PlanFile { plan: all_reduce(&cabling)?, cabling: Some(cabling) };
/// let read: PlanFile = file.to_string().parse()?;
/// assert!(verify(&read.cabling.expect("it was written"), &read.plan)?.to_f64() == 1.0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PlanFile {
    /// The cabling, without latencies, which no plan depends on; `None` if the file has no cables
    pub cabling: Option<Cabling>,
    /// The plan
    pub plan: Plan,
}

/// Why no plan can be faster; above [`MAX_EXACT_HOSTS`](crate::MAX_EXACT_HOSTS) hosts, than the bound
///
/// `BOUNDS.md` of the package derives the bounds.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Certificate {
    /// Hosts whose data has to leave them, for hosts outside: divided by the capacity out of the set, it is the bound
    Cut(Vec<usize>),
    /// The parts of a partition: in an all_reduce, each element of the vector crosses between different parts at least
    /// 2 (parts − 1) times; divided by the capacity between different parts in both directions, it is the bound
    Partition(Vec<Vec<usize>>),
    /// A price for a byte over each pair of neighbours, and for a byte that a host with a cap sends or receives: the cheapest ways of
    /// all data, divided by the price of the whole capacity, are the bound
    Prices(Vec<Price>),
}

/// The price of a byte
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Price {
    /// What the byte uses
    pub of: Resource,
    /// In a unit of its own: only ratios between the prices of one certificate count. What has no price is free
    pub price: u64,
}

/// What carries only so many bytes per second
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Resource {
    /// All cables from a host to a neighbour, in this direction
    Cables {
        /// The host that sends
        from: usize,
        /// The neighbour
        to: usize,
    },
    /// What a host with a cap receives from all neighbours
    Receive {
        /// The host
        host: usize,
    },
    /// What a host with a cap sends to all neighbours
    Send {
        /// The host
        host: usize,
    },
}

/// How a collective operation uses the cables, how long it takes, and the proof that no plan is faster
///
/// [`Display`](std::fmt::Display) writes it as a file, and [`FromStr`](std::str::FromStr) reads it. Any program may make or change
/// one: before it is used, [`verify`](crate::verify()) has to accept it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// What is planned
    pub operation: Operation,
    /// The cabling that the plan is for
    pub cabling: Fingerprint,
    /// The names of the hosts, whose indices the rest of the plan has
    pub hosts: Vec<String>,
    /// Seconds per byte of the payload, for a payload so large that latency does not count
    pub time: Ratio,
    /// Seconds per byte of the payload below which no plan is
    pub bound: Ratio,
    /// The proof of `bound`
    pub certificate: Certificate,
    /// Which way each part of the payload takes
    pub trees: Vec<Tree>,
}

impl Plan {
    /// A plan of a cabling, whose names and fingerprint it takes
    pub(crate) fn new(
        cabling: &Cabling,
        operation: Operation,
        [time, bound]: [Ratio; 2],
        certificate: Certificate,
        trees: Vec<Tree>,
    ) -> Self {
        let (fingerprint, hosts) = (cabling.fingerprint(), cabling.hosts().to_vec());
        Self { operation, cabling: fingerprint, hosts, time, bound, certificate, trees }
    }

    /// The part of the payload that goes from each host to a neighbour, `None` if it does not fit into 128 bits
    pub(crate) fn loads(&self) -> Option<BTreeMap<(usize, usize), Ratio>> {
        let [down, up] = self.operation.directions();
        let mut loads = BTreeMap::new();
        for tree in &self.trees {
            for &(parent, child) in &tree.arcs {
                let arcs =
                    [((parent, child), down), ((child, parent), up)].into_iter().filter(|(_, used)| *used);
                for (arc, _) in arcs {
                    let load = loads.entry(arc).or_insert(Ratio::ZERO);
                    *load = load.checked_add(tree.share)?;
                }
            }
        }
        Some(loads)
    }

    /// Whether the time of the plan is the bound, so that no plan is faster
    ///
    /// It says what the plan claims; [`verify`](crate::verify()) checks the claims.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.time == self.bound
    }
}

/// Why there is no plan
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// There is not one amount for each host
    #[error("{amounts} amounts for {hosts} hosts: give one for each")]
    Amounts {
        /// How many amounts there are
        amounts: usize,
        /// How many hosts there are
        hosts: usize,
    },

    /// Some hosts cannot reach others
    #[error("{}: connect them by a cable", unreachable_parts(parts))]
    Disconnected {
        /// The names of the hosts that reach each other, part by part
        parts: Vec<Vec<String>>,
    },

    /// Members that are fewer than two, unknown, or there twice
    #[error("an operation among hosts needs at least two different ones of the {hosts}: count them from 0")]
    Members {
        /// How many hosts there are
        hosts: usize,
    },

    /// All amounts that another host needs are zero
    #[error("no host sends anything to another: give at least one amount that is not 0")]
    NothingToSend,

    /// A cabling with a single host
    #[error("there is only one host: a collective operation needs at least two")]
    OneHost,

    /// The exact figures do not fit into 128 bits
    #[error("the amounts and rates have no common unit that fits into 128 bits: round them")]
    Overflow,

    /// The root is not the index of a host
    #[error("host {root} is the root, and there are {hosts} hosts: count them from 0")]
    Root {
        /// The root
        root: usize,
        /// How many hosts there are
        hosts: usize,
    },

    /// More trees than ranks tell apart
    #[error("the plan has {trees} trees, and a group can use at most {most}: make the group smaller")]
    TooManyTrees {
        /// How many trees the plan has
        trees: usize,
        /// How many there may be
        most: usize,
    },

    /// More hosts than the operation can be planned for
    #[error("{hosts} hosts: this operation can be planned for at most {most}")]
    TooManyHosts {
        /// How many hosts there are
        hosts: usize,
        /// How many there may be
        most: usize,
    },
}

fn unreachable_parts(parts: &[Vec<String>]) -> String {
    let names: Vec<_> = parts.iter().map(|part| part.join(", ")).collect();
    names.join(" cannot reach ")
}
