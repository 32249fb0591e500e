//! Every interleaving of the structures that threads share
//!
//! The files of the crate are compiled again here, against loom's primitives instead of the standard ones. Mutants that these tests have
//! caught, each by the test named after it:
//!
//! * `PostedFrames::settle` that loads `completed` twice: `no_completion_is_lost`;
//! * `PortWatch::completed` that stores `UP` whatever the state is: `a_port_that_is_gone_stays_gone`;
//! * `WakeTimer::schedule` without its `notify_one`: `a_task_that_sleeps_is_woken`;
//! * `WakeTimer::cut` without its `notify_one`, or `WakeTimer::schedule` that ignores `is_cut`: `a_post_ends_a_nap`;
//! * `WakeTimer::run` that takes `is_cut` without a task to wake: `a_post_ends_the_nap_that_follows`;
//! * `WakeTimer::end` without its `notify_one`: `the_timer_ends_with_its_queue`.
#![cfg(unix)]
#![allow(dead_code, unreachable_pub, reason = "the files are those of the crate")]

mod sync {
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};

    /// Any time is short, but the longest, which never passes
    pub(crate) fn wait_for<'a, T>(
        mutex: &'a Mutex<T>,
        changed: &Condvar,
        guard: MutexGuard<'a, T>,
        time: std::time::Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        if time == std::time::Duration::MAX {
            return (changed.wait(guard).unwrap(), false);
        }
        drop(guard);
        loom::thread::yield_now();
        (mutex.lock().unwrap(), true)
    }

    pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
        loom::thread::spawn(work);
    }
}

#[path = "../src/backoff.rs"]
mod backoff;
#[path = "../src/port_watch.rs"]
mod port_watch;
#[path = "../src/posted_frames.rs"]
mod posted_frames;

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::future::block_on;
use loom::thread;
use rdma_core::{Cause, Verb};

use backoff::{Backoff, PollPolicy};
use port_watch::PortWatch;
use posted_frames::PostedFrames;
use sync::Arc;

/// Sleeps after the first poll without a completion
const SLEEP: PollPolicy =
    PollPolicy { spins: 0, nap: Duration::from_millis(1), longest_nap: Duration::from_millis(1) };
/// Sleeps after the second one, and no nap ends by itself
const SLEEP_ON: PollPolicy = PollPolicy { spins: 2, nap: Duration::MAX, longest_nap: Duration::MAX };

#[test]
fn no_completion_is_lost() {
    loom::model(|| {
        let frames = Arc::new(PostedFrames::new(3));
        for _ in 0..3 {
            frames.post(1, true);
        }
        // Posting is the spawned thread: it runs second. If it ran first, loom would not come back to complete a request between
        // two of its loads, because the load in `complete` hides them from the store behind it.
        let posting = {
            let frames = Arc::clone(&frames);
            thread::spawn(move || {
                assert!(!frames.fits(3), "the third request has not completed");
                let posts_again = frames.fits(1);
                if posts_again {
                    frames.post(1, true);
                }
                posts_again
            })
        };
        frames.complete();
        frames.complete();
        let posts_again = posting.join().unwrap();
        let free = if posts_again { 1 } else { 2 };
        assert!(frames.fits(free), "two requests have completed");
        assert!(!frames.fits(free + 1), "only two requests have completed");
    });
}

#[test]
fn a_port_that_is_gone_stays_gone() {
    loom::model(|| {
        let watch = Arc::new(PortWatch::new(true));
        let polling = {
            let watch = Arc::clone(&watch);
            thread::spawn(move || {
                watch.completed();
                watch.suspect();
                watch.completed();
            })
        };
        let checked = watch.check(Verb::PostSend, || Some(Ok(false))).map_err(|error| error.cause);
        polling.join().unwrap();
        // A post that was let through saw a completion; one that was refused found the port down, for good.
        let after = watch.check(Verb::PostSend, || Some(Ok(true))).map_err(|error| error.cause);
        assert!(matches!(checked, Ok(()) | Err(Cause::DeviceGone)), "{checked:?}");
        assert_eq!(after, checked);
    });
}

/// A task that finds nothing when it first polls, and looks at nothing but its wake-ups
async fn sleeps_once(backoff: &Backoff) {
    let mut has_slept = false;
    poll_fn(|cx| {
        if has_slept {
            return Poll::Ready(());
        }
        has_slept = true;
        assert!(backoff.wait(cx, false), "the task sleeps");
        Poll::Pending
    })
    .await;
}

#[test]
fn a_task_that_sleeps_is_woken() {
    loom::model(|| {
        let backoff = Backoff::new(SLEEP);
        block_on(sleeps_once(&backoff));
        block_on(sleeps_once(&backoff));
    });
}

#[test]
fn a_post_ends_a_nap() {
    let mut model = loom::model::Builder::new();
    // All interleavings of three threads with two locks take minutes.
    model.preemption_bound = Some(2);
    model.check(|| {
        let backoff = Arc::new(Backoff::new(SLEEP_ON));
        let (mut polls, mut posting) = (0, None);
        block_on(poll_fn(|cx| {
            polls += 1;
            match polls {
                1 => assert!(!backoff.wait(cx, false), "the task spins"),
                2 => {
                    assert!(backoff.wait(cx, false), "the task sleeps");
                    let posts = Arc::clone(&backoff);
                    posting = Some(thread::spawn(move || posts.posted()));
                    // The task may have been woken by something else, and poll once more at this moment.
                    backoff.wait(cx, false);
                }
                _ => return Poll::Ready(()),
            }
            Poll::Pending
        }));
        posting.unwrap().join().unwrap();
    });
}

/// Whether a task was woken
#[derive(Default)]
struct IsWoken(loom::sync::atomic::AtomicBool);

impl std::task::Wake for IsWoken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_post_ends_the_nap_that_follows() {
    loom::model(|| {
        let backoff = Backoff::new(SLEEP);
        let is_woken = std::sync::Arc::new(IsWoken::default());
        assert!(backoff.wait(&Context::from_waker(&is_woken.clone().into()), false), "the task sleeps");
        while !is_woken.0.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // The timer may have begun the next nap, which nobody has asked for yet.
        backoff.posted();
        assert!(!backoff.wait(&Context::from_waker(Waker::noop()), false), "the task spins");
    });
}

#[test]
fn the_timer_ends_with_its_queue() {
    loom::model(|| {
        let backoff = Backoff::new(SLEEP);
        // Dropped while the task is scheduled, or while the timer waits, or before the timer has begun.
        backoff.wait(&Context::from_waker(Waker::noop()), false);
        drop(backoff);
    });
}
