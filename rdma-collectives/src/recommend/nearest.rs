//! The cabling that is recommended, with the hosts in the places where fewest cables have to be moved

use super::Recommendation;
use crate::{Cable, Cabling, Operation};

/// The most hosts for which the exchanges begin from several orders.
const MANY: usize = 16;

impl Recommendation {
    /// The same cabling with its hosts called as those of `current`, each in such a place that many cables of `current` stay
    ///
    /// `current` has the same hosts in the same order; with another number of hosts the result is the same as before. Hosts change
    /// places if they have as many ports and the same part in the operation. Cables of another rate do not stay. Exchanges of two hosts
    /// are tried for as long as they help: other places might leave more cables. Caps of `current` do not count.
    #[must_use]
    pub fn nearest_to(&self, current: &Cabling) -> Self {
        let hosts = self.ports.len();
        if current.hosts().len() != hosts {
            return self.clone();
        }
        let usable = current.cables().iter().filter(|cable| cable.rates == [self.rate; 2]);
        let (present, wanted) = (counts(hosts, usable), counts(hosts, self.cabling.cables()));
        // The cables of one place that stay.
        let kept = |places: &[usize], place: usize| {
            let between = |other: usize| wanted[place][other].min(present[places[place]][places[other]]);
            (0..hosts).map(between).sum::<usize>()
        };
        let starts = if hosts > MANY { 1 } else { hosts };
        let climbed = (0..starts).map(|start| {
            let mut places = self.turned(start);
            // Each cable is at two places.
            let mut best = (0..hosts).map(|place| kept(&places, place)).sum::<usize>() / 2;
            loop {
                let mut pairs = (0..hosts).flat_map(|one| (one + 1..hosts).map(move |other| (one, other)));
                let is_better = pairs.any(|(one, other)| {
                    if !self.are_alike(places[one], places[other]) {
                        return false;
                    }
                    // Cables between the two stay or not as before.
                    let before = kept(&places, one) + kept(&places, other);
                    places.swap(one, other);
                    let after = kept(&places, one) + kept(&places, other);
                    if after <= before {
                        places.swap(one, other);
                        return false;
                    }
                    best += after - before;
                    true
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

/// How many cables there are between each two hosts
fn counts<'a>(hosts: usize, cables: impl IntoIterator<Item = &'a Cable>) -> Vec<Vec<usize>> {
    let mut counts = vec![vec![0; hosts]; hosts];
    for [left, right] in cables.into_iter().map(|cable| cable.ends) {
        counts[left][right] += 1;
        counts[right][left] += 1;
    }
    counts
}
