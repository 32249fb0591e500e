//! What the programs are written with, as in `tests/tests/bugs/tools.rs`

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use shuttle::future::{JoinHandle, spawn, yield_now};

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

pub(crate) async fn join<T>(task: JoinHandle<T>) -> T {
    task.await.expect("the task ends with a result")
}

pub(crate) async fn join_all<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(join(task).await);
    }
    results
}

/// Tasks that wait for a notification
#[derive(Default)]
pub(crate) struct Waiters {
    pub(crate) wakers: VecDeque<Waker>,
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

/// A network of datagrams between a few addresses: each is a task of its own, and may be overtaken
pub(crate) struct Post<M>(Shared<Vec<Shared<Letters<M>>>>);

struct Letters<M> {
    letters: VecDeque<M>,
    reader: Option<Waker>,
}

/// Where the datagrams for one address arrive
pub(crate) struct Inbox<M>(Shared<Letters<M>>);

impl<M: Send + 'static> Post<M> {
    pub(crate) fn new(addresses: usize) -> Self {
        Self(Shared::new((0..addresses).map(|_| Shared::new(Letters::new())).collect()))
    }

    /// Takes over an address: datagrams that have arrived before are lost
    pub(crate) fn bind(&self, address: usize) -> Inbox<M> {
        let inbox = Shared::new(Letters::new());
        self.0.lock()[address] = inbox.clone();
        Inbox(inbox)
    }

    /// Sends `letter`, which arrives a little later
    pub(crate) fn send(&self, to: usize, letter: M) {
        let post = self.clone();
        spawn(async move {
            sleep(50).await;
            let inbox = post.0.lock()[to].clone();
            let mut inbox = inbox.lock();
            inbox.letters.push_back(letter);
            let reader = inbox.reader.take();
            drop(inbox);
            reader.into_iter().for_each(Waker::wake);
        });
    }
}

impl<M> Clone for Post<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> Letters<M> {
    fn new() -> Self {
        Self { letters: VecDeque::new(), reader: None }
    }
}

impl<M> Inbox<M> {
    /// The next datagram
    pub(crate) async fn recv(&self) -> M {
        poll_fn(|cx| {
            let mut inbox = self.0.lock();
            if let Some(letter) = inbox.letters.pop_front() {
                return Poll::Ready(letter);
            }
            inbox.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}
