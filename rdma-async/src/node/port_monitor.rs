//! A thread that queries a port every 4 ms, if its device does not report changes of it
//!
//! The control task of a peering could query the port: each query would take a wake-up for its timer, one for the thread of the query, and one
//! for the answer. The monitor takes one, for all peerings of the node.

use std::sync::Arc;
use std::time::Duration;

use super::port_watch::PortWatch;
use crate::blocked_call::DeviceCall;
use crate::device_calls::{DeviceCalls, Progress};
use crate::sync::{AtomicBool, Ordering};

/// The time between two queries of a port: a cable that is pulled is noticed within 5 ms
pub(super) const PORT_INTERVAL: Duration = Duration::from_millis(4);

/// Whether changes of the port of an open device are known without a query by the control tasks, and the thread that queries it
pub(super) struct PortMonitor {
    watch: Arc<PortWatch>,
    /// Whether the device reports changes, or the thread runs
    is_watched: AtomicBool,
    /// Whether the device was let go of, and is queried no more
    is_over: AtomicBool,
}

impl PortMonitor {
    /// Wakes the tasks of `watch` about a port, of which the device reports changes itself if `is_watched`
    pub(super) fn new(watch: &Arc<PortWatch>, is_watched: bool) -> Arc<Self> {
        let (is_watched, is_over) = (AtomicBool::new(is_watched), AtomicBool::new(false));
        Arc::new(Self { watch: Arc::clone(watch), is_watched, is_over })
    }

    /// Whether the control tasks are woken when the port changes
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Ends the queries for good
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Starts the thread, after a query by a control task with the answer `was_active`, unless the port is watched
    ///
    /// It ends when the device has not returned from a call in time, when there are no control tasks, and when `is_active` returns `None` because
    /// the device is closed. In a simulation, where a thread cannot sleep, it is not started, and the control tasks go on to query the port.
    pub(super) fn start(
        self: &Arc<Self>,
        calls: &Arc<DeviceCalls>,
        was_active: bool,
        is_active: impl Fn() -> Option<bool> + Send + 'static,
    ) {
        if self.is_over.load(Ordering::Relaxed)
            || self.is_watched()
            || !calls.may_sleep()
            || self.is_watched.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let (monitor, of_thread, caller) = (Arc::clone(self), Arc::clone(self), Arc::clone(calls));
        let query = move |progress: &Progress| of_thread.query(&caller, progress, was_active, is_active);
        calls.start_lasting(DeviceCall::Query, query, move |_| {
            monitor.is_watched.store(false, Ordering::Relaxed);
            if !monitor.is_over.load(Ordering::Relaxed) {
                // The control tasks query the port, and so start this again.
                monitor.watch.changed();
            }
        });
    }

    /// Queries the port again and again, and wakes the control tasks when it has changed
    fn query(
        &self,
        calls: &DeviceCalls,
        progress: &Progress,
        mut was_active: bool,
        is_active: impl Fn() -> Option<bool>,
    ) {
        loop {
            calls.sleep_until_next(PORT_INTERVAL);
            let is_over = self.is_over.load(Ordering::Relaxed) || !self.watch.has_watchers();
            if is_over || calls.blocked().is_some() {
                return;
            }
            let Some(is_active) = progress.during(&is_active) else { return };
            if is_active != was_active {
                was_active = is_active;
                self.watch.changed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::sync::Mutex;
    use crate::thread_runtime::{ThreadRuntime, block_on};

    /// Catches a change that is not reported, an end of the thread that is not reported, so that no task queries the port,
    /// and a thread for a device that was let go of.
    #[test]
    fn changes_are_reported_until_the_device_is_closed() {
        let runtime = ThreadRuntime::start().expect("a thread");
        let calls = Arc::new(DeviceCalls::new(&runtime.handle(), Duration::from_secs(3600)));
        let watch = Arc::new(PortWatch::new());
        let mut watcher = watch.watcher();
        let monitor = PortMonitor::new(&watch, false);
        // The thread waits for an answer of the test at each query.
        let (ask, asked) = std::sync::mpsc::channel::<Option<bool>>();
        let asked = Mutex::new(asked);
        monitor.start(&calls, true, move || asked.lock().recv().ok().flatten());
        assert!(monitor.is_watched());
        let mut await_change = || block_on(poll_fn(|cx| watch.poll_changed(&mut watcher, cx)));
        // Down, up, and closed: an answer without a change between would be reported before its time.
        for answers in [&[Some(true), Some(false)][..], &[Some(false), Some(true)], &[Some(true), None]] {
            answers.iter().for_each(|answer| ask.send(*answer).expect("the thread waits"));
            await_change();
        }
        assert!(!monitor.is_watched(), "the tasks query the port, and start the thread again");
        monitor.end();
        monitor.start(&calls, true, || unreachable!("the device was let go of"));
        assert!(!monitor.is_watched());
        watch.leave(&mut watcher);
    }
}
