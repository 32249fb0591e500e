//! Every interleaving of the structures that threads share
//!
//! The files of the crate are compiled again here, against loom's primitives instead of the standard ones: `sync` is the
//! only difference. The op table and the inbox are under the lock of their peering: here, each under one of its own. Mutants
//! that these tests have caught, each by the test named after it:
//!
//! * `WaitQueue::leave` that does not wake the next in line: `a_task_that_gives_up_passes_the_wakeup_on`;
//! * `WaitQueue::poll_take` that does not wake the next in line: `memory_given_back_reaches_all_tasks_that_wait`;
//! * `OpTable::complete` that does not wake: `an_outcome_is_never_missed`;
//! * `OpTable::detach` that leaves a finished slot alone: `a_detached_request_frees_its_slot_and_its_buffer`;
//! * `ReactorWaker` that wakes the task before it is due: `a_wakeup_of_the_reactor_is_never_missed`;
//! * `ReactorWaker` that stores instead of swapping (two wakers at once), and `Joining::push` that announces the item before it is there: `a_peering_that_joins_is_taken_over`;
//! * `Joining::close_into` that leaves the list open: `a_peering_that_joins_a_reactor_that_ends_is_taken_or_given_back`.
#![allow(dead_code, unused_imports, unnameable_types, unreachable_pub, clippy::undocumented_unsafe_blocks)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};

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

#[path = "../src/blocked_call.rs"]
mod blocked_call;
#[path = "../src/connect_stage.rs"]
mod connect_stage;
#[path = "../src/effects.rs"]
mod effects;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/pool/frames.rs"]
mod frames;
#[path = "../src/inbox.rs"]
mod inbox;
#[path = "../src/invalid_options.rs"]
mod invalid_options;
#[path = "../src/joining.rs"]
mod joining;
#[path = "../src/op_table.rs"]
mod op_table;
#[path = "../src/port_refusal.rs"]
mod port_refusal;
#[path = "../src/reactor_waker.rs"]
mod reactor_waker;
#[path = "../src/wait_queue.rs"]
mod wait_queue;
#[path = "../src/wake_count.rs"]
mod wake_count;

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Wake, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use effects::Effects;
use frames::Frames;
use inbox::Inbox;
use joining::Joining;
use op_table::OpTable;
use reactor_waker::ReactorWaker;
use sync::Mutex;
use wait_queue::{SharedWaitQueue, WaitQueue, Waiter};
use wake_count::WakeCount;

/// Three threads have too many interleavings to try all: those with up to two preemptions
fn model_of_three(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(body);
}

/// Runs `body` on another thread
fn spawn<T: Send + Sync + 'static, R: Send + 'static>(
    shared: &Arc<T>,
    body: impl FnOnce(&T) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || body(&shared))
}

/// Runs `change`, then its effects
fn run<T, R>(change: impl FnOnce(&mut Effects<T>) -> R) -> R {
    let mut effects = Effects::new();
    let result = change(&mut effects);
    effects.run_alone();
    result
}

async fn take_frames(queue: &SharedWaitQueue<Frames>, n: u32) -> u32 {
    let mut waiter = Waiter::default();
    let take = |cx: &mut Context<'_>| {
        run::<(), _>(|effects| queue.poll_take(&mut waiter, cx, effects, |frames| frames.take(n)))
    };
    poll_fn(take).await
}

fn give(queue: &SharedWaitQueue<Frames>, start: u32, n: u32) {
    queue.update(|frames| frames.give(start, n));
}

// ─── The free list ───

#[test]
fn memory_given_back_reaches_all_tasks_that_wait() {
    model_of_three(|| {
        let queue = Arc::new(SharedWaitQueue::new("memory", Frames::new(2), 4));
        let start = queue.try_take(|frames| frames.take(2)).unwrap();
        let waiters = [(); 2].map(|()| spawn(&queue, |queue| block_on(take_frames(queue, 1))));
        // One release is enough for both.
        give(&queue, start, 2);
        let mut got: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [0, 1], "each frame is leased once");
    });
}

#[test]
fn frames_are_leased_to_one_at_a_time() {
    loom::model(|| {
        let queue = Arc::new(SharedWaitQueue::new("memory", Frames::new(1), 4));
        let other = spawn(&queue, move |queue| {
            let start = block_on(take_frames(queue, 1));
            give(queue, start, 1);
        });
        let start = block_on(take_frames(&queue, 1));
        give(&queue, start, 1);
        other.join().unwrap();
        assert_eq!(queue.inspect(Frames::free), 1);
    });
}

#[test]
fn a_task_that_gives_up_passes_the_wakeup_on() {
    loom::model(|| {
        let queue = Arc::new(SharedWaitQueue::new("memory", Frames::new(1), 4));
        let start = queue.try_take(|frames| frames.take(1)).unwrap();
        // First in line, polled once and never again.
        let mut first = Waiter::default();
        let cx = Context::from_waker(Waker::noop());
        let taken =
            run::<(), _>(|effects| queue.poll_take(&mut first, &cx, effects, |frames| frames.take(1)));
        assert!(taken.is_pending());
        let second = spawn(&queue, move |queue| block_on(take_frames(queue, 1)));
        give(&queue, start, 1);
        run::<(), _>(|effects| queue.leave(&mut first, effects));
        second.join().unwrap();
    });
}

#[test]
fn a_task_that_was_woken_is_woken_again_only_after_another_poll() {
    let queue = RefCell::new(WaitQueue::new("its turn", 0, 1));
    let (count, waker) = WakeCount::new();
    let mut waiter = Waiter::default();
    let mut poll = || {
        run::<(), _>(|effects| {
            let take = |value: &mut u32| (*value > 2).then_some(());
            queue.borrow_mut().poll_take(&mut waiter, &Context::from_waker(&waker), effects, take)
        })
        .is_ready()
    };
    let wakes = || {
        let before = count.get();
        run::<(), _>(|effects| queue.borrow_mut().update(effects, |value| *value += 1));
        count.get() - before
    };
    assert!(!poll());
    assert_eq!([wakes(), wakes()], [1, 0]);
    assert!(!poll());
    assert_eq!([wakes(), wakes()], [1, 0]);
    assert!(poll());
    assert_eq!(wakes(), 0, "no task waits any more");
}

// ─── The op slot ───

type Table = Mutex<OpTable<Arc<()>, ()>>;

/// A table with one request in flight, and another handle on its buffer
fn in_flight() -> (Arc<Table>, u32, Arc<()>) {
    let mut table = OpTable::new(1);
    let cx = Context::from_waker(Waker::noop());
    let claimed = run(|effects| table.poll_claim(&mut Waiter::default(), &cx, effects));
    let Poll::Ready(Ok(slot)) = claimed else { panic!("a free slot") };
    let buffer = Arc::new(());
    table.put(slot, Arc::clone(&buffer), true);
    (Arc::new(Mutex::new(table)), slot, buffer)
}

fn complete(table: &Table, slot: u32) {
    run(|effects| table.lock().complete(slot, Ok(()), effects));
}

fn detach(table: &Table, slot: u32) {
    run(|effects| table.lock().detach(slot, effects));
}

async fn claim(table: &Table) -> Result<u32, ()> {
    let mut waiter = Waiter::default();
    poll_fn(|cx| run(|effects| table.lock().poll_claim(&mut waiter, cx, effects))).await
}

#[test]
fn an_outcome_is_never_missed() {
    loom::model(|| {
        let (table, slot, buffer) = in_flight();
        let device = spawn(&table, move |table| complete(table, slot));
        let (result, lease) =
            block_on(poll_fn(|cx| run(|effects| table.lock().poll_outcome(slot, cx, effects))));
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
        let device = spawn(&table, move |table| complete(table, slot));
        detach(&table, slot);
        device.join().unwrap();
        assert_eq!(table.lock().in_use(), 0, "the slot can be claimed again");
        assert_eq!(Arc::strong_count(&buffer), 1, "the buffer is free");
    });
}

#[test]
fn a_slot_that_is_freed_reaches_the_task_that_waits_for_it() {
    model_of_three(|| {
        let (table, slot, _buffer) = in_flight();
        let next = spawn(&table, move |table| block_on(claim(table)));
        let device = spawn(&table, move |table| complete(table, slot));
        detach(&table, slot);
        assert_eq!(next.join().unwrap(), Ok(slot));
        device.join().unwrap();
    });
}

#[test]
fn a_closed_table_refuses_all_tasks() {
    model_of_three(|| {
        let (table, _slot, _buffer) = in_flight();
        let claims = [(); 2].map(|()| spawn(&table, |table| block_on(claim(table))));
        run(|effects| table.lock().close((), effects));
        for claim in claims {
            assert_eq!(claim.join().unwrap(), Err(()));
        }
    });
}

// ─── The inbox ───

type Messages = Mutex<Inbox<u32, ()>>;

fn change<R>(inbox: &Messages, change: impl FnOnce(&mut Inbox<u32, ()>, &mut Effects<u32>) -> R) -> R {
    run(|effects| change(&mut inbox.lock(), effects))
}

async fn next(inbox: &Messages) -> Result<Option<u32>, ()> {
    let mut waiter = Waiter::default();
    poll_fn(|cx| change(inbox, |inbox, effects| inbox.poll_next(&mut waiter, cx, effects))).await
}

#[test]
fn messages_are_received_in_order_and_then_the_end() {
    loom::model(|| {
        let inbox = Arc::new(Messages::new(Inbox::new("a message", 4)));
        let reactor = spawn(&inbox, move |inbox| {
            change(inbox, |inbox, effects| inbox.push(1, effects));
            change(inbox, |inbox, effects| inbox.push(2, effects));
            change(inbox, |inbox, effects| inbox.close(Ok(()), effects));
        });
        let received = block_on(async { [next(&inbox).await, next(&inbox).await, next(&inbox).await] });
        assert_eq!(received, [Ok(Some(1)), Ok(Some(2)), Ok(None)]);
        reactor.join().unwrap();
    });
}

#[test]
fn every_receiver_learns_of_the_end() {
    model_of_three(|| {
        let inbox = Arc::new(Messages::new(Inbox::new("a message", 4)));
        let receivers = [(); 2].map(|()| spawn(&inbox, |inbox| block_on(next(inbox))));
        change(&inbox, |inbox, effects| inbox.close(Err(()), effects));
        for receiver in receivers {
            assert_eq!(receiver.join().unwrap(), Err(()));
        }
    });
}

#[test]
fn a_receiver_that_gives_up_loses_no_message() {
    loom::model(|| {
        let inbox = Arc::new(Messages::new(Inbox::new("a message", 4)));
        let mut first = Waiter::default();
        let cx = Context::from_waker(Waker::noop());
        let polled = change(&inbox, |inbox, effects| inbox.poll_next(&mut first, &cx, effects));
        assert!(polled.is_pending());
        let second = spawn(&inbox, move |inbox| block_on(next(inbox)));
        change(&inbox, |inbox, effects| inbox.push(7, effects));
        change(&inbox, |inbox, effects| inbox.leave(&mut first, effects));
        assert_eq!(second.join().unwrap(), Ok(Some(7)));
    });
}

// ─── The account of peerings ───

#[test]
fn a_task_that_waits_for_the_last_peering_learns_of_its_end() {
    model_of_three(|| {
        let peerings = Arc::new(SharedWaitQueue::for_all("its node to be idle", 2, 4));
        let enders = [(); 2].map(|()| spawn(&peerings, |peerings| peerings.update(|count| *count -= 1)));
        let mut waiter = Waiter::default();
        block_on(poll_fn(|cx| {
            run::<(), _>(|effects| {
                let is_idle = |count: &mut u32| (*count == 0).then_some(());
                peerings.poll_take(&mut waiter, cx, effects, is_idle)
            })
        }));
        for ender in enders {
            ender.join().unwrap();
        }
    });
}

// ─── The reactor ───

/// Polls as the reactor does: the waker first, then the flag, and only then whatever is due
async fn reactor(waker: &ReactorWaker, mut is_done: impl FnMut() -> bool) {
    let poll = |cx: &mut Context<'_>| {
        waker.set(cx.waker().clone());
        if waker.take() && is_done() { Poll::Ready(()) } else { Poll::Pending }
    };
    poll_fn(poll).await;
}

#[test]
fn a_wakeup_of_the_reactor_is_never_missed() {
    loom::model(|| {
        let shared = Arc::new((std::sync::Arc::new(ReactorWaker::new()), sync::AtomicBool::new(false)));
        let other = spawn(&shared, |(waker, work)| {
            work.store(true, sync::Ordering::Relaxed);
            waker.wake_by_ref();
        });
        let (waker, work) = &*shared;
        block_on(reactor(waker, || work.load(sync::Ordering::Relaxed)));
        other.join().unwrap();
    });
}

#[test]
fn a_peering_that_joins_is_taken_over() {
    model_of_three(|| {
        let shared = Arc::new((std::sync::Arc::new(ReactorWaker::new()), Joining::new()));
        let others = [0, 1].map(|number| {
            spawn(&shared, move |(waker, joining)| {
                joining.push(number).unwrap();
                waker.wake_by_ref();
            })
        });
        let (waker, joining) = &*shared;
        let mut all = Vec::new();
        let take = || {
            joining.take_into(&mut all);
            all.len() == 2
        };
        block_on(reactor(waker, take));
        for other in others {
            other.join().unwrap();
        }
        all.sort_unstable();
        assert_eq!(all, [0, 1]);
    });
}

#[test]
fn a_peering_that_joins_a_reactor_that_ends_is_taken_or_given_back() {
    model_of_three(|| {
        let joining = Arc::new(Joining::new());
        let others = [0, 1].map(|number| spawn(&joining, move |joining| joining.push(number)));
        let mut all = Vec::new();
        joining.take_into(&mut all);
        joining.close_into(&mut all);
        all.extend(others.into_iter().filter_map(|other| other.join().unwrap().err()));
        all.sort_unstable();
        assert_eq!(all, [0, 1], "each is taken or given back");
        assert_eq!(joining.push(2), Err(2));
    });
}
