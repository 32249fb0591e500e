//! Tasks and timers in virtual time
//!
//! One thread, one queue. Tasks run until all of them wait, then time jumps to the next event of the fabric or the next timer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use rdma_core::{Runtime, Time, Timer};
use slotmap::{SlotMap, new_key_type};

use crate::fabric::Process;
use crate::shared::Shared;

new_key_type! { struct TimerKey; }

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clock, tasks and timers that the program under test sees
pub(crate) struct SimRuntime {
    clock: Arc<Clock>,
    queue: Arc<Queue>,
    spawned: Mutex<Vec<Spawned>>,
    has_spawned: AtomicBool,
    /// Starts the main task of a host when its processes start anew
    starts: Mutex<Vec<(u32, Start)>>,
    /// Runs the tasks, if another executor than this one does
    spawner: Option<Spawner>,
}

/// Makes and spawns the main task of a host
pub(crate) type Start = Box<dyn FnMut() + Send>;
/// Runs a task
pub(crate) type Spawner = Box<dyn Fn(BoxFuture) + Send + Sync>;

/// A task that has not begun
struct Spawned {
    /// The process that it is part of
    owner: Option<Owner>,
    future: BoxFuture,
}

/// A process of a host
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) host: u32,
    /// How often the processes of the host were started before
    pub(crate) generation: u32,
}

struct Clock {
    now: AtomicU64,
    /// No timer expires before this time; outside of the lock, because every jump reads it
    earliest: AtomicU64,
    timers: Mutex<Timers>,
}

/// Tasks that were woken, in that order
#[derive(Default)]
struct Queue(Mutex<VecDeque<usize>>);

#[derive(Default)]
struct Timers {
    /// Deadlines that were set; an entry that differs from the deadline of its timer is obsolete
    heap: BinaryHeap<Reverse<(Time, u64, TimerKey)>>,
    next_seq: u64,
    timers: SlotMap<TimerKey, TimerState>,
}

#[derive(Default)]
struct TimerState {
    deadline: Option<Time>,
    waker: Option<Waker>,
}

struct TaskWaker {
    id: usize,
    is_queued: AtomicBool,
    queue: Arc<Queue>,
}

struct Task {
    owner: Option<Owner>,
    /// Whether it was woken while its host is stopped
    is_held: bool,
    future: BoxFuture,
    wake: Arc<TaskWaker>,
    waker: Waker,
}

/// The main future waits for an event that will never come
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Stalled {
    /// Every task waits, and no event or timer is due
    #[error("the simulation stalled at {at}: the main task waits, and no event or timer is left to wake it")]
    Deadlock {
        /// When the last event fired
        at: Time,
    },
    /// The limit of virtual time has passed
    #[error(
        "the simulation reached its limit of {limit} and the main task still waits; raise `time_limit`, or find the task that never ends"
    )]
    TimeLimit {
        /// The limit
        limit: Time,
    },
}

/// Stores `waker`, and returns the one that it replaces, to be dropped without a lock: dropping a waker may run any code
pub(crate) fn replace(stored: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match stored {
        Some(same) if same.will_wake(waker) => None,
        stored => stored.replace(waker.clone()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of the program under test must not be hidden by a second one here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimRuntime {
    pub(crate) fn new(spawner: Option<Spawner>) -> Self {
        Self {
            clock: Arc::new(Clock::new()),
            queue: Arc::default(),
            spawned: Mutex::default(),
            has_spawned: AtomicBool::new(false),
            starts: Mutex::default(),
            spawner,
        }
    }

    /// Runs `future`, as part of a process if it has an owner
    pub(crate) fn spawn_for(&self, owner: Option<Owner>, future: BoxFuture) {
        match &self.spawner {
            Some(spawner) => spawner(future),
            None => {
                lock(&self.spawned).push(Spawned { owner, future });
                self.has_spawned.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Calls `start` whenever the processes of `host` start anew
    pub(crate) fn on_start(&self, host: u32, start: Start) {
        lock(&self.starts).push((host, start));
    }

    /// Runs `main`, and what it spawns, until `main` ends
    pub(crate) fn block_on<T>(
        &self,
        shared: &Shared,
        limit: Time,
        main: impl Future<Output = T>,
    ) -> Result<T, Stalled> {
        let mut main = std::pin::pin!(main);
        let main_wake = self.new_wake(0);
        let main_waker = Waker::from(Arc::clone(&main_wake));
        let mut tasks: Vec<Option<Task>> = vec![None];
        main_waker.wake_by_ref();
        let _unspawn = Unspawn(self);
        let mut woken = VecDeque::new();
        loop {
            while self.queue.take(&mut woken) {
                for id in woken.drain(..) {
                    if id == 0 {
                        main_wake.is_queued.store(false, Ordering::Relaxed);
                        if let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(&main_waker))
                        {
                            return Ok(value);
                        }
                    } else if let Some(task) = &mut tasks[id] {
                        if task.owner.is_some_and(|owner| shared.process(owner.host) == Process::Stopped) {
                            task.is_held = true;
                            continue;
                        }
                        task.wake.is_queued.store(false, Ordering::Relaxed);
                        if task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready() {
                            tasks[id] = None;
                        }
                    }
                }
                self.start_spawned(&mut tasks);
            }
            if self.jump(shared, limit)? {
                self.update_processes(shared, &mut tasks);
                self.start_spawned(&mut tasks);
            }
        }
    }

    /// Makes tasks of the futures that were spawned
    fn start_spawned(&self, tasks: &mut Vec<Option<Task>>) {
        if !self.has_spawned.load(Ordering::Relaxed) {
            return;
        }
        self.has_spawned.store(false, Ordering::Relaxed);
        for Spawned { owner, future } in lock(&self.spawned).drain(..) {
            let id = tasks.iter().skip(1).position(Option::is_none).map_or(tasks.len(), |free| free + 1);
            if id == tasks.len() {
                tasks.push(None);
            }
            let wake = self.new_wake(id);
            let waker = Waker::from(Arc::clone(&wake));
            waker.wake_by_ref();
            tasks[id] = Some(Task { owner, is_held: false, future, wake, waker });
        }
    }

    fn new_wake(&self, id: usize) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { id, is_queued: AtomicBool::new(false), queue: Arc::clone(&self.queue) })
    }

    /// Ends the tasks of dead processes, wakes the tasks of resumed ones, and starts those of restarted ones
    fn update_processes(&self, shared: &Shared, tasks: &mut [Option<Task>]) {
        for slot in tasks {
            let Some(task) = slot else { continue };
            let Some(Owner { host, generation }) = task.owner else { continue };
            let (process, current) = shared.lock().fabric.world.process(host);
            if process == Process::Dead || current != generation {
                // Its objects find a host that is gone.
                drop(slot.take());
            } else if process == Process::Running && std::mem::take(&mut task.is_held) {
                task.wake.is_queued.store(false, Ordering::Relaxed);
                task.waker.wake_by_ref();
            }
        }
        let mut starts = std::mem::take(&mut *lock(&self.starts));
        for (host, start) in &mut starts {
            if shared.lock().fabric.world.take_start(*host) {
                start();
            }
        }
        lock(&self.starts).extend(starts);
    }

    /// Advances time to the next event; returns whether processes have stopped or started
    fn jump(&self, shared: &Shared, limit: Time) -> Result<bool, Stalled> {
        let timer = self.next_timer();
        let Some(advanced) = shared.advance(timer, limit) else {
            return Err(if timer == Time::MAX && shared.lock().fabric.schedule.next().is_none() {
                Stalled::Deadlock { at: self.now() }
            } else {
                Stalled::TimeLimit { limit }
            });
        };
        self.expire(advanced.now);
        Ok(advanced.has_host_news)
    }

    /// Sets the clock, and wakes the tasks whose timers have expired
    pub(crate) fn expire(&self, now: Time) {
        self.clock.now.store(now.as_nanos(), Ordering::Relaxed);
        if self.next_timer() <= now {
            // No lock is held: a waker may run any code.
            loop {
                let expired = lock(&self.clock.timers).expire(now);
                match expired {
                    Some(waker) => waker.wake(),
                    None => break,
                }
            }
            let next = lock(&self.clock.timers).next().unwrap_or(Time::MAX);
            self.clock.earliest.store(next.as_nanos(), Ordering::Relaxed);
        }
    }

    /// When the next timer expires, or earlier
    pub(crate) fn next_timer(&self) -> Time {
        Time::from_nanos(self.clock.earliest.load(Ordering::Relaxed))
    }
}

/// Drops tasks that never started, and those of restarts: both may hold the runtime that holds them
struct Unspawn<'a>(&'a SimRuntime);

impl Drop for Unspawn<'_> {
    fn drop(&mut self) {
        let spawned = std::mem::take(&mut *lock(&self.0.spawned));
        let starts = std::mem::take(&mut *lock(&self.0.starts));
        drop((spawned, starts));
    }
}

impl Timers {
    /// The waker of a timer that expires by `now`
    fn expire(&mut self, now: Time) -> Option<Waker> {
        while self.next()? <= now {
            let Reverse((_, _, key)) = self.heap.pop()?;
            if let Some(waker) = self.timers.get_mut(key)?.waker.take() {
                return Some(waker);
            }
        }
        None
    }

    /// The earliest deadline that is not obsolete
    fn next(&mut self) -> Option<Time> {
        while let Some(&Reverse((at, _, key))) = self.heap.peek() {
            if self.timers.get(key).is_some_and(|timer| timer.deadline == Some(at)) {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }
}

impl Queue {
    /// Exchanges the queue for an empty one; false if it was empty, too
    fn take(&self, woken: &mut VecDeque<usize>) -> bool {
        std::mem::swap(&mut *lock(&self.0), woken);
        !woken.is_empty()
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Two threads that wake a task at once may both queue it, which costs a spurious poll.
        if !self.is_queued.load(Ordering::Relaxed) {
            self.is_queued.store(true, Ordering::Relaxed);
            lock(&self.queue.0).push_back(self.id);
        }
    }
}

impl Runtime for SimRuntime {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn spawn(&self, future: BoxFuture) {
        self.spawn_for(None, future);
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        let key = lock(&self.clock.timers).timers.insert(TimerState::default());
        Box::pin(SimTimer { clock: Arc::clone(&self.clock), key })
    }
}

impl Clock {
    fn new() -> Self {
        Self { now: AtomicU64::new(0), earliest: AtomicU64::new(u64::MAX), timers: Mutex::default() }
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[derive(Debug)]
struct SimTimer {
    clock: Arc<Clock>,
    key: TimerKey,
}

impl Timer for SimTimer {
    fn reset(self: Pin<&mut Self>, deadline: Time) {
        let mut timers = lock(&self.clock.timers);
        let timer = &mut timers.timers[self.key];
        if timer.deadline == Some(deadline) {
            return;
        }
        timer.deadline = Some(deadline);
        if deadline < Time::MAX {
            let seq = timers.next_seq;
            timers.next_seq += 1;
            timers.heap.push(Reverse((deadline, seq, self.key)));
            self.clock.earliest.fetch_min(deadline.as_nanos(), Ordering::Relaxed);
        }
    }

    fn poll_expired(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.clock.now();
        let mut timers = lock(&self.clock.timers);
        let timer = &mut timers.timers[self.key];
        if timer.deadline.is_some_and(|deadline| deadline <= now) {
            timer.deadline = None;
            return Poll::Ready(());
        }
        let replaced = replace(&mut timer.waker, cx.waker());
        drop(timers);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for SimTimer {
    fn drop(&mut self) {
        // Dropping its waker may run any code: not under the lock.
        let removed = lock(&self.clock.timers).timers.remove(self.key);
        drop(removed);
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRuntime").field("now", &self.now()).finish_non_exhaustive()
    }
}
