use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::host_cap::HostCap;

/// How many hosts a cabling may have; above [`MAX_EXACT_HOSTS`](crate::MAX_EXACT_HOSTS), plans may be slower than the best ones, and say so.
pub const MAX_HOSTS: usize = 1024;

/// The highest rate of a cable in one direction: 10^12 bytes per second
///
/// With it, all sums of the planner fit into 128 bits.
pub const MAX_RATE: u64 = 1_000_000_000_000;

/// How many cables a cabling may have.
pub const MAX_CABLES: usize = 4096;

/// A cable between two hosts, with its rate in each direction
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Cable {
    /// The two hosts, as indices into [`Cabling::hosts`]
    pub ends: [usize; 2],
    /// Bytes per second from `ends[0]` to `ends[1]`, and back; both directions carry at once
    pub rates: [u64; 2],
    /// Nanoseconds from posting a short message on one host to its arrival on the other
    pub latency_ns: u64,
}

impl Cable {
    /// A cable with the same rate in both directions, in bytes per second, and a latency of zero
    #[must_use]
    pub fn new(left: usize, right: usize, rate: u64) -> Self {
        Self { ends: [left, right], rates: [rate; 2], latency_ns: 0 }
    }

    /// The same cable with this latency
    #[must_use]
    pub fn latency_ns(self, latency_ns: u64) -> Self {
        Self { latency_ns, ..self }
    }
}

/// Hosts by name, the cables between them, and the caps of hosts
///
/// Several cables between the same two hosts count as one with the sum of their rates: what goes from one host to the other is
/// divided among them in proportion to their rates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cabling {
    /// Shared: each rank of a process keeps the cabling of its group
    hosts: Arc<[String]>,
    cables: Arc<[Cable]>,
    /// By host; those that are no caps are left out
    caps: Arc<BTreeMap<usize, HostCap>>,
}

impl Cabling {
    /// A cabling of these hosts
    ///
    /// A cabling need not be connected; a plan of a whole cabling needs that it is.
    ///
    /// # Errors
    ///
    /// [`CablingError::Hosts`] and [`CablingError::Cables`] for too many or no hosts, and too many cables;
    /// [`CablingError::HostName`] and [`CablingError::DuplicateHost`] for names; [`CablingError::UnknownHost`],
    /// [`CablingError::CableToItself`] and [`CablingError::Rate`] for a cable.
    pub fn new<H>(hosts: H, cables: impl Into<Vec<Cable>>) -> Result<Self, CablingError>
    where
        H: IntoIterator<Item: Into<String>>,
    {
        let hosts: Arc<[String]> = hosts.into_iter().map(Into::into).collect();
        let cables: Arc<[Cable]> = cables.into().into();
        if hosts.is_empty() || hosts.len() > MAX_HOSTS {
            return Err(CablingError::Hosts { hosts: hosts.len() });
        }
        if cables.len() > MAX_CABLES {
            return Err(CablingError::Cables { cables: cables.len() });
        }
        let mut names = BTreeSet::new();
        for host in &*hosts {
            let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
            if host.is_empty() || !host.chars().all(allowed) {
                return Err(CablingError::HostName { host: host.clone() });
            }
            if !names.insert(host) {
                return Err(CablingError::DuplicateHost { host: host.clone() });
            }
        }
        for (cable, &Cable { ends, rates, .. }) in cables.iter().enumerate() {
            if let Some(&end) = ends.iter().find(|&&end| end >= hosts.len()) {
                return Err(CablingError::UnknownHost { cable, end, hosts: hosts.len() });
            }
            if ends[0] == ends[1] {
                return Err(CablingError::CableToItself { cable, host: hosts[ends[0]].clone() });
            }
            if let Some(&rate) = rates.iter().find(|&&rate| rate == 0 || rate > MAX_RATE) {
                return Err(CablingError::Rate { cable, rate });
            }
        }
        Ok(Self { hosts, cables, caps: Arc::default() })
    }

    /// The names of the hosts
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The cables
    #[must_use]
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// The cap of a host; none for a host that is not there
    #[must_use]
    pub fn cap(&self, host: usize) -> HostCap {
        self.caps.get(&host).copied().unwrap_or_default()
    }

    /// Whether some host has a cap
    #[must_use]
    pub fn has_caps(&self) -> bool {
        !self.caps.is_empty()
    }

    /// The caps of hosts, by host
    pub(crate) fn caps(&self) -> impl Iterator<Item = (usize, HostCap)> {
        self.caps.iter().map(|(&host, &cap)| (host, cap))
    }

    /// The cables between two hosts, whichever end of them comes first
    #[cfg(feature = "groups")]
    pub(crate) fn between(&self, one: usize, other: usize) -> impl Iterator<Item = &Cable> {
        self.cables.iter().filter(move |cable| [[one, other], [other, one]].contains(&cable.ends))
    }

    /// The cabling of some hosts, numbered in this order: the cables between two of them whose ends `keeps` accepts, as numbered here
    #[cfg(feature = "groups")]
    pub(crate) fn among(&self, hosts: &[usize], keeps: impl Fn([usize; 2]) -> bool) -> Self {
        let mut numbers = vec![None; self.hosts.len()];
        hosts.iter().zip(0..).for_each(|(host, number)| numbers[*host] = Some(number));
        let cables = self.cables.iter().filter(|cable| keeps(cable.ends)).filter_map(|cable| {
            let [left, right] = cable.ends.map(|host| numbers[host]);
            Some(Cable { ends: [left?, right?], ..*cable })
        });
        let cables = cables.collect();
        let caps = self.caps.iter().filter_map(|(host, cap)| Some((numbers[*host]?, *cap))).collect();
        Self {
            hosts: hosts.iter().map(|host| self.hosts[*host].clone()).collect(),
            cables,
            caps: Arc::new(caps),
        }
    }

    /// The same hosts with at most so many cables between each two of them: the slowest ones, so that a plan promises too little at most
    #[cfg(feature = "groups")]
    pub(crate) fn with_at_most(&self, count: impl Fn(usize, usize) -> usize) -> Self {
        let mut slowest_first: Vec<_> = (0..self.cables.len()).collect();
        slowest_first.sort_by_key(|cable| self.cables[*cable].rates.iter().min().copied());
        let mut taken = vec![0; self.hosts.len() * self.hosts.len()];
        let mut is_kept = vec![false; self.cables.len()];
        for cable in slowest_first {
            let [left, right] = self.cables[cable].ends;
            let taken = &mut taken[left.min(right) * self.hosts.len() + left.max(right)];
            is_kept[cable] = *taken < count(left, right);
            *taken += 1;
        }
        let cables = self.cables.iter().zip(is_kept).filter(|(_, is_kept)| *is_kept);
        Self { cables: cables.map(|(cable, _)| *cable).collect(), ..self.clone() }
    }

    /// The hosts in groups that can reach each other, each sorted, in the order of their first hosts
    #[must_use]
    pub fn components(&self) -> Vec<Vec<usize>> {
        let mut component: Vec<usize> = (0..self.hosts.len()).collect();
        for cable in &*self.cables {
            let [left, right] = cable.ends.map(|end| component[end]);
            component.iter_mut().filter(|c| **c == left.max(right)).for_each(|c| *c = left.min(right));
        }
        let members = |first| (0..self.hosts.len()).filter(|&host| component[host] == first).collect();
        (0..self.hosts.len()).filter(|&host| component[host] == host).map(members).collect()
    }

    /// The same hosts with one cable more
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new) for the cable: [`CablingError::Cables`], [`CablingError::UnknownHost`],
    /// [`CablingError::CableToItself`], [`CablingError::Rate`].
    pub fn with_cable(&self, cable: Cable) -> Result<Self, CablingError> {
        let cables: Vec<_> = self.cables.iter().copied().chain([cable]).collect();
        Ok(Self { caps: Arc::clone(&self.caps), ..Self::new(self.hosts.iter().cloned(), cables)? })
    }

    /// The same cabling with this cap of a host instead of the one that it had
    ///
    /// ```
    /// use rdma_collectives::{Cabling, HostCap, Ratio, all_reduce};
    ///
    /// // The centre of a star sends each of three hosts the sum, and carries no more than one cable.
    /// let star = Cabling::star(4, 9_200_000_000).with_cap(0, HostCap::new(9_200_000_000))?;
    /// let plan = all_reduce(&star)?;
    /// assert_eq!(plan.time, Ratio::new(3, 9_200_000_000).unwrap());
    /// assert!(plan.is_optimal());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CablingError::CapOfUnknownHost`], or [`CablingError::Cap`] for a rate of 0 or above [`MAX_RATE`].
    pub fn with_cap(&self, host: usize, cap: HostCap) -> Result<Self, CablingError> {
        let Some(name) = self.hosts.get(host) else {
            return Err(CablingError::CapOfUnknownHost { host, hosts: self.hosts.len() });
        };
        let rates = [cap.send, cap.receive].into_iter().flatten();
        if let Some(rate) = rates.into_iter().find(|rate| !(1..=MAX_RATE).contains(rate)) {
            return Err(CablingError::Cap { host: name.clone(), rate });
        }
        let mut caps = (*self.caps).clone();
        match cap == HostCap::default() {
            true => caps.remove(&host),
            false => caps.insert(host, cap),
        };
        Ok(Self { caps: Arc::new(caps), ..self.clone() })
    }

    /// The same hosts without one cable, or `None` if there is no cable of this index
    #[must_use]
    pub fn without_cable(&self, cable: usize) -> Option<Self> {
        let mut cables = self.cables.to_vec();
        (cable < cables.len()).then(|| cables.remove(cable))?;
        Some(Self { cables: cables.into(), ..self.clone() })
    }

    /// The same cabling with this latency of each cable, in nanoseconds
    #[must_use]
    pub fn with_latency(&self, latency_ns: u64) -> Self {
        Self {
            cables: self.cables.iter().map(|cable| cable.latency_ns(latency_ns)).collect(),
            ..self.clone()
        }
    }

    /// A number that tells cablings apart: of the names in their order, the rates between each two hosts, and the caps of hosts
    ///
    /// Latencies and the order of the cables do not count, because a plan stays valid when they change.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = Fnv::new();
        for host in &*self.hosts {
            hash.write(host.as_bytes());
            hash.write(b"\n");
        }
        // A table of all pairs, almost all of which have no cable.
        let mut rates: BTreeMap<usize, u128> = BTreeMap::new();
        for cable in &*self.cables {
            let [left, right] = cable.ends;
            *rates.entry(left * self.hosts.len() + right).or_default() += u128::from(cable.rates[0]);
            *rates.entry(right * self.hosts.len() + left).or_default() += u128::from(cable.rates[1]);
        }
        let mut next = 0;
        for (pair, rate) in rates {
            hash.write_zeros(size_of::<u128>() * (pair - next));
            hash.write(&rate.to_le_bytes());
            next = pair + 1;
        }
        hash.write_zeros(size_of::<u128>() * (self.hosts.len() * self.hosts.len() - next));
        for (&host, cap) in &*self.caps {
            // 0 is no cap.
            for number in [host as u64, cap.send.unwrap_or(0), cap.receive.unwrap_or(0)] {
                hash.write(&number.to_le_bytes());
            }
        }
        Fingerprint(hash.0)
    }
}

/// The hash of a cabling, by which a plan recognises it
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Fingerprint(pub u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The FNV-1a hash of some bytes
#[cfg(feature = "groups")]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::new();
    hash.write(bytes);
    hash.0
}

/// FNV-1a, whose values do not change between versions of the compiler
struct Fnv(u64);

impl Fnv {
    const PRIME: u64 = 0x0100_0000_01b3;

    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(Self::PRIME);
        }
    }

    /// The same as writing so many bytes of zero
    fn write_zeros(&mut self, count: usize) {
        self.0 = self.0.wrapping_mul(Self::PRIME.wrapping_pow(count as u32));
    }
}

/// Why hosts and cables are not a cabling
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CablingError {
    /// Both ends of a cable are on one host
    #[error("cable {cable} joins {host} to itself: a cable joins two hosts")]
    CableToItself {
        /// Index of the cable
        cable: usize,
        /// The host
        host: String,
    },

    /// A cap that lets nothing pass, or more than any cable carries
    #[error("the cap of {host} is {rate} bytes per second: a cap is 1 to {MAX_RATE}")]
    Cap {
        /// The host
        host: String,
        /// The cap, in bytes per second
        rate: u64,
    },

    /// A cap that is not one of the index of a host
    #[error("a cap is for host {host}, and there are {hosts} hosts: count them from 0")]
    CapOfUnknownHost {
        /// The index
        host: usize,
        /// How many hosts there are
        hosts: usize,
    },

    /// Too many cables
    #[error("{cables} cables: at most {MAX_CABLES} are supported")]
    Cables {
        /// How many there are
        cables: usize,
    },

    /// Two hosts have the same name
    #[error("two hosts are called {host}: give one of them another name")]
    DuplicateHost {
        /// The name
        host: String,
    },

    /// A name that a plan cannot contain
    #[error("the host name {host:?} is not made of letters, digits, '-', '_' and '.': choose another name")]
    HostName {
        /// The name
        host: String,
    },

    /// No hosts, or too many
    #[error("{hosts} hosts: a group has 1 to {MAX_HOSTS}")]
    Hosts {
        /// How many there are
        hosts: usize,
    },

    /// A cable without capacity in one direction, or with more than any cable has
    #[error("cable {cable} has a rate of {rate} bytes per second: a rate is 1 to {MAX_RATE}")]
    Rate {
        /// Index of the cable
        cable: usize,
        /// The rate, in bytes per second
        rate: u64,
    },

    /// An end of a cable is not the index of a host
    #[error("cable {cable} ends at host {end}, and there are {hosts} hosts: count them from 0")]
    UnknownHost {
        /// Index of the cable
        cable: usize,
        /// The end
        end: usize,
        /// How many hosts there are
        hosts: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_cablings_are_refused() {
        let refused =
            |hosts: &[&str], cables: &[Cable]| Cabling::new(hosts.iter().copied(), cables).unwrap_err();
        assert_eq!(refused(&[], &[]), CablingError::Hosts { hosts: 0 });
        assert_eq!(refused(&["a"; 1025], &[]), CablingError::Hosts { hosts: 1025 });
        assert_eq!(CablingError::Hosts { hosts: 1025 }.to_string(), "1025 hosts: a group has 1 to 1024");
        assert_eq!(refused(&["a", "a"], &[]), CablingError::DuplicateHost { host: "a".into() });
        for name in ["", "a b", "a>b", "|"] {
            assert_eq!(refused(&[name], &[]), CablingError::HostName { host: name.into() });
        }
        let hosts = ["a", "b"];
        let loops = CablingError::CableToItself { cable: 0, host: "b".into() };
        assert_eq!(refused(&hosts, &[Cable::new(1, 1, 1)]), loops);
        let unknown = CablingError::UnknownHost { cable: 0, end: 2, hosts: 2 };
        assert_eq!(refused(&hosts, &[Cable::new(0, 2, 1)]), unknown);
        for rate in [0, MAX_RATE + 1] {
            assert_eq!(refused(&hosts, &[Cable::new(0, 1, rate)]), CablingError::Rate { cable: 0, rate });
        }
        let many = vec![Cable::new(0, 1, 1); MAX_CABLES + 1];
        assert_eq!(refused(&hosts, &many), CablingError::Cables { cables: MAX_CABLES + 1 });
    }

    /// Catches a cap that is taken without a look, and one that is lost when the cables change.
    #[test]
    fn impossible_caps_are_refused_and_others_stay_with_their_hosts() {
        let line = Cabling::line(3, 5);
        let cap = |send, receive| HostCap { send, receive };
        for (cap, rate) in [(HostCap::new(0), 0), (cap(None, Some(MAX_RATE + 1)), MAX_RATE + 1)] {
            let error = line.with_cap(1, cap).unwrap_err();
            assert_eq!(error, CablingError::Cap { host: "b".into(), rate });
        }
        let error = line.with_cap(3, HostCap::new(1)).unwrap_err();
        assert_eq!(error, CablingError::CapOfUnknownHost { host: 3, hosts: 3 });
        let capped = line.with_cap(2, cap(Some(4), None)).unwrap();
        let rest = capped.without_cable(0).unwrap().with_cable(Cable::new(0, 1, 5)).unwrap().with_latency(9);
        assert_eq!(
            [0, 1, 2].map(|host| rest.cap(host)),
            [HostCap::default(), HostCap::default(), cap(Some(4), None)]
        );
        assert_eq!(capped.with_cap(2, HostCap::default()).unwrap(), line);
    }

    /// Catches caps of the wrong ranks after a group has become smaller.
    #[cfg(feature = "groups")]
    #[test]
    fn caps_follow_the_numbers_of_their_hosts() {
        let capped =
            Cabling::mesh(4, 5).with_cap(0, HostCap::new(3)).unwrap().with_cap(3, HostCap::new(4)).unwrap();
        let among = capped.among(&[3, 1], |_| true).with_at_most(|_, _| 1);
        assert_eq!([0, 1].map(|host| among.cap(host)), [HostCap::new(4), HostCap::default()]);
    }

    #[test]
    fn components_are_the_hosts_that_reach_each_other() {
        let cables = [Cable::new(4, 1, 1), Cable::new(3, 4, 1), Cable::new(0, 2, 1)];
        let cabling = Cabling::new(["a", "b", "c", "d", "e", "f"], cables).unwrap();
        assert_eq!(cabling.components(), [vec![0, 2], vec![1, 3, 4], vec![5]]);
    }

    #[test]
    fn a_fingerprint_depends_on_names_and_rates_and_not_on_latency_or_order() {
        let cables = [Cable::new(0, 1, 5), Cable::new(1, 2, 7)];
        let of = |hosts: [&str; 3], cables: &[Cable]| Cabling::new(hosts, cables).unwrap().fingerprint();
        let first = of(["a", "b", "c"], &cables);
        assert_eq!(first, of(["a", "b", "c"], &[Cable::new(2, 1, 7).latency_ns(9), Cable::new(1, 0, 5)]));
        assert_ne!(first, of(["a", "c", "b"], &cables));
        assert_ne!(first, of(["a", "b", "c"], &[Cable::new(0, 1, 5), Cable::new(1, 2, 8)]));
        assert_ne!(first, of(["a", "b", "c"], &cables[..1]));
        let cabling = Cabling::new(["a", "b", "c"], cables).unwrap();
        let capped =
            |host, send, receive| cabling.with_cap(host, HostCap { send, receive }).unwrap().fingerprint();
        let caps = [(0, Some(1), None), (0, None, Some(1)), (0, Some(2), None), (1, Some(1), None)];
        let mut different = BTreeSet::from([first.0]);
        different.extend(caps.map(|(host, send, receive)| capped(host, send, receive).0));
        assert_eq!(different.len(), 5);
        // That of the table of all rates, byte by byte.
        let mut hash = Fnv::new();
        hash.write(b"a\nb\nc\n");
        [0, 5, 0, 5, 0, 7, 0, 7, 0_u128].iter().for_each(|rate| hash.write(&rate.to_le_bytes()));
        assert_eq!(first, Fingerprint(hash.0));
    }
}
