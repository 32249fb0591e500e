use crate::{Cable, Cabling};

/// Cablings of a well-known shape, whose cables all have the same rate in bytes per second
///
/// The hosts are called `a`, `b`, …, and from the 27th on `h26`, `h27`, …. Latencies are zero; see
/// [`with_latency`](Cabling::with_latency).
///
/// # Panics
///
/// With more hosts than [`MAX_HOSTS`](crate::MAX_HOSTS), fewer than 1, or a rate that a cable cannot have.
impl Cabling {
    /// A cable between each two hosts, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn mesh(hosts: usize, rate: u64) -> Self {
        let pairs = (0..hosts).flat_map(|left| (left + 1..hosts).map(move |right| (left, right)));
        Self::of_pairs(hosts, pairs, rate)
    }

    /// Each host with the next, and the last with the first; two hosts get one cable, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn ring(hosts: usize, rate: u64) -> Self {
        let last = (hosts > 2).then(|| (hosts - 1, 0));
        Self::of_pairs(hosts, (1..hosts).map(|host| (host - 1, host)).chain(last), rate)
    }

    /// Each host with the next, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn line(hosts: usize, rate: u64) -> Self {
        Self::of_pairs(hosts, (1..hosts).map(|host| (host - 1, host)), rate)
    }

    /// The first host with each other, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn star(hosts: usize, rate: u64) -> Self {
        Self::of_pairs(hosts, (1..hosts).map(|host| (0, host)), rate)
    }

    /// A hypercube of 2^`dimension` hosts, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn hypercube(dimension: u32, rate: u64) -> Self {
        let hosts = 1 << dimension;
        let pairs = (0..hosts).flat_map(|host| (0..dimension).map(move |bit| (host, host ^ (1 << bit))));
        Self::of_pairs(hosts, pairs.filter(|(left, right)| left < right), rate)
    }

    /// Two rings of `length` hosts each, with a cable between hosts in the same place, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn prism(length: usize, rate: u64) -> Self {
        let next = move |host| (host + 1) % length;
        let ring = (0..length).flat_map(move |host| {
            [(host, next(host)), (length + host, length + next(host)), (host, length + host)]
        });
        Self::of_pairs(2 * length, ring, rate)
    }

    /// Each of the first `left` hosts with each of the `right` others, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn bipartite(left: usize, right: usize, rate: u64) -> Self {
        let pairs = (0..left).flat_map(|host| (left..left + right).map(move |other| (host, other)));
        Self::of_pairs(left + right, pairs, rate)
    }

    /// The Petersen graph: 10 hosts with 3 cables each, no two further apart than 2, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn petersen(rate: u64) -> Self {
        let pairs = (0..5)
            .flat_map(|host| [(host, (host + 1) % 5), (host, host + 5), (host + 5, (host + 2) % 5 + 5)]);
        Self::of_pairs(10, pairs, rate)
    }

    /// Host `i` with `i + s` for each step `s`, counted round the hosts, with cables of `rate` bytes per second in each direction
    #[must_use]
    pub fn circulant(hosts: usize, steps: &[usize], rate: u64) -> Self {
        let pairs = (0..hosts).flat_map(|host| steps.iter().map(move |step| (host, (host + step) % hosts)));
        // A step of half the ring would come from both ends.
        let pairs = pairs.filter(|&(host, other)| host < other || 2 * (host - other) != hosts);
        Self::of_pairs(hosts, pairs, rate)
    }

    /// These pairs of hosts, a cable each
    #[must_use]
    pub fn of_pairs(hosts: usize, pairs: impl IntoIterator<Item = (usize, usize)>, rate: u64) -> Self {
        let name = |host: usize| match u8::try_from(host) {
            Ok(letter @ 0..26) => char::from(b'a' + letter).to_string(),
            _ => format!("h{host}"),
        };
        let cables: Vec<_> = pairs.into_iter().map(|(left, right)| Cable::new(left, right, rate)).collect();
        match Self::new((0..hosts).map(name), cables) {
            Ok(cabling) => cabling,
            Err(error) => panic!("{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_cables_that_they_should() {
        for (cabling, hosts, cables, degree) in [
            (Cabling::mesh(5, 1), 5, 10, 4),
            (Cabling::ring(6, 1), 6, 6, 2),
            (Cabling::hypercube(3, 1), 8, 12, 3),
            (Cabling::prism(3, 1), 6, 9, 3),
            (Cabling::bipartite(3, 3, 1), 6, 9, 3),
            (Cabling::petersen(1), 10, 15, 3),
            (Cabling::circulant(32, &[1, 5, 12], 1), 32, 96, 6),
            (Cabling::circulant(8, &[1, 4], 1), 8, 12, 3),
        ] {
            assert_eq!((cabling.hosts().len(), cabling.cables().len()), (hosts, cables));
            for host in 0..hosts {
                let ends = cabling.cables().iter().flat_map(|cable| cable.ends);
                assert_eq!(ends.filter(|&end| end == host).count(), degree);
            }
            assert_eq!(cabling.components().len(), 1);
        }
        assert_eq!(Cabling::ring(2, 1).cables().len(), 1);
        assert_eq!(Cabling::line(4, 1).cables().len(), 3);
        assert_eq!(Cabling::star(4, 1).cables().len(), 3);
    }
}
