//! What a run is doing, for a thread that watches it

use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::task::MAIN;
use crate::sync::lock;

/// How far a run is
#[derive(Debug, Default)]
pub(crate) struct Progress {
    steps: AtomicU64,
    /// The task that was polled last
    task: AtomicUsize,
    /// Where each task was spawned
    sites: Mutex<Vec<Option<&'static Location<'static>>>>,
}

impl Progress {
    /// A task is polled
    pub(super) fn step(&self, task: usize) {
        self.task.store(task, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// A task was spawned
    pub(super) fn spawned(&self, task: usize, site: Option<&'static Location<'static>>) {
        let sites = &mut *lock(&self.sites);
        if sites.len() <= task {
            sites.resize(task + 1, None);
        }
        sites[task] = site;
    }

    /// How many times tasks were polled
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The task that was polled last, for people
    pub(crate) fn task(&self) -> String {
        match self.task.load(Ordering::Relaxed) {
            MAIN => "the main task".to_owned(),
            task => match lock(&self.sites).get(task).copied().flatten() {
                Some(site) => format!("the task spawned at {}:{}", site.file(), site.line()),
                None => "a task spawned by a library".to_owned(),
            },
        }
    }
}
