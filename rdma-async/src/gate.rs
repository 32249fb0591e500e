//! Something shared that tasks wait for, first come, first served

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

/// A value that tasks take from, and wait for in turn
///
/// Whoever waits longest is asked first, so that a large request does not starve behind small ones. Under a lock of the caller: what
/// changes something tells who should be woken when the lock is released.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    value: T,
    /// Without a waker: has been woken, and not looked yet.
    waiting: VecDeque<(u64, Option<Waker>)>,
    next_number: u64,
}

/// Who should be woken now, once no lock is held: a waker may run anything, even when it is only dropped
#[derive(Debug, Default)]
#[must_use = "somebody may wait"]
pub(crate) struct Next {
    pub(crate) waker: Option<Waker>,
    /// Of a task that waits no more.
    pub(crate) gone: Option<Waker>,
}

impl Next {
    pub(crate) const NOBODY: Self = Self { waker: None, gone: None };

    #[inline]
    pub(crate) fn wake(self) {
        if let Some(waker) = self.waker {
            waker.wake();
        }
        drop(self.gone);
    }
}

/// A task's place among those who wait; give it back with [`Turns::leave`]
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Ticket(Option<u64>);

impl Ticket {
    /// Whether it has a place in line
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.0.is_some()
    }
}

impl<T> Turns<T> {
    /// With space for `places` tasks to wait without an allocation
    pub(crate) fn new(value: T, places: usize) -> Self {
        Self { value, waiting: VecDeque::with_capacity(places), next_number: 0 }
    }

    /// Takes something if it is there and this task is first in line; otherwise waits
    #[inline]
    pub(crate) fn poll_take<R>(
        &mut self,
        ticket: &mut Ticket,
        cx: &Context<'_>,
        take: impl FnOnce(&mut T) -> Option<R>,
    ) -> (Poll<R>, Next) {
        let is_first = match (ticket.0, self.waiting.front()) {
            (None, None) => true,
            (Some(mine), Some((first, _))) => mine == *first,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if is_first && let Some(taken) = take(&mut self.value) {
            let next = match ticket.0.take() {
                Some(_) => {
                    let gone = self.waiting.pop_front().and_then(|(_, waker)| waker);
                    // There may be enough for the next one, too.
                    Next { gone, ..self.first() }
                }
                None => Next::NOBODY,
            };
            return (Poll::Ready(taken), next);
        }
        (Poll::Pending, self.wait(ticket, cx))
    }

    /// Waits in the same place as before, or in the last one
    fn wait(&mut self, ticket: &mut Ticket, cx: &Context<'_>) -> Next {
        let Some(mine) = ticket.0 else {
            let number = self.next_number;
            self.next_number += 1;
            self.waiting.push_back((number, Some(cx.waker().clone())));
            ticket.0 = Some(number);
            return Next::NOBODY;
        };
        match self.waiting.iter_mut().find(|(number, _)| *number == mine) {
            Some((_, Some(waker))) if waker.will_wake(cx.waker()) => Next::NOBODY,
            Some((_, place)) => Next { waker: None, gone: place.replace(cx.waker().clone()) },
            None => Next::NOBODY,
        }
    }

    /// Takes something if it is there and nobody waits for it
    pub(crate) fn try_take<R>(&mut self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        if self.waiting.is_empty() { take(&mut self.value) } else { None }
    }

    /// Changes the value and tells who waits longest
    #[inline]
    pub(crate) fn update<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> (R, Next) {
        let result = change(&mut self.value);
        (result, self.first())
    }

    pub(crate) fn value(&self) -> &T {
        &self.value
    }

    /// Stops waiting; whoever comes next is woken, lest a wake-up be lost with this task
    pub(crate) fn leave(&mut self, ticket: &mut Ticket) -> Next {
        let Some(mine) = ticket.0.take() else { return Next::NOBODY };
        let position = self.waiting.iter().position(|(number, _)| *number == mine);
        let gone = position.and_then(|at| self.waiting.remove(at)).and_then(|(_, waker)| waker);
        let next = if position == Some(0) { self.first() } else { Next::NOBODY };
        Next { gone, ..next }
    }

    /// The waker of who is first now, unless it has been woken already
    #[inline]
    fn first(&mut self) -> Next {
        Next { waker: self.waiting.front_mut().and_then(|(_, waker)| waker.take()), gone: None }
    }
}

/// The same under a lock of its own
#[derive(Debug)]
pub(crate) struct Gate<T>(Mutex<Turns<T>>);

impl<T> Gate<T> {
    pub(crate) fn new(value: T, places: usize) -> Self {
        Self(Mutex::new(Turns::new(value, places)))
    }

    /// As [`Turns::poll_take`]
    pub(crate) fn poll_take<R>(
        &self,
        ticket: &mut Ticket,
        cx: &Context<'_>,
        take: impl FnOnce(&mut T) -> Option<R>,
    ) -> (Poll<R>, Next) {
        self.0.lock().poll_take(ticket, cx, take)
    }

    pub(crate) fn try_take<R>(&self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        self.0.lock().try_take(take)
    }

    /// Changes the value, then wakes who waits longest
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let (result, next) = self.0.lock().update(change);
        next.wake();
        result
    }

    /// Looks at the value
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(self.0.lock().value())
    }

    /// As [`Turns::leave`]
    pub(crate) fn leave(&self, ticket: &mut Ticket) -> Next {
        self.0.lock().leave(ticket)
    }
}
