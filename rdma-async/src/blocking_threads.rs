//! Threads for calls that may block for ever

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use rdma_core::BlockingCall;

/// Threads that are started when they are needed, and end when they have rested for a while: one set for all runtimes of the process,
/// so that many nodes in turn use the same threads
///
/// Not those of tokio: a runtime of tokio waits at its end for calls that have begun, and a device that never answers would keep the process.
static THREADS: Threads =
    Threads { queue: Mutex::new(Queue { calls: VecDeque::new(), resting: 0 }), has_calls: Condvar::new() };

struct Threads {
    queue: Mutex<Queue>,
    has_calls: Condvar,
}

struct Queue {
    calls: VecDeque<BlockingCall>,
    /// Threads that wait for a call
    resting: usize,
}

/// How long a thread waits for the next call.
const REST: Duration = Duration::from_secs(10);

/// Runs `call` on a thread that no other call keeps
///
/// If the system has no more threads, the call waits for the next one that is free.
pub(crate) fn run(call: BlockingCall) {
    THREADS.run(call, start);
}

fn start(work: fn()) -> io::Result<()> {
    thread::Builder::new().name("device calls".to_owned()).spawn(work).map(drop)
}

impl Threads {
    fn run(&'static self, call: BlockingCall, start: impl FnOnce(fn()) -> io::Result<()>) {
        let mut queue = self.lock();
        queue.calls.push_back(call);
        if queue.calls.len() <= queue.resting {
            return self.has_calls.notify_one();
        }
        drop(queue);
        if let Err(error) = start(|| THREADS.work()) {
            tracing::warn!(%error, "no thread for a call of a device, which waits for one");
        }
    }

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
        let ((release, blocked), (done, results)) = (mpsc::channel::<()>(), mpsc::channel());
        let first = done.clone();
        run(call(move || {
            blocked.recv().unwrap();
            first.send(1).unwrap();
        }));
        for _ in 0..100 {
            let done = done.clone();
            run(call(move || done.send(2).unwrap()));
            assert_eq!(results.recv(), Ok(2));
        }
        release.send(()).unwrap();
        assert_eq!(results.recv(), Ok(1));
    }

    /// Catches the panic that ended a server when the system refused a thread, and a call that is lost then.
    #[test]
    fn a_call_waits_for_a_thread_that_the_system_refuses() {
        let (done, results) = mpsc::channel();
        for refuses in [true, false] {
            let done = done.clone();
            let start = |work| if refuses { Err(io::ErrorKind::WouldBlock.into()) } else { start(work) };
            THREADS.run(call(move || done.send(()).unwrap()), start);
        }
        for _ in 0..2 {
            assert_eq!(results.recv(), Ok(()));
        }
    }
}
