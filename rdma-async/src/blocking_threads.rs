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
static THREADS: Threads = Threads::new();

struct Threads {
    queue: Mutex<Queue>,
    has_calls: Condvar,
}

struct Queue {
    calls: VecDeque<BlockingCall>,
    /// Threads that wait for a call
    resting: usize,
    /// Threads that have not ended
    alive: usize,
}

/// How long a thread waits for the next call.
const REST: Duration = Duration::from_secs(10);

/// Runs `call` on a thread that no other call keeps
///
/// If the system refuses a thread, the call waits until a thread of another call is free.
///
/// # Panics
///
/// If the system refuses a thread, and there is no other: the call would wait for ever.
pub(crate) fn run(call: BlockingCall) {
    THREADS.run(call, |work| thread::Builder::new().name("device calls".to_owned()).spawn(work).map(drop));
}

impl Threads {
    const fn new() -> Self {
        let queue = Queue { calls: VecDeque::new(), resting: 0, alive: 0 };
        Self { queue: Mutex::new(queue), has_calls: Condvar::new() }
    }

    fn run(
        &'static self,
        call: BlockingCall,
        start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) {
        let mut queue = self.lock();
        queue.calls.push_back(call);
        if queue.calls.len() <= queue.resting {
            return self.has_calls.notify_one();
        }
        queue.alive += 1;
        drop(queue);
        if let Err(error) = start(Box::new(|| self.work())) {
            let mut queue = self.lock();
            queue.alive -= 1;
            assert!(queue.alive > 0, "the system refuses a thread for the calls of a device: {error}");
            drop(queue);
            tracing::warn!(%error, "the system refuses a thread; a call of a device waits until another one is free");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let alive = Alive(self);
        while let Some(call) = self.next() {
            call()();
        }
        std::mem::forget(alive);
    }

    /// The next call, or `None` if there was none for long
    fn next(&self) -> Option<BlockingCall> {
        let mut queue = self.lock();
        queue.resting += 1;
        let waited = self.has_calls.wait_timeout_while(queue, REST, |queue| queue.calls.is_empty());
        (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.resting -= 1;
        let call = queue.calls.pop_front();
        // While the lock is held: a call that is pushed afterwards finds no thread here.
        queue.alive -= usize::from(call.is_none());
        call
    }
}

/// A thread that a call may end by a panic
struct Alive<'a>(&'a Threads);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.lock().alive -= 1;
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

    /// Catches the panic that ended a server when the system refused a thread, a call that is lost then, and one that waits for ever.
    #[test]
    fn a_call_waits_for_another_thread_if_the_system_refuses_one() {
        let threads: &Threads = Box::leak(Box::new(Threads::new()));
        let refuse = |_| Err(io::ErrorKind::WouldBlock.into());
        let ((release, blocked), (done, results)) = (mpsc::channel::<()>(), mpsc::channel());
        let alone = std::panic::catch_unwind(|| threads.run(call(|| ()), refuse));
        assert!(alone.is_err(), "no thread will ever be free");
        threads
            .run(call(move || blocked.recv().unwrap()), |work| thread::Builder::new().spawn(work).map(drop));
        for number in 0..2 {
            let done = done.clone();
            threads.run(call(move || done.send(number).unwrap()), refuse);
        }
        assert_eq!(results.try_recv(), Err(mpsc::TryRecvError::Empty));
        release.send(()).unwrap();
        assert_eq!([results.recv(), results.recv()], [Ok(0), Ok(1)]);
    }

    /// Catches a thread that has ended by a panic and still counts as one that will be free.
    #[test]
    fn a_thread_that_a_call_has_ended_is_not_waited_for() {
        let threads: &Threads = Box::leak(Box::new(Threads::new()));
        let mut started = None;
        threads.run(call(|| panic!("as a device may")), |work| {
            started = Some(thread::Builder::new().spawn(work)?);
            Ok(())
        });
        started.unwrap().join().unwrap_err();
        let refused =
            std::panic::catch_unwind(|| threads.run(call(|| ()), |_| Err(io::ErrorKind::WouldBlock.into())));
        assert!(refused.is_err());
    }
}
