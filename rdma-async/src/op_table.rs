//! The owner of the buffers of requests that a device works on

use std::task::{Context, Poll, Waker};

use rdma_core::probe;

use crate::effects::Effects;
use crate::wait_queue::{WaitQueue, Waiter};

/// Requests in flight, each with its buffer; under the lock of their peering
///
/// **A posted buffer is owned by its slot, never by the future that waits for it.** A future that is dropped
/// [detaches](Self::detach) its slot; the buffer is freed by the completion, or by the teardown of the queue pair.
#[derive(Debug)]
pub(crate) struct OpTable<B, E> {
    /// As many as were ever in use at once.
    slots: Vec<Slot<B, E>>,
    free: WaitQueue<Free<E>>,
}

#[derive(Debug)]
struct Free<E> {
    slots: Vec<u32>,
    /// Slots from here on were never in use.
    unused: u32,
    capacity: u32,
    /// Why there will be none any more.
    closed: Option<E>,
}

/// A place for a request; its buffer stays where it is while the state changes
#[derive(Debug)]
struct Slot<B, E> {
    /// `None` where nothing was put, and where the device may still use what was there.
    buffer: Option<B>,
    state: State<E>,
}

#[derive(Debug)]
enum State<E> {
    /// Not claimed, or claimed and still empty
    Free,
    /// The device, or the queue to it, has the buffer, and a future waits
    ///
    /// Without a waker until the future asks for the outcome.
    Waiting(Option<Waker>),
    /// The device, or the queue to it, has the buffer, and no future waits
    Detached,
    /// The future can collect the outcome
    Done(Result<(), E>),
}

/// The result of a request, and its buffer unless the device may still touch it
pub(crate) type Outcome<B, E> = (Result<(), E>, Option<B>);

impl<B, E: Clone> OpTable<B, E> {
    pub(crate) fn new(capacity: u32) -> Self {
        let free = Free { slots: Vec::new(), unused: 0, capacity, closed: None };
        Self { slots: Vec::new(), free: WaitQueue::new("a place in the send queue", free, 0) }
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

    /// Claims a slot if one is free and no task waits; fails at once when the table is closed
    pub(crate) fn try_claim(&mut self) -> Option<Result<u32, E>> {
        self.free.try_take(Free::claim)
    }

    /// Gives up waiting for a slot; see [`WaitQueue::leave`]
    pub(crate) fn leave(&mut self, waiter: &mut Waiter, effects: &mut Effects<B>) {
        self.free.leave(waiter, effects);
    }

    /// Puts a buffer into a claimed slot; `is_awaited` if a future will ask for its outcome
    #[inline]
    pub(crate) fn put(&mut self, index: u32, buffer: B, is_awaited: bool) {
        if index as usize >= self.slots.len() {
            self.slots.resize_with(index as usize + 1, || Slot { buffer: None, state: State::Free });
        }
        let state = if is_awaited { State::Waiting(None) } else { State::Detached };
        self.slots[index as usize] = Slot { buffer: Some(buffer), state };
    }

    /// The buffer of a request in flight; `None` if there is no such request
    #[inline]
    pub(crate) fn buffer(&mut self, index: u32) -> Option<&mut B> {
        let Slot { buffer, state } = self.slots.get_mut(index as usize)?;
        match state {
            State::Waiting(_) | State::Detached => buffer.as_mut(),
            State::Free | State::Done(_) => None,
        }
    }

    /// Records that the request has ended and that its buffer is free
    pub(crate) fn complete(&mut self, index: u32, result: Result<(), E>, effects: &mut Effects<B>) {
        let Slot { buffer, state } = &mut self.slots[index as usize];
        match state {
            State::Waiting(waker) => {
                effects.wake(waker.take());
                *state = State::Done(result);
            }
            State::Detached => {
                *state = State::Free;
                effects.drop(buffer.take());
                self.release(index, effects);
            }
            State::Free | State::Done(_) => (),
        }
    }

    /// Records that the request has ended, and takes its buffer, which its future will not get back
    #[must_use = "the device may still use the buffer"]
    pub(crate) fn revoke(&mut self, index: u32, error: E, effects: &mut Effects<B>) -> Option<B> {
        let Slot { buffer, state } = &mut self.slots[index as usize];
        match state {
            State::Waiting(waker) => {
                effects.wake(waker.take());
                *state = State::Done(Err(error));
                buffer.take()
            }
            State::Detached => {
                *state = State::Free;
                let buffer = buffer.take();
                self.release(index, effects);
                buffer
            }
            State::Free | State::Done(_) => None,
        }
    }

    /// The outcome of a request, once it has ended; frees its slot then
    pub(crate) fn poll_outcome(
        &mut self,
        index: u32,
        cx: &Context<'_>,
        effects: &mut Effects<B>,
    ) -> Poll<Outcome<B, E>> {
        let Slot { buffer, state } = &mut self.slots[index as usize];
        if let State::Waiting(waker) = state {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                effects.drop_waker(waker.replace(cx.waker().clone()));
            }
            probe::waits_for(format_args!("its message to be sent"));
            return Poll::Pending;
        }
        let State::Done(result) = std::mem::replace(state, State::Free) else {
            unreachable!("only the owner of a slot asks for its outcome")
        };
        let buffer = buffer.take();
        self.release(index, effects);
        Poll::Ready((result, buffer))
    }

    /// Gives up the outcome of a request: its slot is freed when it has ended, which may have happened
    pub(crate) fn detach(&mut self, index: u32, effects: &mut Effects<B>) {
        let Slot { buffer, state } = &mut self.slots[index as usize];
        match state {
            State::Waiting(waker) => {
                effects.drop_waker(waker.take());
                *state = State::Detached;
            }
            State::Done(_) => {
                *state = State::Free;
                let buffer = buffer.take();
                self.release(index, effects);
                effects.drop(buffer);
            }
            State::Free | State::Detached => (),
        }
    }

    /// Makes every claim fail with `error` from now on
    pub(crate) fn close(&mut self, error: E, effects: &mut Effects<B>) {
        self.free.end(effects, |free| free.closed = Some(error));
    }

    /// How many requests are in flight or uncollected
    pub(crate) fn in_use(&self) -> usize {
        self.free.value().in_use()
    }

    /// Gives back a claimed slot with nothing in it
    pub(crate) fn release(&mut self, index: u32, effects: &mut Effects<B>) {
        self.free.update(effects, |free| free.slots.push(index));
    }
}

impl<E: Clone> Free<E> {
    fn in_use(&self) -> usize {
        self.unused as usize - self.slots.len()
    }

    fn unused(&mut self) -> Option<u32> {
        let index = self.unused;
        (index < self.capacity).then(|| {
            self.unused += 1;
            index
        })
    }

    #[inline]
    fn claim(&mut self) -> Option<Result<u32, E>> {
        match &self.closed {
            Some(error) => Some(Err(error.clone())),
            None => self.slots.pop().or_else(|| self.unused()).map(Ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::wake_count::WakeCount;

    /// A buffer whose count of owners shows whether the table has dropped it
    type Buffer = Arc<u32>;
    type Table = OpTable<Buffer, &'static str>;

    fn claim(table: &mut Table) -> u32 {
        table.try_claim().expect("a slot is free").expect("the table is open")
    }

    /// A table of one slot, which holds a request for `waker`; the request's buffer
    fn in_flight(waker: Option<&Waker>) -> (Table, u32, Buffer) {
        let (mut table, buffer) = (Table::new(1), Arc::new(7));
        let slot = claim(&mut table);
        table.put(slot, Arc::clone(&buffer), waker.is_some());
        if let Some(waker) = waker {
            let mut effects = Effects::new();
            assert!(table.poll_outcome(slot, &Context::from_waker(waker), &mut effects).is_pending());
        }
        (table, slot, buffer)
    }

    fn outcome(
        table: &mut Table,
        slot: u32,
        effects: &mut Effects<Buffer>,
    ) -> Poll<Outcome<Buffer, &'static str>> {
        table.poll_outcome(slot, &Context::from_waker(Waker::noop()), effects)
    }

    #[test]
    fn every_slot_is_claimed_once() {
        let (mut table, mut effects) = (Table::new(3), Effects::new());
        let mut claimed: Vec<u32> = Vec::new();
        for in_use in 1..=3 {
            let cx = Context::from_waker(Waker::noop());
            let Poll::Ready(Ok(slot)) = table.poll_claim(&mut Waiter::default(), &cx, &mut effects) else {
                panic!("a slot is free");
            };
            claimed.push(slot);
            assert_eq!(table.in_use(), in_use);
        }
        claimed.sort_unstable();
        assert_eq!(claimed, [0, 1, 2]);
        assert_eq!(table.try_claim(), None);
        table.release(1, &mut effects);
        assert_eq!((table.in_use(), table.try_claim()), (2, Some(Ok(1))));
    }

    #[test]
    fn a_waiting_task_gets_the_next_free_slot() {
        let (mut table, mut effects) = (Table::new(1), Effects::new());
        let (task, waker) = WakeCount::new();
        let (cx, mut waiter) = (Context::from_waker(&waker), Waiter::default());
        let slot = claim(&mut table);
        assert_eq!(table.poll_claim(&mut waiter, &cx, &mut effects), Poll::Pending);
        table.release(slot, &mut effects);
        assert_eq!(task.get(), 0, "the wake-up waits for the end of the lock");
        effects.run_alone();
        assert_eq!(task.get(), 1);
        assert_eq!(table.try_claim(), None, "no claim overtakes the task");
        assert_eq!(table.poll_claim(&mut waiter, &cx, &mut effects), Poll::Ready(Ok(slot)));
    }

    #[test]
    fn a_task_that_leaves_the_line_passes_its_wake_up_on() {
        let (mut table, mut effects) = (Table::new(1), Effects::new());
        let [(first, first_waker), (second, second_waker)] = [WakeCount::new(), WakeCount::new()];
        let [mut first_waiter, mut second_waiter] = [Waiter::default(), Waiter::default()];
        let slot = claim(&mut table);
        let (first_cx, second_cx) = (Context::from_waker(&first_waker), Context::from_waker(&second_waker));
        assert!(table.poll_claim(&mut first_waiter, &first_cx, &mut effects).is_pending());
        assert!(table.poll_claim(&mut second_waiter, &second_cx, &mut effects).is_pending());
        table.release(slot, &mut effects);
        table.leave(&mut first_waiter, &mut effects);
        effects.run_alone();
        assert_eq!((first.get(), second.get()), (1, 1));
        assert_eq!(table.poll_claim(&mut second_waiter, &second_cx, &mut effects), Poll::Ready(Ok(slot)));
    }

    #[test]
    fn a_future_gets_the_result_and_the_buffer_of_its_request_when_that_has_ended() {
        let (task, waker) = WakeCount::new();
        let mut effects = Effects::new();
        for result in [Ok(()), Err("flushed")] {
            let before = task.get();
            let (mut table, slot, buffer) = in_flight(Some(&waker));
            assert_eq!(table.buffer(slot).map(|buffer| **buffer), Some(7));
            assert_eq!(table.poll_outcome(slot, &Context::from_waker(&waker), &mut effects), Poll::Pending);
            table.complete(slot, result, &mut effects);
            assert_eq!(table.buffer(slot), None, "the device is done with it");
            assert_eq!(table.in_use(), 1, "the outcome is not collected");
            effects.run_alone();
            assert_eq!(task.get(), before + 1);
            let expected = Poll::Ready((result, Some(buffer)));
            assert_eq!(outcome(&mut table, slot, &mut effects), expected);
            assert_eq!(table.in_use(), 0);
        }
    }

    #[test]
    fn a_detached_request_frees_its_buffer_and_its_slot_when_it_has_ended() {
        let (task, waker) = WakeCount::new();
        for was_waiting in [true, false] {
            let mut effects = Effects::new();
            let (mut table, slot, buffer) = in_flight(was_waiting.then_some(&waker));
            table.detach(slot, &mut effects);
            effects.run_alone();
            assert_eq!(table.buffer(slot).map(|buffer| **buffer), Some(7), "the device still has it");
            assert_eq!((table.in_use(), Arc::strong_count(&buffer)), (1, 2));
            table.complete(slot, Ok(()), &mut effects);
            assert_eq!(Arc::strong_count(&buffer), 2, "it is not dropped under the lock");
            effects.run_alone();
            assert_eq!((table.in_use(), Arc::strong_count(&buffer)), (0, 1));
        }
        assert_eq!(task.get(), 0);
    }

    #[test]
    fn an_outcome_that_its_future_gives_up_is_dropped() {
        let (_task, waker) = WakeCount::new();
        let mut effects = Effects::new();
        let (mut table, slot, buffer) = in_flight(Some(&waker));
        table.complete(slot, Ok(()), &mut effects);
        table.detach(slot, &mut effects);
        effects.run_alone();
        assert_eq!((table.in_use(), Arc::strong_count(&buffer)), (0, 1));
    }

    #[test]
    fn a_revoked_request_fails_without_its_buffer() {
        let (task, waker) = WakeCount::new();
        let mut effects = Effects::new();
        let (mut table, slot, buffer) = in_flight(Some(&waker));
        assert_eq!(table.revoke(slot, "lost", &mut effects), Some(buffer));
        effects.run_alone();
        assert_eq!(task.get(), 1);
        assert_eq!(table.revoke(slot, "twice", &mut effects), None);
        assert_eq!(outcome(&mut table, slot, &mut effects), Poll::Ready((Err("lost"), None)));
        assert_eq!(table.in_use(), 0);

        let (mut table, slot, buffer) = in_flight(None);
        assert_eq!(table.revoke(slot, "lost", &mut effects), Some(buffer));
        assert_eq!(table.in_use(), 0, "no future collects the outcome");
    }

    #[test]
    fn a_request_that_has_ended_does_not_end_again() {
        let (_task, waker) = WakeCount::new();
        let mut effects = Effects::new();
        let (mut table, slot, buffer) = in_flight(Some(&waker));
        table.complete(slot, Ok(()), &mut effects);
        table.complete(slot, Err("flushed"), &mut effects);
        assert_eq!(outcome(&mut table, slot, &mut effects), Poll::Ready((Ok(()), Some(buffer))));
        table.complete(slot, Err("flushed"), &mut effects);
        assert_eq!((table.in_use(), table.buffer(slot)), (0, None));
        assert_eq!(table.buffer(1), None, "there is no such slot");
    }

    #[test]
    fn the_task_that_polled_last_is_woken() {
        let [(first, first_waker), (last, last_waker)] = [WakeCount::new(), WakeCount::new()];
        let mut effects = Effects::new();
        let (mut table, slot, _buffer) = in_flight(Some(&first_waker));
        assert!(table.poll_outcome(slot, &Context::from_waker(&last_waker), &mut effects).is_pending());
        table.complete(slot, Ok(()), &mut effects);
        effects.run_alone();
        assert_eq!((first.get(), last.get()), (0, 1));
    }

    /// A future may be polled often while it waits: no waker is cloned for that.
    #[test]
    fn a_task_that_polls_again_keeps_its_waker() {
        let (task, waker) = WakeCount::new();
        let mut effects = Effects::new();
        let (mut table, slot, _buffer) = in_flight(Some(&waker));
        let clones = Arc::strong_count(&task);
        for _ in 0..3 {
            assert!(table.poll_outcome(slot, &Context::from_waker(&waker), &mut effects).is_pending());
        }
        assert_eq!(Arc::strong_count(&task), clones);
    }

    /// Catches a table that closes and wakes no task that waits for a slot.
    #[test]
    fn closing_wakes_all_who_wait_for_a_slot() {
        let (mut table, mut effects) = (Table::new(1), Effects::new());
        claim(&mut table);
        let mut waiting: Vec<_> = (0..3).map(|_| (WakeCount::new(), Waiter::default())).collect();
        for ((_, waker), waiter) in &mut waiting {
            let cx = Context::from_waker(waker);
            assert!(table.poll_claim(waiter, &cx, &mut effects).is_pending());
        }
        table.close("closed", &mut effects);
        effects.run_alone();
        for ((task, waker), waiter) in &mut waiting {
            assert_eq!(task.get(), 1);
            let cx = Context::from_waker(waker);
            assert_eq!(table.poll_claim(waiter, &cx, &mut effects), Poll::Ready(Err("closed")));
            effects.run_alone();
        }
        assert_eq!(table.try_claim(), Some(Err("closed")));
    }
}
