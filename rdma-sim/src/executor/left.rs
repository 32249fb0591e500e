//! The tasks that are left when the main one has ended

use std::cmp::Reverse;

use super::stalled::{LeftTask, Wait, wait_of};
use super::{SimRuntime, Tasks};
use crate::shared::Shared;

/// Most polls of tasks that end after the main one
const MOST: u32 = 100_000;

impl SimRuntime {
    /// The tasks that wait for something; if it `settles`, those that may run do so before, while no time passes
    pub(super) fn left(&self, shared: &Shared, run: &mut Tasks, settles: bool) -> Vec<LeftTask> {
        let spins = settles && !self.settle(shared, run);
        let is_left =
            |id: &usize| run.tasks[*id].as_ref().is_some_and(|task| task.waits() || spins && !task.is_held);
        let waiting: Vec<_> = (1..run.tasks.len()).filter(is_left).collect();
        let mut left = Vec::with_capacity(waiting.len());
        for id in waiting {
            let name = run.name(id, shared);
            let Some(task) = &mut run.tasks[id] else { continue };
            let is_outside = task.origin.owner.is_none() && task.origin.site.is_some();
            let is_asked = settles && is_outside;
            let wait = if is_asked {
                wait_of(name, || task.poll())
            } else {
                Wait { task: name, events: Vec::new() }
            };
            left.push(LeftTask { wait, is_outside });
        }
        left
    }

    /// Polls the tasks that may run until none may; false if that does not end
    fn settle(&self, shared: &Shared, run: &mut Tasks) -> bool {
        for _ in 0..MOST {
            shared.wake();
            self.start_spawned(&mut run.tasks);
            self.queue.take(&mut run.ready);
            run.ready.extend(std::iter::from_fn(|| run.late.pop()).map(|Reverse((_, _, id))| id));
            let Some(id) = run.ready.pop_front() else { return true };
            self.progress.step(id);
            run.poll(id, shared);
        }
        false
    }
}
