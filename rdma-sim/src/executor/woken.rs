//! The tasks that were woken

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use spin::mutex::SpinMutex;
use spin::relax::Yield;

/// The tasks of a run that were woken, in that order
///
/// Nearly all are woken by the thread of the run: those are listed beside the lock.
#[derive(Default)]
pub(super) struct Queue {
    /// Tasks that other threads have woken
    woken: SpinMutex<Vec<usize>, Yield>,
    /// Whether there are any: read without the lock
    has_woken: AtomicBool,
}

/// What the thread of a run has woken
struct Local {
    /// The queue of the run, as an address; zero outside of runs
    queue: Cell<usize>,
    woken: RefCell<Vec<usize>>,
}

thread_local! {
    static LOCAL: Local = const { Local { queue: Cell::new(0), woken: RefCell::new(Vec::new()) } };
}

/// Ends the run of a thread when it is dropped
pub(super) struct Entered {
    /// The run around it
    outer: (usize, Vec<usize>),
}

impl Queue {
    /// Collects the tasks that this thread wakes, in a list without a lock, until the result is dropped
    pub(super) fn enter(&self) -> Entered {
        Entered { outer: LOCAL.with(|local| (local.queue.replace(self.address()), local.woken.take())) }
    }

    fn address(&self) -> usize {
        (&raw const *self).addr()
    }

    #[inline]
    pub(super) fn push(&self, task: usize) {
        // A thread that ends has no such list any more.
        let is_listed = LOCAL.try_with(|local| {
            let is_own = local.queue.get() == self.address();
            if is_own {
                local.woken.borrow_mut().push(task);
            }
            is_own
        });
        if is_listed != Ok(true) {
            self.push_from_elsewhere(task);
        }
    }

    #[cold]
    fn push_from_elsewhere(&self, task: usize) {
        let mut woken = self.woken.lock();
        woken.push(task);
        self.has_woken.store(true, Ordering::Release);
    }

    /// Moves the tasks that were woken to the end of `ready`, for the thread that has [entered](Self::enter)
    #[inline(always)]
    pub(super) fn take(&self, ready: &mut VecDeque<usize>) {
        LOCAL.with(|local| take(&mut local.woken.borrow_mut(), ready));
        if self.has_woken.load(Ordering::Acquire) {
            let mut woken = self.woken.lock();
            self.has_woken.store(false, Ordering::Relaxed);
            take(&mut woken, ready);
        }
    }
}

#[inline(always)]
fn take(woken: &mut Vec<usize>, ready: &mut VecDeque<usize>) {
    // One by one: usually there is one, and a queue that is swapped right after one of its fields was written is slow.
    for task in &*woken {
        ready.push_back(*task);
    }
    woken.clear();
}

impl Drop for Entered {
    fn drop(&mut self) {
        let (queue, woken) = std::mem::take(&mut self.outer);
        LOCAL.with(|local| {
            local.queue.set(queue);
            drop(local.woken.replace(woken));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(queue: &Queue) -> Vec<usize> {
        let mut ready = VecDeque::from([0]);
        queue.take(&mut ready);
        ready.into()
    }

    /// Catches a run that takes the tasks of the one around it, and one that loses them.
    #[test]
    fn a_run_inside_another_one_wakes_the_tasks_of_both() {
        let (outer, inner) = (Queue::default(), Queue::default());
        let entered = outer.enter();
        outer.push(1);
        let within = inner.enter();
        outer.push(2);
        inner.push(7);
        assert_eq!(taken(&inner), [0, 7]);
        drop(within);
        outer.push(3);
        assert_eq!(taken(&outer), [0, 1, 3, 2]);
        drop(entered);
        outer.push(4);
        assert_eq!(taken(&outer), [0, 4], "a task that is woken outside of the run is not lost");
    }

    /// Catches a push of another thread that joins the list of that thread.
    #[test]
    fn another_thread_wakes_a_task() {
        let queue = Queue::default();
        let _entered = queue.enter();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.push(5));
        });
        assert_eq!(taken(&queue), [0, 5]);
    }
}
