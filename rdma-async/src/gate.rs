//! Something shared that tasks wait for, first come, first served

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

/// A value that tasks take from, and wait for in turn
///
/// Whoever waits longest is asked first, so that a large request does not starve behind small ones.
#[derive(Debug)]
pub(crate) struct Gate<T>(Mutex<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    value: T,
    /// Without a waker: has been woken, and not looked yet.
    waiting: VecDeque<(u64, Option<Waker>)>,
    next_number: u64,
}

/// Who should be woken now, once no lock is held: a waker may run anything
pub(crate) type Next = Option<Waker>;

/// A task's place among those who wait; give it back with [`Gate::leave`]
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Ticket(Option<u64>);

impl<T> Inner<T> {
    /// The waker of who is first now, unless it has been woken already
    fn first(&mut self) -> Next {
        self.waiting.front_mut().and_then(|(_, waker)| waker.take())
    }
}

impl<T> Gate<T> {
    /// A gate where `places` tasks can wait without an allocation
    pub(crate) fn new(value: T, places: usize) -> Self {
        Self(Mutex::new(Inner { value, waiting: VecDeque::with_capacity(places), next_number: 0 }))
    }

    /// Takes something if it is there and this task is first in line; otherwise waits
    pub(crate) fn poll_take<R>(
        &self,
        ticket: &mut Ticket,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut T) -> Option<R>,
    ) -> Poll<R> {
        let (taken, next) = self.poll_take_later(ticket, cx, take);
        wake(next);
        taken
    }

    /// As [`poll_take`](Self::poll_take), for callers that hold a lock: they wake the next one themselves
    pub(crate) fn poll_take_later<R>(
        &self,
        ticket: &mut Ticket,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut T) -> Option<R>,
    ) -> (Poll<R>, Next) {
        let mut inner = self.0.lock();
        let is_first = match (ticket.0, inner.waiting.front()) {
            (None, None) => true,
            (Some(mine), Some((first, _))) => mine == *first,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if is_first && let Some(taken) = take(&mut inner.value) {
            let next = match ticket.0.take() {
                Some(_) => {
                    inner.waiting.pop_front();
                    // There may be enough for the next one, too.
                    inner.first()
                }
                None => None,
            };
            return (Poll::Ready(taken), next);
        }
        match ticket.0 {
            Some(mine) => {
                if let Some((_, waker)) = inner.waiting.iter_mut().find(|(number, _)| *number == mine) {
                    match waker {
                        Some(waker) => waker.clone_from(cx.waker()),
                        None => *waker = Some(cx.waker().clone()),
                    }
                }
            }
            None => {
                let number = inner.next_number;
                inner.next_number += 1;
                inner.waiting.push_back((number, Some(cx.waker().clone())));
                ticket.0 = Some(number);
            }
        }
        (Poll::Pending, None)
    }

    /// Takes something if it is there and nobody waits for it
    pub(crate) fn try_take<R>(&self, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let mut inner = self.0.lock();
        if inner.waiting.is_empty() { take(&mut inner.value) } else { None }
    }

    /// Changes the value, then wakes who waits longest
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let (result, next) = self.update_later(change);
        wake(next);
        result
    }

    /// As [`update`](Self::update), for callers that hold a lock
    pub(crate) fn update_later<R>(&self, change: impl FnOnce(&mut T) -> R) -> (R, Next) {
        let mut inner = self.0.lock();
        let result = change(&mut inner.value);
        let first = inner.first();
        (result, first)
    }

    /// Looks at the value
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.lock().value)
    }

    /// Stops waiting; whoever comes next is woken, lest a wake-up be lost with this task
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        wake(self.leave_later(ticket));
    }

    /// As [`leave`](Self::leave), for callers that hold a lock
    pub(crate) fn leave_later(&self, ticket: &mut Ticket) -> Next {
        let mine = ticket.0.take()?;
        let mut inner = self.0.lock();
        let position = inner.waiting.iter().position(|(number, _)| *number == mine);
        let removed = position.and_then(|at| inner.waiting.remove(at));
        let next = if position == Some(0) { inner.first() } else { None };
        drop(inner);
        drop(removed);
        next
    }
}

pub(crate) fn wake(waker: Next) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
