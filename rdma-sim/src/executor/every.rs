//! The next step of an exhaustive run, which chooses each step among all that are possible

use std::sync::atomic::Ordering;

use rdma_core::{Runtime as _, Time};

use super::{SimRuntime, Stalled, Tasks};
use crate::fabric::steps::due;
use crate::shared::Shared;

impl SimRuntime {
    /// Chooses between all tasks that may run and all events that are due; fires the event, or advances time if there is neither
    pub(super) fn choose(&self, shared: &Shared, run: &mut Tasks) -> Result<Option<usize>, Stalled> {
        if shared.wake() {
            self.collect(shared, run);
        }
        // A task in a verb has no step: it cannot run in any order.
        run.delay_blocked(|| self.now());
        let shares = self.shares.load(Ordering::Relaxed);
        let mut steps: Vec<_> = run.ready.iter().map(|id| run.step(*id, shares)).collect();
        let mut state = shared.lock();
        let fabric = &mut state.fabric;
        let event = fabric.schedule.next().unwrap_or(Time::MAX);
        if event <= self.now() {
            steps.extend(due(&fabric.schedule, &fabric.world, &fabric.qps));
        }
        if steps.is_empty() {
            let (timer, late, limit) = (self.clock.next(), run.next_late(), run.limits.time);
            let next = event.min(timer).min(late);
            if next > limit || next == Time::MAX {
                return Err(Stalled::at(self.now(), (next < Time::MAX).then_some(limit)));
            }
            fabric.schedule.wait_until(next);
            drop(state);
            // A task that only waits for its turn is no progress.
            if next < late || timer <= late {
                run.polls = 0;
            }
            self.expire(next);
            run.end_lateness(next);
            return Ok(None);
        }
        let chosen = fabric.choices.order(&steps).ok_or(Stalled::Pruned)?;
        drop(state);
        let task = run.ready.remove(chosen);
        if task.is_none() {
            self.step(shared, run, Some(steps[chosen].id));
        }
        Ok(task)
    }
}
