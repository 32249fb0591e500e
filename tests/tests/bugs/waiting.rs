//! Home-made notifications and a home-made semaphore

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::tools::Shared;

/// Tasks that wait for a notification
#[derive(Default)]
pub(crate) struct Waiters {
    pub(crate) wakers: VecDeque<Waker>,
    /// How often all were woken
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

/// A semaphore with one permit, which is handed to the first that waits
#[derive(Default)]
pub(crate) struct Handoff {
    is_taken: bool,
    waiting: VecDeque<Shared<(bool, Option<Waker>)>>,
}

/// A place in the line of a [`Handoff`]
pub(crate) struct Acquire {
    semaphore: Shared<Handoff>,
    place: Option<Shared<(bool, Option<Waker>)>>,
    returns_permit: bool,
}

impl Shared<Handoff> {
    pub(crate) fn acquire(&self, returns_permit: bool) -> Acquire {
        Acquire { semaphore: self.clone(), place: None, returns_permit }
    }

    pub(crate) fn release(&self) {
        let next = self.lock().waiting.pop_front();
        let Some(next) = next else { return self.lock().is_taken = false };
        let mut next = next.lock();
        next.0 = true;
        let woken = next.1.take();
        drop(next);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Future for Acquire {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(place) = self.place.clone() {
            let mut place = place.lock();
            if place.0 {
                self.place = None;
                return Poll::Ready(());
            }
            place.1 = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut semaphore = self.semaphore.lock();
        if !std::mem::replace(&mut semaphore.is_taken, true) {
            return Poll::Ready(());
        }
        let place = Shared::new((false, Some(cx.waker().clone())));
        semaphore.waiting.push_back(place.clone());
        drop(semaphore);
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let was_granted = place.lock().0;
        if !was_granted {
            self.semaphore.lock().waiting.retain(|other| !other.is(&place));
        } else if self.returns_permit {
            self.semaphore.release();
        }
    }
}
