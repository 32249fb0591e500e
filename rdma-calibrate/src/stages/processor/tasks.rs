//! Tasks beside the calibration: one that wakes it, and many that run at once

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use rdma_core::{Runtime, Time, Work};

/// A value that one task waits for and another one sets
struct Signal<T> {
    value: Option<T>,
    waiting: Option<Waker>,
}

/// Until another task calls the waker of this one; how many nanoseconds this one ran later
pub(super) async fn wake_up(runtime: &Arc<dyn Runtime>) -> f64 {
    let signal = Arc::new(Mutex::new(Signal::<Time> { value: None, waiting: None }));
    let (sets, clock) = (Arc::clone(&signal), Arc::clone(runtime));
    runtime.spawn(Box::pin(poll_fn(move |cx| {
        let mut signal = lock(&sets);
        let Some(waiting) = signal.waiting.take() else {
            // The other task has not waited yet, on another thread.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        signal.value = Some(clock.now());
        drop(signal);
        waiting.wake();
        Poll::Ready(())
    })));
    let called = wait(&signal).await;
    (runtime.now() - called).as_nanos() as f64
}

/// Runs `count` tasks, each of which copies `bytes` bytes; returns how many ran at once
pub(super) async fn most_at_once(runtime: &Arc<dyn Runtime>, count: usize, bytes: usize) -> usize {
    type Spans = Vec<(Time, Time)>;
    let signal = Arc::new(Mutex::new(Signal::<()> { value: None, waiting: None }));
    let spans = Arc::new(Mutex::new(Spans::new()));
    for _ in 0..count {
        let (sets, clock, ran) = (Arc::clone(&signal), Arc::clone(runtime), Arc::clone(&spans));
        runtime.spawn(Box::pin(async move {
            let start = clock.now();
            let (source, mut target) = (vec![1_u8; bytes], vec![0_u8; bytes]);
            target.copy_from_slice(std::hint::black_box(&source));
            std::hint::black_box(&target);
            clock.spend(Work::Copy { bytes });
            let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
            ran.push((start, clock.now()));
            if ran.len() == count {
                let mut signal = lock(&sets);
                signal.value = Some(());
                signal.waiting.take().into_iter().for_each(Waker::wake);
            }
        }));
    }
    wait(&signal).await;
    let spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
    let running = |at: Time| spans.iter().filter(|(start, end)| *start <= at && at < *end).count();
    spans.iter().map(|(start, _)| running(*start)).max().unwrap_or(0)
}

async fn wait<T>(signal: &Mutex<Signal<T>>) -> T {
    poll_fn(|cx| {
        let mut signal = lock(signal);
        if let Some(value) = signal.value.take() {
            return Poll::Ready(value);
        }
        signal.waiting = Some(cx.waker().clone());
        Poll::Pending
    })
    .await
}

fn lock<T>(signal: &Mutex<Signal<T>>) -> std::sync::MutexGuard<'_, Signal<T>> {
    signal.lock().unwrap_or_else(PoisonError::into_inner)
}
