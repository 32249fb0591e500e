//! A thread for each device that looks at its port, and wakes a task when the port has changed
//!
//! Events of Apple's provider have not been shown to work, so a port must be queried. A thread of its own does it with one wake-up for each
//! query; a task of the executor would need one more for the thread that it has to hand a call to which may block.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use crate::call_watch::CallCounter;
use crate::context::OpenContext;

/// The time between two queries: a cable that is pulled is noticed within 5 ms
const INTERVAL: Duration = Duration::from_millis(4);

/// The thread that looks at the port of a device, from the first [`watch`](Self::watch) to [`stop`](Self::stop)
pub(crate) struct PortMonitor(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The task to be woken; none before the first watch.
    waker: Option<Waker>,
    is_over: bool,
}

impl PortMonitor {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Wakes `waker`, instead of that of the call before, when the port of `context`, which was up, has changed; false without a thread for it
    ///
    /// A query that does not return is reported by the watch that `calls` comes from.
    pub(crate) fn watch(
        &self,
        device: &str,
        context: &Arc<OpenContext>,
        calls: impl FnOnce() -> Arc<CallCounter>,
        waker: Waker,
    ) -> bool {
        let mut state = self.0.lock();
        let is_first = state.waker.is_none();
        let before = state.waker.replace(waker);
        if is_first {
            let (shared, context, calls) = (Arc::clone(&self.0), Arc::downgrade(context), calls());
            let thread = std::thread::Builder::new().name(format!("port of {device}"));
            if let Err(error) = thread.spawn(move || shared.run(&context, &calls)) {
                tracing::warn!(%device, %error, "the port is not watched: the system gives no thread");
                let unused = state.waker.take();
                drop(state);
                drop(unused);
                return false;
            }
        }
        // The destructor of a waker may do anything: not under the lock.
        drop(state);
        drop(before);
        true
    }

    /// Ends the thread, which uses the context no more; waits for a query that is under way
    pub(crate) fn stop(&self) {
        let mut state = self.0.lock();
        state.is_over = true;
        let waker = state.waker.take();
        drop(state);
        self.0.changed.notify_one();
        drop(waker);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries the port again and again; under the lock, so that the context is closed by its owner, and after the query
    fn run(&self, context: &Weak<OpenContext>, calls: &CallCounter) {
        let mut state = self.lock();
        let mut was_up = Some(true);
        loop {
            let waited = self.changed.wait_timeout(state, INTERVAL);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let Some(context) = context.upgrade() else { return };
            let call = calls.enter();
            let is_up = context.is_up().ok();
            drop((call, context));
            if is_up != was_up {
                was_up = is_up;
                let waker = state.waker.clone();
                drop(state);
                waker.into_iter().for_each(Waker::wake);
                state = self.lock();
            }
        }
    }
}
