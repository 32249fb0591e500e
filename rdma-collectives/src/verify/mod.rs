//! Checks plans against a cabling; uses the types of plans and nothing of the code that makes them

mod prices;

use std::collections::{BTreeMap, BTreeSet};

use crate::{Cabling, Certificate, Operation, Plan, Ratio, Tree};

/// Checks every claim of a plan, and returns by how much its time is above its bound at most: 1 for an optimal plan
///
/// A plan that passes transfers the whole payload as its operation demands, within [`Plan::time`] on each cable in each direction and
/// at each host with a cap; and no plan takes less than [`Plan::bound`], which its certificate proves. Any plan may be given: this function does not
/// panic, and needs about as much memory as the plan has.
///
/// # Errors
///
/// The first claim that is wrong: [`VerifyError::OtherCabling`] and [`VerifyError::OtherHosts`]; [`VerifyError::Operation`] for amounts or a root that do not fit
/// the hosts; [`VerifyError::Tree`] and [`VerifyError::Shares`] for how the payload travels; [`VerifyError::Load`] and [`VerifyError::HostLoad`];
/// [`VerifyError::Certificate`] and [`VerifyError::Bound`]; [`VerifyError::Overflow`].
pub fn verify(cabling: &Cabling, plan: &Plan) -> Result<Ratio, VerifyError> {
    if plan.cabling == cabling.fingerprint() && plan.hosts != cabling.hosts() {
        let names = |hosts: &[String]| hosts.join(", ");
        return Err(VerifyError::OtherHosts { planned: names(&plan.hosts), given: names(cabling.hosts()) });
    }
    if plan.cabling != cabling.fingerprint() {
        return Err(VerifyError::OtherCabling {
            planned: plan.cabling.to_string(),
            given: cabling.fingerprint().to_string(),
        });
    }
    let check = Check { plan, cabling, hosts: cabling.hosts().len(), rates: rates(cabling) };
    let total = check.payload()?;
    check.trees()?;
    check.shares(total)?;
    check.loads()?;
    let proved = check.bound(total)?;
    if proved != plan.bound {
        return Err(VerifyError::Bound { claimed: plan.bound, proved });
    }
    let excess = plan.bound.inverse().and_then(|inverse| inverse.checked_mul(plan.time));
    excess.ok_or(VerifyError::Overflow)
}

/// A wrong claim of a plan
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The certificate proves another bound
    #[error("the certificate proves a bound of {proved} seconds per byte, and the plan claims {claimed}")]
    Bound {
        /// The claim of the plan
        claimed: Ratio,
        /// What the certificate proves
        proved: Ratio,
    },

    /// The certificate proves nothing
    #[error("the certificate proves nothing: {reason}")]
    Certificate {
        /// Why
        reason: &'static str,
    },

    /// A host has more to send or to receive than the plan says
    #[error(
        "what {host} {direction} takes {taken} seconds per byte of the payload under its cap, and the plan claims {claimed}"
    )]
    HostLoad {
        /// The host
        host: String,
        /// `sends` or `receives`
        direction: &'static str,
        /// The time it takes
        taken: Ratio,
        /// The claim of the plan
        claimed: Ratio,
    },

    /// A cable has more to carry than the plan says
    #[error(
        "what goes over {arc} takes {taken} seconds per byte of the payload, and the plan claims {claimed}"
    )]
    Load {
        /// The host that sends and the one that receives, as `a>b`
        arc: String,
        /// The time it takes
        taken: Ratio,
        /// The claim of the plan
        claimed: Ratio,
    },

    /// The operation is not one of these hosts
    #[error("the operation does not fit {hosts} hosts: {reason}")]
    Operation {
        /// How many hosts there are
        hosts: usize,
        /// Why not
        reason: &'static str,
    },

    /// The plan is for another cabling
    #[error("the plan is for the cabling {planned}, and this one is {given}: make a plan for it")]
    OtherCabling {
        /// Fingerprint in the plan
        planned: String,
        /// Fingerprint of the cabling
        given: String,
    },

    /// The plan has the hosts in another order than the cabling, or other ones
    #[error("the hosts of the plan are {planned}, and those of the cabling are {given}: make a plan for it")]
    OtherHosts {
        /// Names in the plan, in its order
        planned: String,
        /// Names in the cabling, in its order
        given: String,
    },

    /// Shares whose sum does not fit into 128 bits
    #[error("the shares of the trees have no common denominator of 128 bits")]
    Overflow,

    /// The trees do not carry what the operation demands
    #[error("the trees {trees} carry {carried} of the payload, and the operation demands {demanded}")]
    Shares {
        /// Which trees: from which root, and to which host
        trees: String,
        /// The sum of their shares
        carried: Ratio,
        /// What it should be
        demanded: Ratio,
    },

    /// A tree that is none
    #[error("tree {tree}: {reason}")]
    Tree {
        /// Its number, counted from 1
        tree: usize,
        /// What is wrong
        reason: &'static str,
    },
}

/// Bytes per second from one host to another, over all cables
fn rates(cabling: &Cabling) -> BTreeMap<(usize, usize), u128> {
    let mut rates = BTreeMap::new();
    for cable in cabling.cables() {
        let [left, right] = cable.ends;
        *rates.entry((left, right)).or_default() += u128::from(cable.rates[0]);
        *rates.entry((right, left)).or_default() += u128::from(cable.rates[1]);
    }
    rates
}

struct Check<'a> {
    plan: &'a Plan,
    cabling: &'a Cabling,
    hosts: usize,
    rates: BTreeMap<(usize, usize), u128>,
}

/// What trees have to add up: all of them, those from a root, or paths from a root to an end
type Group = (Option<usize>, Option<usize>);

impl Check<'_> {
    /// The amounts of the operation together; 1 without amounts
    fn payload(&self) -> Result<u128, VerifyError> {
        let wrong = |reason| VerifyError::Operation { hosts: self.hosts, reason };
        let sum = |amounts: &[u64]| -> u128 { amounts.iter().copied().map(u128::from).sum() };
        let (root, total) = match &self.plan.operation {
            Operation::AllReduce => (None, 1),
            Operation::AllReduceAmong { members } => {
                let different: BTreeSet<_> = members.iter().filter(|&&member| member < self.hosts).collect();
                let right = different.len() == members.len() && members.len() >= 2;
                (None, u128::from(right))
            }
            Operation::Broadcast { root } | Operation::Reduce { root } => (Some(*root), 1),
            Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => {
                (None, if amounts.len() == self.hosts { sum(amounts) } else { 0 })
            }
            Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
                (Some(*root), if amounts.len() == self.hosts { sum(amounts) } else { 0 })
            }
            Operation::AllToAll { amounts } => {
                let square = amounts.len() == self.hosts && amounts.iter().all(|row| row.len() == self.hosts);
                (None, if square { amounts.iter().map(|row| sum(row)).sum() } else { 0 })
            }
        };
        if root.is_some_and(|root| root >= self.hosts) {
            return Err(wrong("the root is not a host"));
        }
        if total == 0 {
            return Err(wrong(
                "there is not one amount for each host, all are 0, or members are unknown or too few",
            ));
        }
        Ok(total)
    }

    /// Whether trees are paths to one host instead of trees to all
    fn paths(&self) -> bool {
        matches!(
            self.plan.operation,
            Operation::AllToAll { .. } | Operation::Gather { .. } | Operation::Scatter { .. }
        )
    }

    /// Whether a host has or gets a part of the payload, of trees to all
    fn takes_part(&self, host: usize) -> bool {
        match &self.plan.operation {
            Operation::AllReduceAmong { members } => members.contains(&host),
            _ => true,
        }
    }

    fn trees(&self) -> Result<(), VerifyError> {
        for (number, tree) in (1..).zip(&self.plan.trees) {
            self.tree(tree).map_err(|reason| VerifyError::Tree { tree: number, reason })?;
        }
        Ok(())
    }

    fn tree(&self, tree: &Tree) -> Result<(), &'static str> {
        if tree.root >= self.hosts {
            return Err("its root is not a host");
        }
        let mut reached = BTreeSet::from([tree.root]);
        let mut last = tree.root;
        for &(parent, child) in &tree.arcs {
            if !self.rates.contains_key(&(parent, child)) {
                return Err("it has an arc between hosts without a cable");
            }
            if !reached.contains(&parent) {
                return Err("it has an arc away from a host that it does not reach before");
            }
            if !reached.insert(child) {
                return Err("it reaches a host twice");
            }
            if self.paths() && parent != last {
                return Err("it branches, and the data of this operation is for one host each");
            }
            last = child;
        }
        match self.paths() {
            true if tree.arcs.is_empty() => Err("it is empty"),
            false if !(0..self.hosts).all(|host| reached.contains(&host) || !self.takes_part(host)) => {
                Err("it does not reach all hosts that take part")
            }
            _ => Ok(()),
        }
    }

    /// What each group of trees has to carry
    fn demands(&self) -> BTreeMap<Group, u128> {
        let hosts = 0..self.hosts;
        let other = |amounts: &[u64], root: usize| -> BTreeMap<Group, u128> {
            let ends = hosts.clone().filter(|&end| end != root);
            ends.map(|end| ((Some(root), Some(end)), u128::from(amounts[end]))).collect()
        };
        match &self.plan.operation {
            Operation::AllReduce | Operation::AllReduceAmong { .. } => BTreeMap::from([((None, None), 1)]),
            Operation::Broadcast { root } | Operation::Reduce { root } => {
                BTreeMap::from([((Some(*root), None), 1)])
            }
            Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => {
                hosts.map(|root| ((Some(root), None), u128::from(amounts[root]))).collect()
            }
            Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
                other(amounts, *root)
            }
            Operation::AllToAll { amounts } => {
                hosts.clone().flat_map(|root| other(&amounts[root], root)).collect()
            }
        }
    }

    fn group(&self, tree: &Tree) -> Group {
        let any = matches!(self.plan.operation, Operation::AllReduce | Operation::AllReduceAmong { .. });
        let root = (!any).then_some(tree.root);
        let end = tree.arcs.last().filter(|_| self.paths()).map(|&(_, child)| child);
        (root, end)
    }

    fn shares(&self, total: u128) -> Result<(), VerifyError> {
        let mut carried: BTreeMap<Group, Ratio> = BTreeMap::new();
        for tree in &self.plan.trees {
            let sum = carried.entry(self.group(tree)).or_insert(Ratio::ZERO);
            *sum = sum.checked_add(tree.share).ok_or(VerifyError::Overflow)?;
        }
        let demands = self.demands();
        let name = |host: Option<usize>, any: &str| {
            host.map_or_else(|| any.to_owned(), |host| self.plan.hosts[host].clone())
        };
        let groups: BTreeSet<_> = carried.keys().chain(demands.keys()).copied().collect();
        for group in groups {
            let demanded = demands.get(&group).copied().unwrap_or_default();
            let demanded = Ratio::new(demanded, total).ok_or(VerifyError::Overflow)?;
            let carried = carried.get(&group).copied().unwrap_or(Ratio::ZERO);
            if carried != demanded {
                let trees = format!("from {} to {}", name(group.0, "any root"), name(group.1, "all hosts"));
                return Err(VerifyError::Shares { trees, carried, demanded });
            }
        }
        Ok(())
    }

    /// Whether data goes over the arcs of trees away from the root, and towards it
    fn directions(&self) -> (bool, bool) {
        match self.plan.operation {
            Operation::AllReduce | Operation::AllReduceAmong { .. } => (true, true),
            Operation::Gather { .. } | Operation::Reduce { .. } | Operation::ReduceScatter { .. } => {
                (false, true)
            }
            Operation::AllGather { .. }
            | Operation::AllToAll { .. }
            | Operation::Broadcast { .. }
            | Operation::Scatter { .. } => (true, false),
        }
    }

    fn loads(&self) -> Result<(), VerifyError> {
        let (down, up) = self.directions();
        let mut loads: BTreeMap<(usize, usize), Ratio> = BTreeMap::new();
        for tree in &self.plan.trees {
            for &(parent, child) in &tree.arcs {
                for arc in [(parent, child)]
                    .into_iter()
                    .filter(|_| down)
                    .chain([(child, parent)].into_iter().filter(|_| up))
                {
                    let load = loads.entry(arc).or_insert(Ratio::ZERO);
                    *load = load.checked_add(tree.share).ok_or(VerifyError::Overflow)?;
                }
            }
        }
        let taken = |load: Ratio, rate: u128| {
            let taken = Ratio::new(1, rate).and_then(|second| second.checked_mul(load));
            taken.ok_or(VerifyError::Overflow)
        };
        let name = |host: usize| self.plan.hosts[host].clone();
        let claimed = self.plan.time;
        for (&(from, to), &load) in &loads {
            let taken = taken(load, self.rates.get(&(from, to)).copied().unwrap_or_default())?;
            if taken > claimed {
                let arc = format!("{}>{}", name(from), name(to));
                return Err(VerifyError::Load { arc, taken, claimed });
            }
        }
        for host in 0..self.hosts {
            let cap = self.cabling.cap(host);
            for (direction, cap) in [("sends", cap.send), ("receives", cap.receive)] {
                let Some(cap) = cap else { continue };
                let of_host = |(from, to): (usize, usize)| if direction == "sends" { from } else { to };
                let mut over = loads.iter().filter(|(arc, _)| of_host(**arc) == host);
                let sum = over.try_fold(Ratio::ZERO, |sum, (_, load)| sum.checked_add(*load));
                let taken = taken(sum.ok_or(VerifyError::Overflow)?, cap.into())?;
                if taken > claimed {
                    return Err(VerifyError::HostLoad { host: name(host), direction, taken, claimed });
                }
            }
        }
        Ok(())
    }

    fn bound(&self, total: u128) -> Result<Ratio, VerifyError> {
        match &self.plan.certificate {
            Certificate::Cut(inside) => self.cut(inside, total),
            Certificate::Partition(parts) => self.partition(parts),
            Certificate::Prices(prices) => self.prices(prices, total),
        }
    }

    fn cut(&self, inside: &[usize], total: u128) -> Result<Ratio, VerifyError> {
        let inside: BTreeSet<_> = inside.iter().copied().collect();
        let proper =
            !inside.is_empty() && inside.len() < self.hosts && inside.iter().all(|&host| host < self.hosts);
        if !proper {
            return Err(VerifyError::Certificate {
                reason: "the cut is empty, has all hosts, or has others",
            });
        }
        let sum = |amounts: &[u64], within: bool| -> u128 {
            let hosts = (0..self.hosts).filter(|host| inside.contains(host) == within);
            hosts.map(|host| u128::from(amounts[host])).sum()
        };
        let leaving = match &self.plan.operation {
            Operation::AllReduce => 1,
            Operation::AllReduceAmong { members } => {
                let within = members.iter().filter(|member| inside.contains(member)).count();
                u128::from(within > 0 && within < members.len())
            }
            Operation::Broadcast { root } => u128::from(inside.contains(root)),
            Operation::Reduce { root } => u128::from(!inside.contains(root)),
            Operation::AllGather { amounts } => sum(amounts, true),
            Operation::ReduceScatter { amounts } => sum(amounts, false),
            Operation::Scatter { root, amounts } if inside.contains(root) => sum(amounts, false),
            Operation::Gather { root, amounts } if !inside.contains(root) => sum(amounts, true),
            Operation::Gather { .. } | Operation::Scatter { .. } => 0,
            Operation::AllToAll { amounts } => inside.iter().map(|&host| sum(&amounts[host], false)).sum(),
        };
        let crossing =
            self.rates.iter().filter(|((from, to), _)| inside.contains(from) && !inside.contains(to));
        quotient(leaving, total, crossing.map(|(_, rate)| rate).sum())
    }

    fn partition(&self, parts: &[Vec<usize>]) -> Result<Ratio, VerifyError> {
        if !matches!(self.plan.operation, Operation::AllReduce | Operation::AllReduceAmong { .. }) {
            return Err(VerifyError::Certificate { reason: "a partition is one of an all_reduce only" });
        }
        let mut part_of = BTreeMap::new();
        for (number, part) in parts.iter().enumerate() {
            for &host in part {
                if host >= self.hosts || part_of.insert(host, number).is_some() {
                    return Err(VerifyError::Certificate {
                        reason: "a host of the partition is unknown or twice in it",
                    });
                }
            }
        }
        if parts.len() < 2 || parts.iter().any(Vec::is_empty) || part_of.len() != self.hosts {
            return Err(VerifyError::Certificate {
                reason: "the partition lacks a host, has an empty part, or is in one part",
            });
        }
        if parts.iter().any(|part| !part.iter().any(|&host| self.takes_part(host))) {
            return Err(VerifyError::Certificate {
                reason: "a part of the partition has no host that takes part",
            });
        }
        let crossing = self.rates.iter().filter(|((from, to), _)| part_of[from] != part_of[to]);
        quotient(2 * (parts.len() as u128 - 1), 1, crossing.map(|(_, rate)| rate).sum())
    }
}

/// `amount / total / rate`, which has to be positive
fn quotient(amount: u128, total: u128, rate: u128) -> Result<Ratio, VerifyError> {
    if amount == 0 {
        return Err(VerifyError::Certificate { reason: "nothing has to cross it" });
    }
    if rate == 0 {
        return Err(VerifyError::Certificate { reason: "no cable crosses it" });
    }
    let per_byte = Ratio::new(amount, total).zip(Ratio::new(1, rate));
    per_byte.and_then(|(amount, second)| amount.checked_mul(second)).ok_or(VerifyError::Overflow)
}
