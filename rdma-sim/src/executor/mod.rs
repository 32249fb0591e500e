//! Tasks and timers in virtual time
//!
//! One thread, one queue. Tasks run until all of them wait, then time jumps to the next event of the fabric or the next timer.
//! Which of several ready tasks is next, and whether one is late, is the [`Scheduler`]'s to decide.

mod ending;
mod every;
mod limits;
mod progress;
mod stalled;
mod task;
mod tasks;
mod timers;
mod unfinished;
mod woken;

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use rdma_core::{BlockingCall, Runtime, Time, Timer, Work};

use self::ending::Ending;
pub(crate) use self::limits::Limits;
pub(crate) use self::progress::Progress;
pub(crate) use self::stalled::HumanDuration;
use self::stalled::wait_of;
pub use self::stalled::{Stalled, Wait, Waits};
use self::task::{BoxFuture, MAIN, Spawned, Task, TaskName, TaskWaker};
pub(crate) use self::task::{Origin, Owner, Start, UnfinishedTask};
use self::tasks::Tasks;
use self::timers::Clock;
use self::woken::Queue;
use crate::caught::catch;
use crate::cpu::{self, Cpu};
use crate::fabric::Process;
use crate::scheduler::{NextAction, Order};
use crate::shared::Shared;
use crate::sync::lock;
use crate::trace::Mark;
use crate::verb_time;

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
    progress: Arc<Progress>,
    /// Whether tasks of different hosts share more than the fabric
    shares: AtomicBool,
    /// What the program states of itself, if records are kept
    marks: Mutex<Vec<Mark>>,
    /// How many numbers were drawn by programs
    randoms: AtomicU64,
    /// Whether the tasks of a killed process are dropped at this moment
    is_killing: AtomicBool,
    cpu: Cpu,
    /// Most tasks that have not begun: they do so when those that spawn them wait
    max_spawned: usize,
}

/// Runs a task
pub(crate) type Spawner = Box<dyn Fn(BoxFuture) + Send + Sync>;

/// The result of a run whose main task has ended
pub(crate) struct Ended<T> {
    /// What the main task returned
    pub(crate) value: T,
    pub(crate) order: Order,
    /// The tasks that waited then
    pub(crate) unfinished: Vec<UnfinishedTask>,
}

impl SimRuntime {
    pub(crate) fn new(
        spawner: Option<Spawner>,
        progress: Arc<Progress>,
        cpu: Cpu,
        max_spawned: usize,
    ) -> Self {
        Self {
            clock: Arc::new(Clock::new(cpu)),
            queue: Arc::default(),
            spawned: Mutex::default(),
            has_spawned: AtomicBool::new(false),
            starts: Mutex::default(),
            spawner,
            progress,
            shares: AtomicBool::new(false),
            marks: Mutex::default(),
            randoms: AtomicU64::new(1),
            is_killing: AtomicBool::new(false),
            cpu,
            max_spawned,
        }
    }

    /// Keeps what the task that is polled states; `mark` is called with its host
    pub(crate) fn mark(&self, mark: impl FnOnce(Option<u32>) -> Mark) {
        let mark = mark(self.progress.host());
        lock(&self.marks).push(mark);
    }

    /// What the program has stated of itself
    pub(crate) fn marks(&self) -> Vec<Mark> {
        lock(&self.marks).clone()
    }

    /// Runs `future`, as part of a process if it has an owner
    ///
    /// # Panics
    ///
    /// If too many have not begun: a loop that spawns without waiting would take all memory.
    pub(crate) fn spawn_for(&self, origin: Origin, future: BoxFuture) {
        match &self.spawner {
            Some(spawner) => spawner(future),
            None => {
                let spawned = lock(&self.spawned).len();
                if spawned >= self.max_spawned && !std::thread::panicking() {
                    let task = TaskName(origin, None).to_string();
                    panic!("{}", Stalled::TaskLimit { limit: self.max_spawned, task });
                }
                lock(&self.spawned).push(Spawned { origin, future });
                self.has_spawned.store(true, Ordering::Relaxed);
            }
        }
    }

    /// From now on, tasks of different hosts share more than the fabric: a stream
    pub(crate) fn share(&self) {
        self.shares.store(true, Ordering::Relaxed);
    }

    /// Runs `call` at once; what it returns runs when the verbs have taken their time that it has called, and never if one of them does
    /// not return
    pub(crate) fn spawn_blocking_for(&self, origin: Origin, call: BlockingCall) {
        if verb_time::is_stuck() {
            // The calling thread does not get here.
            return std::mem::forget(call);
        }
        let (finish, ns) = verb_time::measure(call);
        match ns {
            0 => finish(),
            // A thread that stands still for ever keeps what it has.
            verb_time::NEVER => std::mem::forget(finish),
            ns => {
                let mut timer = Box::pin(self.clock.timer());
                timer.as_mut().reset(Time::from_nanos(self.now().as_nanos().saturating_add(ns)));
                self.spawn_for(
                    origin,
                    Box::pin(async move {
                        poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
                        finish();
                    }),
                );
            }
        }
    }

    /// Runs `future` outside of all hosts
    pub(crate) fn spawn_at(&self, site: &'static Location<'static>, future: BoxFuture) {
        self.spawn_for(Origin { owner: None, site: Some(site) }, future);
    }

    /// Calls `start` whenever the processes of `host` start anew
    pub(crate) fn on_start(&self, host: u32, start: Start) {
        lock(&self.starts).push((host, start));
    }

    /// Runs `main`, and what it spawns, until `main` ends, in this order; if it `settles`, also what may run at that instant
    pub(crate) fn block_on<T>(
        &self,
        shared: &Shared,
        limits: Limits,
        order: Order,
        settles: bool,
        main: impl Future<Output = T>,
    ) -> Result<Ended<T>, Stalled> {
        let _entered = self.queue.enter();
        let cores = {
            let timing = &shared.lock().fabric.model.timing;
            if timing.cpu { timing.cores } else { 0 }
        };
        let (mut run, main) = (Tasks::new(order, cores, limits), std::pin::pin!(Some(main)));
        let (spawned, starts, progress) = (&self.spawned, &self.starts, &*self.progress);
        let mut ending =
            Ending { run: &mut run, main, spawned, starts, progress, panics: Vec::new(), is_done: false };
        let (value, unfinished) = self.poll_all(shared, settles, ending.run, ending.main.as_mut())?;
        if let Some(panic) = ending.end() {
            panic.resume();
        }
        Ok(Ended { value, order: run.order, unfinished })
    }

    /// Polls tasks until `main` ends
    fn poll_all<T>(
        &self,
        shared: &Shared,
        settles: bool,
        run: &mut Tasks,
        mut main: Pin<&mut Option<impl Future<Output = T>>>,
    ) -> Result<(T, Vec<UnfinishedTask>), Stalled> {
        let main_wake = TaskWaker::new(MAIN, &self.queue);
        let main_waker = Waker::from(Arc::clone(&main_wake));
        main_waker.wake_by_ref();
        shared.lock().call_under_lock(&main_waker);
        let mut poll_main = || {
            let main = main.as_mut().as_pin_mut();
            main.map_or(Poll::Pending, |main| main.poll(&mut Context::from_waker(&main_waker)))
        };
        // What the thread has called before is no part of this run.
        verb_time::take();
        loop {
            match self.next(shared, run) {
                Ok(MAIN) => {
                    main_wake.has_begun();
                    if let Poll::Ready(value) = poll_main() {
                        return Ok((value, self.unfinished(shared, run, settles)?));
                    }
                    run.block(MAIN, None, || self.now());
                }
                Ok(id) => {
                    let host = run.host_with_cores(id);
                    run.poll_on(id, host);
                    run.block(id, host, || self.now());
                }
                Err(mut stalled) => {
                    if let Stalled::Deadlock { waits, .. } | Stalled::TimeLimit { waits, .. } = &mut stalled {
                        waits.0.push(
                            run.wait_in_verb(MAIN, shared)
                                .unwrap_or_else(|| wait_of("main".to_owned(), || poll_main().is_ready())),
                        );
                        run.add_waits(waits, shared);
                    }
                    return Err(stalled);
                }
            }
        }
    }

    /// The task that is polled next; advances time until there is one
    fn next(&self, shared: &Shared, run: &mut Tasks) -> Result<usize, Stalled> {
        loop {
            self.collect(shared, run);
            if run.order.is_every() {
                match self.choose(shared, run)? {
                    Some(id) => return self.start(id, shared, run),
                    None => continue,
                }
            }
            if run.ready.is_empty() {
                self.jump(shared, run)?;
                continue;
            }
            let next = if run.order.is_fifo() {
                NextAction::Task(0)
            } else {
                let choices = &mut *shared.lock().fabric.choices;
                run.order.next(run.ready.iter().copied(), run.has_event, choices)
            };
            match next {
                NextAction::Task(position) => {
                    // The usual position: no other task moves in the queue.
                    let id = if position == 0 { run.ready.pop_front() } else { run.ready.remove(position) };
                    let Some(id) = id else { continue };
                    if let Some(ns) = run.blocked_ns(id, || self.now()) {
                        run.delay(id, self.now(), ns);
                        continue;
                    }
                    return self.start(id, shared, run);
                }
                NextAction::Interrupt(position, ns) => {
                    run.ready.remove(position).into_iter().for_each(|id| run.delay(id, self.now(), ns));
                }
                NextAction::Event => self.step(shared, run, None),
            }
        }
    }

    /// Counts the poll of a task, which comes next
    #[inline(always)]
    fn start(&self, id: usize, shared: &Shared, run: &mut Tasks) -> Result<usize, Stalled> {
        run.order.count_step(id, run.ready.len());
        self.progress.step(id);
        run.polls += 1;
        if run.is_endless() { Err(run.endless(id, self.now(), shared)) } else { Ok(id) }
    }

    /// Makes tasks of the futures that were spawned, and lists the tasks that were woken
    #[inline(always)]
    fn collect(&self, shared: &Shared, run: &mut Tasks) {
        if !run.order.is_fifo() {
            return self.collect_some_late(shared, run);
        }
        if run.ready.is_empty() {
            self.start_spawned(shared, &mut run.tasks);
            self.queue.take(&mut run.ready);
            if self.cpu.is_on() {
                self.wake_up(shared, run);
            }
        }
    }

    /// As [`collect`](Self::collect), where tasks may be late
    fn collect_some_late(&self, shared: &Shared, run: &mut Tasks) {
        self.start_spawned(shared, &mut run.tasks);
        let known = run.ready.len();
        self.queue.take(&mut run.ready);
        if run.ready.len() > known {
            let fabric = &mut shared.lock().fabric;
            let mut position = known;
            while let Some(id) = run.ready.get(position).copied() {
                let late_ns = run.order.late_ns(id, &mut *fabric.choices);
                match late_ns + cpu::wake_up_ns(&fabric.model.timing, &mut *fabric.choices) {
                    0 => position += 1,
                    ns => {
                        run.ready.remove(position);
                        run.delay(id, self.now(), ns);
                    }
                }
            }
        }
    }

    /// Makes the tasks that were woken wait until a processor has come to them
    fn wake_up(&self, shared: &Shared, run: &mut Tasks) {
        let fabric = &mut shared.lock().fabric;
        for id in std::mem::take(&mut run.ready) {
            run.delay(id, self.now(), cpu::wake_up_ns(&fabric.model.timing, &mut *fabric.choices));
        }
    }

    /// Makes tasks of the futures that were spawned
    #[inline]
    fn start_spawned(&self, shared: &Shared, tasks: &mut Vec<Option<Task>>) {
        if self.has_spawned.load(Ordering::Relaxed) {
            self.start_all_spawned(shared, tasks);
        }
    }

    fn start_all_spawned(&self, shared: &Shared, tasks: &mut Vec<Option<Task>>) {
        self.has_spawned.store(false, Ordering::Relaxed);
        for spawned in lock(&self.spawned).drain(..) {
            let id = tasks.iter().skip(1).position(Option::is_none).map_or(tasks.len(), |free| free + 1);
            if id == tasks.len() {
                tasks.push(None);
            }
            self.progress.spawned(id, spawned.origin);
            let is_stopped = |owner: Owner| shared.process(owner.host) == Process::Stopped;
            let is_stopped = spawned.origin.owner.is_some_and(is_stopped);
            tasks[id] = Some(Task::new(spawned, is_stopped, TaskWaker::new(id, &self.queue)));
        }
    }

    /// Whether the tasks of a killed process are dropped at this moment
    pub(crate) fn is_killing(&self) -> bool {
        self.is_killing.load(Ordering::Relaxed)
    }

    /// Ends the tasks of dead processes, wakes the tasks of resumed ones, and starts those of restarted ones
    #[cold]
    fn update_processes(&self, shared: &Shared, run: &mut Tasks) {
        self.progress.rest();
        let mut ended = Vec::new();
        for (id, slot) in run.tasks.iter_mut().enumerate() {
            let Some(task) = slot else { continue };
            let Some(Owner { host, generation }) = task.origin.owner else { continue };
            let (process, current) = shared.lock().fabric.world.process(host);
            if process == Process::Dead || current != generation {
                // Its objects find a host that is gone.
                self.is_killing.store(true, Ordering::Relaxed);
                let dropped = catch(|| drop(slot.take()));
                self.is_killing.store(false, Ordering::Relaxed);
                dropped.unwrap_or_else(|panic| panic.resume());
                ended.push(id);
                continue;
            }
            task.is_stopped = process == Process::Stopped;
            if !task.is_stopped && std::mem::take(&mut task.is_held) {
                task.wake_again();
            }
        }
        ended.into_iter().for_each(|id| run.forget(id));
        let mut starts = std::mem::take(&mut *lock(&self.starts));
        let hosts = starts.iter().map(|(host, _)| *host);
        // Several main tasks of one host start together.
        let anew: BTreeSet<_> = hosts.filter(|host| shared.lock().fabric.world.take_start(*host)).collect();
        for (host, start) in &mut starts {
            if anew.contains(host) {
                start();
            }
        }
        lock(&self.starts).extend(starts);
    }

    /// Advances time to the next event, timer or late task
    #[inline(always)]
    fn jump(&self, shared: &Shared, run: &mut Tasks) -> Result<(), Stalled> {
        let (late, limit) = (run.next_late(), run.limits.time);
        let timer = self.clock.next().min(late);
        let Some(advanced) = shared.advance(timer, limit, !run.order.is_fifo()) else {
            let has_next = timer < Time::MAX || shared.lock().fabric.schedule.next().is_some();
            if has_next {
                // What waits does so from the limit on.
                self.expire(limit);
            }
            return Err(Stalled::at(self.now(), has_next.then_some(limit)));
        };
        // A task that only waits for its turn is no progress.
        if advanced.now > self.now() && (advanced.now < late || self.clock.next() <= late) {
            run.polls = 0;
        }
        self.expire(advanced.now);
        run.end_lateness(advanced.now);
        self.advanced(shared, run, advanced.has_host_news);
        Ok(())
    }

    /// Fires an event of this very moment: that with this id, or any
    fn step(&self, shared: &Shared, run: &mut Tasks, id: Option<u64>) {
        let has_host_news = shared.step(id);
        self.advanced(shared, run, has_host_news);
    }

    #[inline(always)]
    fn advanced(&self, shared: &Shared, run: &mut Tasks, has_host_news: bool) {
        if has_host_news {
            self.update_processes(shared, run);
        }
        if !run.order.is_fifo() {
            let next = shared.lock().fabric.schedule.next();
            run.has_event = next.is_some_and(|next| next <= self.now());
        }
    }

    /// Sets the clock, and wakes the tasks whose timers have expired
    #[inline(always)]
    pub(crate) fn expire(&self, now: Time) {
        self.clock.expire(now);
    }

    /// When the next timer expires, or earlier
    pub(crate) fn next_timer(&self) -> Time {
        self.clock.next()
    }
}

impl Runtime for SimRuntime {
    fn spend(&self, work: Work) {
        self.cpu.work(work);
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn spawn(&self, future: BoxFuture) {
        self.spawn_for(Origin::default(), future);
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        self.spawn_blocking_for(Origin::default(), call);
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        Box::pin(self.clock.timer())
    }

    fn random(&self) -> u64 {
        let number = self.randoms.fetch_add(1, Ordering::Relaxed);
        // The finalizer of SplitMix64: numbers that look drawn and never repeat.
        let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRuntime").field("now", &self.now()).finish_non_exhaustive()
    }
}
