use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rdma_core::{Cause, Error, Gid, Invalid, PortStatus, Runtime, Time, Verb};
use slotmap::SecondaryMap;

use crate::device::SimDevice;
use crate::executor::SimRuntime;
use crate::fabric::{CableStats, CqKey, DeviceIndex, Fabric, Finding, Process};
use crate::fault::Fault;
use crate::host::SimHost;
use crate::sim::Leaks;

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

/// What came of letting time pass
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advanced {
    pub(crate) now: Time,
    /// Processes have stopped or started.
    pub(crate) has_host_news: bool,
}

impl Net {
    pub(crate) fn new(fabric: Fabric, runtime: Arc<SimRuntime>) -> Self {
        Self { shared: Arc::new(Shared(Mutex::new(State { fabric, wakers: SecondaryMap::new() }))), runtime }
    }

    /// Opens the device called `name` on `host`
    ///
    /// # Errors
    ///
    /// [`Cause::Invalid`] if there is no such host or device; [`Cause::PortDown`] if nobody is at the other end;
    /// [`Cause::Exhausted`] if it has been opened too often.
    pub fn open(&self, host: &str, name: &str) -> Result<SimDevice, Error> {
        SimDevice::open(&self.shared, self.find(host, name)?)
    }

    /// Opens the device called `name` on `host` without a protection domain, which works whether or not a cable is plugged in
    ///
    /// # Errors
    ///
    /// [`Cause::Invalid`] if there is no such host or device.
    pub fn open_context(&self, host: &str, name: &str) -> Result<SimDevice, Error> {
        Ok(SimDevice::open_context(&self.shared, self.find(host, name)?))
    }

    /// What the port of a device says, without opening it
    ///
    /// # Errors
    ///
    /// [`Cause::Invalid`] if there is no such host or device.
    pub fn port(&self, host: &str, name: &str) -> Result<PortStatus, Error> {
        let device = self.find(host, name)?;
        Ok(self.shared.lock().fabric.port(device))
    }

    /// The GID table of a device, without opening it
    ///
    /// # Errors
    ///
    /// [`Cause::Invalid`] if there is no such host or device.
    pub fn gids(&self, host: &str, name: &str) -> Result<Vec<Gid>, Error> {
        let device = self.find(host, name)?;
        Ok(self.shared.lock().fabric.gids(device).to_vec())
    }

    fn find(&self, host: &str, name: &str) -> Result<DeviceIndex, Error> {
        let missing = Error::new(Verb::OpenDevice, Cause::Invalid(Invalid::NoSuchDevice));
        self.shared.lock().fabric.find_device(host, name).ok_or(missing)
    }

    /// The processes of a host
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn host(&self, name: &str) -> SimHost {
        let found = self.shared.lock().fabric.find_host(name);
        let index = found.unwrap_or_else(|| panic!("no host is called {name:?}"));
        SimHost::new(self.clone(), Arc::clone(&self.runtime), index)
    }

    /// Virtual time and tasks
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime) as Arc<dyn Runtime>
    }

    /// The virtual time
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// Has a fault happen when it is due, which is now if that has passed
    ///
    /// # Panics
    ///
    /// If there is no such host or device.
    pub fn inject(&self, fault: Fault) {
        let mut state = self.shared.lock();
        let target = fault.target.clone();
        let exists = match &target {
            crate::Target::Port { host, device } => state.fabric.find_device(host, device).is_some(),
            target => state.fabric.find_host(target.host()).is_some(),
        };
        assert!(exists, "fault {fault}: there is no {target}");
        state.fabric.plan(fault);
    }

    /// What exists now
    pub fn objects(&self) -> Leaks {
        Leaks::of(&self.shared.lock().fabric)
    }

    /// What the processes of a host do
    pub(crate) fn process(&self, host: u32) -> Process {
        self.shared.lock().fabric.process(host).0
    }

    /// A number below `n` from the simulation's one source of choices, for programs that want to vary by seed
    pub fn pick(&self, n: u32) -> u32 {
        self.shared.lock().fabric.choices().pick(n)
    }

    /// What has passed over the cable at this device: sent from here, and received
    ///
    /// `None` if there is no such device or no cable in it.
    pub fn cable_stats(&self, host: &str, name: &str) -> Option<[CableStats; 2]> {
        let state = self.shared.lock();
        state.fabric.cable_stats(state.fabric.find_device(host, name)?)
    }

    /// What the DMA sanitizer has found so far
    pub fn findings(&self) -> Vec<Finding> {
        self.shared.lock().fabric.findings().to_vec()
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

    /// Lets time pass until somebody was woken, at the latest until `timer`
    ///
    /// `None` if nothing is due by `limit`.
    pub(crate) fn advance(&self, timer: Time, limit: Time) -> Option<Advanced> {
        let mut state = self.lock();
        let fabric = &mut state.fabric;
        let next = fabric.next_event().unwrap_or(Time::MAX).min(timer);
        if next > limit || next == Time::MAX {
            return None;
        }
        fabric.advance(timer.min(limit));
        if !fabric.has_news() && timer <= limit {
            fabric.skip_to(timer);
        }
        Some(Self::tell(state))
    }

    /// Lets everything happen that is due by `time`
    pub(crate) fn advance_to(&self, time: Time) -> Advanced {
        let mut has_host_news = false;
        loop {
            let mut state = self.lock();
            // Another thread may have gone further since the caller looked at its clock.
            let time = time.max(state.fabric.now());
            state.fabric.advance(time);
            let is_done = !state.fabric.has_news();
            if is_done {
                state.fabric.skip_to(time);
            }
            let advanced = Self::tell(state);
            has_host_news |= advanced.has_host_news;
            if is_done {
                return Advanced { has_host_news, ..advanced };
            }
        }
    }
}

impl Shared {
    /// Wakes whom the fabric has something for, once the lock is released: a waker may run anything
    fn tell(mut state: MutexGuard<'_, State>) -> Advanced {
        let State { fabric, wakers } = &mut *state;
        let mut woken = [const { None }; 2];
        for waker in &mut woken {
            let Some(cq) = fabric.pop_woken() else { break };
            *waker = wakers.get(cq).cloned();
        }
        let advanced = Advanced { now: fabric.now(), has_host_news: fabric.take_host_news() };
        drop(state);
        woken.into_iter().flatten().for_each(Waker::wake);
        advanced
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
