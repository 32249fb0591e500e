//! What the programs are written with, as in `tests/tests/bugs/tools.rs`

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use shuttle::future::{JoinHandle, yield_now};

/// State of several tasks, which switch only where they await: its lock is no scheduling point
pub(crate) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Shared<T> {
    pub(crate) fn get(&self) -> T {
        self.lock().clone()
    }

    pub(crate) fn set(&self, value: T) {
        *self.lock() = value;
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Stands for a sleep: shuttle has no time
pub(crate) async fn sleep(_micros: u64) {
    yield_now().await;
}

pub(crate) async fn join_all<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("the task ends with a result"));
    }
    results
}

/// Tasks that wait for a notification
#[derive(Default)]
pub(crate) struct Waiters {
    wakers: VecDeque<Waker>,
    notified: u64,
}

impl Shared<Waiters> {
    /// Ready after the next notification, counted from the first poll
    pub(crate) async fn wait(&self) {
        let mut since = None;
        poll_fn(|cx| {
            let mut waiters = self.lock();
            let since = *since.get_or_insert(waiters.notified);
            if waiters.notified > since {
                return Poll::Ready(());
            }
            waiters.wakers.push_back(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn notify_all(&self) {
        let mut waiters = self.lock();
        waiters.notified += 1;
        let woken = std::mem::take(&mut waiters.wakers);
        drop(waiters);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// Ready when `condition` holds; the wakers of those that wait are kept in `waiters`
pub(crate) async fn wait_until(waiters: &Shared<Waiters>, mut condition: impl FnMut() -> bool) {
    poll_fn(|cx| {
        if condition() {
            return Poll::Ready(());
        }
        waiters.lock().wakers.push_back(cx.waker().clone());
        Poll::Pending
    })
    .await;
}
