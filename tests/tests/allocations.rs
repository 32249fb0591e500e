//! No heap allocation per message in steady state
//!
//! Counts the allocations of this thread: sessions, reactor, simulator and executor together.

#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use futures::future::join;
use rdma_async::session::{NodeOptions, Session};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{on_session, zeros};

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

/// Nodes that say nothing on their bootstrap stream meanwhile, which allocates a timer for each word
fn options() -> NodeOptions {
    NodeOptions::new().peer_timeout(Duration::from_hours(1))
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

/// Catches a box for each completion or message, and a vector for each iteration of the reactor.
#[test]
fn messages_allocate_nothing_in_steady_state() {
    let warm = Cell::new(0);
    on_session(Sim::new().sanitize(false), &options(), async |_, pair| {
        // The simulator's heap of timers, where those that moved stay a while, has its size after a few rounds.
        for is_counted in [false, false, false, true, true] {
            for len in [0, 64, 4000, 5000, 68_544, 100_000, 1 << 20] {
                let before = allocations();
                join(ask(&pair.ab, len, 500), echo(&pair.ba, 500)).await;
                let during = allocations() - before;
                if is_counted {
                    assert_eq!(during, 0, "500 round trips of {len} bytes");
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
