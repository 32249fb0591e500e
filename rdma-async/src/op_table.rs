//! The owner of the buffers of requests that a device works on

use std::task::{Context, Poll, Waker};

use crate::effects::Effects;
use crate::wait_queue::{WaitQueue, Waiter};

/// Requests in flight, each with its buffer; under the lock of their connection
///
/// **A posted buffer is owned by its slot, never by the future that waits for it.** A future that is dropped
/// [detaches](Self::detach) its slot; the buffer is freed by the completion, or by the teardown of the queue pair.
#[derive(Debug)]
pub(crate) struct OpTable<B, E> {
    slots: Box<[Slot<B, E>]>,
    free: WaitQueue<Free<E>>,
}

#[derive(Debug)]
struct Free<E> {
    slots: Vec<u32>,
    /// Why there will be none any more.
    closed: Option<E>,
}

#[derive(Debug)]
enum Slot<B, E> {
    /// Not claimed, or claimed and still empty
    Free,
    /// The device, or the queue to it, has the buffer, and a future waits
    Waiting { buffer: B, waker: Waker },
    /// The device, or the queue to it, has the buffer, and no future waits
    Detached { buffer: B },
    /// The future can collect the outcome
    Done { buffer: Option<B>, result: Result<(), E> },
}

/// The result of a request, and its buffer unless the device may still touch it
pub(crate) type Outcome<B, E> = (Result<(), E>, Option<B>);

impl<B, E: Clone> OpTable<B, E> {
    pub(crate) fn new(capacity: u32) -> Self {
        let free = Free { slots: (0..capacity).rev().collect(), closed: None };
        Self {
            slots: (0..capacity).map(|_| Slot::Free).collect(),
            free: WaitQueue::new(free, capacity as usize),
        }
    }

    /// Claims a slot, when one is free and this task is first in line
    #[inline]
    pub(crate) fn poll_claim(
        &mut self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects<B>,
    ) -> Poll<Result<u32, E>> {
        self.free.poll_take(waiter, cx, effects, Free::claim)
    }

    /// Claims a slot if one is free and no task waits
    pub(crate) fn try_claim(&mut self) -> Option<Result<u32, E>> {
        self.free.try_take(Free::claim)
    }

    /// Gives up waiting for a slot; see [`WaitQueue::leave`]
    pub(crate) fn leave(&mut self, waiter: &mut Waiter, effects: &mut Effects<B>) {
        self.free.leave(waiter, effects);
    }

    /// Puts a buffer into a claimed slot; the task of `waker`, if there is one, is woken when the request has ended
    #[inline]
    pub(crate) fn put(&mut self, index: u32, buffer: B, waker: Option<&Waker>) {
        self.slots[index as usize] = match waker {
            Some(waker) => Slot::Waiting { buffer, waker: waker.clone() },
            None => Slot::Detached { buffer },
        };
    }

    /// The buffer of a request in flight; `None` if there is no such request
    #[inline]
    pub(crate) fn buffer(&mut self, index: u32) -> Option<&mut B> {
        match self.slots.get_mut(index as usize)? {
            Slot::Waiting { buffer, .. } | Slot::Detached { buffer } => Some(buffer),
            Slot::Free | Slot::Done { .. } => None,
        }
    }

    /// Records that the request has ended and that its buffer is free
    pub(crate) fn complete(&mut self, index: u32, result: Result<(), E>, effects: &mut Effects<B>) {
        match self.take(index) {
            Slot::Waiting { buffer, waker } => {
                self.slots[index as usize] = Slot::Done { buffer: Some(buffer), result };
                effects.wake(Some(waker));
            }
            Slot::Detached { buffer } => {
                effects.drop([buffer]);
                self.release(index, effects);
            }
            other => self.slots[index as usize] = other,
        }
    }

    /// Records that the request has ended, and takes its buffer, which its future will not get back
    #[must_use = "the device may still use the buffer"]
    pub(crate) fn revoke(&mut self, index: u32, error: E, effects: &mut Effects<B>) -> Option<B> {
        match self.take(index) {
            Slot::Waiting { buffer, waker } => {
                self.slots[index as usize] = Slot::Done { buffer: None, result: Err(error) };
                effects.wake(Some(waker));
                Some(buffer)
            }
            Slot::Detached { buffer } => {
                self.release(index, effects);
                Some(buffer)
            }
            other => {
                self.slots[index as usize] = other;
                None
            }
        }
    }

    /// The outcome of a request, once it has ended; frees its slot then
    pub(crate) fn poll_outcome(
        &mut self,
        index: u32,
        cx: &Context<'_>,
        effects: &mut Effects<B>,
    ) -> Poll<Outcome<B, E>> {
        match &mut self.slots[index as usize] {
            Slot::Waiting { waker, .. } if waker.will_wake(cx.waker()) => Poll::Pending,
            Slot::Waiting { waker, .. } => {
                effects.drop_waker(Some(std::mem::replace(waker, cx.waker().clone())));
                Poll::Pending
            }
            Slot::Done { .. } => {
                let Slot::Done { buffer, result } = self.take(index) else {
                    unreachable!("the slot was just seen to be done")
                };
                self.release(index, effects);
                Poll::Ready((result, buffer))
            }
            Slot::Free | Slot::Detached { .. } => {
                unreachable!("only the owner of a slot asks for its outcome")
            }
        }
    }

    /// Gives up the outcome of a request: its slot is freed when it has ended, which may have happened
    pub(crate) fn detach(&mut self, index: u32, effects: &mut Effects<B>) {
        match self.take(index) {
            Slot::Waiting { buffer, waker } => {
                self.slots[index as usize] = Slot::Detached { buffer };
                effects.drop_waker(Some(waker));
            }
            Slot::Done { buffer, .. } => {
                self.release(index, effects);
                effects.drop(buffer);
            }
            other => self.slots[index as usize] = other,
        }
    }

    /// Makes every claim fail with `error` from now on
    pub(crate) fn close(&mut self, error: E, effects: &mut Effects<B>) {
        self.free.update(effects, |free| free.closed = Some(error));
    }

    /// All slots, to end the requests in them
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<B, E> {
        0..self.slots.len() as u32
    }

    /// How many requests are in flight or uncollected
    pub(crate) fn in_use(&self) -> usize {
        self.slots.len() - self.free.value().slots.len()
    }

    fn take(&mut self, index: u32) -> Slot<B, E> {
        std::mem::replace(&mut self.slots[index as usize], Slot::Free)
    }

    /// Gives back a claimed slot with nothing in it
    pub(crate) fn release(&mut self, index: u32, effects: &mut Effects<B>) {
        self.free.update(effects, |free| free.slots.push(index));
    }
}

impl<E: Clone> Free<E> {
    #[inline]
    fn claim(&mut self) -> Option<Result<u32, E>> {
        match &self.closed {
            Some(error) => Some(Err(error.clone())),
            None => self.slots.pop().map(Ok),
        }
    }
}
