use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rdma_core::{Cause, Error, Runtime, Time, Verb};
use slotmap::SecondaryMap;

use crate::device::SimDevice;
use crate::executor::SimRuntime;
use crate::fabric::{CableStats, CqKey, Fabric};

/// The simulated Macs and cables, as the program under test sees them
///
/// Cheap to clone; all clones mean the same network.
#[derive(Clone)]
pub struct Net {
    shared: Arc<Shared>,
    runtime: Arc<SimRuntime>,
}

pub(crate) struct Shared(Mutex<State>);

pub(crate) struct State {
    pub(crate) fabric: Fabric,
    /// Who waits for a completion queue.
    wakers: SecondaryMap<CqKey, Waker>,
}

impl Net {
    pub(crate) fn new(fabric: Fabric, runtime: Arc<SimRuntime>) -> Self {
        Self { shared: Arc::new(Shared(Mutex::new(State { fabric, wakers: SecondaryMap::new() }))), runtime }
    }

    /// Opens the device called `name` on `host`
    ///
    /// # Errors
    ///
    /// [`Cause::Invalid`] if there is no such host or device; [`Cause::PortDown`] if no cable is plugged in;
    /// [`Cause::Exhausted`] if it has been opened too often.
    pub fn open(&self, host: &str, name: &str) -> Result<SimDevice, Error> {
        let found = self.shared.lock().fabric.find_device(host, name);
        let missing = Error::new(Verb::OpenDevice, Cause::Invalid("there is no such host or device"));
        SimDevice::open(Arc::clone(&self.shared), found.ok_or(missing)?)
    }

    /// Virtual time and tasks
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    /// The virtual time
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// What has passed over the cable at this device: sent from here, and received
    ///
    /// `None` if there is no such device or no cable in it.
    pub fn cable_stats(&self, host: &str, name: &str) -> Option<[CableStats; 2]> {
        let state = self.shared.lock();
        state.fabric.cable_stats(state.fabric.find_device(host, name)?)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of the program under test must not hide behind a second one here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass until somebody was woken, at the latest until `timer`; tells what time it is then
    ///
    /// `None` if nothing is due by `limit`.
    pub(crate) fn advance(&self, timer: Time, limit: Time) -> Option<Time> {
        let mut state = self.lock();
        let State { fabric, wakers } = &mut *state;
        let next = fabric.next_event().unwrap_or(Time::MAX).min(timer);
        if next > limit || next == Time::MAX {
            return None;
        }
        fabric.advance(timer.min(limit));
        if !fabric.has_woken() && timer <= limit {
            fabric.skip_to(timer);
        }
        fabric.drain_woken(|cq| {
            if let Some(waker) = wakers.get(cq) {
                waker.wake_by_ref();
            }
        });
        Some(fabric.now())
    }
}

impl State {
    pub(crate) fn destroy_cq(&mut self, cq: CqKey) {
        self.fabric.destroy_cq(cq);
        self.wakers.remove(cq);
    }

    pub(crate) fn set_waker(&mut self, cq: CqKey, waker: &Waker) {
        match self.wakers.get_mut(cq) {
            Some(old) => old.clone_from(waker),
            None => {
                self.wakers.insert(cq, waker.clone());
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
