use crate::flow::{Flow, INFINITE};
use crate::network::Network;
use crate::ratio::gcd;

/// The strength of a network, with its proof from both sides
///
/// The strength is the smallest `c(E(P)) / (|P| - 1)` over the partitions `P` of the hosts into at least two parts, where
/// `c(E(P))` is the capacity between different parts.
#[derive(Clone, Debug)]
pub(crate) struct Strength {
    /// `K` of `K / U` in lowest terms: so many trees, if each cable takes `U` times its capacity
    pub(crate) trees: u128,
    /// `U`
    pub(crate) scale: u128,
    /// A partition that attains it: the part of each host
    pub(crate) parts: Vec<usize>,
    /// Row after row, symmetric: how many of the `K` trees may use a pair of hosts, at most `U` times its capacity
    ///
    /// They add up to `K (n - 1)`, and each set of `s` hosts has at most `K (s - 1)` inside: then `K` spanning trees exist
    /// that use each pair exactly so often.
    pub(crate) uses: Vec<u128>,
}

impl Strength {
    /// The strength of a connected symmetric network
    ///
    /// `preferred` orders the pairs of hosts: earlier ones are used up to their capacity first.
    pub(crate) fn of(network: &Network, preferred: &[(usize, usize)]) -> Self {
        let hosts = network.hosts();
        let mut parts: Vec<usize> = (0..hosts).collect();
        let (mut trees, mut scale) = ratio(network, &parts);
        loop {
            let polymatroid = Polymatroid::greedy(network, preferred, trees, scale);
            if polymatroid.total == trees * (hosts as u128 - 1) {
                return Self { trees, scale, parts, uses: polymatroid.uses };
            }
            // A partition with a smaller ratio, and with fewer parts: the loop ends.
            parts = polymatroid.blocks;
            (trees, scale) = ratio(network, &parts);
        }
    }
}

/// `c(E(P)) / (|P| - 1)` in lowest terms
fn ratio(network: &Network, parts: &[usize]) -> (u128, u128) {
    let between = network.edges().filter(|&(left, right)| parts[left] != parts[right]);
    let capacity = between.map(|(left, right)| network.capacity(left, right)).sum();
    let count = (0..parts.len()).filter(|&host| parts[host] == host).count() as u128 - 1;
    let divisor = gcd(capacity, count);
    (capacity / divisor, count / divisor)
}

/// A vector on the pairs of hosts, as large as its two limits permit
struct Polymatroid {
    uses: Vec<u128>,
    total: u128,
    /// The largest sets that are full, as a partition: each host's part is its smallest host
    blocks: Vec<usize>,
}

impl Polymatroid {
    /// At most `scale` times the capacity on each pair, and at most `trees * (s - 1)` within each set of `s` hosts
    ///
    /// Raises the pairs one by one; that reaches the largest total, because the limits are those of a polymatroid. A set that is
    /// full makes further pairs in it zero, and full sets with a common host are full together.
    fn greedy(network: &Network, preferred: &[(usize, usize)], trees: u128, scale: u128) -> Self {
        let hosts = network.hosts();
        let mut found = Self { uses: vec![0; hosts * hosts], total: 0, blocks: (0..hosts).collect() };
        for &(left, right) in preferred {
            if found.blocks[left] == found.blocks[right] {
                continue;
            }
            let wanted = scale * network.capacity(left, right);
            let (room, full) = found.room(hosts, left, right, trees);
            let granted = wanted.min(room);
            found.uses[left * hosts + right] = granted;
            found.uses[right * hosts + left] = granted;
            found.total += granted;
            if granted == room {
                found.merge(&full);
            }
        }
        found
    }

    /// The smallest `trees * (s - 1) - uses within` over sets that contain both hosts, and such a set
    ///
    /// Twice that is `-2 trees` plus the sum of `2 trees - degree` over the set plus the uses that leave the set: a cut.
    fn room(&self, hosts: usize, left: usize, right: usize, trees: u128) -> (u128, Vec<bool>) {
        let (source, sink) = (hosts, hosts + 1);
        let mut flow = Flow::new(hosts + 2);
        let mut negative = 0;
        for host in 0..hosts {
            let row = &self.uses[host * hosts..][..hosts];
            let degree: u128 = row.iter().sum();
            flow.add(host, sink, (2 * trees).saturating_sub(degree), 0);
            let surplus = degree.saturating_sub(2 * trees);
            negative += surplus;
            flow.add(source, host, if host == left || host == right { INFINITE } else { surplus }, 0);
            for (other, &uses) in row.iter().enumerate().skip(host + 1) {
                if uses > 0 {
                    flow.add(host, other, uses, uses);
                }
            }
        }
        // A cut pays the surplus of the hosts outside the set, so it exceeds the sum over the set by the surplus of all.
        let cut = flow.send(source, sink, INFINITE);
        let full = flow.reached(source);
        ((cut - negative - 2 * trees) / 2, full)
    }

    fn merge(&mut self, full: &[bool]) {
        let blocks: Vec<usize> =
            (0..self.blocks.len()).filter(|&host| full[host]).map(|host| self.blocks[host]).collect();
        let first = blocks.iter().copied().min().unwrap_or_default();
        self.blocks.iter_mut().filter(|block| blocks.contains(block)).for_each(|block| *block = first);
    }
}
