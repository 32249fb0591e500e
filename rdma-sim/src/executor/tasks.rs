//! The tasks of a run

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rdma_core::Time;

use super::limits::{Limits, MOST_POLLS};
use super::stalled::{Stalled, Wait, Waits, wait_of};
use super::task::{MAIN, Task, TaskName};
use crate::choices::Step;
use crate::cpu::{self, Share};
use crate::scheduler::Order;
use crate::shared::Shared;
use crate::verb_time;

/// A run: its tasks, and what they wait for
pub(super) struct Tasks {
    /// The main task has the first place, and is not in it
    pub(super) tasks: Vec<Option<Task>>,
    /// Tasks that may run now
    pub(super) ready: VecDeque<usize>,
    /// Tasks that were woken and are late
    pub(super) late: BinaryHeap<Reverse<(Time, u64, usize)>>,
    pub(super) order: Order,
    /// Whether an event of this very moment has not fired yet
    pub(super) has_event: bool,
    /// How many times tasks were polled at this instant
    pub(super) polls: u64,
    pub(super) limits: Limits,
    /// Tasks that have done what takes time
    blocked: Vec<Blocked>,
    /// How many tasks of one host run at once; zero: all of them
    cores: u32,
}

/// A task that does not run because of what it has done
struct Blocked {
    /// `None` if it has ended since
    id: Option<usize>,
    /// The host whose core it occupies, if it belongs to one
    host: Option<u32>,
    until: Time,
}

impl Tasks {
    /// Polls a task; one of `host` has its share of the cores
    pub(super) fn poll_on(&mut self, id: usize, host: Option<u32>) {
        let Some(host) = host else { return self.poll(id) };
        let is_polling = cpu::with_share(self.share(id, host), || self.poll(id));
        if let Some(Some(task)) = self.tasks.get_mut(id) {
            task.is_polling = is_polling;
        }
    }

    /// The share of a task that runs beside the tasks of `host` that poll
    fn share(&self, id: usize, host: u32) -> Share {
        let polls = |task: &Task| {
            task.is_polling && !task.is_stopped && task.origin.owner.is_some_and(|owner| owner.host == host)
        };
        let others = self.tasks.iter().enumerate().filter(|(other, _)| *other != id);
        let others = others.filter(|(_, task)| task.as_ref().is_some_and(polls)).count();
        Share { tasks: 1 + others as u64, cores: self.cores.into() }
    }

    pub(super) fn poll(&mut self, id: usize) {
        let Some(task) = &mut self.tasks[id] else { return };
        if task.is_stopped {
            task.is_held = true;
        } else if task.poll() {
            self.tasks[id] = None;
            self.forget(id);
        }
    }

    /// A run that has not begun
    pub(super) fn new(order: Order, cores: u32, limits: Limits) -> Self {
        Self {
            tasks: vec![None],
            ready: VecDeque::new(),
            late: BinaryHeap::new(),
            order,
            has_event: false,
            polls: 0,
            limits,
            blocked: Vec::new(),
            cores,
        }
    }

    /// Whether the run has passed a bound of counts
    #[inline(always)]
    pub(super) fn is_endless(&self) -> bool {
        self.polls > MOST_POLLS || self.order.steps() > self.limits.steps || self.has_too_many()
    }

    /// Whether there are more tasks than there may be; the first place is that of the main one
    #[inline(always)]
    pub(super) fn has_too_many(&self) -> bool {
        self.tasks.len() > self.limits.tasks.saturating_add(1)
    }

    /// Which bound the run has passed, when the task `id` is to be polled
    #[cold]
    pub(super) fn endless(&self, id: usize, at: Time, shared: &Shared) -> Stalled {
        if self.has_too_many() {
            let task = self.name(self.tasks.len() - 1, shared);
            return Stalled::TaskLimit { limit: self.limits.tasks, task };
        }
        let task = self.name(id, shared);
        match self.polls {
            polls if polls > MOST_POLLS => Stalled::Spin { at, task, polls },
            _ => Stalled::StepLimit { at, limit: self.limits.steps, task },
        }
    }

    /// Forgets a task that has ended
    pub(super) fn forget(&mut self, id: usize) {
        self.order.forget(id);
        self.blocked.retain(|blocked| blocked.id != Some(id));
    }

    /// Lets a task that was polled wait for as long as what it has done takes
    #[inline]
    pub(super) fn block(&mut self, id: usize, host: Option<u32>, now: impl FnOnce() -> Time) {
        let ns = verb_time::take();
        if ns > 0 {
            let id = Some(id).filter(|id| *id == MAIN || self.tasks[*id].is_some());
            let until = Time::from_nanos(now().as_nanos().saturating_add(ns));
            self.blocked.push(Blocked { id, host, until });
        }
    }

    /// For how long the task cannot run because of what it has done, or because other tasks have the cores of its host
    #[inline]
    pub(super) fn blocked_ns(&mut self, id: usize, now: impl FnOnce() -> Time) -> Option<u64> {
        if self.blocked.is_empty() { None } else { self.still_blocked_ns(id, now()) }
    }

    fn still_blocked_ns(&mut self, id: usize, now: Time) -> Option<u64> {
        self.blocked.retain(|blocked| blocked.until > now);
        let own = self.blocked.iter().filter(|blocked| blocked.id == Some(id)).map(|blocked| blocked.until);
        let until = own.max().or_else(|| self.core_free(id))?;
        Some(until.since(now).as_nanos() as u64)
    }

    /// When a core of the task's host is free, if none is
    fn core_free(&self, id: usize) -> Option<Time> {
        let host = self.host_with_cores(id)?;
        let busy = || self.blocked.iter().filter(|blocked| blocked.host == Some(host));
        (busy().count() >= self.cores as usize).then(|| busy().map(|blocked| blocked.until).min())?
    }

    /// The host of a task, if it belongs to one and the tasks of a host share its cores
    #[inline]
    pub(super) fn host_with_cores(&self, id: usize) -> Option<u32> {
        if self.cores == 0 {
            return None;
        }
        Some(self.tasks.get(id)?.as_ref()?.origin.owner?.host)
    }

    /// What the task waits for, if it is in a verb
    pub(super) fn wait_in_verb(&self, id: usize, shared: &Shared) -> Option<Wait> {
        let own = self.blocked.iter().filter(|blocked| blocked.id == Some(id));
        let until = own.map(|blocked| blocked.until).max()?;
        let verb = if until == Time::MAX { "a verb that does not return" } else { "a verb that takes time" };
        Some(Wait::new(self.name(id, shared), verb))
    }

    /// Lets the ready tasks run later that cannot run because of what they, or others of their host, have done
    #[inline]
    pub(super) fn delay_blocked(&mut self, now: impl FnOnce() -> Time) {
        if self.blocked.is_empty() {
            return;
        }
        let now = now();
        for id in std::mem::take(&mut self.ready) {
            match self.still_blocked_ns(id, now) {
                Some(ns) => self.delay(id, now, ns),
                None => self.ready.push_back(id),
            }
        }
    }

    /// When the first of the late tasks may run
    #[inline(always)]
    pub(super) fn next_late(&self) -> Time {
        self.late.peek().map_or(Time::MAX, |Reverse((at, ..))| *at)
    }

    /// Makes the tasks ready that were late until `now`
    #[inline(always)]
    pub(super) fn end_lateness(&mut self, now: Time) {
        while self.late.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            self.ready.extend(self.late.pop().map(|Reverse((_, _, id))| id));
        }
    }

    /// Lets a task run later by so many nanoseconds
    pub(super) fn delay(&mut self, id: usize, now: Time, ns: u64) {
        let at = Time::from_nanos(now.as_nanos().saturating_add(ns));
        self.late.push(Reverse((at, self.order.steps(), id)));
    }

    /// The poll of a task as a step
    pub(super) fn step(&self, id: usize, shares: bool) -> Step {
        let owner = self.tasks[id].as_ref().and_then(|task| task.origin.owner).filter(|_| !shares);
        Step { id: id as u64, hosts: owner.map_or(u64::MAX, |owner| 1 << owner.host.min(63)) }
    }

    /// Adds what each task waits for
    pub(super) fn add_waits(&mut self, waits: &mut Waits, shared: &Shared) {
        for id in 1..self.tasks.len() {
            let name = self.name(id, shared);
            let in_verb = self.wait_in_verb(id, shared);
            let Some(task) = &mut self.tasks[id] else { continue };
            let is_late = self.late.iter().any(|Reverse((_, _, other))| *other == id);
            waits.0.push(match () {
                () if task.is_held => Wait::new(name, "its host to go on: a fault has stopped it"),
                () if let Some(wait) = in_verb => wait,
                () if is_late => Wait::new(name, "its turn: it was woken, and is late"),
                () => wait_of(name, || task.poll()),
            });
        }
    }

    pub(super) fn name(&self, id: usize, shared: &Shared) -> String {
        let Some(task) = &self.tasks[id] else { return "main".to_owned() };
        let world = &shared.lock().fabric.world;
        let host = task.origin.owner.map(|owner| world.host_name(owner.host));
        TaskName(task.origin, host).to_string()
    }
}
