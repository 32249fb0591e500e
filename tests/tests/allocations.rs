//! No heap allocation per message in steady state, and none that is left of an attempt to connect
//!
//! Counts the allocations of this thread: sessions, reactor, simulator and executor together.

#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::time::timeout;
use rdma_async::{Node, Session, Transport};
use rdma_core::session::{ControlMessage, Hello, Limits, Offer, PathEnd, PathId};
use rdma_core::{Access, FRAME, QpCapacity, QpInit, QpType, QueuePair as _};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{DEVICE, Raw, hello, on_session, options, zeros};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: forwards to the system's allocator; counting touches neither memory nor layout.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        add_live(layout.size() as i64);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add_live(-(layout.size() as i64));
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        add_live(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn add_live(bytes: i64) {
    LIVE.with(|live| live.set(live.get() + bytes));
}

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

/// How far a stranger comes with its introduction
const STAGES: usize = 7;
/// How long an attempt to connect may take.
const LIMIT: Duration = Duration::from_millis(10);

/// Introduces itself up to a stage; then goes, or sends nothing more until the node gives up
async fn introduce(mut stream: DuplexStream, stage: usize, goes: bool, end: PathEnd) {
    let limits = Limits { max_message: 4 << 20, max_sessions: 16, max_streams: 16, stream_share: 128 };
    let ours = hello(limits).to_bytes();
    stream.write_all(&ours[..[0, Hello::HEAD_LEN, ours.len()][stage.min(2)]]).await.unwrap();
    if stage > 2 {
        let mut theirs = [0; Hello::LEN];
        stream.read_exact(&mut theirs).await.unwrap();
        let confirm = ControlMessage::Confirm(Hello::from_bytes(&theirs).unwrap().nonce).to_bytes();
        let len = if stage == 3 { confirm.len() / 2 } else { confirm.len() };
        stream.write_all(&confirm[..len]).await.unwrap();
    }
    if stage > 4 {
        let offer = Offer { end, port: 0, transport: Transport::Rdma, link: None };
        stream.write_all(&ControlMessage::Offer(offer).to_bytes()).await.unwrap();
    }
    if stage > 5 {
        // The answer to the offer.
        let mut answer = [0; 2 * ControlMessage::LEN];
        stream.read_exact(&mut answer).await.unwrap();
    }
    if !goes {
        while stream.read_u8().await.is_ok() {}
    }
}

/// Attempts that never become sessions; every third is dropped by the application in the middle
async fn half_open(net: &Net, node: &Node<SimDevice>, end: PathEnd, count: usize) {
    for number in 0..count {
        let (ours, theirs) = tokio::io::duplex(256);
        let serve = async {
            if number % 3 == 0 {
                timeout(&*net.runtime(), LIMIT / 2, node.serve(theirs))
                    .await
                    .is_some_and(|served| served.is_ok())
            } else {
                node.serve(theirs).await.is_ok()
            }
        };
        let stage = number / 6 % STAGES;
        let (is_served, ()) = join(serve, introduce(ours, stage, number % 2 == 0, end)).await;
        assert!(!is_served, "attempt {number} at stage {stage}");
    }
}

/// Catches state that a node keeps of an attempt to connect which does not become a session.
#[test]
fn ten_thousand_half_open_attempts_leave_nothing_behind() {
    const AT_ONCE: usize = 4;
    on_session(Sim::new().sanitize(false), &options().connect_timeout(LIMIT), async |net, pair| {
        let raw = || {
            let capacity = QpCapacity { recv_frames: 64, send_frames: 64 };
            let init = QpInit { capacity, qp_type: QpType::Uc };
            Raw::new(net.open("a", DEVICE).unwrap(), &init, Access::LOCAL_WRITE, FRAME)
        };
        let (eager, bulk) = (raw(), raw());
        let (eager, bulk) = (eager.qp.address(), bulk.qp.address());
        let end = PathEnd { path: PathId(0), epoch: 1, window: 64, rate: u64::MAX, eager, bulk };
        let run = async |count: usize| {
            join_all((0..AT_ONCE).map(|_| half_open(&net, &pair.b, end, count / AT_ONCE))).await;
            net.sleep(Duration::from_secs(10)).await;
        };
        run(1_000).await;
        let sizes = || (pair.b.pool_stats(), net.objects());
        let (before, live) = (sizes(), LIVE.with(Cell::get));
        run(10_000).await;
        assert_eq!(sizes(), before);
        let grown = LIVE.with(Cell::get) - live;
        assert!(grown <= 0, "{grown} bytes more are allocated after 10,000 attempts than after 1,000");
    });
}
