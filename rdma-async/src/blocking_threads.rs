//! Threads for calls that may block for ever

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdma_core::BlockingCall;

/// Threads that are started when they are needed, and end when they have rested for a while
///
/// Not those of tokio: a runtime of tokio waits at its end for calls that have begun, and a device that never answers would keep the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockingThreads(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    has_calls: Condvar,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<BlockingCall>,
    /// Threads that wait for a call
    resting: usize,
}

/// How long a thread waits for the next call.
const REST: Duration = Duration::from_secs(10);

impl BlockingThreads {
    /// Runs `call` on a thread that no other call keeps
    #[expect(clippy::disallowed_methods, reason = "a call that blocks needs a thread of its own")]
    pub(crate) fn run(&self, call: BlockingCall) {
        let mut queue = self.0.lock();
        queue.calls.push_back(call);
        if queue.calls.len() <= queue.resting {
            return self.0.has_calls.notify_one();
        }
        drop(queue);
        let shared = Arc::clone(&self.0);
        drop(std::thread::spawn(move || shared.work()));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(call) = self.next() {
            call()();
        }
    }

    /// The next call, or `None` if there was none for long
    fn next(&self) -> Option<BlockingCall> {
        let mut queue = self.lock();
        queue.resting += 1;
        let waited = self.has_calls.wait_timeout_while(queue, REST, |queue| queue.calls.is_empty());
        (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.resting -= 1;
        queue.calls.pop_front()
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("calls", &self.calls.len()).field("resting", &self.resting).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn call(work: impl FnOnce() + Send + 'static) -> BlockingCall {
        Box::new(move || {
            work();
            Box::new(|| ())
        })
    }

    /// Catches a call that waits for the thread of another one, which may never return.
    #[test]
    fn a_call_that_blocks_keeps_no_other_waiting() {
        let threads = BlockingThreads::default();
        let ((release, blocked), (done, results)) = (mpsc::channel::<()>(), mpsc::channel());
        let first = done.clone();
        threads.run(call(move || {
            blocked.recv().unwrap();
            first.send(1).unwrap();
        }));
        for _ in 0..100 {
            let done = done.clone();
            threads.run(call(move || done.send(2).unwrap()));
            assert_eq!(results.recv(), Ok(2));
        }
        release.send(()).unwrap();
        assert_eq!(results.recv(), Ok(1));
    }
}
