//! The one lock around the fabric, and the wakers of its completion queues

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::{RawWakerVTable, Waker};
use std::time::Duration;

use rdma_core::{Cause, Completion, Error, Time, Verb};
use slotmap::SecondaryMap;
use spin::mutex::{SpinMutex, SpinMutexGuard};
use spin::relax::Yield;

use crate::fabric::{CqKey, DeviceRef, Fabric, Process};
use crate::port_wakers::PortWakers;
use crate::verb_time;
use crate::wall_clock::WallClock;

#[derive(Debug)]
pub(crate) struct Shared {
    /// Rarely wanted by two threads at once. Releasing it is a plain store, where a mutex of std takes an atomic exchange
    state: SpinMutex<State, Yield>,
    /// In real time
    clock: Option<Arc<WallClock>>,
}

/// The locked simulation; in real time, the thread of the clock learns of new events when it is unlocked
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    // Dropped before the other field, which wakes a thread that takes the lock.
    state: SpinMutexGuard<'a, State, Yield>,
    next: NextEvent<'a>,
}

/// When the next event is due
#[derive(Debug)]
struct NextEvent<'a>(Option<(&'a WallClock, Time)>);

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if let NextEvent(Some((_, time))) = &mut self.next {
            *time = self.state.fabric.schedule.next().unwrap_or(Time::MAX);
        }
    }
}

impl Drop for NextEvent<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((clock, time)) = self.0 {
            clock.is_due(time);
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) fabric: Fabric,
    /// The waker of the task that waits for each completion queue
    wakers: SecondaryMap<CqKey, Waker>,
    /// Those of the executor of the simulation: they list a task and do nothing else, so they may be called under the lock
    task_wakers: Option<&'static RawWakerVTable>,
    pub(crate) ports: PortWakers,
}

/// The result of advancing time
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advanced {
    pub(crate) now: Time,
    /// Whether processes have stopped or started
    pub(crate) has_host_news: bool,
}

impl Shared {
    pub(crate) fn new(fabric: Fabric, clock: Option<Arc<WallClock>>) -> Self {
        Self { state: SpinMutex::new(State::new(fabric)), clock }
    }

    /// The clock of a simulation in real time
    #[inline]
    pub(crate) fn clock(&self) -> Option<&Arc<WallClock>> {
        self.clock.as_ref()
    }

    /// The state of the processes of a host
    pub(crate) fn process(&self, host: u32) -> Process {
        self.lock().fabric.world.process(host).0
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Locked<'_> {
        let state = self.state.try_lock().unwrap_or_else(|| self.wait_for_lock());
        Locked { state, next: NextEvent(self.clock.as_deref().map(|clock| (clock, Time::MAX))) }
    }

    #[cold]
    #[inline(never)]
    fn wait_for_lock(&self) -> SpinMutexGuard<'_, State, Yield> {
        self.state.lock()
    }

    /// Locks the simulation at the time of the wall clock, if it has one, or before the event that is due next
    #[inline(always)]
    fn lock_now(&self) -> Locked<'_> {
        let mut state = self.lock();
        if let Some(clock) = &self.clock {
            Self::catch_up(&mut state.fabric, clock.now());
        }
        state
    }

    #[cold]
    fn catch_up(fabric: &mut Fabric, now: Time) {
        // No event fires: it could wake a task, whose waker may take a lock that the caller holds.
        if now > fabric.schedule.now() && fabric.schedule.next().is_none_or(|next| next > now) {
            fabric.advance(now, Some(now));
        }
    }

    /// Takes completions of a queue; in real time, fires what is due before
    ///
    /// Finds nothing if the poll never returns.
    #[inline]
    pub(crate) fn poll(
        &self,
        device: DeviceRef,
        cq: CqKey,
        out: &mut [Completion],
    ) -> (Result<usize, Error>, Locked<'_>) {
        if let Some(clock) = &self.clock {
            self.advance_to(clock.now());
        }
        let mut state = self.lock();
        if state.fabric.world.has_slow_verbs() {
            match self.begin_slow_unlocked(state, device, Verb::PollCq) {
                Some(locked) => state = locked,
                None => return (Ok(0), self.lock()),
            }
        }
        let Fabric { cpu, cqs, model, .. } = &mut state.fabric;
        cpu.spend(model.timing.poll_ns);
        (cqs.poll(cq, out), state)
    }

    /// Posts on a queue pair of `device`, and counts that it was refused
    ///
    /// Succeeds without an effect if the post never returns: the task goes no further than its next wait.
    #[inline]
    pub(crate) fn post(
        &self,
        device: DeviceRef,
        verb: Verb,
        call: impl FnOnce(&mut Fabric) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.lock_now();
        if state.fabric.world.has_slow_verbs() {
            match self.begin_slow_unlocked(state, device, verb) {
                Some(locked) => state = locked,
                None => return Ok(()),
            }
        }
        Self::call(&mut state.fabric, device, call)
    }

    #[inline]
    fn call<T>(
        fabric: &mut Fabric,
        device: DeviceRef,
        call: impl FnOnce(&mut Fabric) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match call(fabric) {
            Ok(value) => Ok(value),
            Err(error) => {
                fabric.coverage.refused(&error, device, &fabric.world, &fabric.model);
                Err(error)
            }
        }
    }

    /// Calls a verb of `device` that may take time, and counts that it was refused
    ///
    /// # Errors
    ///
    /// [`Cause::Busy`], which no program sees, if the calling thread does not return from a verb.
    pub(crate) fn verb<T>(
        &self,
        device: DeviceRef,
        verb: Verb,
        call: impl FnOnce(&mut Fabric) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if !self.begin(device, verb) {
            return Err(Error::new(verb, Cause::Busy));
        }
        let result = Self::call(&mut self.lock_now().fabric, device, |fabric| {
            let result = call(fabric);
            let blocked_ns = std::mem::take(&mut fabric.blocked_ns);
            if self.clock.is_some() || fabric.model.timing.verbs_block_tasks {
                verb_time::add(blocked_ns);
            }
            result
        });
        self.pass();
        result
    }

    /// Begins a verb of `device` that may take time; false if it never returns, and so has no effect
    pub(crate) fn begin(&self, device: DeviceRef, verb: Verb) -> bool {
        if !verb_time::is_stuck() {
            let Fabric { cpu, model, lateness, choices, .. } = &mut self.lock_now().fabric;
            cpu.spend_in_verb(model.timing.verb_ns(verb));
            verb_time::add(lateness.verb_ns(&mut **choices));
        }
        self.begin_slow(device, verb)
    }

    /// Begins a verb of `device` that takes time because of faults alone; false if it never returns, and so has no effect
    #[cold]
    fn begin_slow(&self, device: DeviceRef, verb: Verb) -> bool {
        if !verb_time::is_stuck() {
            let ns = self.lock().fabric.world.slow_verb_ns(device.index, verb);
            verb_time::add(ns);
            self.pass();
        }
        !verb_time::is_stuck()
    }

    /// As [`begin_slow`](Self::begin_slow), without the lock meanwhile; `None` if the verb never returns
    #[cold]
    #[inline(never)]
    fn begin_slow_unlocked<'a>(
        &'a self,
        state: Locked<'a>,
        device: DeviceRef,
        verb: Verb,
    ) -> Option<Locked<'a>> {
        drop(state);
        if !self.begin_slow(device, verb) {
            return None;
        }
        Some(if verb == Verb::PollCq { self.lock() } else { self.lock_now() })
    }

    /// In real time, lets the calling thread wait for as long as its verbs take
    fn pass(&self) {
        if self.clock.is_some() {
            match verb_time::take() {
                0 => (),
                verb_time::NEVER => loop {
                    std::thread::park();
                },
                ns => std::thread::sleep(Duration::from_nanos(ns)),
            }
        }
    }

    /// Advances time until a completion queue or a host has news, at the latest until `timer`
    ///
    /// `None` if nothing is due by `limit`. Of a timer and an event of one instant, the event comes first; if it `explores`, neither: time stops before both.
    pub(crate) fn advance(&self, timer: Time, limit: Time, explores: bool) -> Option<Advanced> {
        let mut state = self.lock();
        let fabric = &mut state.fabric;
        let event = fabric.schedule.next().unwrap_or(Time::MAX);
        let next = event.min(timer);
        // Waiters that a verb has woken come before anything that is due.
        if (next > limit || next == Time::MAX) && !fabric.cqs.has_woken() {
            return None;
        }
        if !explores {
            fabric.advance(timer.min(limit), (timer <= limit).then_some(timer));
        } else if timer <= event && timer <= limit {
            fabric.schedule.wait_until(timer);
        } else {
            let before = Time::from_nanos(timer.as_nanos().saturating_sub(1));
            fabric.advance(before.max(fabric.schedule.now()).min(limit), None);
        }
        Some(Self::notify(state))
    }

    /// Calls the wakers of completion queues with news; returns whether there were any
    pub(crate) fn wake(&self) -> bool {
        let mut has_woken = false;
        loop {
            let state = self.lock();
            if !state.fabric.cqs.has_woken() {
                return has_woken;
            }
            has_woken = true;
            Self::notify(state);
        }
    }

    /// Fires an event that is due now: that with this id, or any; returns whether processes have stopped or started
    pub(crate) fn step(&self, id: Option<u64>) -> bool {
        let mut state = self.lock();
        state.fabric.step(id);
        Self::notify(state).has_host_news
    }

    /// Fires every event that is due by `time`
    pub(crate) fn advance_to(&self, time: Time) -> Advanced {
        let mut has_host_news = false;
        loop {
            let mut state = self.lock();
            // Another thread may have gone further since the caller looked at its clock.
            let time = time.max(state.fabric.schedule.now());
            let is_done = state.fabric.advance(time, Some(time));
            let advanced = Self::notify(state);
            has_host_news |= advanced.has_host_news;
            if is_done {
                return Advanced { has_host_news, ..advanced };
            }
        }
    }

    /// Calls the wakers of the completion queues with news, and of ports, most of them without the lock: a waker may run any code
    fn notify(mut state: Locked<'_>) -> Advanced {
        let first = state.wake_next(true);
        let second = if state.fabric.cqs.has_woken() { state.wake_next(first.is_none()) } else { None };
        let ports = state.take_port_wakers();
        let fabric = &mut state.fabric;
        let advanced =
            Advanced { now: fabric.schedule.now(), has_host_news: fabric.world.take_processes_changed() };
        drop(state);
        if let Some(waker) = first {
            waker.wake();
        }
        if let Some(waker) = second {
            waker.wake();
        }
        if let Some(ports) = ports {
            ports.into_iter().for_each(Waker::wake);
        }
        advanced
    }
}

impl State {
    /// The wakers of programs that watch ports, if ports may have changed; they are to be woken without the lock
    pub(crate) fn take_port_wakers(&mut self) -> Option<Vec<Waker>> {
        self.fabric.world.take_ports_changed().then(|| self.ports.all())
    }

    fn new(fabric: Fabric) -> Self {
        Self { fabric, wakers: SecondaryMap::new(), task_wakers: None, ports: PortWakers::default() }
    }

    /// From now on, wakers of the kind of `waker` may be called under the lock
    pub(crate) fn call_under_lock(&mut self, waker: &Waker) {
        self.task_wakers = Some(waker.vtable());
    }

    /// Takes the next completion queue with news; calls its waker if it `may_call` that under the lock, and returns it otherwise
    #[inline(always)]
    fn wake_next(&mut self, may_call: bool) -> Option<Waker> {
        let waker = self.wakers.get(self.fabric.cqs.pop_woken()?)?;
        // A clone counts for all threads, which takes as long as a lock.
        if may_call && self.task_wakers.is_some_and(|kind| std::ptr::eq(kind, waker.vtable())) {
            waker.wake_by_ref();
            return None;
        }
        Some(waker.clone())
    }

    /// The waker of the next completion queue that has news, if there is one and a task waits for it
    pub(crate) fn pop_woken(&mut self) -> Option<Waker> {
        let cq = self.fabric.cqs.pop_woken()?;
        self.wakers.get(cq).cloned()
    }

    /// Destroys a completion queue; its waker is to be dropped without the lock
    pub(crate) fn destroy_cq(&mut self, cq: CqKey) -> Option<Waker> {
        let Fabric { cqs, objects, .. } = &mut self.fabric;
        cqs.destroy(cq, objects);
        self.wakers.remove(cq)
    }

    /// Stores the waker of a completion queue; the replaced one is to be dropped without the lock
    pub(crate) fn set_waker(&mut self, cq: CqKey, waker: &Waker) -> Option<Waker> {
        match self.wakers.get(cq) {
            Some(same) if same.will_wake(waker) => None,
            _ => self.wakers.insert(cq, waker.clone()),
        }
    }
}
