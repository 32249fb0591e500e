//! What a run is doing, for a thread that watches it

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::task::{MAIN, Origin};
use crate::caught::{Caught, Panic};
use crate::sync::lock;

/// How far a run is
#[derive(Debug, Default)]
pub(crate) struct Progress {
    steps: AtomicU64,
    /// The task that was polled last
    task: AtomicUsize,
    /// Where each task comes from
    origins: Mutex<Vec<Origin>>,
    /// The panics of destructors after the failure of the run
    later: Mutex<Vec<Panic>>,
}

impl Progress {
    /// A task is polled
    pub(super) fn step(&self, task: usize) {
        self.task.store(task, Ordering::Relaxed);
        // Only the thread of the run counts.
        self.steps.store(self.steps() + 1, Ordering::Relaxed);
    }

    /// The task that was polled last is not the one that runs code of the program now
    pub(super) fn rest(&self) {
        self.task.store(MAIN, Ordering::Relaxed);
    }

    /// A task was spawned
    pub(super) fn spawned(&self, task: usize, origin: Origin) {
        let origins = &mut *lock(&self.origins);
        if origins.len() <= task {
            origins.resize(task + 1, Origin::default());
        }
        origins[task] = origin;
    }

    /// The host of the task that is polled, if it belongs to one
    pub(super) fn host(&self) -> Option<u32> {
        match self.task.load(Ordering::Relaxed) {
            MAIN => None,
            task => lock(&self.origins).get(task)?.owner.map(|owner| owner.host),
        }
    }

    /// Keeps the panic of a destructor that ran after the failure of the run
    pub(super) fn keep_later_panic(&self, caught: Caught) {
        let panics = caught.into_panics();
        lock(&self.later).extend(panics);
    }

    /// The panics of destructors after the failure of the run
    pub(crate) fn take_later(&self) -> Vec<Panic> {
        std::mem::take(&mut *lock(&self.later))
    }

    /// How many times tasks were polled
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The task that was polled last, for people
    pub(crate) fn task(&self) -> String {
        match self.task.load(Ordering::Relaxed) {
            MAIN => "the main task".to_owned(),
            task => match lock(&self.origins).get(task).and_then(|origin| origin.site) {
                Some(site) => format!("the task spawned at {}:{}", site.file(), site.line()),
                None => "a task spawned by a library".to_owned(),
            },
        }
    }
}
