//! A thread for each device that reports posts and polls which do not return
//!
//! They run on the thread of the task that calls them, because a change of threads takes longer than they do. Nothing can take that thread
//! back from a driver that keeps it; but another thread can see it, and say so.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rdma_core::Verb;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Whether a thread is in one of the calls of a queue, which one thread at a time makes
#[derive(Debug)]
pub(crate) struct InCall {
    verb: Verb,
    /// Odd while a thread is in the call.
    count: AtomicU64,
}

/// A call that has begun, and ends when this is dropped
pub(crate) struct Entered<'a> {
    count: &'a AtomicU64,
    ended: u64,
}

impl InCall {
    #[inline]
    pub(crate) fn enter(&self) -> Entered<'_> {
        // Two stores instead of two exchanges: only the thread in the call writes.
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(1), Ordering::Relaxed);
        Entered { count: &self.count, ended: count.wrapping_add(2) }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.count.store(self.ended, Ordering::Relaxed);
    }
}

/// What a call looks like to the thread that watches it
struct Watched {
    calls: Weak<InCall>,
    count: u64,
    /// Looks in a row that found the same call under way.
    looks: u32,
}

/// So many looks make the time after which a call is reported.
///
/// They are counted, not timed: while a process is stopped, or its machine sleeps, no call returns, and nothing looks either.
const LOOKS: u32 = 4;

/// The calls of a device, and the thread that watches them until this is dropped
pub(crate) struct CallWatch {
    shared: Arc<Shared>,
    _is_open: Sender<()>,
}

struct Shared {
    device: String,
    watched: Mutex<Vec<Watched>>,
}

impl CallWatch {
    /// Watches calls that are to return within `limit`
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub(crate) fn start(device: &str, limit: Duration) -> io::Result<Self> {
        let shared = Arc::new(Shared { device: device.to_owned(), watched: Mutex::default() });
        let (is_open, closed) = channel();
        let of_thread = Arc::clone(&shared);
        let between = (limit / LOOKS).max(Duration::from_millis(1));
        let name = format!("calls of {device}");
        std::thread::Builder::new().name(name).spawn(move || of_thread.watch(between, limit, &closed))?;
        Ok(Self { shared, _is_open: is_open })
    }

    /// Watches the calls of one more queue
    pub(crate) fn queue(&self, verb: Verb) -> Arc<InCall> {
        let calls = Arc::new(InCall { verb, count: AtomicU64::new(0) });
        self.shared.watched().push(Watched { calls: Arc::downgrade(&calls), count: 0, looks: 0 });
        calls
    }

    /// A call that was reported and has not returned
    pub(crate) fn blocked(&self) -> Option<Verb> {
        let watched = self.shared.watched();
        let reported = |watched: &Watched| {
            let calls = watched.calls.upgrade().filter(|_| watched.looks >= LOOKS)?;
            (calls.count.load(Ordering::Relaxed) == watched.count).then_some(calls.verb)
        };
        watched.iter().find_map(reported)
    }
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, between: Duration, limit: Duration, closed: &Receiver<()>) {
        let device = &self.device;
        while closed.recv_timeout(between) == Err(RecvTimeoutError::Timeout) {
            self.look(|verb, is_blocked| match is_blocked {
                true => tracing::error!(
                    %device, %verb, waited = ?limit,
                    "a device does not return from a call and keeps the thread of the task that has made it; if it never does, unplug \
                     the cable or restart the machine"
                ),
                false => tracing::info!(%device, %verb, "a device has returned from a call that was reported"),
            });
        }
    }

    /// Looks at all calls once; `report` takes each that has been found under way for long, and each of those that has returned since
    fn look(&self, mut report: impl FnMut(Verb, bool)) {
        self.watched().retain_mut(|watched| {
            let Some(calls) = watched.calls.upgrade() else { return false };
            let count = calls.count.load(Ordering::Relaxed);
            if count == watched.count && count % 2 == 1 {
                watched.looks = watched.looks.saturating_add(1);
                if watched.looks == LOOKS {
                    report(calls.verb, true);
                }
            } else {
                if watched.looks >= LOOKS {
                    report(calls.verb, false);
                }
                (watched.count, watched.looks) = (count, 0);
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch of which the thread does not look during a test, and a function that looks once and returns what the look reports
    fn unwatched() -> (CallWatch, impl Fn(&CallWatch) -> Vec<(Verb, bool)>) {
        let watch = CallWatch::start("rdma_en2", Duration::from_hours(1)).unwrap();
        let look = |watch: &CallWatch| {
            let mut reports = Vec::new();
            watch.shared.look(|verb, is_blocked| reports.push((verb, is_blocked)));
            reports
        };
        (watch, look)
    }

    /// Catches calls that were reported although others have returned meanwhile, a call that is reported twice, or never, and a report that
    /// outlives the call.
    #[test]
    fn a_call_is_reported_once_when_it_was_found_under_way_often_enough() {
        let (watch, look) = unwatched();
        let [post, poll] = [Verb::PostSend, Verb::PollCq].map(|verb| watch.queue(verb));
        for _ in 0..3 * LOOKS {
            drop(post.enter());
            let _next = post.enter();
            assert_eq!((look(&watch), watch.blocked()), (vec![], None), "each look finds another call");
        }
        let stuck = poll.enter();
        for _ in 0..LOOKS {
            assert_eq!((look(&watch), watch.blocked()), (vec![], None));
            drop(post.enter());
        }
        assert_eq!(look(&watch), [(Verb::PollCq, true)]);
        assert_eq!((look(&watch), watch.blocked()), (vec![], Some(Verb::PollCq)));
        drop(stuck);
        assert_eq!(watch.blocked(), None, "before the next look");
        assert_eq!(look(&watch), [(Verb::PollCq, false)]);
        assert_eq!((look(&watch), watch.blocked()), (vec![], None));
        drop((post, poll));
        look(&watch);
        assert!(watch.shared.watched().is_empty(), "queues that are gone are forgotten");
    }

    /// Catches a thread that outlives its device.
    #[test]
    fn the_thread_ends_with_its_device() {
        let watch = CallWatch::start("rdma_en2", Duration::from_hours(1)).unwrap();
        let shared = Arc::downgrade(&watch.shared);
        drop(watch);
        while shared.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
