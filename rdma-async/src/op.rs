//! The op table: who owns the buffers of requests that a device works on

use std::task::{Context, Poll, Waker};

use crate::gate::{Next, Ticket, Turns};

/// Requests in flight, each with its buffer; under the lock of their connection
///
/// **A posted buffer is owned by its slot, never by the future that waits for it.** A future that goes away
/// [detaches](Self::detach) its slot; the buffer is freed by the completion, or by the teardown of the queue pair.
#[derive(Debug)]
pub(crate) struct OpTable<B, E> {
    slots: Box<[Slot<B, E>]>,
    free: Turns<Free<E>>,
}

#[derive(Debug)]
struct Free<E> {
    slots: Vec<u32>,
    /// Why there will be none any more.
    closed: Option<E>,
}

#[derive(Debug)]
enum Slot<B, E> {
    /// Nobody's, or on its way to its owner
    Free,
    /// The device, or the queue to it, has the buffer, and a future waits
    Waiting { buffer: B, waker: Waker },
    /// The device, or the queue to it, has the buffer, and nobody waits
    Detached { buffer: B },
    /// The future can collect what is left
    Done { buffer: Option<B>, result: Result<(), E> },
}

/// The result of a request, and its buffer unless the device may still touch it
pub(crate) type Outcome<B, E> = (Result<(), E>, Option<B>);

impl<B, E: Clone> OpTable<B, E> {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            slots: (0..capacity).map(|_| Slot::Free).collect(),
            free: Turns::new(Free { slots: (0..capacity).rev().collect(), closed: None }, capacity as usize),
        }
    }

    /// Claims a slot, when there is one and it is this task's turn
    #[inline]
    pub(crate) fn poll_claim(
        &mut self,
        ticket: &mut Ticket,
        cx: &Context<'_>,
    ) -> (Poll<Result<u32, E>>, Next) {
        self.free.poll_take(ticket, cx, |free| match &free.closed {
            Some(error) => Some(Err(error.clone())),
            None => free.slots.pop().map(Ok),
        })
    }

    /// Gives up waiting for a slot; see [`Turns::leave`]
    pub(crate) fn leave(&mut self, ticket: &mut Ticket) -> Next {
        self.free.leave(ticket)
    }

    /// Puts a buffer into a claimed slot; `waker` is woken when the request has ended
    #[inline]
    pub(crate) fn put(&mut self, index: u32, buffer: B, waker: &Waker) {
        self.slots[index as usize] = Slot::Waiting { buffer, waker: waker.clone() };
    }

    /// The buffer of a request in flight
    #[inline]
    pub(crate) fn buffer(&mut self, index: u32) -> Option<&mut B> {
        match &mut self.slots[index as usize] {
            Slot::Waiting { buffer, .. } | Slot::Detached { buffer } => Some(buffer),
            Slot::Free | Slot::Done { .. } => None,
        }
    }

    /// Records that the request has ended
    ///
    /// A buffer that nobody waits for, and one that `keep` says must not be reused, is returned, with who should be woken.
    #[must_use = "the buffer may have to be quarantined, and somebody may wait"]
    pub(crate) fn complete(&mut self, index: u32, result: Result<(), E>, keep: bool) -> (Option<B>, Next) {
        match self.take(index) {
            Slot::Waiting { buffer, waker } => {
                let (buffer, kept) = if keep { (None, Some(buffer)) } else { (Some(buffer), None) };
                self.slots[index as usize] = Slot::Done { buffer, result };
                (kept, Next { waker: Some(waker), gone: None })
            }
            Slot::Detached { buffer } => (Some(buffer), self.release(index)),
            other => {
                self.slots[index as usize] = other;
                (None, Next::NOBODY)
            }
        }
    }

    /// The outcome of a request, once it has ended; frees its slot then
    pub(crate) fn poll_outcome(&mut self, index: u32, cx: &Context<'_>) -> (Poll<Outcome<B, E>>, Next) {
        match &mut self.slots[index as usize] {
            Slot::Waiting { waker, .. } if waker.will_wake(cx.waker()) => (Poll::Pending, Next::NOBODY),
            Slot::Waiting { waker, .. } => {
                let gone = Some(std::mem::replace(waker, cx.waker().clone()));
                (Poll::Pending, Next { waker: None, gone })
            }
            Slot::Done { .. } => {
                let Slot::Done { buffer, result } = self.take(index) else {
                    unreachable!("the slot was just seen to be done")
                };
                (Poll::Ready((result, buffer)), self.release(index))
            }
            Slot::Free | Slot::Detached { .. } => {
                unreachable!("only the owner of a slot asks for its outcome")
            }
        }
    }

    /// Leaves the request to itself: its slot will be freed when it has ended
    ///
    /// The buffer is returned if that was already the case.
    #[must_use = "the buffer is there, and somebody may wait"]
    pub(crate) fn detach(&mut self, index: u32) -> (Option<B>, Next) {
        match self.take(index) {
            Slot::Waiting { buffer, waker } => {
                self.slots[index as usize] = Slot::Detached { buffer };
                (None, Next { waker: None, gone: Some(waker) })
            }
            Slot::Done { buffer, .. } => (buffer, self.release(index)),
            other => {
                self.slots[index as usize] = other;
                (None, Next::NOBODY)
            }
        }
    }

    /// Lets nobody claim a slot any more
    pub(crate) fn close(&mut self, error: E) -> Next {
        self.free.update(|free| free.closed = Some(error)).1
    }

    /// All slots, for ending what is in them
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
    pub(crate) fn release(&mut self, index: u32) -> Next {
        self.free.update(|free| free.slots.push(index)).1
    }
}
