use crate::spread::spread;
use crate::{
    Cable, Cabling, CablingError, MAX_EXACT_ALL_TO_ALL_HOSTS, MAX_EXACT_CAPPED_HOSTS, MAX_EXACT_HOSTS,
    Operation, PlanError, Ratio, planner,
};

/// The most ports of a host for which a cabling is recommended.
pub const MAX_PORTS: usize = 32;

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
/// [`PlanError::Root`], [`PlanError::Amounts`], [`PlanError::NothingToSend`], [`PlanError::Overflow`], or
/// [`PlanError::TooManyHosts`] for more than [`MAX_EXACT_HOSTS`], for more than [`MAX_EXACT_CAPPED_HOSTS`] if one has a cap, or for an
/// all_to_all among more than [`MAX_EXACT_ALL_TO_ALL_HOSTS`]. An item has the same for the other cables.
pub fn unplugs(
    cabling: &Cabling,
    operation: &Operation,
) -> Result<impl Iterator<Item = Result<Unplug, PlanError>>, PlanError> {
    require_exact(cabling.hosts().len(), operation, cabling.has_caps())?;
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
/// [`AdviceError::FreePorts`] if there is not one number for each host; [`AdviceError::Plan`] as for [`unplugs`]. An item has
/// [`AdviceError::Cabling`] for an impossible rate or too many cables, [`AdviceError::Plan`] if the operation cannot be planned.
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
    require_exact(hosts, operation, cabling.has_caps())?;
    let free: Vec<_> = (0..hosts).filter(|&host| free_ports[host] > 0).collect();
    let below = |(number, &right): (usize, &usize)| free[..number].iter().map(move |&left| [left, right]);
    let mut pairs: Vec<_> = free.iter().enumerate().flat_map(below).collect();
    pairs.sort_unstable();
    let addition = move |ends: [usize; 2]| {
        let larger = cabling.with_cable(Cable::new(ends[0], ends[1], rate))?;
        let (with, spread) = (connected_bound(&larger, operation)?, spread(&larger));
        // An operation among some hosts may leave others apart.
        let diameter = spread.map_or(u64::MAX, |(diameter, _)| diameter);
        Ok(with.map(|with| Addition { with, diameter, ends }))
    };
    Ok(pairs.into_iter().filter_map(move |ends| addition(ends).transpose()))
}

/// Refuses so many hosts that the bound may be far below the best plan: cablings are compared by their bounds
pub(crate) fn require_exact(hosts: usize, operation: &Operation, has_caps: bool) -> Result<(), PlanError> {
    let most = match operation {
        Operation::AllToAll { .. } => MAX_EXACT_ALL_TO_ALL_HOSTS,
        _ if has_caps => MAX_EXACT_CAPPED_HOSTS,
        _ => MAX_EXACT_HOSTS,
    };
    if hosts > most { Err(PlanError::TooManyHosts { hosts, most }) } else { Ok(()) }
}

/// The bound of an operation, or `None` if hosts cannot reach each other
pub(crate) fn connected_bound(cabling: &Cabling, operation: &Operation) -> Result<Option<Ratio>, PlanError> {
    match planner::bound(cabling, operation) {
        Ok((bound, _)) => Ok(Some(bound)),
        Err(PlanError::Disconnected { .. }) => Ok(None),
        Err(error) => Err(error),
    }
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

    /// Hosts with different numbers of ports that cannot be connected, or one with too many
    #[error(
        "{hosts} hosts with {ports} ports together: each needs 1 to {MAX_PORTS}, and all together {fewest}"
    )]
    TotalPorts {
        /// How many hosts there are
        hosts: usize,
        /// How many ports they have together
        ports: usize,
        /// How many they need together
        fewest: usize,
    },
}
