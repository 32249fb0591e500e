//! Tasks that have not ended when the main one has

use std::cmp::Reverse;

use super::stalled::{Wait, wait_of};
use super::task::UnfinishedTask;
use super::{SimRuntime, Stalled, Tasks};
use crate::shared::Shared;

/// Most polls of tasks that end after the main one
const MOST: u32 = 100_000;

impl SimRuntime {
    /// The tasks that wait for something; if it `settles`, those that may run do so before, while no time passes
    pub(super) fn unfinished(
        &self,
        shared: &Shared,
        run: &mut Tasks,
        settles: bool,
    ) -> Result<Vec<UnfinishedTask>, Stalled> {
        let spins = settles && !self.settle(shared, run)?;
        let waits =
            |id: &usize| run.tasks[*id].as_ref().is_some_and(|task| task.waits() || spins && !task.is_held);
        let waiting: Vec<_> = (1..run.tasks.len()).filter(waits).collect();
        let mut unfinished = Vec::with_capacity(waiting.len());
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
            unfinished.push(UnfinishedTask { wait, is_outside });
        }
        Ok(unfinished)
    }

    /// Polls the tasks that may run until none may; false if that does not end
    fn settle(&self, shared: &Shared, run: &mut Tasks) -> Result<bool, Stalled> {
        for _ in 0..MOST {
            shared.wake();
            self.start_spawned(shared, &mut run.tasks);
            self.queue.take(&mut run.ready);
            run.ready.extend(std::iter::from_fn(|| run.late.pop()).map(|Reverse((_, _, id))| id));
            let Some(id) = run.ready.pop_front() else { return Ok(true) };
            if run.has_too_many() {
                return Err(run.endless(id, self.clock.now(), shared));
            }
            self.progress.step(id);
            run.poll(id);
        }
        Ok(false)
    }
}
