//! A thread beside long checks: it prints how far they are, and ends those that are blocked

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::replay::Replay;
use crate::executor::{HumanDuration, Progress};
use crate::sync::lock;

/// Between two looks at a check
const TICK: Duration = Duration::from_millis(50);
/// Between two lines about a long check
const EVERY: Duration = Duration::from_secs(10);

/// What one thread of a check does
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) progress: Arc<Progress>,
    pub(super) case: std::sync::Mutex<Option<Replay>>,
}

/// A check that is watched
#[derive(Debug)]
pub(super) struct Watched<'a> {
    pub(super) test: &'a str,
    pub(super) runs: u64,
    pub(super) done: &'a AtomicU64,
    pub(super) workers: &'a [Worker],
    /// How long a task may keep its thread
    pub(super) patience: Duration,
    pub(super) is_over: &'a AtomicBool,
    /// When the check began
    pub(super) start: Instant,
}

impl Watched<'_> {
    /// Watches until the check is over
    pub(super) fn watch(&self) {
        let mut next = EVERY;
        // Counted in ticks: a debugger that stops all threads stops this one, too.
        let mut blocked = vec![(0, 0_u32); self.workers.len()];
        let most = self.patience.div_duration_f64(TICK).ceil().max(1.0) as u32;
        while !self.is_over.load(Ordering::Acquire) {
            std::thread::park_timeout(TICK);
            for (worker, (seen, ticks)) in self.workers.iter().zip(&mut blocked) {
                let now = worker.progress.steps();
                let case = lock(&worker.case);
                (*seen, *ticks) = if now == *seen && case.is_some() { (now, *ticks + 1) } else { (now, 0) };
                if *ticks >= most
                    && let Some(case) = &*case
                {
                    self.end(&worker.progress, case);
                }
            }
            let elapsed = self.start.elapsed();
            if elapsed >= next {
                next = elapsed + EVERY;
                self.print(elapsed);
            }
        }
    }

    fn print(&self, elapsed: Duration) {
        let done = self.done.load(Ordering::Relaxed);
        let rate = done as f64 / elapsed.as_secs_f64();
        // Around the capture of test output: it must appear while the check goes on.
        let left = time_left(self.runs - done.min(self.runs), rate);
        let text = format!("{}: {done} of {} runs, {rate:.0} a second, {left} left", self.test, self.runs);
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// A thread of the check cannot be ended; its process can
    fn end(&self, progress: &Progress, case: &Replay) -> ! {
        let task = progress.task();
        let text = format!(
            "{}: {task} has kept its thread for {} without letting another task run: a simulation has one thread, so that waiting \
             for another one, `std::thread::sleep` and endless loops block it; await instead, such as with `Net::sleep`.\n\
             To repeat it:\n\n{}\n",
            self.test,
            HumanDuration(self.patience),
            case.line(),
        );
        let _ = writeln!(std::io::stderr(), "{text}");
        std::process::exit(101)
    }
}

/// How long so many runs take at so many a second, in words and whole seconds: it is an estimate
fn time_left(runs: u64, rate: f64) -> String {
    match (runs as f64 / rate.max(0.01)).min(1e9).round() as u64 {
        0 => "less than a second".to_owned(),
        seconds => format!("about {}", HumanDuration(Duration::from_secs(seconds))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the line said "about 107.857 s left" and "about 0 ns left".
    #[test]
    fn the_time_that_is_left_is_printed_in_whole_seconds() {
        assert_eq!(time_left(755, 7.0), "about 108 s");
        assert_eq!(time_left(60_000, 7.0), "about 2.4 h");
        assert_eq!(time_left(1, 0.0), "about 100 s");
        assert_eq!(time_left(3, 7.0), "less than a second");
        assert_eq!(time_left(0, 7.0), "less than a second");
    }
}
