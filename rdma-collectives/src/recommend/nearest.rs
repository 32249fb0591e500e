//! The cabling that is recommended, with the hosts in the places where fewest cables have to be moved

use std::collections::BTreeMap;

use super::Recommendation;
use crate::{Cable, Cabling, Operation};

/// The most hosts for which the exchanges begin from several orders.
const MANY: usize = 16;

impl Recommendation {
    /// The same cabling with its hosts called as those of `current`, each in such a place that many cables of `current` stay
    ///
    /// `current` has the same hosts in the same order; with another number of hosts the result is the same as before. Hosts change
    /// places if they have as many ports and the same part in the operation. Cables of another rate do not stay. Exchanges of two hosts
    /// are tried for as long as they help: other places might leave more cables.
    #[must_use]
    pub fn nearest_to(&self, current: &Cabling) -> Self {
        let hosts = self.ports.len();
        if current.hosts().len() != hosts {
            return self.clone();
        }
        let mut stay = BTreeMap::<[usize; 2], usize>::new();
        for cable in current.cables().iter().filter(|cable| cable.rates == [self.rate; 2]) {
            *stay.entry(sorted(cable.ends)).or_default() += 1;
        }
        let kept = |places: &[usize]| {
            let mut left = stay.clone();
            let pairs = self.cabling.cables().iter().map(|cable| sorted(cable.ends.map(|end| places[end])));
            pairs.filter(|pair| left.get_mut(pair).is_some_and(take)).count()
        };
        let starts = if hosts > MANY { 1 } else { hosts };
        let climbed = (0..starts).map(|start| {
            let mut places = self.turned(start);
            let mut best = kept(&places);
            loop {
                let mut pairs = (0..hosts).flat_map(|one| (one + 1..hosts).map(move |other| (one, other)));
                let is_better = pairs.any(|(one, other)| {
                    if !self.are_alike(places[one], places[other]) {
                        return false;
                    }
                    places.swap(one, other);
                    let found = kept(&places);
                    if found <= best {
                        places.swap(one, other);
                    }
                    let is_better = found > best;
                    best = best.max(found);
                    is_better
                });
                if !is_better {
                    return (best, places);
                }
            }
        });
        // The first of the best: later starts are further from the order of the hosts.
        let best = climbed.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let Some((_, places)) = best else { return self.clone() };
        let cables = self.cabling.cables().iter();
        let cables: Vec<_> =
            cables.map(|cable| Cable { ends: cable.ends.map(|end| places[end]), ..*cable }).collect();
        match Cabling::new(current.hosts().iter().cloned(), cables) {
            Ok(cabling) => Self { cabling, ..self.clone() },
            Err(_) => self.clone(),
        }
    }

    /// The hosts in their order, those that are alike `start` places further
    fn turned(&self, start: usize) -> Vec<usize> {
        let place = |host: usize| {
            let alike: Vec<_> = (0..self.ports.len()).filter(|other| self.are_alike(host, *other)).collect();
            let own = alike.iter().position(|other| *other == host).unwrap_or_default();
            alike[(own + start) % alike.len()]
        };
        (0..self.ports.len()).map(place).collect()
    }

    /// Whether two hosts may change places
    fn are_alike(&self, one: usize, other: usize) -> bool {
        let exchanged = |host: usize| match host {
            _ if host == one => other,
            _ if host == other => one,
            _ => host,
        };
        let is_alike = match &self.operation {
            Operation::AllReduce => true,
            Operation::AllReduceAmong { members } => members.contains(&one) == members.contains(&other),
            Operation::Broadcast { root } | Operation::Reduce { root } => exchanged(*root) == *root,
            Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => {
                amounts[one] == amounts[other]
            }
            Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
                exchanged(*root) == *root && amounts[one] == amounts[other]
            }
            Operation::AllToAll { amounts } => (0..amounts.len()).all(|from| {
                (0..amounts.len()).all(|to| amounts[from][to] == amounts[exchanged(from)][exchanged(to)])
            }),
        };
        one == other || (is_alike && self.ports[one] == self.ports[other])
    }
}

fn sorted([left, right]: [usize; 2]) -> [usize; 2] {
    [left.min(right), left.max(right)]
}

/// Takes one off a count, if there is one
fn take(count: &mut usize) -> bool {
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}
