//! What an endpoint, its reactor and its connections share

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use rdma_core::{Device, Runtime};

use crate::EndpointOptions;
use crate::error::ConnectError;
use crate::line::Line;
use crate::pool::Pool;
use crate::sync::Mutex;

/// The device, its memory and its completion queue, and who is connected
pub(crate) struct Hub<D: Device> {
    /// Connections that the reactor does not know yet; `None` when there is no reactor any more.
    joining: Mutex<Option<Vec<Arc<Line<D>>>>>,
    has_joining: AtomicBool,
    handles: AtomicUsize,
    connections: AtomicU32,
    next_line: AtomicU32,
    pub(crate) pool: Pool,
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) device: D,
    /// Wakes the reactor for other reasons than completions.
    pub(crate) reactor: Arc<Nudge>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) options: EndpointOptions,
}

impl<D: Device> Hub<D> {
    pub(crate) fn new(
        device: D,
        cq: Arc<D::Cq>,
        pool: Pool,
        runtime: Arc<dyn Runtime>,
        options: EndpointOptions,
    ) -> Self {
        Self {
            joining: Mutex::new(Some(Vec::new())),
            has_joining: AtomicBool::new(false),
            handles: AtomicUsize::new(1),
            connections: AtomicU32::new(0),
            next_line: AtomicU32::new(0),
            pool,
            cq,
            device,
            reactor: Arc::default(),
            runtime,
            options,
        }
    }

    /// Counts one more connection in, if it is not one too many for the memory and the completion queue
    pub(crate) fn reserve(&self) -> Result<(), ConnectError> {
        let limit = self.options.max_connections;
        let counted = self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            if n < limit { Some(n + 1) } else { None }
        });
        counted.map(drop).map_err(|_| ConnectError::TooManyConnections)
    }

    /// A connection is over
    pub(crate) fn forget(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn next_line(&self) -> u32 {
        self.next_line.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a connection to the reactor; gives it back if there is none any more
    pub(crate) fn join(&self, line: Arc<Line<D>>) -> Result<(), Arc<Line<D>>> {
        match &mut *self.joining.lock() {
            Some(joining) => joining.push(line),
            None => return Err(line),
        }
        self.has_joining.store(true, Ordering::Release);
        self.wake_reactor();
        Ok(())
    }

    /// Moves new connections to the reactor's
    pub(crate) fn adopt(&self, lines: &mut Vec<Arc<Line<D>>>) {
        if self.has_joining.load(Ordering::Acquire) {
            self.has_joining.store(false, Ordering::Release);
            lines.extend(self.joining.lock().iter_mut().flat_map(|joining| joining.drain(..)));
        }
    }

    /// Moves new connections to the reactor's, and takes no more
    pub(crate) fn close(&self, lines: &mut Vec<Arc<Line<D>>>) {
        lines.extend(self.joining.lock().take().into_iter().flatten());
    }

    /// Whether an endpoint, or an attempt to connect, still exists
    pub(crate) fn is_held(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0 || self.has_joining.load(Ordering::Acquire)
    }

    /// Keeps the reactor going until [`release`](Self::release)
    pub(crate) fn hold(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn release(&self) {
        self.handles.fetch_sub(1, Ordering::AcqRel);
        self.wake_reactor();
    }

    pub(crate) fn wake_reactor(&self) {
        self.reactor.wake_by_ref();
    }
}

/// How the reactor is woken for other reasons than completions: rarely, and by its one task's waker
///
/// Also a waker of its own, for what the reactor waits for besides completions. A reactor that was woken and not nudged has
/// only its completion queue to look at.
#[derive(Debug)]
pub(crate) struct Nudge {
    is_due: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Default for Nudge {
    /// Due: whoever looks for the first time has everything to look at
    fn default() -> Self {
        Self { is_due: AtomicBool::new(true), task: Mutex::default() }
    }
}

impl Nudge {
    /// `waker` is the reactor's from now on
    pub(crate) fn set(&self, waker: Waker) {
        *self.task.lock() = Some(waker);
    }

    /// Whether there was a nudge since the last call
    pub(crate) fn take(&self) -> bool {
        self.is_due.load(Ordering::Acquire) && self.is_due.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        let waker = self.task.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_nudge_wakes_the_task_and_is_taken_once() {
        let (nudge, task) = (Arc::new(Nudge::default()), Arc::new(Count::default()));
        assert_eq!([nudge.take(), nudge.take()], [true, false], "at first everything is due");
        // Before there is a task: it finds the nudge when it begins.
        Waker::from(Arc::clone(&nudge)).wake();
        nudge.set(Arc::clone(&task).into());
        assert_eq!([nudge.take(), nudge.take()], [true, false]);
        nudge.wake_by_ref();
        nudge.wake_by_ref();
        assert_eq!(task.0.load(Ordering::Relaxed), 2);
        assert_eq!([nudge.take(), nudge.take()], [true, false]);
    }
}
