//! Follows the states of both sides of a peering, and counts in which of them faults fire

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use rdma_core::Time;
use rdma_core::probe::{Observer, PeeringState, Statement};
use rdma_sim::Net;

/// A side: the one that connects, on host `a`, or the one that accepts, on host `b`
pub(super) type Side = usize;
/// The hosts of the sides
pub(super) const HOSTS: [&str; 2] = ["a", "b"];
/// The state of a side; `None` before it knows its peer
pub(super) type State = Option<PeeringState>;
/// How many faults of a name have fired at a side in a state
pub(super) type Hits = BTreeMap<(&'static str, State, Side), u32>;

/// Every state, that before the sides know each other first
pub(super) fn states() -> impl Iterator<Item = State> {
    std::iter::once(None).chain(PeeringState::ALL.iter().copied().map(Some))
}

/// Follows a run, from its beginning on
pub(super) struct Watch {
    net: Net,
    now: [Cell<State>; 2],
    /// Since when each side was in which state, in order.
    log: [RefCell<Vec<(Time, State)>>; 2],
    fired: RefCell<Vec<(String, State, Side)>>,
}

impl Watch {
    pub(super) fn new(net: &Net) -> Self {
        let log = [(); 2].map(|()| RefCell::new(vec![(Time::ZERO, None)]));
        Self { net: net.clone(), now: Default::default(), log, fired: RefCell::default() }
    }

    /// The faults that have fired, in order: the name, and the host with its state
    pub(super) fn fired(&self) -> Vec<(String, State, Side)> {
        self.fired.take()
    }

    /// From when to when `side` was in `state`, for at least two nanoseconds
    pub(super) fn stays(&self, side: Side, state: State) -> Vec<(Time, Time)> {
        let log = self.log[side].borrow();
        let ends = log.iter().skip(1).map(|(time, _)| *time).chain([self.net.now()]);
        let all = log.iter().zip(ends).map(|((start, state), end)| (*state, *start, end));
        let long = all.filter(|(found, start, end)| *found == state && end.as_nanos() > start.as_nanos() + 1);
        long.map(|(_, start, end)| (start, end)).collect()
    }
}

impl Observer for Watch {
    fn evaluated(&self, _: Statement, _: bool) {}

    fn state(&self, _: &'static str, _: u64) {}

    fn waits_for(&self, _: fmt::Arguments<'_>) {}

    fn watches_peerings(&self) -> bool {
        true
    }

    fn peering(&self, has_connected: bool, state: PeeringState) {
        let (side, state) = (usize::from(!has_connected), Some(state));
        if self.now[side].replace(state) != state {
            self.log[side].borrow_mut().push((self.net.now(), state));
        }
    }

    fn fault_fires(&self, host: &str, name: &str) {
        if let Some(side) = HOSTS.iter().position(|other| *other == host) {
            self.fired.borrow_mut().push((name.to_owned(), self.now[side].get(), side));
        }
    }
}
