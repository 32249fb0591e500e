//! Messages between two ranks whose cables are out go over other ranks
//!
//! A task of each rank watches the paths to its neighbours. Ranks announce to each other which neighbours they reach. What a neighbour that is
//! not reached does not have yet, and what follows, goes in parts over the shortest way there is, and is kept until the neighbour confirms
//! it. Messages have numbers: the stream brings them as well when the cable is back, and they are given out once.
//!
//! Two ranks that send and receive without the others use the same ways.

mod calls;
mod numbered;
mod packet;
mod pairs;
mod peer;
mod retry;
mod routes;
mod task;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use rdma_async::{Device, Runtime};

pub(crate) use self::numbered::{Arrival, Purpose};
pub(crate) use self::peer::{Peer, is_silence};
pub(crate) use self::task::{State, packet_bytes};
use super::ranks::Ranks;

/// Messages that a rank relays, and that are relayed for it; when the group is dropped, as long as others need that
pub(crate) struct Relays<D: Device> {
    shared: Shared<D>,
}

/// The same, as the links of the rank use it
pub(crate) struct Shared<D: Device>(Arc<Mutex<State<D>>>);

impl<D: Device> Clone for Shared<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Device> Shared<D> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device> Relays<D> {
    /// The relays of rank `own`, with the neighbours of each rank, for messages of up to `longest` bytes; the neighbours are added later
    pub(crate) fn new(own: usize, cabled: Arc<[Ranks]>, longest: usize) -> Self {
        let shared = Shared(Arc::new(Mutex::new(State::new(own, cabled, longest))));
        Self { shared }
    }

    /// Relays from now on
    pub(crate) fn start(&self, runtime: &dyn Runtime) {
        let shared = self.shared();
        runtime.spawn(Box::pin(poll_fn(move |cx| shared.lock().poll(cx))));
    }

    pub(crate) fn shared(&self) -> Shared<D> {
        self.shared.clone()
    }

    /// Wakes the task of `cx` when something has come over other ranks, or can be sent over them
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.shared.lock().register(cx);
    }
}

impl<D: Device> Drop for Relays<D> {
    fn drop(&mut self) {
        self.shared.lock().leave();
    }
}
