//! Tasks and their wakers

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use super::stalled::Wait;
use super::woken::Queue;

/// The number of the main task
pub(super) const MAIN: usize = 0;

pub(super) type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes and spawns the main task of a host
pub(crate) type Start = Box<dyn FnMut() + Send>;

/// A process of a host
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) host: u32,
    /// How often the processes of the host were started before
    pub(crate) generation: u32,
}

/// Where a task comes from
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The process that it is part of
    pub(crate) owner: Option<Owner>,
    /// The call that has spawned it; unknown behind a [`Runtime`](rdma_core::Runtime)
    pub(crate) site: Option<&'static Location<'static>>,
}

/// A task that has not begun
pub(super) struct Spawned {
    pub(super) origin: Origin,
    pub(super) future: BoxFuture,
}

pub(super) struct Task {
    pub(super) origin: Origin,
    /// Whether its host is stopped
    pub(super) is_stopped: bool,
    /// Whether it was woken meanwhile
    pub(super) is_held: bool,
    /// Whether it waits for completions: it polls all the time, on a core
    pub(super) is_polling: bool,
    future: BoxFuture,
    pub(super) wake: Arc<TaskWaker>,
    waker: Waker,
}

impl Task {
    /// Makes a task, and wakes it for the first time
    pub(super) fn new(Spawned { origin, future }: Spawned, is_stopped: bool, wake: Arc<TaskWaker>) -> Self {
        let waker = Waker::from(Arc::clone(&wake));
        waker.wake_by_ref();
        Self { origin, is_stopped, is_held: false, is_polling: false, future, wake, waker }
    }

    /// Polls the task; returns whether it has ended
    pub(super) fn poll(&mut self) -> bool {
        self.wake.has_begun();
        self.future.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready()
    }

    /// Whether it is not to be polled before it is woken
    pub(super) fn waits(&self) -> bool {
        !self.is_held && !self.wake.is_queued.load(Ordering::Relaxed)
    }

    pub(super) fn wake_again(&mut self) {
        self.wake.has_begun();
        self.waker.wake_by_ref();
    }
}

/// A task that waits while the main one has ended
#[derive(Clone, Debug)]
pub(crate) struct UnfinishedTask {
    /// The task and, if all others had their turn before, what it waits for
    pub(crate) wait: Wait,
    /// It was spawned outside of all hosts, by a call that is known: no host or library answers for it
    pub(crate) is_outside: bool,
}

/// A task for people: where it was spawned, and the name of its host
pub(super) struct TaskName<'a>(pub(super) Origin, pub(super) Option<&'a str>);

impl fmt::Display for TaskName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Origin { site, .. }, host) = self;
        match site {
            Some(site) => write!(f, "the task spawned at {}:{}", site.file(), site.line())?,
            None => f.write_str("a task spawned by a library")?,
        }
        host.map_or(Ok(()), |host| write!(f, " on host {host}"))
    }
}

pub(super) struct TaskWaker {
    id: usize,
    is_queued: AtomicBool,
    queue: Arc<Queue>,
}

impl TaskWaker {
    pub(super) fn new(id: usize, queue: &Arc<Queue>) -> Arc<Self> {
        Arc::new(Self { id, is_queued: AtomicBool::new(false), queue: Arc::clone(queue) })
    }

    /// The task runs: the next call wakes it again
    pub(super) fn has_begun(&self) {
        self.is_queued.store(false, Ordering::Relaxed);
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
            self.queue.push(self.id);
        }
    }
}
