//! The op table: who owns the buffers of requests that a device works on

use std::task::{Context, Poll, Waker};

use crate::gate::{Gate, Next, Ticket};
use crate::sync::Mutex;

/// Requests in flight, each with its buffer
///
/// **A posted buffer is owned by its slot, never by the future that waits for it.** A future that goes away
/// [detaches](Self::detach) its slot; the buffer is freed by the completion, or by the teardown of the queue pair.
#[derive(Debug)]
pub(crate) struct OpTable<B, E> {
    slots: Box<[Mutex<Slot<B, E>>]>,
    free: Gate<Free<E>>,
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
            slots: (0..capacity).map(|_| Mutex::new(Slot::Free)).collect(),
            free: Gate::new(Free { slots: (0..capacity).rev().collect(), closed: None }, capacity as usize),
        }
    }

    /// Claims a slot, when there is one and it is this task's turn
    pub(crate) fn poll_claim(&self, ticket: &mut Ticket, cx: &mut Context<'_>) -> Poll<Result<u32, E>> {
        self.free.poll_take(ticket, cx, |free| match &free.closed {
            Some(error) => Some(Err(error.clone())),
            None => free.slots.pop().map(Ok),
        })
    }

    /// Gives up waiting for a slot
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        self.free.leave(ticket);
    }

    /// Puts a buffer into a claimed slot; `waker` is woken when the request has ended
    pub(crate) fn put(&self, index: u32, buffer: B, waker: &Waker) {
        *self.slot(index).lock() = Slot::Waiting { buffer, waker: waker.clone() };
    }

    /// Takes the buffer of a request that was never queued back, and frees its slot
    pub(crate) fn withdraw(&self, index: u32) -> Option<B> {
        let slot = std::mem::replace(&mut *self.slot(index).lock(), Slot::Free);
        self.release(index);
        match slot {
            Slot::Waiting { buffer, .. } | Slot::Detached { buffer } => Some(buffer),
            Slot::Done { buffer, .. } => buffer,
            Slot::Free => None,
        }
    }

    /// Calls `f` with the buffer of a request in flight
    pub(crate) fn with_buffer<R>(&self, index: u32, f: impl FnOnce(&mut B) -> R) -> Option<R> {
        match &mut *self.slot(index).lock() {
            Slot::Waiting { buffer, .. } | Slot::Detached { buffer } => Some(f(buffer)),
            Slot::Free | Slot::Done { .. } => None,
        }
    }

    /// Records that the request has ended
    ///
    /// A buffer that nobody waits for, and one that `keep` says must not be reused, is returned, with who should be woken.
    #[must_use = "the buffer may have to be quarantined, and somebody may wait"]
    pub(crate) fn complete(&self, index: u32, result: Result<(), E>, keep: bool) -> (Option<B>, Next) {
        let mut slot = self.slot(index).lock();
        match std::mem::replace(&mut *slot, Slot::Free) {
            Slot::Waiting { buffer, waker } => {
                let (buffer, kept) = if keep { (None, Some(buffer)) } else { (Some(buffer), None) };
                *slot = Slot::Done { buffer, result };
                (kept, Some(waker))
            }
            Slot::Detached { buffer } => {
                drop(slot);
                let ((), next) = self.free.update_later(|free| free.slots.push(index));
                (Some(buffer), next)
            }
            other => {
                *slot = other;
                (None, None)
            }
        }
    }

    /// The outcome of a request, once it has ended; frees its slot then
    pub(crate) fn poll_outcome(&self, index: u32, cx: &mut Context<'_>) -> Poll<Outcome<B, E>> {
        let mut slot = self.slot(index).lock();
        match &mut *slot {
            Slot::Waiting { waker, .. } => waker.clone_from(cx.waker()),
            Slot::Done { .. } => {
                let Slot::Done { buffer, result } = std::mem::replace(&mut *slot, Slot::Free) else {
                    unreachable!("the slot was just seen to be done")
                };
                drop(slot);
                self.release(index);
                return Poll::Ready((result, buffer));
            }
            Slot::Free | Slot::Detached { .. } => {
                unreachable!("only the owner of a slot asks for its outcome")
            }
        }
        Poll::Pending
    }

    /// Leaves the request to itself: its slot will be freed when it has ended
    ///
    /// The buffer is returned if that was already the case.
    pub(crate) fn detach(&self, index: u32) -> Option<B> {
        let mut slot = self.slot(index).lock();
        match std::mem::replace(&mut *slot, Slot::Free) {
            Slot::Waiting { buffer, waker } => {
                *slot = Slot::Detached { buffer };
                drop(slot);
                drop(waker);
                None
            }
            Slot::Done { buffer, .. } => {
                drop(slot);
                self.release(index);
                buffer
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Lets nobody claim a slot any more
    #[must_use = "somebody may wait"]
    pub(crate) fn close(&self, error: E) -> Next {
        self.free.update_later(|free| free.closed = Some(error)).1
    }

    /// All slots, for ending what is in them
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + use<B, E> {
        0..self.slots.len() as u32
    }

    /// How many requests are in flight or uncollected
    pub(crate) fn in_use(&self) -> usize {
        self.slots.len() - self.free.inspect(|free| free.slots.len())
    }

    fn slot(&self, index: u32) -> &Mutex<Slot<B, E>> {
        &self.slots[index as usize]
    }

    fn release(&self, index: u32) {
        self.free.update(|free| free.slots.push(index));
    }
}
