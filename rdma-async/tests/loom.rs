//! Every interleaving of the three structures that threads share
//!
//! The files of the crate are compiled again here, against loom's primitives instead of the standard ones. The op table and the inbox
//! are under the lock of their connection: here, each under one of its own. Mutants that these tests have caught, each by the
//! test named after it:
//!
//! * `Turns::leave` that does not wake the next in line: `a_task_that_gives_up_passes_the_wakeup_on`;
//! * `Turns::poll_take` that does not wake the next in line: `memory_given_back_reaches_everybody_who_waits`;
//! * `OpTable::complete` that does not wake: `an_outcome_is_never_missed`;
//! * `OpTable::detach` that leaves a finished slot alone: `a_detached_request_frees_its_slot_and_its_buffer`.
#![allow(dead_code, unreachable_pub, clippy::undocumented_unsafe_blocks)]

mod sync {
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

#[path = "../src/pool/frames.rs"]
mod frames;
#[path = "../src/gate.rs"]
mod gate;
#[path = "../src/inbox.rs"]
mod inbox;
#[path = "../src/op.rs"]
mod op;

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use frames::Frames;
use gate::{Gate, Next, Ticket, Turns};
use inbox::Inbox;
use op::OpTable;
use sync::Mutex;

/// Three threads have too many interleavings to try all: those with up to two preemptions
fn model_of_three(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(body);
}

/// What was found, once who should be woken is
fn woken<R>((found, next): (R, Next)) -> R {
    next.wake();
    found
}

async fn take_frames(gate: &Gate<Frames>, n: u32) -> u32 {
    let mut ticket = Ticket::default();
    poll_fn(|cx| woken(gate.poll_take(&mut ticket, cx, |frames| frames.take(n)))).await
}

fn give(gate: &Gate<Frames>, start: u32, n: u32) {
    gate.update(|frames| frames.give(start, n));
}

// ─── The free list ───

#[test]
fn memory_given_back_reaches_everybody_who_waits() {
    model_of_three(|| {
        let gate = Arc::new(Gate::new(Frames::new(2), 4));
        let start = gate.try_take(|frames| frames.take(2)).unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || block_on(take_frames(&gate, 1)))
            })
            .collect();
        // One release is enough for both.
        give(&gate, start, 2);
        let mut got: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [0, 1], "each frame is leased once");
    });
}

#[test]
fn frames_are_leased_to_one_at_a_time() {
    loom::model(|| {
        let gate = Arc::new(Gate::new(Frames::new(1), 4));
        let other = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let start = block_on(take_frames(&gate, 1));
                give(&gate, start, 1);
            })
        };
        let start = block_on(take_frames(&gate, 1));
        give(&gate, start, 1);
        other.join().unwrap();
        assert_eq!(gate.inspect(Frames::free), 1);
    });
}

#[test]
fn a_task_that_gives_up_passes_the_wakeup_on() {
    loom::model(|| {
        let gate = Arc::new(Gate::new(Frames::new(1), 4));
        let start = gate.try_take(|frames| frames.take(1)).unwrap();
        // First in line, polled once and never again.
        let mut first = Ticket::default();
        let cx = Context::from_waker(Waker::noop());
        assert!(gate.poll_take(&mut first, &cx, |frames| frames.take(1)).0.is_pending());
        let second = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || block_on(take_frames(&gate, 1)))
        };
        give(&gate, start, 1);
        gate.leave(&mut first).wake();
        second.join().unwrap();
    });
}

#[test]
fn who_has_been_woken_is_woken_again_only_after_another_look() {
    let turns = RefCell::new(Turns::new(0, 1));
    let mut ticket = Ticket::default();
    let cx = Context::from_waker(Waker::noop());
    let mut look = || {
        let found = turns.borrow_mut().poll_take(&mut ticket, &cx, |value| (*value > 2).then_some(()));
        woken(found).is_ready()
    };
    let add = || turns.borrow_mut().update(|value| *value += 1).1.waker.is_some();
    assert!(!look());
    assert_eq!([add(), add()], [true, false]);
    assert!(!look());
    assert_eq!([add(), add()], [true, false]);
    assert!(look());
    assert!(!add(), "nobody waits any more");
}

// ─── The op slot ───

type Table = Mutex<OpTable<Arc<()>, ()>>;

/// A table with one request in flight, and another handle on its buffer
fn in_flight() -> (Arc<Table>, u32, Arc<()>) {
    let mut table = OpTable::new(1);
    let cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(slot)) = woken(table.poll_claim(&mut Ticket::default(), &cx)) else {
        panic!("a free slot")
    };
    let buffer = Arc::new(());
    table.put(slot, Arc::clone(&buffer), Waker::noop());
    (Arc::new(Mutex::new(table)), slot, buffer)
}

fn complete(table: &Table, slot: u32) {
    let (buffer, next) = table.lock().complete(slot, Ok(()), false);
    drop(buffer);
    next.wake();
}

fn detach(table: &Table, slot: u32) {
    let (_buffer, next) = table.lock().detach(slot);
    next.wake();
}

fn close(table: &Table) -> Next {
    table.lock().close(())
}

#[test]
fn an_outcome_is_never_missed() {
    loom::model(|| {
        let (table, slot, buffer) = in_flight();
        let device = {
            let table = Arc::clone(&table);
            thread::spawn(move || complete(&table, slot))
        };
        let (result, lease) = block_on(poll_fn(|cx| woken(table.lock().poll_outcome(slot, cx))));
        assert_eq!(result, Ok(()));
        device.join().unwrap();
        drop(lease);
        assert_eq!(Arc::strong_count(&buffer), 1);
        assert_eq!(table.lock().in_use(), 0);
    });
}

#[test]
fn a_detached_request_frees_its_slot_and_its_buffer() {
    loom::model(|| {
        let (table, slot, buffer) = in_flight();
        let device = {
            let table = Arc::clone(&table);
            thread::spawn(move || complete(&table, slot))
        };
        detach(&table, slot);
        device.join().unwrap();
        assert_eq!(table.lock().in_use(), 0, "the slot can be claimed again");
        assert_eq!(Arc::strong_count(&buffer), 1, "the buffer is free");
    });
}

#[test]
fn a_detached_request_keeps_its_buffer_until_it_has_ended() {
    loom::model(|| {
        let (table, slot, buffer) = in_flight();
        detach(&table, slot);
        assert_eq!(Arc::strong_count(&buffer), 2, "the device still has it");
        complete(&table, slot);
        assert_eq!(Arc::strong_count(&buffer), 1);
    });
}

#[test]
fn a_slot_that_is_freed_reaches_who_waits_for_it() {
    model_of_three(|| {
        let (table, slot, _buffer) = in_flight();
        let next = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let mut ticket = Ticket::default();
                block_on(poll_fn(|cx| woken(table.lock().poll_claim(&mut ticket, cx))))
            })
        };
        let device = {
            let table = Arc::clone(&table);
            thread::spawn(move || complete(&table, slot))
        };
        detach(&table, slot);
        assert_eq!(next.join().unwrap(), Ok(slot));
        device.join().unwrap();
    });
}

#[test]
fn a_closed_table_turns_everybody_away() {
    model_of_three(|| {
        let (table, _slot, _buffer) = in_flight();
        let claims: Vec<_> = (0..2)
            .map(|_| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let mut ticket = Ticket::default();
                    block_on(poll_fn(|cx| woken(table.lock().poll_claim(&mut ticket, cx))))
                })
            })
            .collect();
        close(&table).wake();
        for claim in claims {
            assert_eq!(claim.join().unwrap(), Err(()));
        }
    });
}

// ─── The inbox ───

type Messages = Mutex<Inbox<u32, ()>>;

fn change<R>(inbox: &Messages, change: impl FnOnce(&mut Inbox<u32, ()>) -> R) -> R {
    change(&mut inbox.lock())
}

async fn next(inbox: &Messages) -> Result<Option<u32>, ()> {
    let mut ticket = Ticket::default();
    poll_fn(|cx| woken(inbox.lock().poll_next(&mut ticket, cx))).await
}

#[test]
fn messages_are_received_in_order_and_then_the_end() {
    loom::model(|| {
        let inbox = Arc::new(Messages::new(Inbox::new(4)));
        change(&inbox, |inbox| inbox.expect()).wake();
        change(&inbox, |inbox| inbox.push(2)).wake();
        let reactor = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                let (surplus, next) = change(&inbox, |inbox| inbox.fill(1));
                assert_eq!(surplus, None);
                next.wake();
                change(&inbox, |inbox| inbox.finish()).wake();
            })
        };
        let received = block_on(async { [next(&inbox).await, next(&inbox).await, next(&inbox).await] });
        assert_eq!(received, [Ok(Some(1)), Ok(Some(2)), Ok(None)]);
        reactor.join().unwrap();
    });
}

#[test]
fn every_receiver_learns_of_the_end() {
    model_of_three(|| {
        let inbox = Arc::new(Messages::new(Inbox::new(4)));
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || block_on(next(&inbox)))
            })
            .collect();
        change(&inbox, |inbox| inbox.expect()).wake();
        change(&inbox, |inbox| inbox.close(Err(()))).1.wake();
        for receiver in receivers {
            assert_eq!(receiver.join().unwrap(), Err(()));
        }
    });
}

#[test]
fn a_receiver_that_gives_up_loses_no_message() {
    loom::model(|| {
        let inbox = Arc::new(Messages::new(Inbox::new(4)));
        let mut first = Ticket::default();
        let cx = Context::from_waker(Waker::noop());
        assert!(woken(inbox.lock().poll_next(&mut first, &cx)).is_pending());
        let second = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || block_on(next(&inbox)))
        };
        change(&inbox, |inbox| inbox.push(7)).wake();
        change(&inbox, |inbox| inbox.leave(&mut first)).wake();
        assert_eq!(second.join().unwrap(), Ok(Some(7)));
    });
}
