use crate::flow::{Flow, INFINITE};
use crate::network::Network;
use crate::{PlanError, Ratio};

/// A set of hosts, what has to leave it, and the capacity out of it
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) inside: Vec<bool>,
    pub(crate) amount: u128,
    pub(crate) capacity: u128,
}

impl Cut {
    fn of(network: &Network, amounts: &[u128], inside: Vec<bool>) -> Self {
        let amount = (0..amounts.len()).filter(|&host| inside[host]).map(|host| amounts[host]).sum();
        let leaving = network.arcs().filter(|&(from, to)| inside[from] && !inside[to]);
        let capacity = leaving.map(|(from, to)| network.capacity(from, to)).sum();
        Self { inside, amount, capacity }
    }

    /// The hosts inside, or outside
    pub(crate) fn hosts(&self, inside: bool) -> Vec<usize> {
        (0..self.inside.len()).filter(|&host| self.inside[host] == inside).collect()
    }

    /// Seconds per byte of a payload of `total` that the cut takes
    pub(crate) fn seconds(&self, network: &Network, total: u128) -> Result<Ratio, PlanError> {
        let amount = Ratio::new(self.amount, total).zip(network.seconds(1, self.capacity));
        amount.and_then(|(amount, second)| amount.checked_mul(second)).ok_or(PlanError::Overflow)
    }

    /// The set without one of `outside` whose amount is largest in relation to the capacity out of it
    ///
    /// Newton's method on the ratio: while some set has more to send than at the best ratio so far, a maximum flow finds one,
    /// and its ratio is better. Each step reduces the capacity out of the set, so there are few.
    pub(crate) fn worst(network: &Network, amounts: &[u128], outside: &[usize]) -> Result<Self, PlanError> {
        let hosts = network.hosts();
        let total: u128 = amounts.iter().sum();
        let whole: u128 = network.arcs().map(|(from, to)| network.capacity(from, to)).sum();
        if total.checked_mul(whole).is_none_or(|product| product >= INFINITE / 2) {
            return Err(PlanError::Overflow);
        }
        let single = |host| Self::of(network, amounts, (0..hosts).map(|other| other == host).collect());
        let singles = (0..hosts).filter(|&host| outside != [host]).map(single);
        let Some(mut worst) = singles.reduce(|worst, next| if next.exceeds(&worst) { next } else { worst })
        else {
            return Err(PlanError::OneHost);
        };
        if total == 0 {
            return Err(PlanError::NothingToSend);
        }
        for &sink in outside {
            while let Some(next) = worst.exceeded(network, amounts, sink) {
                worst = next;
            }
        }
        if worst.amount == 0 { Err(PlanError::NothingToSend) } else { Ok(worst) }
    }

    fn exceeds(&self, other: &Self) -> bool {
        self.amount * other.capacity > other.amount * self.capacity
    }

    /// A set without `sink` with a larger ratio than this one
    fn exceeded(&self, network: &Network, amounts: &[u128], sink: usize) -> Option<Self> {
        let source = network.hosts();
        let mut flow = Flow::new(source + 1);
        let mut offered = 0;
        for host in (0..source).filter(|&host| host != sink) {
            flow.add(source, host, amounts[host] * self.capacity, 0);
            offered += amounts[host] * self.capacity;
        }
        for (from, to) in network.arcs() {
            flow.add(from, to, network.capacity(from, to) * self.amount, 0);
        }
        if flow.send(source, sink, INFINITE) == offered {
            return None;
        }
        let mut inside = flow.reached(source);
        inside.truncate(source);
        Some(Self::of(network, amounts, inside))
    }

    /// The set without which the least capacity leads from `root` to some host
    pub(crate) fn narrowest(network: &Network, root: usize) -> Self {
        let flows = (0..network.hosts()).filter(|&host| host != root).map(|sink| {
            let mut flow = Flow::new(network.hosts());
            for (from, to) in network.arcs() {
                flow.add(from, to, network.capacity(from, to), 0);
            }
            let capacity = flow.send(root, sink, INFINITE);
            Self { inside: flow.reached(root), amount: 1, capacity }
        });
        flows.min_by_key(|cut| cut.capacity).unwrap_or_else(|| unreachable!("a network has two hosts"))
    }
}
