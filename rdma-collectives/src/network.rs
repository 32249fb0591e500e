use crate::ratio::gcd;
use crate::{Cabling, PlanError, Ratio};

/// The capacities between hosts, all cables of a pair in a direction together, in a common unit
///
/// Algorithms of the planner work on it; the verifier does not.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    hosts: usize,
    /// Row after row
    capacities: Vec<u128>,
    latencies: Vec<u64>,
    /// Bytes per second of one unit of capacity
    unit: u128,
}

impl Network {
    /// The network of a connected cabling of at least two hosts
    pub(crate) fn of(cabling: &Cabling) -> Result<Self, PlanError> {
        let hosts = cabling.hosts().len();
        if hosts < 2 {
            return Err(PlanError::OneHost);
        }
        let components = cabling.components();
        if components.len() > 1 {
            let names =
                |members: Vec<usize>| members.iter().map(|&host| cabling.hosts()[host].clone()).collect();
            return Err(PlanError::Disconnected { parts: components.into_iter().map(names).collect() });
        }
        let mut network = Self {
            hosts,
            capacities: vec![0; hosts * hosts],
            latencies: vec![u64::MAX; hosts * hosts],
            unit: 1,
        };
        for cable in cabling.cables() {
            let [left, right] = cable.ends;
            for (arc, rate) in [left * hosts + right, right * hosts + left].into_iter().zip(cable.rates) {
                network.capacities[arc] += u128::from(rate);
                // Data uses all cables of the pair, so the slowest counts.
                let slowest = match network.latencies[arc] {
                    u64::MAX => cable.latency_ns,
                    other => other.max(cable.latency_ns),
                };
                network.latencies[arc] = slowest;
            }
        }
        network.unit = network.capacities.iter().copied().fold(0, gcd);
        network.capacities.iter_mut().for_each(|capacity| *capacity /= network.unit);
        Ok(network)
    }

    pub(crate) fn hosts(&self) -> usize {
        self.hosts
    }

    pub(crate) fn capacity(&self, from: usize, to: usize) -> u128 {
        self.capacities[from * self.hosts + to]
    }

    /// Nanoseconds from a host to a neighbour
    pub(crate) fn latency(&self, from: usize, to: usize) -> u64 {
        self.latencies[from * self.hosts + to]
    }

    /// Pairs of hosts `(from, to)` with a cable, each direction by itself
    pub(crate) fn arcs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let pairs = (0..self.hosts).flat_map(|from| (0..self.hosts).map(move |to| (from, to)));
        pairs.filter(|&(from, to)| self.capacity(from, to) > 0)
    }

    /// Pairs of hosts with a cable, the smaller index first
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.arcs().filter(|(from, to)| from < to)
    }

    pub(crate) fn is_symmetric(&self) -> bool {
        self.edges().all(|(left, right)| self.capacity(left, right) == self.capacity(right, left))
    }

    /// The same network with `capacity(from, to)` for each pair
    pub(crate) fn map(&self, mut capacity: impl FnMut(usize, usize) -> u128) -> Self {
        let capacities = (0..self.hosts * self.hosts).map(|arc| capacity(arc / self.hosts, arc % self.hosts));
        Self { capacities: capacities.collect(), ..self.clone() }
    }

    /// The network with each arc turned round
    pub(crate) fn reversed(&self) -> Self {
        let transposed = |arc| (arc % self.hosts) * self.hosts + arc / self.hosts;
        let latencies = (0..self.latencies.len()).map(|arc| self.latencies[transposed(arc)]).collect();
        Self { latencies, ..self.map(|from, to| self.capacity(to, from)) }
    }

    /// Seconds per byte, of an amount of bytes over a capacity of this network; `None` if it does not fit
    pub(crate) fn seconds(&self, amount: u128, capacity: u128) -> Option<Ratio> {
        Ratio::new(amount, capacity)?.checked_mul(Ratio::new(1, self.unit)?)
    }

    /// By host, latency and hops to the host that is furthest from it
    pub(crate) fn eccentricities(&self) -> Vec<(u64, u64)> {
        let rows = self.distances();
        rows.iter().map(|row| row.iter().copied().max().unwrap_or_default()).collect()
    }

    /// Latency and hops of the fastest path between each two hosts
    pub(crate) fn distances(&self) -> Vec<Vec<(u64, u64)>> {
        const FAR: (u64, u64) = (u64::MAX, u64::MAX);
        let mut rows = vec![vec![FAR; self.hosts]; self.hosts];
        (0..self.hosts).for_each(|host| rows[host][host] = (0, 0));
        self.arcs().for_each(|(from, to)| rows[from][to] = (self.latency(from, to), 1));
        for via in 0..self.hosts {
            for from in 0..self.hosts {
                for to in 0..self.hosts {
                    let (first, second) = (rows[from][via], rows[via][to]);
                    let path = (first.0.saturating_add(second.0), first.1.saturating_add(second.1));
                    rows[from][to] = rows[from][to].min(path);
                }
            }
        }
        rows
    }
}
