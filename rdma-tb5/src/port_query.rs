//! A query of the port that a post waits for, and not for ever
//!
//! A query of a wedged driver may never return (field reports). Posts run on the thread of the task that makes them, which may be that of
//! an executor, so another thread queries.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdma_core::{Cause, Error, Verb};

/// How long a post waits for a query, which takes microseconds: a machine that is busy with other things changes nothing
pub(crate) const LIMIT: Duration = Duration::from_millis(100);

/// The thread that queries the port of a device; it ends when this is dropped, or else when a query returns
pub(crate) struct PortQuery {
    device: String,
    limit: Duration,
    /// Started by the first query.
    thread: Mutex<Option<Thread>>,
}

type Answer = Result<bool, Error>;

struct Thread {
    queries: Sender<Box<dyn FnOnce() -> Answer + Send>>,
    answers: Receiver<Answer>,
    /// Whether a query is under way.
    is_busy: bool,
}

impl PortQuery {
    pub(crate) fn new(device: &str, limit: Duration) -> Self {
        Self { device: device.to_owned(), limit, thread: Mutex::default() }
    }

    /// The answer of `query`
    ///
    /// # Errors
    ///
    /// [`Cause::Busy`] if the device does not answer in time: also at once, as long as it has not returned from an earlier query.
    pub(crate) fn ask(&self, query: impl FnOnce() -> Answer + Send + 'static) -> Answer {
        let device = &self.device;
        let mut place = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = match &mut *place {
            Some(thread) => thread,
            none => match Thread::start(device) {
                Ok(thread) => none.insert(thread),
                Err(error) => {
                    tracing::warn!(%device, %error, "a post waits for a query of the port without a limit: the system gives no thread");
                    return query();
                }
            },
        };
        let busy = Error::new(Verb::QueryPort, Cause::Busy);
        if thread.is_busy {
            // An answer that came late is from before.
            if thread.answers.try_recv().is_err() {
                return Err(busy);
            }
            tracing::info!(%device, "a device has returned from a query of its port that was given up");
        }
        thread.is_busy = thread.queries.send(Box::new(query)).is_ok();
        match thread.answers.recv_timeout(self.limit) {
            Ok(answer) => {
                thread.is_busy = false;
                answer
            }
            Err(_) => {
                let waited = self.limit;
                tracing::warn!(%device, ?waited, "a device does not return from a query of its port: nothing is posted until it does");
                Err(busy)
            }
        }
    }
}

impl Thread {
    fn start(device: &str) -> std::io::Result<Self> {
        let (queries, asked) = channel::<Box<dyn FnOnce() -> Answer + Send>>();
        let (answer, answers) = channel();
        let run = move || {
            for query in asked {
                // What the query keeps is gone before the answer is there.
                let found = query();
                if answer.send(found).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(format!("port of {device}")).spawn(run)?;
        Ok(Self { queries, answers, is_busy: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than anything takes unless it waits for ever
    const FOR_EVER: Duration = Duration::from_secs(60);

    /// Catches a post that waits for a query without a limit or for each of its successors, and an answer that is from before.
    #[test]
    fn a_query_that_does_not_return_is_given_up_and_asked_again() {
        let query = PortQuery::new("rdma_en2", Duration::from_millis(1));
        let (open, gate) = channel::<()>();
        let (left, has_left) = channel::<()>();
        let kept = move || {
            let _left = left;
            let _ = gate.recv();
            Ok(false)
        };
        let busy = Err(Error::new(Verb::QueryPort, Cause::Busy));
        assert_eq!(query.ask(kept), busy);
        let patient = PortQuery { limit: FOR_EVER, ..query };
        assert_eq!(patient.ask(|| panic!("the device is called although it has not returned")), busy);
        drop(open);
        assert!(has_left.recv().is_err());
        // Its answer is sent a moment later.
        let answer = std::iter::repeat_with(|| patient.ask(|| Ok(true))).find(|answer| *answer != busy);
        assert_eq!(answer, Some(Ok(true)));
        assert_eq!(patient.ask(|| Ok(false)), Ok(false));
    }

    /// Catches an owner that waits for the thread.
    #[test]
    fn a_device_whose_query_does_not_return_can_be_dropped() {
        let query = PortQuery::new("rdma_en2", Duration::from_millis(1));
        let (open, gate) = channel::<()>();
        assert!(query.ask(move || Ok(gate.recv().is_ok())).is_err());
        drop(query);
        drop(open);
    }
}
