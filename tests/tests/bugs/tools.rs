//! What the programs are written with: tasks, virtual time, disks and datagrams

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use rdma_sim::Net;

/// State of several tasks; what survives the processes of a host lives here, too
pub(crate) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether both are the same
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    pub(crate) fn get(&self) -> T {
        self.lock().clone()
    }

    pub(crate) fn set(&self, value: T) {
        *self.lock() = value;
    }

    /// Writes to a disk: a process that dies before the end has written nothing
    pub(crate) async fn write(&self, net: &Net, value: T) {
        sleep(net, DISK).await;
        self.set(value);
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Long after the last fault and everything that it has delayed, in microseconds
pub(crate) const SETTLED: u64 = 50_000;
/// Microseconds of a write to a disk
pub(crate) const DISK: u64 = 20;
/// Microseconds of a datagram
pub(crate) const ONE_WAY: u64 = 50;

/// A task that was spawned, and its result
pub(crate) struct Task<T>(oneshot::Receiver<T>);

impl<T> Task<T> {
    pub(crate) async fn join(self) -> T {
        self.0.await.expect("the task ends with a result")
    }
}

/// Runs `task` beside the caller
pub(crate) fn spawn<T: Send + 'static>(net: &Net, task: impl Future<Output = T> + Send + 'static) -> Task<T> {
    let (done, result) = oneshot::channel();
    let task = async move {
        let _ = done.send(task.await);
    };
    net.runtime().spawn(Box::pin(task));
    Task(result)
}

/// The results of `tasks`, which run already
pub(crate) async fn join_all<T>(tasks: impl IntoIterator<Item = Task<T>>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.join().await);
    }
    results
}

/// Waits for so many microseconds of virtual time
pub(crate) async fn sleep(net: &Net, micros: u64) {
    net.sleep(Duration::from_micros(micros)).await;
}

/// The result of `future`, unless the time is up when the caller looks: then `future` is dropped
pub(crate) async fn within<T>(net: &Net, micros: u64, future: impl Future<Output = T>) -> Option<T> {
    match select(std::pin::pin!(sleep(net, micros)), std::pin::pin!(future)).await {
        Either::Left(_) => None,
        Either::Right((value, _)) => Some(value),
    }
}

/// How many times a request is sent before its sender gives up
pub(crate) const ATTEMPTS: u32 = 20;

/// Sends `request` from address 0 to address 1 until `answer` comes, which the caller has to wait for in `inbox`; false if it does not
pub(crate) async fn ask<M: Clone + PartialEq + Send + 'static>(
    net: &Net,
    post: &Post<M>,
    inbox: &Inbox<M>,
    request: M,
    answer: &M,
) -> bool {
    for _ in 0..ATTEMPTS {
        post.send(1, request.clone());
        if within(net, 300, inbox.until(answer)).await.is_some() {
            return true;
        }
    }
    false
}

/// A network of datagrams between a few addresses: each travels alone, and may be overtaken
pub(crate) struct Post<M> {
    net: Net,
    boxes: Shared<Vec<Shared<Letters<M>>>>,
}

struct Letters<M> {
    letters: VecDeque<M>,
    reader: Option<Waker>,
}

/// Where the datagrams for one address arrive
pub(crate) struct Inbox<M>(Shared<Letters<M>>);

impl<M: Send + 'static> Post<M> {
    pub(crate) fn new(net: &Net, addresses: usize) -> Self {
        let boxes = (0..addresses).map(|_| Shared::new(Letters::new())).collect();
        Self { net: net.clone(), boxes: Shared::new(boxes) }
    }

    /// Takes over an address: datagrams that have arrived before are lost
    pub(crate) fn bind(&self, address: usize) -> Inbox<M> {
        let inbox = Shared::new(Letters::new());
        self.boxes.lock()[address] = inbox.clone();
        Inbox(inbox)
    }

    /// Sends `letter`, which arrives a little later
    pub(crate) fn send(&self, to: usize, letter: M) {
        let post = self.clone();
        spawn(&self.net, async move {
            sleep(&post.net, ONE_WAY).await;
            let inbox = post.boxes.lock()[to].clone();
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
        Self { net: self.net.clone(), boxes: self.boxes.clone() }
    }
}

impl<M> Letters<M> {
    fn new() -> Self {
        Self { letters: VecDeque::new(), reader: None }
    }
}

impl<M: PartialEq> Inbox<M> {
    /// Waits for `letter`; others that come before are dropped
    pub(crate) async fn until(&self, letter: &M) {
        self.find(|found| found == letter).await;
    }
}

impl<M> Inbox<M> {
    /// The next datagram that is `wanted`; others that come before are dropped
    pub(crate) async fn find(&self, wanted: impl Fn(&M) -> bool) -> M {
        loop {
            let letter = self.recv().await;
            if wanted(&letter) {
                return letter;
            }
        }
    }

    /// The next datagram; dropping the future loses none
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
