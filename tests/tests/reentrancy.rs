//! Code of the application that runs inside the library: wakers, their destructors, and subscribers of `tracing`
//!
//! Each of them may use the session, and may panic.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::future::try_join;
use rdma_async::Session;
use rdma_bare::BareQp;
use rdma_core::{Completion, CompletionQueue as _, Device as _, Time};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{DEVICE, Panics, connected, on_session, options, zeros};
use tracing::span;

/// Uses its session when it is woken, when it is dropped, and when an event is logged
struct Look {
    session: Session<SimDevice>,
    count: AtomicUsize,
}

impl Look {
    fn new(session: &Session<SimDevice>) -> Arc<Self> {
        Arc::new(Self { session: session.clone(), count: AtomicUsize::new(0) })
    }
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        self.session.close_reason();
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.session.close_reason();
    }
}

thread_local! {
    /// What looks at its session at every event of this thread
    static WATCHING: RefCell<Option<Arc<Look>>> = const { RefCell::new(None) };
}

/// The one subscriber of all threads
///
/// A subscriber for each test missed an event once, when another thread passed the place of the event in the code for the first time.
struct Watch;

impl tracing::Subscriber for Watch {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        let look = WATCHING.with_borrow(Clone::clone);
        look.into_iter().for_each(Wake::wake);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Runs a test whose failure is a deadlock on a thread that can be given up
#[expect(clippy::disallowed_methods, reason = "a thread of its own can be given up")]
fn ends<F: Future<Output = ()>>(test: impl FnOnce(Net) -> F + Send + 'static) {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Watch).expect("this is the only one"));
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        Sim::new().run(async |net| {
            test(net).await;
            drop(WATCHING.take());
        });
        done.send(())
    });
    let ended = is_done.recv_timeout(Duration::from_secs(60));
    assert_ne!(ended, Err(mpsc::RecvTimeoutError::Timeout), "the library waits for a lock that it holds");
    thread.join().expect("the test passes").expect("the receiver lives");
}

/// Catches wakers that are woken under the lock of the peering, by the reactor or by `reset`.
#[test]
fn wakers_run_without_a_lock() {
    ends(async |net| {
        let pair = connected(&net, &options()).await;
        let look = Look::new(&pair.ab);
        let waker = Waker::from(Arc::clone(&look));
        let mut cx = Context::from_waker(&waker);
        let mut recv = Box::pin(pair.ab.recv());
        let mut close = Box::pin(pair.ab.close());
        let mut send = Box::pin(pair.ab.send(zeros(&pair.ab, 5).await).delivered());
        assert!(recv.as_mut().poll(&mut cx).is_pending());
        assert!(send.as_mut().poll(&mut cx).is_pending());
        assert!(close.as_mut().poll(&mut cx).is_pending());
        pair.ba.send_bytes(b"wake").await.unwrap();
        pair.ba.close().await.unwrap();
        net.sleep(Duration::from_secs(1)).await;
        assert!(look.count.load(Ordering::Relaxed) >= 3);
    });
    ends(async |net| {
        let pair = connected(&net, &options()).await;
        let look = Look::new(&pair.ab);
        let waker = Waker::from(Arc::clone(&look));
        let (mut recv, mut closed) = (pin!(pair.ab.recv()), pin!(pair.ab.closed()));
        assert!(recv.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(closed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        pair.ab.reset(7);
        assert_eq!(look.count.load(Ordering::Relaxed), 2);
    });
}

/// Polls a future by two wakers, of which the second replaces the first, and drops it
fn moved_and_dropped(session: &Session<SimDevice>, future: impl Future) {
    let mut future = pin!(future);
    for _ in 0..2 {
        let waker = Waker::from(Look::new(session));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
}

/// Catches a waker that is replaced or given up and dropped under the lock: of a send, in its slot and in line, of a receive, and
/// of a task that waits for the end.
#[test]
fn wakers_are_dropped_without_a_lock() {
    ends(async |net| {
        let pair = connected(&net, &options().max_in_flight_sends(1)).await;
        moved_and_dropped(&pair.ab, pair.ab.recv());
        let [one, two] = [100_000, 8].map(|len| pair.ab.alloc(len));

        let (mut one, two) = try_join(one, two).await.unwrap();
        one.resize(100_000, 7);
        moved_and_dropped(&pair.ab, pair.ab.send(one));
        // The only place is taken: this one waits for it.
        moved_and_dropped(&pair.ab, pair.ab.send(two));
        moved_and_dropped(&pair.ab, pair.ab.close());
    });
}

/// Catches events that are logged under the lock of the peering: when a path is lost.
#[test]
fn subscribers_run_without_a_lock() {
    ends(async |net| {
        let pair = connected(&net, &options()).await;
        let look = Look::new(&pair.ab);
        WATCHING.set(Some(Arc::clone(&look)));
        net.inject("at 0s a:rdma_en2 flap 5ms".parse().unwrap());
        net.sleep(Duration::from_secs(1)).await;
        assert!(look.count.load(Ordering::Relaxed) >= 1);
    });
}

/// Catches a panic that drops the wake-ups behind it, and one that ends the reactor and with it every session.
#[test]
fn a_waker_that_panics_harms_no_other_task() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let panics = Waker::from(Arc::new(Panics));
        let look = Look::new(&pair.ab);
        let waker = Waker::from(Arc::clone(&look));
        let poll = |future: Pin<&mut dyn Future<Output = _>>, waker: &Waker| {
            assert!(future.poll(&mut Context::from_waker(waker)).is_pending());
        };
        // The reactor wakes it.
        let mut first = Box::pin(pair.ab.recv());
        poll(first.as_mut(), &panics);
        pair.ba.send_bytes(b"one").await.unwrap();
        assert_eq!(*first.await.unwrap().unwrap(), *b"one");
        // `reset` wakes both: the receiver first.
        let mut second = Box::pin(pair.ab.recv());
        poll(second.as_mut(), &panics);
        let mut close = Box::pin(pair.ab.close());
        assert!(close.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let aborted = catch_unwind(AssertUnwindSafe(|| pair.ab.reset(7)));
        assert_eq!(look.count.load(Ordering::Relaxed), 1, "the task behind it was woken");
        aborted.expect("the panic was logged");
    });
}

/// Uses the simulation when it is dropped: a timer, a pipe and the objects of the fabric
struct UseSimulation(Net);

impl Wake for UseSimulation {
    fn wake(self: Arc<Self>) {}
}

impl Drop for UseSimulation {
    fn drop(&mut self) {
        drop(self.0.runtime().timer());
        self.0.objects();
    }
}

/// Catches a waker that is replaced or dropped under the lock of the timers or of the fabric: it may be the last owner of a task.
#[test]
fn wakers_that_the_simulator_drops_may_use_it() {
    ends(async |net: Net| {
        let device = net.open("a", DEVICE).unwrap();
        let cq = device.create_cq(8).unwrap();
        let mut timer = net.runtime().timer();
        timer.as_mut().reset(Time::from_nanos(1_000_000));
        for _ in 0..2 {
            let waker = Waker::from(Arc::new(UseSimulation(net.clone())));
            let mut cx = Context::from_waker(&waker);
            assert!(timer.as_mut().poll_expired(&mut cx).is_pending());
            assert!(cq.poll_completions(&mut cx, &mut [Completion::default()]).is_pending());
        }
        drop((timer, cq));
    });
}

/// Uses the simulation when it is called, and counts the calls
struct UseWhenWoken(Net, AtomicUsize);

impl Wake for UseWhenWoken {
    fn wake(self: Arc<Self>) {
        self.0.objects();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Catches a waker of the program that is called under the lock of the fabric, as those of the simulation's own tasks are.
#[test]
fn wakers_that_the_simulator_calls_may_use_it() {
    ends(async |net: Net| {
        let open = |host| net.open(host, DEVICE).unwrap();
        let [mut a, mut b] = BareQp::pair(open("a"), open("b"), 4096).unwrap();
        b.recv(1, 0..8).unwrap();
        a.send(2, 0..8).unwrap();
        let used = Arc::new(UseWhenWoken(net.clone(), AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&used));
        let mut received = pin!(b.received());
        assert!(received.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        net.sleep(Duration::from_millis(1)).await;
        assert_eq!(used.1.load(Ordering::Relaxed), 1, "a receive has completed");
        assert_eq!(received.await.unwrap().byte_len, 8);
    });
}
