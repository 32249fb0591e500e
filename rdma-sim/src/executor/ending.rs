//! The end of a run: what it leaves is dropped

use std::pin::Pin;
use std::sync::Mutex;

use super::task::{Spawned, Start};
use super::{Progress, Tasks};
use crate::caught::{Caught, catch};
use crate::sync::lock;
use crate::verb_time;

/// How many tasks may spawn each other, one after another, when they are dropped at the end of a run
const MAX_ROUNDS: usize = 1_000;

/// Drops what a run leaves, one after another: a destructor that panics hides no failure before it, and ends no process
pub(super) struct Ending<'a, F> {
    pub(super) run: &'a mut Tasks,
    pub(super) main: Pin<&'a mut Option<F>>,
    /// Tasks that never started, and those of restarts: both may hold the runtime that holds them
    pub(super) spawned: &'a Mutex<Vec<Spawned>>,
    pub(super) starts: &'a Mutex<Vec<(u32, Start)>>,
    pub(super) progress: &'a Progress,
    /// The panics of destructors
    pub(super) panics: Vec<Caught>,
    pub(super) is_done: bool,
}

impl<F> Ending<'_, F> {
    /// Drops all, and returns the first panic of a destructor: it is the failure of the run
    pub(super) fn end(mut self) -> Option<Caught> {
        self.drop_all();
        self.is_done = true;
        (!self.panics.is_empty()).then(|| self.panics.remove(0))
    }

    fn drop_all(&mut self) {
        for id in 0..self.run.tasks.len() {
            let task = self.run.tasks[id].take();
            self.keep(catch(|| drop(task)));
        }
        let main = catch(|| self.main.set(None));
        self.keep(main);
        // The destructors of these tasks may spawn, too.
        for _ in 0..MAX_ROUNDS {
            verb_time::take();
            let spawned = std::mem::take(&mut *lock(self.spawned));
            let starts = std::mem::take(&mut *lock(self.starts));
            if spawned.is_empty() && starts.is_empty() {
                return;
            }
            spawned.into_iter().for_each(|spawned| self.keep(catch(|| drop(spawned))));
            starts.into_iter().for_each(|start| self.keep(catch(|| drop(start))));
        }
        self.keep(catch(|| {
            panic!(
                "the destructor of a task spawns a task, whose destructor spawns another, {MAX_ROUNDS} times: let one of them end"
            )
        }));
    }

    fn keep(&mut self, dropped: Result<(), Caught>) {
        self.panics.extend(dropped.err());
    }
}

impl<F> Drop for Ending<'_, F> {
    fn drop(&mut self) {
        if !self.is_done {
            self.drop_all();
        }
        self.panics.drain(..).for_each(|panic| self.progress.keep_later_panic(panic));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use crate::{Net, Sim};

    /// Spawns a task with another one of these when it is dropped, so many times
    struct Respawning {
        net: Net,
        times: u32,
        alive: Arc<()>,
    }

    impl Drop for Respawning {
        fn drop(&mut self) {
            if let Some(times) = self.times.checked_sub(1) {
                Self { net: self.net.clone(), times, alive: Arc::clone(&self.alive) }.spawn();
            }
        }
    }

    impl Respawning {
        fn spawn(self) {
            self.net.clone().spawn(async move {
                let _kept = self;
                pending::<()>().await;
            });
        }
    }

    /// Regression: a task that the destructor of a task had spawned when the run was over held the simulation for ever if its own destructor
    /// spawned one more.
    #[test]
    fn what_destructors_spawn_ends_with_the_run() {
        let alive = Arc::new(());
        Sim::new().run(async |net| Respawning { net, times: 4, alive: Arc::clone(&alive) }.spawn());
        assert_eq!(Arc::strong_count(&alive), 1, "a task is left");
    }

    #[test]
    #[should_panic(expected = "the destructor of a task spawns a task")]
    fn destructors_that_spawn_for_ever_are_a_finding() {
        let alive = Arc::new(());
        Sim::new().run(async |net| Respawning { net, times: u32::MAX, alive }.spawn());
    }
}
