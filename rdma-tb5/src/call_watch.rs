//! A thread for each device that reports posts and polls which do not return
//!
//! Posts and polls run on the thread of the task that calls them, because a change of threads takes longer than they do. A driver that keeps
//! this thread cannot be interrupted; the thread of this module reports it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rdma_core::Verb;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The begun and the ended calls of one verb of one queue
///
/// Not synchronized: the callers exclude each other, posts by the contract of their functions, polls by the lock of the completion queue.
#[derive(Debug)]
pub(crate) struct CallCounter {
    verb: Verb,
    /// Odd while a thread is in the call.
    count: AtomicU64,
}

/// A call that has begun, and ends when this is dropped
pub(crate) struct CallGuard<'a> {
    count: &'a AtomicU64,
    ended: u64,
}

impl CallCounter {
    #[inline]
    pub(crate) fn enter(&self) -> CallGuard<'_> {
        // Two stores instead of two exchanges: only the thread in the call writes.
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(1), Ordering::Relaxed);
        CallGuard { count: &self.count, ended: count.wrapping_add(2) }
    }
}

impl Drop for CallGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.count.store(self.ended, Ordering::Relaxed);
    }
}

/// A queue, and its counter at the last look
struct WatchedQueue {
    calls: Weak<CallCounter>,
    count: u64,
    /// Looks in a row that found the same call under way.
    looks: u32,
}

/// The looks within the time after which a call is reported.
///
/// Looks are counted instead of time: each call of a process that was stopped, or of a machine that slept, has taken long.
const LOOKS: u32 = 4;

/// The calls of a device, and the thread that watches them until this is dropped
pub(crate) struct CallWatch {
    shared: Arc<Shared>,
    _stop_on_drop: Sender<()>,
}

struct Shared {
    device: String,
    watched: Mutex<Vec<WatchedQueue>>,
}

impl CallWatch {
    /// Watches calls that are to return within `limit`; without a thread, none is reported
    pub(crate) fn start(device: &str, limit: Duration) -> Self {
        let shared = Arc::new(Shared { device: device.to_owned(), watched: Mutex::default() });
        let (stop_on_drop, stopped) = channel();
        let of_thread = Arc::clone(&shared);
        let between = (limit / LOOKS).max(Duration::from_millis(1));
        let name = format!("calls of {device}");
        let watch = move || of_thread.watch(between, limit, &stopped);
        if let Err(error) = std::thread::Builder::new().name(name).spawn(watch) {
            tracing::warn!(%device, %error, "posts and polls that do not return are not reported: the system gives no thread");
        }
        Self { shared, _stop_on_drop: stop_on_drop }
    }

    /// Watches the calls of one more queue
    pub(crate) fn queue(&self, verb: Verb) -> Arc<CallCounter> {
        let calls = Arc::new(CallCounter { verb, count: AtomicU64::new(0) });
        let mut watched = self.shared.watched();
        watched.retain(|queue| queue.calls.strong_count() > 0);
        watched.push(WatchedQueue { calls: Arc::downgrade(&calls), count: 0, looks: 0 });
        calls
    }

    /// A call that was reported and has not returned
    pub(crate) fn blocked(&self) -> Option<Verb> {
        let watched = self.shared.watched();
        let reported = |watched: &WatchedQueue| {
            let calls = watched.calls.upgrade().filter(|_| watched.looks >= LOOKS)?;
            (calls.count.load(Ordering::Relaxed) == watched.count).then_some(calls.verb)
        };
        watched.iter().find_map(reported)
    }
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, Vec<WatchedQueue>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, between: Duration, limit: Duration, stopped: &Receiver<()>) {
        let device = &self.device;
        while stopped.recv_timeout(between) == Err(RecvTimeoutError::Timeout) {
            for (verb, is_blocked) in self.look() {
                match is_blocked {
                    true => tracing::error!(
                        %device, %verb, waited = ?limit,
                        "a device does not return from a call and keeps the thread of the task that has made it; if it never does, \
                         unplug the cable or restart the machine"
                    ),
                    false => {
                        tracing::info!(%device, %verb, "a device has returned from a call that was reported")
                    }
                }
            }
        }
    }

    /// Looks at all calls once; returns each that has been found under way for long with true, and each of those that has returned since
    /// with false
    ///
    /// Subscribers of the log may ask the device what is blocked: none of them runs under the lock.
    fn look(&self) -> Vec<(Verb, bool)> {
        let mut reports = Vec::new();
        self.watched().retain_mut(|watched| {
            let Some(calls) = watched.calls.upgrade() else { return false };
            let count = calls.count.load(Ordering::Relaxed);
            if count == watched.count && count % 2 == 1 {
                watched.looks = watched.looks.saturating_add(1);
                if watched.looks == LOOKS {
                    reports.push((calls.verb, true));
                }
            } else {
                if watched.looks >= LOOKS {
                    reports.push((calls.verb, false));
                }
                (watched.count, watched.looks) = (count, 0);
            }
            true
        });
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch of which the thread does not look during a test
    fn unwatched() -> CallWatch {
        CallWatch::start("rdma_en2", Duration::from_hours(1))
    }

    /// Catches calls that were reported although others have returned meanwhile, a call that is reported twice, or never, and a report that
    /// outlives the call.
    #[test]
    fn a_call_is_reported_once_when_it_was_found_under_way_often_enough() {
        let watch = unwatched();
        let [post, poll] = [Verb::PostSend, Verb::PollCq].map(|verb| watch.queue(verb));
        for _ in 0..3 * LOOKS {
            drop(post.enter());
            let _next = post.enter();
            assert_eq!(
                (watch.shared.look(), watch.blocked()),
                (vec![], None),
                "each look finds another call"
            );
        }
        let stuck = poll.enter();
        for _ in 0..LOOKS {
            assert_eq!((watch.shared.look(), watch.blocked()), (vec![], None));
            drop(post.enter());
        }
        assert_eq!(watch.shared.look(), [(Verb::PollCq, true)]);
        assert_eq!((watch.shared.look(), watch.blocked()), (vec![], Some(Verb::PollCq)));
        drop(stuck);
        assert_eq!(watch.blocked(), None, "before the next look");
        assert_eq!(watch.shared.look(), [(Verb::PollCq, false)]);
        assert_eq!((watch.shared.look(), watch.blocked()), (vec![], None));
        drop((post, poll));
        let _another = watch.queue(Verb::PostRecv);
        assert_eq!(watch.shared.watched().len(), 1, "queues that are gone are forgotten");
    }

    /// Catches a thread that outlives its device.
    #[test]
    fn the_thread_ends_with_its_device() {
        let watch = unwatched();
        let shared = Arc::downgrade(&watch.shared);
        drop(watch);
        let has_ended = |_| {
            std::thread::sleep(Duration::from_millis(1));
            shared.strong_count() == 0
        };
        assert!((0..60_000).any(has_ended), "the thread does not end");
    }
}
