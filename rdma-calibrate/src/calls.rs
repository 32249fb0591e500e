use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdma_async::time::sleep;
use rdma_core::{Runtime, Time};

/// The verb that is being called, and the time of the call: for a thread that watches whether one hangs
#[derive(Debug)]
pub struct Calls {
    runtime: Arc<dyn Runtime>,
    current: Mutex<Option<(&'static str, Time)>>,
}

impl Calls {
    /// No call yet, by the clock of `runtime`
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, current: Mutex::default() }
    }

    /// The verb that has been called and has not returned, and for how long
    pub fn blocked(&self) -> Option<(&'static str, Duration)> {
        let current = *self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.map(|(verb, since)| (verb, self.runtime.now() - since))
    }

    /// Waits until a verb has not returned for `longest`, looking every `interval`; returns which, and for how long
    ///
    /// For a task on another thread: the one that calls the verb does not go on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn hangs(&self, longest: Duration, interval: Duration) -> (&'static str, Duration) {
        loop {
            match self.blocked() {
                Some((verb, time)) if time >= longest => return (verb, time),
                _ => sleep(&*self.runtime, interval).await,
            }
        }
    }

    pub(crate) fn during<T>(&self, verb: &'static str, call: impl FnOnce() -> T) -> T {
        self.set(Some((verb, self.runtime.now())));
        let returned = call();
        self.set(None);
        returned
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    fn set(&self, current: Option<(&'static str, Time)>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }
}
