//! Queries the port for a post, on another thread, with a time limit
//!
//! A query of a wedged driver may never return (field reports). Posts run on the thread of the task that makes them, which may be that of
//! an executor.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdma_core::{Cause, Error, Verb};

/// How long a post waits for a query, which takes microseconds on a device that works
pub(crate) const LIMIT: Duration = Duration::from_millis(100);

/// The thread that queries the port of a device; it ends when this is dropped, or else when a query returns
pub(crate) struct PortQuery {
    device: String,
    limit: Duration,
    /// A child that is forked from it has neither the thread nor the one that may hold the lock.
    process: u32,
    /// Started by the first query.
    thread: Mutex<Option<QueryThread>>,
}

/// Whether the port is up
type Outcome = Result<bool, Error>;
type Query = Box<dyn FnOnce() -> Outcome + Send>;

struct QueryThread {
    queries: Sender<Query>,
    outcomes: Receiver<Outcome>,
    /// Whether a query is under way that was given up.
    is_blocked: bool,
}

impl PortQuery {
    pub(crate) fn new(device: &str, limit: Duration) -> Self {
        Self { device: device.to_owned(), limit, process: std::process::id(), thread: Mutex::default() }
    }

    /// The outcome of `query`; `None` if it does not return in time, and at once as long as an earlier one has not returned
    ///
    /// # Errors
    ///
    /// [`Cause::DeviceGone`] in a forked child, and those of `query`.
    pub(crate) fn run(&self, query: impl FnOnce() -> Outcome + Send + 'static) -> Option<Outcome> {
        if self.process != std::process::id() {
            return Some(Err(Error::new(Verb::QueryPort, Cause::DeviceGone)));
        }
        let device = &self.device;
        let mut slot = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            match QueryThread::start(device) {
                Ok(thread) => *slot = Some(thread),
                Err(error) => {
                    tracing::warn!(%device, %error, "a post waits for a query of the port without a limit: the system gives no thread");
                    return Some(query());
                }
            }
        }
        let thread = slot.as_mut()?;
        if thread.is_blocked {
            // Its outcome is from before.
            if thread.outcomes.try_recv().is_err() {
                return None;
            }
            thread.is_blocked = false;
            tracing::info!(%device, "a device has returned from a query of its port that was given up");
        }
        // If the thread has ended, there is no outcome either.
        let _ = thread.queries.send(Box::new(query));
        match thread.outcomes.recv_timeout(self.limit) {
            Ok(outcome) => return Some(outcome),
            Err(RecvTimeoutError::Timeout) => {
                let waited = self.limit;
                tracing::warn!(%device, ?waited, "a device does not return from a query of its port: nothing is posted until it does");
                thread.is_blocked = true;
            }
            // A query has panicked: the next one has another thread.
            Err(RecvTimeoutError::Disconnected) => *slot = None,
        }
        None
    }
}

impl QueryThread {
    fn start(device: &str) -> std::io::Result<Self> {
        let (queries, pending) = channel::<Query>();
        let (sender, outcomes) = channel();
        let run = move || {
            for query in pending {
                // What the query holds is dropped before its outcome is sent.
                let outcome = query();
                if sender.send(outcome).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(format!("port of {device}")).spawn(run)?;
        Ok(Self { queries, outcomes, is_blocked: false })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    /// Longer than anything takes unless it waits for ever
    const FOR_EVER: Duration = Duration::from_secs(60);

    /// Catches a post that waits for a query without a limit, or for an earlier one, and an outcome that is from before.
    #[test]
    fn a_query_that_does_not_return_is_given_up_and_run_again() {
        let query = PortQuery::new("rdma_en2", SHORT);
        let (open, gate) = channel::<()>();
        let blocked = move || {
            let _ = gate.recv();
            Ok(false)
        };
        assert_eq!(query.run(blocked), None);
        let query = PortQuery { limit: FOR_EVER, ..query };
        let is_called = Arc::new(AtomicBool::new(false));
        let of_query = Arc::clone(&is_called);
        let calls = move || {
            of_query.store(true, Ordering::Relaxed);
            Ok(true)
        };
        assert_eq!(query.run(calls), None);
        drop(open);
        // The late outcome: it is the only one that comes.
        let late = query.thread.lock().unwrap().as_ref().unwrap().outcomes.recv_timeout(FOR_EVER);
        assert_eq!((late, is_called.load(Ordering::Relaxed)), (Ok(Ok(false)), false));
        query.thread.lock().unwrap().as_mut().unwrap().is_blocked = false;
        assert_eq!(
            [true, false].map(|is_up| query.run(move || Ok(is_up))),
            [true, false].map(|is_up| Some(Ok(is_up)))
        );
    }

    /// Catches a late outcome that is taken for that of the next query.
    #[test]
    fn a_late_outcome_is_dropped() {
        let query = PortQuery::new("rdma_en2", SHORT);
        let (open, gate) = channel::<()>();
        let (returned, has_returned) = channel();
        let blocked = move || {
            let _ = gate.recv();
            returned.send(()).unwrap();
            Ok(false)
        };
        assert_eq!(query.run(blocked), None);
        drop(open);
        has_returned.recv_timeout(FOR_EVER).unwrap();
        let query = PortQuery { limit: FOR_EVER, ..query };
        // The outcome is sent a moment after the query has returned.
        let outcome = (0..60_000).find_map(|_| {
            std::thread::sleep(SHORT);
            query.run(|| Ok(true))
        });
        assert_eq!(outcome, Some(Ok(true)));
    }

    /// Catches an owner that waits for the thread.
    #[test]
    fn a_device_whose_query_does_not_return_can_be_dropped() {
        let query = PortQuery::new("rdma_en2", SHORT);
        let (open, gate) = channel::<()>();
        assert_eq!(query.run(move || Ok(gate.recv().is_ok())), None);
        drop(query);
        drop(open);
    }

    /// Catches a device that takes nothing any more after a panic.
    #[test]
    fn a_query_that_panics_ends_its_thread_alone() {
        let query = PortQuery::new("rdma_en2", FOR_EVER);
        assert_eq!(query.run(|| panic!("on purpose")), None);
        assert_eq!(query.run(|| Ok(true)), Some(Ok(true)));
    }
}
