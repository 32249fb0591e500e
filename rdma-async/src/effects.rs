//! What a structure under a lock wants done once the lock is released

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakers to wake and values to drop after unlocking
///
/// Each of them runs code of the application, which may ask for the same lock again: a waker may poll its task on the
/// spot, and a dropped waker or lease may wake another task. What is under a lock therefore takes `&mut Effects` and performs nothing itself.
///
/// Code of the application that panics here keeps neither the effects behind it nor the reactor from running: the panic
/// is caught and logged.
#[derive(Debug)]
#[must_use = "effects are lost unless they are run"]
pub(crate) struct Effects<T> {
    /// The first ones, so that few effects need no allocation. Filled from the front.
    inline: [Option<Effect<T>>; 2],
    more: VecDeque<Effect<T>>,
    is_reactor_due: bool,
    holds_values: bool,
}

#[derive(Debug)]
enum Effect<T> {
    Drop(T),
    DropWaker(Waker),
    Wake(Waker),
}

impl<T> Effects<T> {
    pub(crate) const fn new() -> Self {
        Self { inline: [None, None], more: VecDeque::new(), is_reactor_due: false, holds_values: false }
    }

    /// For an owner that runs its effects again and again, with space so that it need not allocate
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { more: VecDeque::with_capacity(capacity), ..Self::new() }
    }

    #[inline]
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.push(Effect::Wake(waker));
        }
    }

    /// Drops a waker without waking its task
    #[inline]
    pub(crate) fn drop_waker(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.push(Effect::DropWaker(waker));
        }
    }

    #[inline]
    pub(crate) fn drop(&mut self, values: impl IntoIterator<Item = T>) {
        for value in values {
            self.holds_values = true;
            self.push(Effect::Drop(value));
        }
    }

    /// Whether there are values that are still to be dropped
    pub(crate) fn holds_values(&self) -> bool {
        self.holds_values
    }

    pub(crate) fn is_reactor_due(&self) -> bool {
        self.is_reactor_due
    }

    pub(crate) fn wake_reactor(&mut self) {
        self.is_reactor_due = true;
    }

    fn push(&mut self, effect: Effect<T>) {
        match &mut self.inline {
            [first @ None, _] => *first = Some(effect),
            [_, second @ None] if self.more.is_empty() => *second = Some(effect),
            _ => self.more.push_back(effect),
        }
    }

    /// Performs the effects in order, then wakes the reactor if that was asked for; the caller holds no lock
    #[inline]
    pub(crate) fn run(&mut self, reactor: &Waker) {
        if self.inline[0].is_some() {
            self.perform();
        }
        self.holds_values = false;
        if std::mem::take(&mut self.is_reactor_due) {
            reactor.wake_by_ref();
        }
    }

    /// As [`run`](Self::run), where there is no reactor to wake
    #[inline]
    pub(crate) fn run_alone(&mut self) {
        self.run(Waker::noop());
    }

    fn perform(&mut self) {
        let mut rest = || {
            while let Some(effect) = self.pop() {
                effect.perform();
            }
        };
        while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut rest)) {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!(panic = text.unwrap_or("not a text"), "a waker panicked");
        }
    }

    fn pop(&mut self) -> Option<Effect<T>> {
        match &mut self.inline {
            [first @ Some(_), _] => first.take(),
            [_, second @ Some(_)] => second.take(),
            _ => self.more.pop_front(),
        }
    }
}

impl<T> Effect<T> {
    fn perform(self) {
        match self {
            Self::Drop(value) => drop(value),
            Self::DropWaker(waker) => drop(waker),
            Self::Wake(waker) => waker.wake(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;
    use crate::wake_count::WakeCount;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("this waker panics");
        }
    }

    /// Catches effects that are performed in a loop without `catch_unwind`, or drained by an iterator whose destructor
    /// drops the rest.
    #[test]
    fn a_waker_that_panics_keeps_no_other_from_being_woken() {
        let (count, counting) = WakeCount::new();
        let mut effects = Effects::<()>::new();
        for is_panicking in [true, false, true, true, false, false] {
            let waker = if is_panicking { Arc::new(Panics).into() } else { counting.clone() };
            effects.wake(Some(waker));
        }
        effects.wake_reactor();
        effects.run(&counting);
        assert_eq!(count.get(), 4, "three tasks and the reactor");
        assert!(effects.pop().is_none());
    }

    /// Catches a flag that is lost when wakers are added, or that stays set after the values were dropped.
    #[test]
    fn held_values_are_reported_until_they_are_dropped() {
        let (_, counting) = WakeCount::new();
        let mut effects = Effects::new();
        effects.wake(Some(counting.clone()));
        assert!(!effects.holds_values(), "a task is no value");
        effects.drop([1, 2]);
        effects.drop([]);
        effects.wake(Some(counting.clone()));
        assert!(effects.holds_values());
        effects.run(&counting);
        assert!(!effects.holds_values());
    }

    /// Catches effects that overtake each other where the inline places end.
    #[test]
    fn effects_are_performed_in_order() {
        let mut effects = Effects::new();
        for round in 0..3 {
            effects.drop(0..round + 2);
            let order: Vec<_> = std::iter::from_fn(|| effects.pop()).collect();
            let numbers = order.iter().map(|effect| if let Effect::Drop(n) = effect { *n } else { -1 });
            assert!(numbers.eq(0..round + 2));
        }
    }
}
