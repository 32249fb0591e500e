//! A value that tasks wait for, first come, first served

use std::collections::VecDeque;
use std::convert::Infallible;
use std::task::{Context, Poll, Waker};

use rdma_core::probe;

use crate::effects::Effects;
use crate::sync::Mutex;

/// A value that tasks take from, in the order in which they began to wait
///
/// Only the first task in line takes, so that a large request does not starve behind small ones. Those behind a
/// [waiter that yields](Waiter::yielding) may take before it. A value that a take does not use up, such as the end of a session, is
/// [for all](Self::for_all): a task that polls no more must not hold up those behind it. Not synchronized: the caller holds a lock, and runs
/// the effects after unlocking.
#[derive(Debug)]
pub(crate) struct WaitQueue<T> {
    value: T,
    /// What tasks wait for, for people
    name: &'static str,
    waiting: VecDeque<Waiting>,
    next_number: u64,
    /// Whether every task takes, wherever it is in line.
    is_for_all: bool,
}

/// A place in line
#[derive(Debug)]
struct Waiting {
    number: u64,
    /// `None` if the task was woken, and has not polled since.
    waker: Option<Waker>,
    yields: bool,
}

/// A task's place in line; give it back with [`WaitQueue::leave`]
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Waiter {
    number: Option<u64>,
    yields: bool,
}

impl Waiter {
    /// One that lets those behind it take first, for an object that is polled and learns of no end of the waiting: a task that has given
    /// up, as by a timeout, would hold up the others as long as the object lives
    pub(crate) fn yielding() -> Self {
        Self { number: None, yields: true }
    }

    /// Whether it has a place in line
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.number.is_some()
    }
}

impl<T> WaitQueue<T> {
    /// With space for `places` tasks to wait without an allocation; `name` follows "waits for"
    pub(crate) fn new(name: &'static str, value: T, places: usize) -> Self {
        Self { value, name, waiting: VecDeque::with_capacity(places), next_number: 0, is_for_all: false }
    }

    /// For a value that tasks look at and do not use up
    pub(crate) fn for_all(name: &'static str, value: T, places: usize) -> Self {
        Self { is_for_all: true, ..Self::new(name, value, places) }
    }

    /// Takes something if it is there and this task is first in line, or the value is for all; otherwise waits
    #[inline]
    pub(crate) fn poll_take<R, E>(
        &mut self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects<E>,
        take: impl FnOnce(&mut T) -> Option<R>,
    ) -> Poll<R> {
        if (self.is_first(waiter) || self.is_for_all)
            && let Some(taken) = take(&mut self.value)
        {
            // Wakes the next task, for which there may be enough, too.
            self.leave(waiter, effects);
            return Poll::Ready(taken);
        }
        self.wait(waiter, cx, effects);
        probe::waits_for(format_args!("{}", self.name));
        Poll::Pending
    }

    /// Whether all tasks in line before `waiter` yield
    #[inline]
    fn is_first(&self, waiter: &Waiter) -> bool {
        let first = self.waiting.iter().find(|place| !place.yields);
        first.is_none_or(|first| waiter.number.is_some_and(|mine| mine <= first.number))
    }

    /// Waits in the same place as before, or in the last one
    fn wait<E>(&mut self, waiter: &mut Waiter, cx: &Context<'_>, effects: &mut Effects<E>) {
        let Some(mine) = waiter.number else {
            let (number, waker) = (self.next_number, Some(cx.waker().clone()));
            self.next_number += 1;
            self.waiting.push_back(Waiting { number, waker, yields: waiter.yields });
            waiter.number = Some(number);
            return;
        };
        match self.waiting.iter_mut().find(|place| place.number == mine) {
            Some(Waiting { waker: Some(waker), .. }) if waker.will_wake(cx.waker()) => (),
            Some(place) => effects.drop_waker(place.waker.replace(cx.waker().clone())),
            None => (),
        }
    }

    /// Takes something if it is there, and no task waits for it that does not yield, or the value is for all
    pub(crate) fn try_take<R>(&mut self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        if self.is_for_all || self.is_first(&Waiter::default()) { take(&mut self.value) } else { None }
    }

    /// Changes the value and wakes the first task in line, and those that yield to it, or all of them if the value is for all
    #[inline]
    pub(crate) fn update<R, E>(&mut self, effects: &mut Effects<E>, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value);
        if self.is_for_all {
            self.waiting.iter_mut().for_each(|place| effects.wake(place.waker.take()));
        } else {
            self.wake_first(effects);
        }
        result
    }

    /// Changes the value, makes it [for all](Self::for_all) from now on, and wakes every task
    ///
    /// For an end after which `take` always returns something.
    pub(crate) fn end<R, E>(&mut self, effects: &mut Effects<E>, change: impl FnOnce(&mut T) -> R) -> R {
        self.is_for_all = true;
        self.update(effects, change)
    }

    pub(crate) fn value(&self) -> &T {
        &self.value
    }

    /// Whether tasks wait
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Stops waiting; the next task in line is woken, so that a wake-up is not lost with this one
    #[inline]
    pub(crate) fn leave<E>(&mut self, waiter: &mut Waiter, effects: &mut Effects<E>) {
        if !waiter.waits() {
            return;
        }
        let was_first = self.is_first(waiter);
        let Some(mine) = waiter.number.take() else { return };
        let position = self.waiting.iter().position(|place| place.number == mine);
        let gone = position.and_then(|at| self.waiting.remove(at));
        if was_first && !self.is_for_all {
            self.wake_first(effects);
        }
        effects.drop_waker(gone.and_then(|place| place.waker));
    }

    /// Wakes the first task in line and those before it that yield, unless they were woken and have not polled since
    #[inline]
    fn wake_first<E>(&mut self, effects: &mut Effects<E>) {
        for place in &mut self.waiting {
            effects.wake(place.waker.take());
            if !place.yields {
                break;
            }
        }
    }
}

/// A place in line that is given up when it is dropped
struct Place<'a, T> {
    queue: &'a SharedWaitQueue<T>,
    waiter: Waiter,
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        if self.waiter.waits() {
            self.queue.leave_alone(&mut self.waiter);
        }
    }
}

/// A [`WaitQueue`] under a lock of its own
#[derive(Debug)]
pub(crate) struct SharedWaitQueue<T>(Mutex<WaitQueue<T>>);

impl<T> SharedWaitQueue<T> {
    /// As [`WaitQueue::new`]
    pub(crate) fn new(name: &'static str, value: T, places: usize) -> Self {
        Self(Mutex::new(WaitQueue::new(name, value, places)))
    }

    /// As [`WaitQueue::for_all`]
    pub(crate) fn for_all(name: &'static str, value: T, places: usize) -> Self {
        Self(Mutex::new(WaitQueue::for_all(name, value, places)))
    }

    /// As [`WaitQueue::poll_take`]
    pub(crate) fn poll_take<R, E>(
        &self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects<E>,
        take: impl FnOnce(&mut T) -> Option<R>,
    ) -> Poll<R> {
        self.0.lock().poll_take(waiter, cx, effects, take)
    }

    /// As [`poll_take`](Self::poll_take), for a caller without other effects
    pub(crate) fn poll_take_alone<R>(
        &self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        take: impl FnOnce(&mut T) -> Option<R>,
    ) -> Poll<R> {
        let mut effects = Effects::<Infallible>::new();
        let taken = self.poll_take(waiter, cx, &mut effects, take);
        effects.run_alone();
        taken
    }

    /// Waits until there is something to take
    pub(crate) fn take_when<R>(&self, take: impl Fn(&mut T) -> Option<R>) -> impl Future<Output = R> {
        let mut place = Place { queue: self, waiter: Waiter::default() };
        std::future::poll_fn(move |cx| place.queue.poll_take_alone(&mut place.waiter, cx, &take))
    }

    /// As [`leave`](Self::leave), for a caller without other effects
    pub(crate) fn leave_alone(&self, waiter: &mut Waiter) {
        let mut effects = Effects::<Infallible>::new();
        self.leave(waiter, &mut effects);
        effects.run_alone();
    }

    /// Whether all tasks in line before `waiter` yield
    pub(crate) fn is_first(&self, waiter: &Waiter) -> bool {
        self.0.lock().is_first(waiter)
    }

    /// Wakes every task in line
    pub(crate) fn wake_all<E>(&self, effects: &mut Effects<E>) {
        self.0.lock().waiting.iter_mut().for_each(|place| effects.wake(place.waker.take()));
    }

    /// How many tasks wait
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// As [`WaitQueue::try_take`]
    pub(crate) fn try_take<R>(&self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        self.0.lock().try_take(take)
    }

    /// As [`WaitQueue::update`], and wakes after unlocking
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut effects = Effects::<Infallible>::new();
        let result = self.0.lock().update(&mut effects, change);
        effects.run_alone();
        result
    }

    /// As [`WaitQueue::end`], and wakes after unlocking
    pub(crate) fn end<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut effects = Effects::<Infallible>::new();
        let result = self.0.lock().end(&mut effects, change);
        effects.run_alone();
        result
    }

    /// Looks at the value
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(self.0.lock().value())
    }

    /// As [`WaitQueue::leave`]
    #[inline]
    pub(crate) fn leave<E>(&self, waiter: &mut Waiter, effects: &mut Effects<E>) {
        if waiter.waits() {
            self.0.lock().leave(waiter, effects);
        }
    }
}
