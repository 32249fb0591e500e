use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use rdma_core::{Runtime, Time, Timer};

use crate::sync::Mutex;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks and timers on one thread that never sleeps
///
/// For those who give a core to the lowest latency: a woken task runs next, without a scheduler and without a system call. Wakers
/// work from all threads. Devices are best opened with a policy that spins, too.
///
/// ```
/// use rdma_async::SpinRuntime;
/// use rdma_core::Runtime;
///
/// let runtime = SpinRuntime::new();
/// assert_eq!(runtime.block_on(async { 6 * 7 }), 42);
/// ```
#[derive(Clone)]
pub struct SpinRuntime(Arc<Shared>);

struct Shared {
    start: Instant,
    has_new: AtomicBool,
    new: Mutex<Vec<Task>>,
    timers: Mutex<BinaryHeap<Reverse<Alarm>>>,
}

/// Whom to wake when
struct Alarm {
    at: Time,
    waker: Waker,
}

/// Whether a task has been woken
struct Flag(AtomicBool);

/// A task and how it is woken
struct Slot {
    flag: Arc<Flag>,
    waker: Waker,
    task: Task,
}

/// Rounds over the tasks between two looks at the clock.
const ROUNDS: u32 = 64;

impl Default for SpinRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl SpinRuntime {
    /// A runtime whose clock begins now
    #[expect(clippy::disallowed_methods, reason = "a runtime is where the clock comes from")]
    pub fn new() -> Self {
        let (new, timers) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { start: Instant::now(), has_new: AtomicBool::new(false), new, timers }))
    }

    /// Runs `main`, and beside it what is spawned, until `main` ends
    ///
    /// What is left of the tasks then is dropped. A panic of a task ends the whole.
    pub fn block_on<F: Future>(&self, main: F) -> F::Output {
        let mut main = pin!(main);
        let (flag, waker) = Flag::new();
        let mut slots: Vec<Slot> = Vec::new();
        loop {
            for _ in 0..ROUNDS {
                if flag.take()
                    && let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(&waker))
                {
                    return value;
                }
                slots.retain_mut(|slot| {
                    let cx = &mut Context::from_waker(&slot.waker);
                    !(slot.flag.take() && slot.task.as_mut().poll(cx).is_ready())
                });
                if self.0.has_new.load(Memory::Acquire) {
                    self.0.has_new.store(false, Memory::Relaxed);
                    slots.extend(self.0.new.lock().drain(..).map(Slot::new));
                }
            }
            self.0.expire();
            std::hint::spin_loop();
        }
    }
}

impl Shared {
    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Wakes whose time has come
    fn expire(&self) {
        let mut timers = self.timers.lock();
        if timers.is_empty() {
            return;
        }
        let now = self.now();
        while timers.peek().is_some_and(|Reverse(alarm)| alarm.at <= now) {
            if let Some(Reverse(alarm)) = timers.pop() {
                alarm.waker.wake();
            }
        }
    }
}

impl Slot {
    fn new(task: Task) -> Self {
        let (flag, waker) = Flag::new();
        Self { flag, waker, task }
    }
}

impl Flag {
    /// Set from the beginning: each task is looked at once
    fn new() -> (Arc<Self>, Waker) {
        let flag = Arc::new(Self(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        (flag, waker)
    }

    fn take(&self) -> bool {
        self.0.load(Memory::Relaxed) && self.0.swap(false, Memory::Acquire)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Memory::Release);
    }
}

impl Runtime for SpinRuntime {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn spawn(&self, task: Task) {
        self.0.new.lock().push(task);
        self.0.has_new.store(true, Memory::Release);
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        Box::pin(SpinTimer { runtime: Arc::clone(&self.0), deadline: Time::MAX })
    }
}

impl fmt::Debug for SpinRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinRuntime").finish_non_exhaustive()
    }
}

struct SpinTimer {
    runtime: Arc<Shared>,
    deadline: Time,
}

impl Timer for SpinTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Time) {
        self.deadline = deadline;
    }

    fn poll_expired(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.deadline == Time::MAX {
            return Poll::Pending;
        }
        if self.deadline <= self.runtime.now() {
            self.deadline = Time::MAX;
            return Poll::Ready(());
        }
        // Those that are set anew wake once too often.
        let alarm = Alarm { at: self.deadline, waker: cx.waker().clone() };
        self.runtime.timers.lock().push(Reverse(alarm));
        Poll::Pending
    }
}

impl fmt::Debug for SpinTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinTimer").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Alarm {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::channel::oneshot;

    use super::*;
    use crate::time;

    /// Catches tasks that are polled without having been woken, and wakes that are lost between a poll and the next.
    #[test]
    fn tasks_run_when_they_are_woken_and_only_then() {
        let runtime = SpinRuntime::new();
        let (to_task, mut from_main) = oneshot::channel::<u32>();
        let (to_main, from_task) = oneshot::channel();
        let mut polls = 0;
        runtime.spawn(Box::pin(async move {
            let got = std::future::poll_fn(|cx| {
                polls += 1;
                Pin::new(&mut from_main).poll(cx)
            });
            let got = got.await.expect("main sends");
            to_main.send((got, polls)).expect("main waits");
        }));
        let answer = runtime.block_on(async {
            time::sleep(&runtime, Duration::from_millis(2)).await;
            to_task.send(7).expect("the task waits");
            from_task.await
        });
        assert_eq!(answer, Ok((7, 2)));
    }

    #[test]
    fn timers_expire_when_they_were_last_set_to_and_other_threads_wake() {
        let runtime = SpinRuntime::new();
        runtime.block_on(async {
            let mut timer = runtime.timer();
            timer.as_mut().reset(runtime.now() + Duration::from_secs(3_600));
            assert!(futures::poll!(std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx))).is_pending());
            let deadline = runtime.now() + Duration::from_millis(3);
            timer.as_mut().reset(deadline);
            std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
            assert!(runtime.now() >= deadline);
            let (send, receive) = oneshot::channel();
            #[expect(clippy::disallowed_methods, reason = "the test is of other threads")]
            let thread = std::thread::spawn(move || send.send(1));
            assert_eq!(receive.await, Ok(1));
            thread.join().expect("it does not panic").expect("main waits");
        });
    }

    #[test]
    fn what_is_left_is_dropped_with_the_end_of_main() {
        let runtime = SpinRuntime::new();
        let (held, mut gone) = oneshot::channel::<()>();
        runtime.spawn(Box::pin(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        runtime.block_on(async {
            let mut turns = 0;
            std::future::poll_fn(|cx| {
                turns += 1;
                cx.waker().wake_by_ref();
                if turns > 3 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        assert!(gone.try_recv().is_err(), "the task holds nothing any more");
    }
}
