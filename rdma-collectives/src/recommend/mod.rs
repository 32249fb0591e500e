//! The best cabling of some hosts and their ports

mod limit;
mod nearest;
mod regular;
mod search;

use std::fmt;

pub use self::limit::Limit;
use crate::advice::{MAX_PORTS, connected_bound, require_exact};
use crate::spread::spread;
use crate::{AdviceError, Cabling, CablingError, MAX_EXACT_HOSTS, MAX_RATE, Operation, PlanError, Ratio};

/// A cabling of some hosts for an operation, with the proof how good it is
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recommendation {
    /// The cabling
    pub cabling: Cabling,
    /// The operation that it is for
    pub operation: Operation,
    /// The ports of each host
    pub ports: Vec<usize>,
    /// Bytes per second of each cable in each direction
    pub rate: u64,
    /// Seconds per byte of the payload that the best plan of the operation takes over it
    pub time: Ratio,
    /// Seconds per byte of the payload below which the operation is over no cabling of these hosts and ports
    pub least: Ratio,
    /// What `least` follows from
    pub limit: Limit,
    /// Hops between the furthest hosts
    pub diameter: u64,
}

impl Recommendation {
    /// Whether no cabling of these hosts and ports is faster
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.time <= self.least
    }

    /// The most cables that the hosts have ports for
    #[must_use]
    pub fn most_cables(&self) -> usize {
        limit::most_cables(&self.ports)
    }
}

/// The proof, in words
impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ports, rate, time, least, .. } = self;
        let (hosts, cables) = (ports.len(), self.most_cables());
        let (count, which) = match regular::ports_of_each(ports) {
            Some(each) => (each, "each"),
            None => (ports.iter().sum(), "together"),
        };
        writeln!(
            f,
            "{hosts} hosts with {count} ports {which} have at most {cables} cables of {rate} bytes per second."
        )?;
        match self.limit {
            Limit::Cables => write!(
                f,
                "In an all_reduce, each byte crosses between hosts at least 2 x {} times, over at most 2 x {cables} directions of cables",
                hosts - 1
            )?,
            Limit::Distances => write!(
                f,
                "Few hosts are one hop from a host with so few ports, so that data crosses several of at most 2 x {cables} directions of cables"
            )?,
            Limit::Ports { host } => write!(
                f,
                "What {} needs or others need from it crosses its cables, at most {}",
                self.cabling.hosts()[host],
                ports[host]
            )?,
        }
        writeln!(f, ": it takes at least {least} seconds per byte over any cabling.")?;
        let verdict =
            if self.is_optimal() { "no cabling is faster." } else { "a faster cabling is not excluded." };
        write!(f, "This cabling takes {time} seconds per byte: {verdict}")
    }
}

/// The best cabling for an all_reduce among hosts with so many ports each, with cables of `rate` bytes per second
///
/// As [`recommend_for`]. Any connected cabling that looks the same from each host meets the bound of [`Recommendation::least`]. If hosts
/// and ports are both odd, one port stays free, and the result may be above the bound.
///
/// # Errors
///
/// Those of [`recommend_for`].
pub fn recommend(hosts: usize, ports: usize, rate: u64) -> Result<Recommendation, AdviceError> {
    require_hosts(hosts)?;
    recommend_for(&vec![ports; hosts], rate, &Operation::AllReduce)
}

/// The best cabling that is found for an operation among hosts with these numbers of ports, with cables of `rate` bytes per second
///
/// Hosts have no [caps](crate::HostCap): which cabling is best for hosts with some is not known.
///
/// Hosts with equal numbers of ports get cables to `i ± s` for some steps `s`, or a cabling of well-known shape: of those with the smallest
/// diameter, and then the smallest sum of distances, the fastest. Others get a cable between those with the most free ports, again and again.
/// If the result does not meet the bound of [`Recommendation::least`], cables are moved for as long as that helps.
///
/// # Errors
///
/// [`AdviceError::Ports`] or [`AdviceError::TotalPorts`] if the ports cannot connect the hosts, or one has more than [`MAX_PORTS`];
/// [`AdviceError::Cabling`] for an impossible rate or no hosts; [`AdviceError::Plan`] with [`PlanError::TooManyHosts`] for more than 64 hosts,
/// or for an all_to_all among more than [`MAX_EXACT_ALL_TO_ALL_HOSTS`](crate::MAX_EXACT_ALL_TO_ALL_HOSTS), and with the errors of [`bound`](crate::bound()) for the operation.
pub fn recommend_for(
    ports: &[usize],
    rate: u64,
    operation: &Operation,
) -> Result<Recommendation, AdviceError> {
    require_hosts(ports.len())?;
    require_exact(ports.len(), operation, false)?;
    require_ports(ports)?;
    if rate == 0 || rate > MAX_RATE {
        return Err(CablingError::Rate { cable: 0, rate }.into());
    }
    let candidates = match regular::degree(ports) {
        Some(degree) => regular::cablings(ports.len(), degree, rate),
        None => search::cablings(ports, rate),
    };
    let mut best: Option<search::Found> = None;
    let mut least = None;
    for cabling in candidates {
        let Some(spread) = spread(&cabling) else { continue };
        let Some(time) = connected_bound(&cabling, operation)? else { continue };
        let (least, _) = match least {
            Some(least) => least,
            // The operation fits the hosts: it has a bound.
            None => *least.insert(limit::least(ports, operation, rate).ok_or(PlanError::Overflow)?),
        };
        let found = search::Found { time, spread, cabling };
        if best.as_ref().is_none_or(|best| found.key() < best.key()) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|best| best.time <= least) {
            break;
        }
    }
    let (Some(best), Some((least, limit))) = (best, least) else { return Err(too_few(ports)) };
    let best = search::improved(best, operation, least)?;
    Ok(Recommendation {
        cabling: best.cabling,
        operation: operation.clone(),
        ports: ports.to_vec(),
        rate,
        time: best.time,
        least,
        limit,
        diameter: best.spread.0,
    })
}

fn require_hosts(hosts: usize) -> Result<(), AdviceError> {
    match hosts {
        0 => Err(CablingError::Hosts { hosts }.into()),
        1 => Err(PlanError::OneHost.into()),
        2..=MAX_EXACT_HOSTS => Ok(()),
        _ => Err(PlanError::TooManyHosts { hosts, most: MAX_EXACT_HOSTS }.into()),
    }
}

fn require_ports(ports: &[usize]) -> Result<(), AdviceError> {
    let is_possible = ports.iter().all(|ports| (1..=MAX_PORTS).contains(ports));
    // A tree has one cable less than hosts, and each cable two ends.
    match is_possible && ports.iter().sum::<usize>() >= 2 * (ports.len() - 1) {
        true => Ok(()),
        false => Err(too_few(ports)),
    }
}

fn too_few(ports: &[usize]) -> AdviceError {
    let hosts = ports.len();
    match regular::ports_of_each(ports) {
        Some(ports) => AdviceError::Ports { hosts, ports, fewest: if hosts == 2 { 1 } else { 2 } },
        None => {
            let total = ports.iter().fold(0, |sum: usize, ports| sum.saturating_add(*ports));
            AdviceError::TotalPorts { hosts, ports: total, fewest: 2 * (hosts - 1) }
        }
    }
}
