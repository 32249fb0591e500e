use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rdma_core::{BlockingCall, Runtime, Time, Timer};

use crate::blocking_threads;
use crate::sync::Mutex;
use crate::timers::Timers;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks and timers on one thread that never sleeps
///
/// For applications that give a core to the lowest latency: a woken task runs next, without a scheduler and without a system call.
/// Wakers work from all threads. Devices are best opened with a policy that spins, too.
///
/// ```
/// use rdma_async::SpinRuntime;
///
/// let runtime = SpinRuntime::new();
/// assert_eq!(runtime.block_on(async { 6 * 7 }), 42);
/// ```
#[derive(Clone)]
pub struct SpinRuntime(Arc<Shared>);

struct Shared {
    has_new: AtomicBool,
    new: Mutex<Vec<Task>>,
    timers: Arc<Timers>,
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
    /// A runtime whose clock shows zero now, without tasks
    ///
    /// Nothing runs until [`block_on`](Self::block_on) is called: it polls all tasks on the calling thread, which never sleeps.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            has_new: AtomicBool::new(false),
            new: Mutex::default(),
            timers: Arc::new(Timers::new(|| ())),
        }))
    }

    /// Runs `main`, and beside it the spawned tasks, until `main` ends
    ///
    /// Tasks that have not ended by then are dropped. A panic of a task propagates to the caller.
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
                if self.0.has_new.load(Ordering::Acquire) {
                    self.0.has_new.store(false, Ordering::Relaxed);
                    slots.extend(self.0.new.lock().drain(..).map(Slot::new));
                }
            }
            self.0.timers.expire();
            std::hint::spin_loop();
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
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Runtime for SpinRuntime {
    fn now(&self) -> Time {
        self.0.timers.now()
    }

    fn spawn(&self, task: Task) {
        self.0.new.lock().push(task);
        self.0.has_new.store(true, Ordering::Release);
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        blocking_threads::run(call);
    }

    fn is_real_time(&self) -> bool {
        true
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.0.timers.timer()
    }
}

impl fmt::Debug for SpinRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinRuntime").finish_non_exhaustive()
    }
}

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
    fn tasks_that_are_left_are_dropped_when_main_ends() {
        let runtime = SpinRuntime::new();
        let (held, mut gone) = oneshot::channel::<()>();
        runtime.spawn(Box::pin(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        runtime.block_on(async {
            let mut polls = 0;
            std::future::poll_fn(|cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                if polls > 3 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        assert!(gone.try_recv().is_err(), "the task holds nothing any more");
    }

    /// Catches an entry per poll (91 MiB for four million polls), and entries that stay behind.
    #[test]
    fn a_timer_has_one_entry_however_often_it_is_polled() {
        let runtime = SpinRuntime::new();
        let entries = || runtime.0.timers.len();
        let mut timer = runtime.timer();
        let mut cx = Context::from_waker(Waker::noop());
        let deadline = runtime.now() + Duration::from_secs(3_600);
        for round in 0..1000 {
            timer.as_mut().reset(deadline + Duration::from_secs(round / 100));
            assert!(timer.as_mut().poll_expired(&mut cx).is_pending());
            assert_eq!(entries(), 1);
        }
        timer.as_mut().reset(Time::MAX);
        assert_eq!(entries(), 0);
        timer.as_mut().reset(deadline);
        assert!(timer.as_mut().poll_expired(&mut cx).is_pending());
        drop(timer);
        assert_eq!(entries(), 0);
    }

    /// A waker that uses the runtime when it is woken
    struct Sets(SpinRuntime, AtomicBool);

    impl Wake for Sets {
        fn wake(self: Arc<Self>) {
            let mut timer = self.0.timer();
            timer.as_mut().reset(self.0.now() + Duration::from_secs(1));
            assert!(timer.as_mut().poll_expired(&mut Context::from_waker(Waker::noop())).is_pending());
            self.1.store(true, Ordering::Relaxed);
        }
    }

    /// Catches wakers that are woken under the lock of the timers: this one would wait for ever.
    #[test]
    fn a_waker_can_set_a_timer() {
        let runtime = SpinRuntime::new();
        let sets = Arc::new(Sets(runtime.clone(), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&sets));
        let mut timer = runtime.timer();
        timer.as_mut().reset(runtime.now() + Duration::from_millis(1));
        assert!(timer.as_mut().poll_expired(&mut Context::from_waker(&waker)).is_pending());
        runtime.block_on(time::sleep(&runtime, Duration::from_millis(2)));
        assert!(sets.1.load(Ordering::Relaxed));
    }
}
