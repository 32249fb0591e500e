//! No heap allocation per message in steady state
//!
//! Counts the allocations of this thread: sessions, reactor, simulator and executor together.

#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use futures::future::join;
use rdma_async::Session;
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{on_session, options, zeros};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: forwards to the system's allocator; counting touches neither memory nor layout.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

async fn echo(session: &Session<SimDevice>, rounds: usize) {
    for _ in 0..rounds {
        let message = session.recv().await.unwrap().unwrap();
        let mut lease = session.alloc(message.len()).await.unwrap();
        lease.extend_from_slice(&message);
        drop(message);
        drop(session.send(lease).await.unwrap());
    }
}

async fn ask(session: &Session<SimDevice>, len: usize, rounds: usize) {
    for _ in 0..rounds {
        let lease = zeros(session, len).await;
        drop(session.send(lease).await.unwrap());
        assert_eq!(session.recv().await.unwrap().unwrap().len(), len);
    }
}

/// The simulator keeps the old times of a timer that moves until they come: lets its heap have space for many
fn make_room_for_timers(net: &Net) {
    let mut timer = net.runtime().timer();
    (0..100_000).for_each(|nanos| timer.as_mut().reset(net.now() + Duration::from_nanos(nanos)));
}

/// Catches a box for each completion or message, and a vector for each iteration of the reactor.
#[test]
fn messages_allocate_nothing_in_steady_state() {
    let warm = Cell::new(0);
    on_session(Sim::new().sanitize(false), &options(), async |net, pair| {
        make_room_for_timers(&net);
        // Two passes take less than half a second, after which each node says on its bootstrap stream that it lives.
        for is_counted in [false, true] {
            for (len, rounds) in
                [(0, 500), (64, 500), (4000, 500), (5000, 500), (68_544, 500), (100_000, 500), (1 << 20, 100)]
            {
                let before = allocations();
                join(ask(&pair.ab, len, rounds), echo(&pair.ba, rounds)).await;
                let during = allocations() - before;
                if is_counted {
                    assert_eq!(during, 0, "{rounds} round trips of {len} bytes");
                } else {
                    warm.set(warm.get() + during);
                }
            }
        }
    });
    assert!(warm.get() > 0, "the counter counts: queues grow once");
}

/// Catches queues that grow with the number of messages.
#[test]
fn a_stream_one_way_allocates_nothing_in_steady_state() {
    on_session(Sim::new().sanitize(false), &options(), async |_, pair| {
        let run = async |rounds: usize| {
            let send = async {
                for round in 0..rounds {
                    let lease = zeros(&pair.ab, if round % 3 == 0 { 100_000 } else { 100 }).await;
                    drop(pair.ab.send(lease).await.unwrap());
                }
            };
            let receive = async {
                for _ in 0..rounds {
                    drop(pair.ba.recv().await.unwrap().unwrap());
                }
            };
            join(send, receive).await;
        };
        run(2000).await;
        let before = allocations();
        run(2000).await;
        assert_eq!(allocations() - before, 0);
    });
}
