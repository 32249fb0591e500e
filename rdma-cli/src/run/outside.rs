//! Causes that end a run, other than the ends of its programs

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::cause::Cause;
use super::output::{LAST_LINES_TIMEOUT, Relay};
use crate::report::Wall;
use crate::signals::Interrupt;

/// Interval at which signals and the timeout are polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// End of a run
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The first cause, which the summary and the exit code name.
    pub(super) cause: Cause,
    /// Whether a cause from outside followed, or was the first: the wait for the reader of the output is limited.
    pub(super) is_from_outside: bool,
}

impl End {
    /// Adds what has ended the run from outside, which is its cause if the programs have succeeded
    pub(super) fn add(&mut self, outside: Option<Cause>) {
        let Some(outside) = outside else { return };
        self.is_from_outside = true;
        if self.cause == Cause::Done {
            self.cause = outside;
        }
    }
}

/// Causes other than the ends of programs: a signal, the timeout, and an output that is not read
#[derive(Debug)]
pub(super) struct Outside<'a> {
    pub(super) interrupt: &'a Interrupt,
    pub(super) relay: &'a Relay,
    pub(super) begun: Wall,
    pub(super) timeout: Option<Duration>,
}

impl Outside<'_> {
    /// The cause of an end from outside, once there is one
    pub(super) fn cause(&self) -> Option<Cause> {
        let has_timed_out = || self.timeout.is_some_and(|timeout| self.begun.elapsed() >= timeout);
        let signal = self.interrupt.signal().map(Cause::Interrupted);
        signal.or_else(|| self.relay.cause()).or_else(|| has_timed_out().then_some(Cause::TimedOut))
    }

    /// Waits for what `written` receives: as long as the reader takes, and for [`LAST_LINES_TIMEOUT`] once `end` is from outside
    ///
    /// A cause from outside is added to `end`. Returns `None` if nothing came in time, or the sender is gone.
    pub(super) fn wait<T>(&self, written: &Receiver<T>, end: &mut End) -> Option<T> {
        while !end.is_from_outside {
            match written.recv_timeout(POLL_INTERVAL) {
                Ok(value) => return Some(value),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => end.add(self.cause()),
            }
        }
        written.recv_timeout(LAST_LINES_TIMEOUT).ok()
    }
}
