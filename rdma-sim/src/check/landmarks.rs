//! What a run has reached, and where: a guided check goes on from there

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma_core::Time;
use rdma_core::probe::ProtocolState;
use twox_hash::XxHash3_64;

use crate::Net;

/// A point of a run
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Position {
    /// How many choices were drawn before
    pub(super) drawn: u64,
    pub(super) time: Time,
}

/// What a landmark is made of; those of earlier kinds say more about the program
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LandmarkKind {
    /// A state of the program or of the protocol, or a statement that holds, so many times
    State,
    /// One of these after another one, so many times
    Succession,
    /// Behaviour of the device, a fault or a statement, so many times in all of the run
    Behaviour,
    /// An order of tasks
    Order,
}

/// Something that a run has reached
#[derive(Clone, Copy, Debug)]
pub(super) struct Landmark {
    /// Equal for the same in all runs
    pub(super) id: u64,
    pub(super) kind: LandmarkKind,
    /// Where it was reached first, if that is known
    pub(super) position: Option<Position>,
}

impl Landmark {
    /// The landmark that `behaviour` was seen `count` times
    fn new(kind: LandmarkKind, behaviour: impl Debug, count: u64, position: Option<Position>) -> Self {
        Self { id: XxHash3_64::oneshot(format!("{behaviour:?} {count}").as_bytes()), kind, position }
    }

    /// The landmark of behaviour that was seen `count` times
    pub(super) fn behaviour(name: &str, count: u64) -> Self {
        Self::new(LandmarkKind::Behaviour, name, 1 << count.ilog2(), None)
    }

    pub(super) fn order(id: u64) -> Self {
        Self { id, kind: LandmarkKind::Order, position: None }
    }
}

/// The landmarks of a run that its program and its connections say: states, and successions of them
#[derive(Debug, Default)]
pub(super) struct Landmarks {
    /// Where the run is; nothing is kept without it
    run: OnceCell<(Net, Arc<AtomicU64>)>,
    last: Cell<(&'static str, u64)>,
    successions: RefCell<BTreeMap<[(&'static str, u64); 2], u64>>,
    reached: RefCell<Vec<Landmark>>,
}

/// Whether the `count`th time is a landmark: each of the first four, and then each power of two
fn is_landmark(count: u64) -> bool {
    count <= 4 || count.is_power_of_two()
}

impl Landmarks {
    /// Keeps the landmarks of the run of `net`, which has drawn so many choices
    pub(super) fn keep(&self, net: Net, drawn: Arc<AtomicU64>) {
        let _ = self.run.set((net, drawn));
    }

    /// The program is in `state` for the `count`th time
    pub(super) fn reach(&self, state: (&'static str, u64), count: u64) {
        if self.run.get().is_none() {
            return;
        }
        self.note(LandmarkKind::State, state, count);
        let succession = [self.last.replace(state), state];
        let mut successions = self.successions.borrow_mut();
        let count = successions.entry(succession).or_default();
        *count += 1;
        self.note(LandmarkKind::Succession, succession, *count);
    }

    /// A connection is in `state` for the `count`th time
    ///
    /// States of connections are in no succession: those of the program would drown in them.
    pub(super) fn reach_protocol(&self, state: ProtocolState, count: u64) {
        self.note(LandmarkKind::State, state, count);
    }

    /// The run is where `behaviour` is seen for the `count`th time, which may be a landmark
    fn note(&self, kind: LandmarkKind, behaviour: impl Debug, count: u64) {
        let Some((net, drawn)) = self.run.get() else { return };
        if is_landmark(count) {
            let position = Some(Position { drawn: drawn.load(Ordering::Relaxed), time: net.now() });
            self.reached.borrow_mut().push(Landmark::new(kind, behaviour, count, position));
        }
    }

    pub(super) fn take(&self) -> Vec<Landmark> {
        self.reached.take()
    }
}
