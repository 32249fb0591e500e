use std::fmt;

use crate::network::Network;
use crate::{Cable, Cabling, CablingError, Operation, PlanError, Ratio, planner};

/// The most ports per host for which [`recommend`] tries cablings.
pub const MAX_PORTS: usize = 8;

/// What an operation takes without one of the cables
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unplug {
    /// The cable, as an index into [`Cabling::cables`]
    pub cable: usize,
    /// Seconds per byte of the payload in the best plan without it; `None` if it leaves hosts that cannot reach each other
    pub without: Option<Ratio>,
}

/// What each cable is worth for an operation: its best time if that cable is unplugged, in the order of the cables
///
/// Each item is planned when it is asked for, which may take long on many hosts.
///
/// # Errors
///
/// Those of [`bound`](crate::bound()): [`PlanError::OneHost`], [`PlanError::Disconnected`] for the cabling as it is,
/// [`PlanError::Root`], [`PlanError::Amounts`], [`PlanError::NothingToSend`], [`PlanError::TooManyHosts`] or
/// [`PlanError::Overflow`]. An item has the same for the other cables.
pub fn unplugs(
    cabling: &Cabling,
    operation: &Operation,
) -> Result<impl Iterator<Item = Result<Unplug, PlanError>>, PlanError> {
    planner::bound(cabling, operation)?;
    let rest = (0..cabling.cables().len()).filter_map(|cable| Some((cable, cabling.without_cable(cable)?)));
    Ok(rest.map(|(cable, rest)| Ok(Unplug { cable, without: connected_bound(&rest, operation)? })))
}

/// A cable that could be added, and what an operation takes with it
///
/// The smallest is the best: by the time of the operation, then by the diameter.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Addition {
    /// Seconds per byte of the payload in the best plan with it
    pub with: Ratio,
    /// Hops between the furthest hosts with it
    pub diameter: u64,
    /// The hosts that it joins
    pub ends: [usize; 2],
}

/// The cables that could be added, in the order of the hosts
///
/// `free_ports` says how many more cables each host can take. A cable has `rate` bytes per second in each direction. Cables that
/// leave the cabling unconnected are left out. Each item is planned when it is asked for, which may take long on many hosts; the
/// upper end of [`size_hint`](Iterator::size_hint) counts the pairs of hosts with free ports.
///
/// # Errors
///
/// [`AdviceError::FreePorts`] if there is not one number for each host. An item has [`AdviceError::Cabling`] for an impossible rate
/// or too many cables, [`AdviceError::Plan`] if the operation cannot be planned.
pub fn additions<'a>(
    cabling: &'a Cabling,
    operation: &'a Operation,
    rate: u64,
    free_ports: &[usize],
) -> Result<impl Iterator<Item = Result<Addition, AdviceError>> + use<'a>, AdviceError> {
    let hosts = cabling.hosts().len();
    if free_ports.len() != hosts {
        return Err(AdviceError::FreePorts { numbers: free_ports.len(), hosts });
    }
    let free: Vec<_> = (0..hosts).filter(|&host| free_ports[host] > 0).collect();
    let below = |(number, &right): (usize, &usize)| free[..number].iter().map(move |&left| [left, right]);
    let mut pairs: Vec<_> = free.iter().enumerate().flat_map(below).collect();
    pairs.sort_unstable();
    let addition = move |ends: [usize; 2]| {
        let larger = cabling.with_cable(Cable::new(ends[0], ends[1], rate))?;
        let with = connected_bound(&larger, operation)?;
        with.map(|with| Ok(Addition { with, diameter: spread(&larger)?.0, ends })).transpose()
    };
    Ok(pairs.into_iter().filter_map(move |ends| addition(ends).transpose()))
}

fn connected_bound(cabling: &Cabling, operation: &Operation) -> Result<Option<Ratio>, PlanError> {
    match planner::bound(cabling, operation) {
        Ok((bound, _)) => Ok(Some(bound)),
        Err(PlanError::Disconnected { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Hops between the furthest hosts, and between all together
fn spread(cabling: &Cabling) -> Result<(u64, u64), PlanError> {
    let ends = cabling.cables().iter().map(|cable| Cable::new(cable.ends[0], cable.ends[1], 1));
    let hops = Cabling::new(cabling.hosts().iter().cloned(), ends.collect::<Vec<_>>());
    let network = Network::of(hops.as_ref().unwrap_or(cabling))?;
    let distances: Vec<u64> = network.distances().iter().flatten().map(|&(_, hops)| hops).collect();
    Ok((distances.iter().copied().max().unwrap_or(0), distances.iter().sum()))
}

/// A cabling of equal hosts for all_reduce, with the proof how good it is
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recommendation {
    /// The cabling
    pub cabling: Cabling,
    /// The ports of each host
    pub ports: usize,
    /// Bytes per second of each cable in each direction
    pub rate: u64,
    /// Seconds per byte that the best plan of an all_reduce takes over it
    pub time: Ratio,
    /// Seconds per byte below which an all_reduce is over no cabling of these hosts and ports
    pub least: Ratio,
    /// Hops between the furthest hosts
    pub diameter: u64,
}

impl Recommendation {
    /// Whether no cabling of these hosts and ports is faster
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.time == self.least
    }
}

/// The proof, in words
impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ports, rate, time, least, .. } = self;
        let hosts = self.cabling.hosts().len();
        let (cables, crossings) = (hosts * ports / 2, hosts - 1);
        writeln!(
            f,
            "{hosts} hosts with {ports} ports each have at most {cables} cables of {rate} bytes per second."
        )?;
        writeln!(
            f,
            "In an all_reduce, each byte crosses between hosts at least 2 x {crossings} times, over at most 2 x {cables} directions \
             of cables: it takes at least {least} seconds per byte over any cabling."
        )?;
        let verdict =
            if time == least { "no cabling is faster." } else { "a faster cabling is not excluded." };
        write!(f, "This cabling takes {time} seconds per byte: {verdict}")
    }
}

/// The best cabling for an all_reduce among hosts with so many ports each, with cables of `rate` bytes per second
///
/// Any connected cabling that looks the same from each host meets the bound of [`Recommendation::least`]. Among those in which host
/// `i` has cables to `i ± s` for some steps `s`, and some of well-known shape, it takes the one with the smallest diameter, and then
/// with the smallest sum of distances. If hosts and ports are both odd, one port stays free, and the result may be above the bound.
///
/// # Errors
///
/// [`AdviceError::Ports`] if so many ports cannot connect the hosts, or are more than [`MAX_PORTS`]; [`AdviceError::Cabling`]
/// for too many hosts or an impossible rate; [`AdviceError::Plan`] with [`PlanError::OneHost`].
pub fn recommend(hosts: usize, ports: usize, rate: u64) -> Result<Recommendation, AdviceError> {
    // Refuses impossible figures, which the shapes below do not.
    Cabling::new((0..hosts).map(|host| format!("h{host}")), [])?;
    if hosts == 1 {
        return Err(PlanError::OneHost.into());
    }
    let enough = if hosts == 2 { 1 } else { 2 };
    if !(enough..=MAX_PORTS).contains(&ports) {
        return Err(AdviceError::Ports { hosts, ports, fewest: enough });
    }
    if rate == 0 || rate > crate::MAX_RATE {
        return Err(CablingError::Rate { cable: 0, rate }.into());
    }
    let mut best: Option<((u64, u64), Cabling)> = None;
    let mut consider = |cabling: Cabling| {
        if let Ok(spread) = spread(&cabling)
            && best.as_ref().is_none_or(|(least, _)| spread < *least)
        {
            best = Some((spread, cabling));
        }
    };
    if (hosts, ports) == (10, 3) {
        consider(Cabling::petersen(rate));
    }
    if hosts == 1 << ports {
        consider(Cabling::hypercube(ports as u32, rate));
    }
    for steps in step_sets(hosts, ports) {
        let spare = hosts % 2 * (ports % 2);
        let pairs = Cabling::circulant(hosts, &steps, rate);
        // Hosts and ports both odd: all hosts but the last get one cable more.
        let half = spare * (hosts / 2);
        let more = (0..half).map(|host| (host, host + half));
        let pairs = pairs.cables().iter().map(|cable| (cable.ends[0], cable.ends[1])).chain(more);
        consider(Cabling::of_pairs(hosts, pairs, rate));
    }
    let Some(((diameter, _), cabling)) = best else {
        return Err(AdviceError::Ports { hosts, ports, fewest: enough });
    };
    let (time, _) = planner::bound(&cabling, &Operation::AllReduce)?;
    let cables = (hosts * ports / 2) as u128 * u128::from(rate);
    let least = Ratio::new(hosts as u128 - 1, cables).ok_or(PlanError::Overflow)?;
    Ok(Recommendation { cabling, ports, rate, time, least, diameter })
}

/// Steps round a ring that give each host so many cables, a step of half the ring giving one and others two
fn step_sets(hosts: usize, ports: usize) -> Vec<Vec<usize>> {
    fn extend(sets: &mut Vec<Vec<usize>>, steps: &mut Vec<usize>, from: usize, hosts: usize, ports: usize) {
        if ports == 0 || ports == 1 && hosts % 2 == 1 {
            sets.push(steps.clone());
            return;
        }
        for step in from..=hosts / 2 {
            let takes = if 2 * step == hosts { 1 } else { 2 };
            if takes <= ports {
                steps.push(step);
                extend(sets, steps, step, hosts, ports - takes);
                steps.pop();
            }
        }
    }
    let mut sets = Vec::new();
    extend(&mut sets, &mut Vec::new(), 1, hosts, ports);
    sets
}

/// Why there is no advice
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdviceError {
    /// A cable or the number of hosts is impossible
    #[error(transparent)]
    Cabling(#[from] CablingError),

    /// There is not one number of free ports for each host
    #[error("{numbers} numbers of free ports for {hosts} hosts: give one for each")]
    FreePorts {
        /// How many numbers there are
        numbers: usize,
        /// How many hosts there are
        hosts: usize,
    },

    /// The operation cannot be planned
    #[error(transparent)]
    Plan(#[from] PlanError),

    /// Too few ports to connect the hosts, or more than are supported
    #[error("{hosts} hosts with {ports} ports each: {fewest} to {MAX_PORTS} ports are possible")]
    Ports {
        /// How many hosts there are
        hosts: usize,
        /// How many ports each has
        ports: usize,
        /// How many it needs
        fewest: usize,
    },
}
