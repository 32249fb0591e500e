//! A runtime on the clock of the simulated provider: time advances when every task waits
#![allow(unsafe_code, reason = "calls the functions of the provider that control its clock")]

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use libloading::Library;
use rdma_core::{BlockingCall, Runtime, Time, Timer};
use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};

/// The latency of a stream
const LATENCY: Duration = Duration::from_micros(150);

/// The clock of a provider with `RDMA_SIM_CLOCK=stepped`
pub(crate) struct SteppedRuntime {
    control: Control,
    timers: Arc<Mutex<Timers>>,
    spawned: Mutex<Vec<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// The functions are loaded as long as this.
    _library: Library,
}

impl fmt::Debug for SteppedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SteppedRuntime").field(&self.now()).finish()
    }
}

/// The functions that control the provider
#[derive(Clone, Copy, Debug)]
struct Control {
    now: extern "C" fn() -> u64,
    step: extern "C" fn(u64) -> u64,
    objects: extern "C" fn() -> usize,
}

/// The deadlines of the timers that have not expired, each with the number of its timer
#[derive(Debug, Default)]
struct Timers {
    deadlines: BTreeSet<(Time, u64)>,
    created: u64,
}

impl SteppedRuntime {
    /// The clock of the simulated provider at `path`
    pub(crate) fn new(path: &Path) -> Self {
        // SAFETY: the library was loaded as a provider already, and runs no code of its own when it is loaded.
        let library = unsafe { Library::new(path) }.unwrap();
        // SAFETY: the simulated provider has the function, of this type; so do the next ones.
        let now = *unsafe { library.get(b"rdma_sim_now") }.unwrap();
        // SAFETY: as above.
        let step = *unsafe { library.get(b"rdma_sim_step") }.unwrap();
        // SAFETY: as above.
        let objects = *unsafe { library.get(b"rdma_sim_objects") }.unwrap();
        let control = Control { now, step, objects };
        Self { control, timers: Arc::default(), spawned: Mutex::default(), _library: library }
    }

    /// The objects of the provider that exist
    pub(crate) fn objects(&self) -> usize {
        (self.control.objects)()
    }

    /// Both ends of a stream between tasks of this runtime
    pub(crate) fn streams(&self) -> [SteppedStream; 2] {
        let ways: [Arc<Mutex<OneWay>>; 2] = Default::default();
        [0, 1].map(|end| SteppedStream {
            control: self.control,
            timers: Arc::clone(&self.timers),
            incoming: Arc::clone(&ways[end]),
            outgoing: Arc::clone(&ways[1 - end]),
        })
    }

    /// Runs `tasks`, a join of all tasks, until they are done
    ///
    /// All of them are polled after each step of the clock, because a task that polls a completion queue is never woken. Within an
    /// instant, nothing leads from one task to another.
    pub(crate) fn run<T>(&self, tasks: impl Future<Output = T>) -> T {
        let mut tasks = pin!(tasks);
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let polled_at = self.now();
            if let Poll::Ready(done) = tasks.as_mut().poll(&mut cx) {
                return done;
            }
            let spawned = std::mem::take(&mut *lock(&self.spawned));
            if !spawned.is_empty() {
                // What they have set, the tasks see at this instant.
                let waiting = spawned
                    .into_iter()
                    .filter_map(|mut task| task.as_mut().poll(&mut cx).is_pending().then_some(task));
                let waiting: Vec<_> = waiting.collect();
                lock(&self.spawned).extend(waiting);
                continue;
            }
            // A verb of one task that blocks advances the clock, by which timers of the others have expired.
            if self.now() > polled_at {
                continue;
            }
            let after = (Bound::Excluded((self.now(), u64::MAX)), Bound::Unbounded);
            let next = lock(&self.timers).deadlines.range(after).next().copied();
            let (deadline, _) = next.expect("a task that waits limits its time");
            (self.control.step)(deadline.as_nanos());
        }
    }
}

impl Runtime for SteppedRuntime {
    fn now(&self) -> Time {
        self.control.now()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        lock(&self.spawned).push(task);
    }

    fn spawn_blocking(&self, _: BlockingCall) {
        unimplemented!("a calibration calls its verbs itself");
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        Box::pin(SteppedTimer::new(self.control, &self.timers))
    }
}

impl Control {
    fn now(&self) -> Time {
        Time::from_nanos((self.now)())
    }
}

#[derive(Debug)]
struct SteppedTimer {
    control: Control,
    timers: Arc<Mutex<Timers>>,
    number: u64,
    deadline: Option<Time>,
}

impl SteppedTimer {
    fn new(control: Control, timers: &Arc<Mutex<Timers>>) -> Self {
        let mut created = lock(timers);
        created.created += 1;
        Self { control, timers: Arc::clone(timers), number: created.created, deadline: None }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= self.control.now())
    }

    fn schedule(&mut self, deadline: Option<Time>) {
        let deadlines = &mut lock(&self.timers).deadlines;
        if let Some(before) = self.deadline {
            deadlines.remove(&(before, self.number));
        }
        deadlines.extend(deadline.map(|deadline| (deadline, self.number)));
        self.deadline = deadline;
    }
}

impl Timer for SteppedTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Time) {
        self.schedule(Some(deadline));
    }

    fn poll_expired(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for SteppedTimer {
    fn drop(&mut self) {
        self.schedule(None);
    }
}

/// An end of a stream between two tasks
pub(crate) struct SteppedStream {
    control: Control,
    timers: Arc<Mutex<Timers>>,
    incoming: Arc<Mutex<OneWay>>,
    outgoing: Arc<Mutex<OneWay>>,
}

/// The bytes that one end has written and the other one has not read
#[derive(Default)]
struct OneWay {
    /// Each with the timer that expires when it arrives.
    chunks: VecDeque<(SteppedTimer, VecDeque<u8>)>,
    is_over: bool,
}

impl AsyncRead for SteppedStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let way = &mut *lock(&self.incoming);
        match way.chunks.front_mut() {
            None if way.is_over => Poll::Ready(Ok(())),
            Some((timer, bytes)) if timer.is_over() => {
                let count = buf.remaining().min(bytes.len());
                bytes.drain(..count).for_each(|byte| buf.put_slice(&[byte]));
                if bytes.is_empty() {
                    way.chunks.pop_front();
                }
                Poll::Ready(Ok(()))
            }
            _ => Poll::Pending,
        }
    }
}

impl AsyncWrite for SteppedStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut timer = SteppedTimer::new(self.control, &self.timers);
        timer.schedule(Some(self.control.now() + LATENCY));
        lock(&self.outgoing).chunks.push_back((timer, buf.iter().copied().collect()));
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.outgoing).is_over = true;
        Poll::Ready(Ok(()))
    }
}

impl Drop for SteppedStream {
    fn drop(&mut self) {
        lock(&self.outgoing).is_over = true;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
