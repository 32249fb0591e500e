use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use rdma_core::{BlockingCall, Runtime, Time, Timer};
use slab::Slab;

use crate::blocking_threads;
use crate::timers::Timers;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks and timers on a thread of their own, which sleeps while there is nothing to do
///
/// For programs that are not async: the thread drives the nodes, whether or not the program waits for one of them, and
/// [`block_on`] waits for a future on the thread of the caller. Dropping the runtime ends the thread, and drops its tasks: nodes that run
/// on it move no more data, and their peers take this process for lost. [Close](crate::Session::close) the sessions before.
///
/// ```
/// use std::net::{Ipv4Addr, TcpListener, TcpStream};
///
/// use rdma_async::{BlockingStream, Node, ThreadRuntime, block_on};
///
/// # let running = rdma_sim::driver::realtime::start(rdma_sim::Sim::new(), |task| drop(task))?;
/// # let [open_a, open_b] = ["a", "b"].map(|host| running.net().opener(host, "rdma_en2"));
/// let runtime = ThreadRuntime::start()?;
/// let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
/// let address = listener.local_addr()?;
/// // Two threads take the part of two Macs.
/// let a = Node::builder(open_a).runtime(runtime.handle()).build()?;
/// let b = Node::builder(open_b).runtime(runtime.handle()).build()?;
/// std::thread::scope(|scope| {
///     let receiver = scope.spawn(move || {
///         let (stream, _) = listener.accept()?;
///         block_on(b.serve(BlockingStream::new(stream)?))?;
///         let session = block_on(b.accept()).ok_or("the node is closed")?;
///         let message = block_on(session.recv())?.ok_or("the peer has sent nothing")?;
///         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(message.to_vec())
///     });
///     let session = block_on(a.connect(BlockingStream::new(TcpStream::connect(address)?)?))?;
///     block_on(session.send_bytes(b"no async"))?;
///     assert_eq!(receiver.join().expect("no panic").map_err(|error| error.to_string())?, b"no async");
///     Ok::<_, Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct ThreadRuntime {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The [`Runtime`] of a [`ThreadRuntime`], for nodes
struct RuntimeHandle(Arc<Shared>);

struct Shared {
    queue: Arc<Queue>,
    timers: Arc<Timers>,
}

/// What the thread has to do
#[derive(Default)]
struct Queue {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    new: Vec<Task>,
    /// Slots of tasks that were woken; perhaps of tasks that have ended
    woken: Vec<usize>,
    is_over: bool,
}

/// A task and how it is woken
struct Slot {
    flag: Arc<Flag>,
    waker: Waker,
    task: Task,
}

struct Flag {
    slot: usize,
    is_woken: AtomicBool,
    queue: Arc<Queue>,
}

impl ThreadRuntime {
    /// Starts the thread
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of a system that has no further thread.
    pub fn start() -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let woken = Arc::clone(&queue);
        // Under the lock: otherwise it could come between the thread's look at the timers and its sleep.
        let timers = Arc::new(Timers::new(move || drop(woken.lock_and_notify())));
        let shared = Arc::new(Shared { queue, timers });
        let (queue, timers) = (Arc::clone(&shared.queue), Arc::clone(&shared.timers));
        let run = move || run(&queue, &timers);
        let thread = thread::Builder::new().name("rdma-async".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The runtime for [`NodeBuilder::runtime`](crate::NodeBuilder::runtime)
    ///
    /// Tasks that are spawned when the thread has ended are dropped with the handle. Timers do not expire any more then.
    pub fn handle(&self) -> Arc<dyn Runtime> {
        Arc::new(RuntimeHandle(Arc::clone(&self.shared)))
    }
}

impl Drop for ThreadRuntime {
    fn drop(&mut self) {
        self.shared.queue.lock_and_notify().is_over = true;
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            // A task that panics is caught; the thread returns.
            drop(thread.join());
        }
    }
}

/// Waits for `future` on this thread, which sleeps until the future is woken
///
/// Tasks and timers do not run on it: they need a runtime on another thread, such as a [`ThreadRuntime`]. Not for use within async
/// code, whose executor it would block.
///
/// ```
/// assert_eq!(rdma_async::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let parked = Arc::new(Parked { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        while !parked.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// A thread that waits for a future
struct Parked {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

/// Runs tasks until the runtime is dropped
fn run(queue: &Arc<Queue>, timers: &Timers) {
    let mut slots: Slab<Slot> = Slab::new();
    while let Some((new, mut ready)) = queue.next(timers) {
        for task in new {
            let entry = slots.vacant_entry();
            let slot = entry.key();
            entry.insert(Slot::new(slot, task, queue));
            ready.push(slot);
        }
        for slot in ready {
            let Some(entry) = slots.get_mut(slot) else { continue };
            entry.flag.is_woken.store(false, Ordering::SeqCst);
            let cx = &mut Context::from_waker(&entry.waker);
            let polled = catch_unwind(AssertUnwindSafe(|| entry.task.as_mut().poll(cx)));
            if polled.is_err() {
                tracing::error!("a task of the runtime has panicked, and is dropped");
            }
            if !matches!(polled, Ok(Poll::Pending)) {
                let ended = slots.remove(slot);
                // A destructor that panics must not end the thread of all other tasks.
                if catch_unwind(AssertUnwindSafe(|| drop(ended))).is_err() {
                    tracing::error!("the destructor of a task of the runtime has panicked");
                }
            }
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the queue; wakes the thread, which goes on when the lock is released
    fn lock_and_notify(&self) -> MutexGuard<'_, Work> {
        let work = self.lock();
        self.changed.notify_one();
        work
    }

    /// Waits for tasks to run: new ones, and the slots of those that were woken; `None` at the end
    fn next(&self, timers: &Timers) -> Option<(Vec<Task>, Vec<usize>)> {
        let mut work = self.lock();
        while !work.is_over {
            let rest = timers.first().map(|deadline| deadline.since(timers.now()));
            if rest == Some(Duration::ZERO) {
                drop(work);
                timers.expire();
                work = self.lock();
            }
            if !work.new.is_empty() || !work.woken.is_empty() {
                return Some((std::mem::take(&mut work.new), std::mem::take(&mut work.woken)));
            }
            work = match rest {
                Some(Duration::ZERO) => work,
                Some(rest) => self.changed.wait_timeout(work, rest).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(work).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let left = std::mem::take(&mut work.new);
        drop(work);
        drop(left);
        None
    }
}

impl Slot {
    /// Woken from the beginning: each task is polled once
    fn new(slot: usize, task: Task, queue: &Arc<Queue>) -> Self {
        let flag = Arc::new(Flag { slot, is_woken: AtomicBool::new(true), queue: Arc::clone(queue) });
        let waker = Waker::from(Arc::clone(&flag));
        Self { flag, waker, task }
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.queue.lock_and_notify().woken.push(self.slot);
        }
    }
}

impl Runtime for RuntimeHandle {
    fn now(&self) -> Time {
        self.0.timers.now()
    }

    fn spawn(&self, task: Task) {
        let mut work = self.0.queue.lock_and_notify();
        let is_over = work.is_over;
        if !is_over {
            return work.new.push(task);
        }
        // Not under the lock: what the task owns may use the runtime when it is dropped.
        drop(work);
        drop(task);
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

impl fmt::Debug for ThreadRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadRuntime").finish_non_exhaustive()
    }
}

impl fmt::Debug for RuntimeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeHandle").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::oneshot;

    use super::*;
    use crate::time;

    /// Catches a thread that sleeps on when a task is woken from another thread, or when an earlier timer is set.
    #[test]
    fn tasks_run_while_the_program_waits_elsewhere() {
        let runtime = ThreadRuntime::start().expect("a thread");
        let handle = runtime.handle();
        let (to_task, from_main) = oneshot::channel::<u32>();
        let (to_main, from_task) = oneshot::channel();
        let sleeper = runtime.handle();
        // The thread sleeps towards the later deadline when the earlier one is set.
        handle.spawn(Box::pin(async move { time::sleep(&*sleeper, Duration::from_secs(3600)).await }));
        handle.spawn(Box::pin(async move {
            to_main.send(from_main.await.expect("main sends") + 1).expect("main waits");
        }));
        block_on(time::sleep(&*handle, Duration::from_millis(20)));
        to_task.send(7).expect("the task waits");
        assert_eq!(block_on(from_task), Ok(8));
    }

    /// Catches a thread that ends with a destructor, and leaves every other task waiting.
    #[test]
    fn a_destructor_that_panics_ends_nothing_else() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("the test wants it");
            }
        }

        let runtime = ThreadRuntime::start().expect("a thread");
        let handle = runtime.handle();
        let mut bomb = Some(Bomb);
        // Not dropped by the poll, but with the task.
        handle.spawn(Box::pin(std::future::poll_fn(move |_| {
            std::hint::black_box(&mut bomb);
            Poll::Ready(())
        })));
        let (to_main, from_task) = oneshot::channel();
        handle.spawn(Box::pin(async move { to_main.send(()).expect("main waits") }));
        assert_eq!(block_on(from_task), Ok(()));
    }

    #[test]
    fn a_task_that_panics_ends_alone_and_the_rest_when_the_runtime_is_dropped() {
        let runtime = ThreadRuntime::start().expect("a thread");
        let handle = runtime.handle();
        handle.spawn(Box::pin(async { panic!("the test wants it") }));
        let (held, gone) = oneshot::channel::<()>();
        handle.spawn(Box::pin(async move {
            let _held = held;
            std::future::pending::<()>().await;
        }));
        let (to_main, from_task) = oneshot::channel();
        handle.spawn(Box::pin(async move { to_main.send(()).expect("main waits") }));
        assert_eq!(block_on(from_task), Ok(()));
        drop(runtime);
        assert!(block_on(gone).is_err(), "the task holds nothing any more");
        let (held, gone) = oneshot::channel::<()>();
        handle.spawn(Box::pin(async move { drop(held) }));
        assert!(block_on(gone).is_err(), "a task that comes too late is dropped");
    }
}
