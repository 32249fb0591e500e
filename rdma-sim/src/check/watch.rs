//! A thread beside long checks: it prints how far they are, and ends those that are blocked

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::exhaustive::Exploring;
use super::replay::Replay;
use super::shrink::BUDGET;
use crate::executor::{HumanDuration, Progress};
use crate::sync::lock;

/// Between two looks at a check
const TICK: Duration = Duration::from_millis(50);

/// What one thread of a check does
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) progress: Arc<Progress>,
    pub(super) run: std::sync::Mutex<Option<CurrentRun>>,
}

/// A run that has not ended
#[derive(Clone, Debug)]
pub(super) struct CurrentRun {
    pub(super) case: Replay,
    /// Where its choices are, if it is one of an exhaustive check
    pub(super) exploring: Option<Exploring>,
}

impl CurrentRun {
    /// The line that repeats the run as far as it is
    pub(super) fn line(&self) -> String {
        match &self.exploring {
            None => self.case.line(),
            Some(exploring) => {
                let choices = Some(exploring.tree().choices());
                Replay { choices, ..self.case.clone() }.line()
            }
        }
    }
}

/// A check that is watched
#[derive(Debug)]
pub(super) struct Watched<'a> {
    pub(super) test: &'a str,
    pub(super) runs: u64,
    pub(super) done: &'a AtomicU64,
    pub(super) workers: &'a [Worker],
    /// How many smaller runs than the one that failed were begun; zero while none has failed
    pub(super) shrinking: &'a AtomicU64,
    /// How long a task may keep its thread
    pub(super) patience: Duration,
    /// Between two lines about it
    pub(super) interval: Duration,
    pub(super) is_over: &'a AtomicBool,
    /// When the check began
    pub(super) start: Instant,
}

impl Watched<'_> {
    /// Watches until the check is over
    pub(super) fn watch(&self) {
        let mut next = self.interval;
        // Counted in ticks: a debugger that stops all threads stops this one, too.
        let mut blocked = vec![(0, 0_u32); self.workers.len()];
        let most = self.patience.div_duration_f64(TICK).ceil().max(1.0) as u32;
        while !self.is_over.load(Ordering::Acquire) {
            std::thread::park_timeout(TICK);
            for (worker, (seen, ticks)) in self.workers.iter().zip(&mut blocked) {
                let now = worker.progress.steps();
                let run = lock(&worker.run);
                (*seen, *ticks) = if now == *seen && run.is_some() { (now, *ticks + 1) } else { (now, 0) };
                if *ticks >= most
                    && let Some(run) = &*run
                {
                    self.end(&worker.progress, run);
                }
            }
            let elapsed = self.start.elapsed();
            if elapsed >= next {
                next = elapsed + self.interval;
                self.print(elapsed);
            }
        }
    }

    fn print(&self, elapsed: Duration) {
        let text = self.text(elapsed);
        // Around the capture of test output: it must appear while the check goes on.
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// How far the check is
    fn text(&self, elapsed: Duration) -> String {
        let Self { test, runs, .. } = self;
        let done = self.done.load(Ordering::Relaxed);
        match self.shrinking.load(Ordering::Relaxed) {
            0 if done == 0 => format!("{test}: the first of {runs} runs has not ended"),
            0 => {
                let rate = done as f64 / elapsed.as_secs_f64();
                let left = time_left(runs - done.min(*runs), rate);
                format!("{test}: {done} of {runs} runs, {rate:.0} a second, {left} left")
            }
            tried => format!(
                "{test}: a run has failed, and is made smaller: {tried} of at most {BUDGET} smaller runs tried"
            ),
        }
    }

    /// A thread of the check cannot be ended; its process can
    fn end(&self, progress: &Progress, run: &CurrentRun) -> ! {
        let task = progress.task();
        let text = format!(
            "{}: {task} has kept its thread for {} without letting another task run: a simulation has one thread, so that waiting \
             for another one, `std::thread::sleep` and endless loops block it; await something that takes time instead, such as \
             `Net::sleep`, which is over at once if its time is zero or in the past.\n\
             To repeat it:\n\n{}\n",
            self.test,
            HumanDuration(self.patience),
            run.line(),
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
    use crate::{Check, check};

    /// How far a check of 100 runs is after two seconds
    #[expect(clippy::disallowed_methods, reason = "when the check began is not looked at")]
    fn text(done: u64, shrinking: u64) -> String {
        let [done, shrinking] = [done, shrinking].map(AtomicU64::new);
        let watched = Watched {
            test: "elects",
            runs: 100,
            done: &done,
            workers: &[],
            shrinking: &shrinking,
            patience: Duration::MAX,
            interval: Duration::MAX,
            is_over: &AtomicBool::new(false),
            start: Instant::now(),
        };
        watched.text(Duration::from_secs(2))
    }

    /// Regressions: the line of a check that makes a failure smaller said how many of the runs were done, again and again the same number; a
    /// check of which no run had ended would take 33 minutes.
    #[test]
    fn a_long_check_says_how_far_it_is() {
        assert_eq!(text(0, 0), "elects: the first of 100 runs has not ended");
        assert_eq!(text(20, 0), "elects: 20 of 100 runs, 10 a second, about 8 s left");
        let smaller = "elects: a run has failed, and is made smaller: 7 of at most 300 smaller runs tried";
        assert_eq!(text(20, 7), smaller);
    }

    #[test]
    #[ignore = "another test reads its output"]
    fn takes_a_while() {
        let progress_interval = Duration::from_millis(50);
        check(Check { progress_interval, ..Check::new().runs(1) }, async |_| {
            std::thread::sleep(Duration::from_secs(1));
        });
    }

    /// Catches a check that is silent until it ends, and lines that `cargo test` keeps back.
    #[test]
    fn a_long_check_prints_while_it_runs() {
        let program = std::env::current_exe().expect("a test has a file");
        let mut command = std::process::Command::new(program);
        command.args(["check::watch::tests::takes_a_while", "--exact", "--ignored"]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RDMA_SIM_")) {
            command.env_remove(name);
        }
        let printed = String::from_utf8(command.output().expect("it starts").stderr).expect("it prints text");
        let line = "check::watch::tests::takes_a_while: the first of 1 runs has not ended";
        assert_eq!(printed.lines().next(), Some(line), "{printed}");
    }

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
