//! Sessions over devices that report deeper queues than they have

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join;
use rdma_async::time::timeout;
use rdma_async::{ConnectError, Error, Session};
use rdma_core::{Cause, Invalid, Verb};
use rdma_sim::rules::{QueueGrant, QueueReadBack};
use rdma_sim::{Model, Net, Sim, SimDevice};
use rdma_tests::{Hooks, Pair, connect, connected, hooked_node, message, options, try_connected};

const READ_BACKS: [QueueReadBack; 3] = [QueueReadBack::Accepted, QueueReadBack::Asked, QueueReadBack::Limit];
/// The length of the messages, and how many of them go at once in each direction
const LOADS: [(usize, usize); 4] = [(64, 400), (4096, 400), (1 << 20, 6), (16 << 20, 1)];

fn model(grant: QueueGrant, read_back: QueueReadBack) -> Model {
    let mut model = Model::tb5();
    model.rules.queue_grant = grant;
    model.rules.queue_read_back = read_back;
    model
}

/// Sends `count` messages of `len` bytes without waiting for the receiver
async fn one_way(from: &Session<SimDevice>, to: &Session<SimDevice>, len: usize, count: usize) {
    let send = async {
        for number in 0..count {
            from.send_bytes(&message(number, len)).await.unwrap();
        }
    };
    let receive = async {
        for number in 0..count {
            let got = to.recv().await.unwrap().expect("every message comes before the end");
            assert!(*got == message(number, len), "message {number} of {len} bytes");
        }
    };
    join(send, receive).await;
}

/// Has both sides send such messages at once
async fn both_ways(pair: &Pair, len: usize, count: usize) {
    join(one_way(&pair.ab, &pair.ba, len, count), one_way(&pair.ba, &pair.ab, len, count)).await;
}

/// What `program` returns, which must be soon: paths that are lost for ever are no answer
async fn soon<T>(net: &Net, program: impl Future<Output = T>) -> T {
    let done = timeout(&*net.runtime(), Duration::from_secs(30), program).await;
    done.expect("all messages arrive within the time")
}

/// How often the path of each side was made
fn made(pair: &Pair) -> [u32; 2] {
    [&pair.ab, &pair.ba].map(|session| session.snapshot().paths[0].counts.made)
}

/// Catches a library that trusts the depth which the device reports: the post that the queue refuses would cost the path, and the next
/// path would end in the same way.
#[test]
fn a_queue_that_takes_less_than_it_reports_costs_no_path() {
    let grants =
        [QueueGrant::Fixed(200), QueueGrant::Fixed(1023), QueueGrant::Exact, QueueGrant::AtLeast(1023)];
    for (grant, read_back) in grants.into_iter().flat_map(|grant| READ_BACKS.map(|back| (grant, back))) {
        let run = Sim::new().model(model(grant, read_back)).run(async |net| {
            let pair = connected(&net, &options().max_message(16 << 20)).await;
            for (len, count) in LOADS {
                // One message fills the queues of a direction by itself.
                if count > 1 {
                    soon(&net, one_way(&pair.ab, &pair.ba, len, count)).await;
                    soon(&net, one_way(&pair.ba, &pair.ab, len, count)).await;
                }
                soon(&net, both_ways(&pair, len, count)).await;
            }
            assert_eq!(made(&pair), [1, 1], "{grant:?} {read_back:?}");
        });
        assert_eq!(run.findings, [], "{grant:?} {read_back:?}");
    }
}

/// Catches receives of the eager lane that are refused while a path is made: the two sides must agree on a window that both queues hold.
#[test]
fn a_queue_that_is_shorter_than_a_window_takes_a_smaller_one() {
    for (frames, read_back) in [127, 100, 66].into_iter().flat_map(|n| READ_BACKS.map(|back| (n, back))) {
        let run = Sim::new().model(model(QueueGrant::Fixed(frames), read_back)).run(async |net| {
            let pair = connected(&net, &options()).await;
            for (len, count) in [(64, 400), (4096, 400), (1 << 20, 6)] {
                soon(&net, both_ways(&pair, len, count)).await;
            }
            // The connecting side learns the depth when it posts; the first path goes for that.
            assert!(made(&pair).into_iter().max() <= Some(2), "{frames} {read_back:?}: {:?}", made(&pair));
        });
        assert_eq!(run.findings, [], "{frames} {read_back:?}");
    }
}

/// Catches attempts without an end on a device that never holds a part of a long message.
#[test]
fn a_queue_that_is_too_short_for_a_path_is_an_error() {
    for (frames, read_back) in [64, 20, 8].into_iter().flat_map(|n| READ_BACKS.map(|back| (n, back))) {
        Sim::new().model(model(QueueGrant::Fixed(frames), read_back)).run(async |net| {
            let error = try_connected(&net, &[rdma_tests::DEVICE], &options()).await.unwrap_err();
            let short = |cause| matches!(cause, Cause::Invalid(Invalid::ShortQueue { recv_frames }) if recv_frames == frames);
            let is_short = matches!(&error, ConnectError::Device(Error { cause, .. }) if short(*cause));
            assert!(is_short, "{frames} {read_back:?}: {error}");
        });
    }
}

/// Refuses the first receive of a queue pair that has none, once `is_due` is set
#[derive(Default)]
struct Once {
    is_due: AtomicBool,
    used: Mutex<BTreeSet<u32>>,
}

impl Hooks for Once {
    fn post_recv(&self, qp: u32) -> Result<(), Error> {
        if self.used.lock().unwrap().insert(qp) && self.is_due.swap(false, Ordering::Relaxed) {
            return Err(Error::new(Verb::PostRecv, Cause::QueueFull));
        }
        Ok(())
    }
}

/// Regression: a device that was short of memory for a moment, which has the same error number, had queues without any room for the rest of the
/// node's life: no path was made again.
#[test]
fn one_refused_receive_costs_one_path_at_most() {
    Sim::new().run(async |net| {
        let hooks = Arc::<Once>::default();
        let [a, b] = ["a", "b"].map(|host| hooked_node(&net, host, &hooks, &options()));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        hooks.is_due.store(true, Ordering::Relaxed);
        // The lane for long messages gets its first receive, that of a keep-alive.
        net.sleep(Duration::from_mins(2)).await;
        assert!(!hooks.is_due.load(Ordering::Relaxed), "a receive was refused");
        let (sent, got) = join(ab.send_bytes(&message(1, 3 << 20)), ba.recv()).await;
        sent.unwrap();
        assert!(*got.unwrap().unwrap() == message(1, 3 << 20));
        assert!(ab.snapshot().paths[0].counts.made <= 2);
    });
}

/// Refuses every receive while `is_due` is set, and counts them
#[derive(Default)]
struct Always {
    is_due: AtomicBool,
    refused: AtomicUsize,
}

impl Hooks for Always {
    fn post_recv(&self, _: u32) -> Result<(), Error> {
        if !self.is_due.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(Verb::PostRecv, Cause::QueueFull))
    }
}

/// Regression: a device that refuses the first receive shows no shorter queue to try, and the path was made again at once, without an end.
#[test]
fn a_device_that_refuses_every_receive_is_tried_at_intervals() {
    for refusing in 0..2 {
        let flap = "at 1s a:rdma_en2 flap 5ms".parse().unwrap();
        Sim::new().faults(flap).run(async |net| {
            let hooks = [0, 1].map(|_| Arc::<Always>::default());
            let [a, b] =
                [("a", 0), ("b", 1)].map(|(host, side)| hooked_node(&net, host, &hooks[side], &options()));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            hooks[refusing].is_due.store(true, Ordering::Relaxed);
            net.sleep(Duration::from_secs(2)).await;
            let before = hooks[refusing].refused.load(Ordering::Relaxed);
            net.sleep(Duration::from_secs(4)).await;
            let attempts = hooks[refusing].refused.load(Ordering::Relaxed) - before;
            assert!((1..=16).contains(&attempts), "side {refusing}: {attempts} attempts in 4 s");
            hooks[refusing].is_due.store(false, Ordering::Relaxed);
            let (sent, got) = soon(&net, join(ab.send_bytes(&message(1, 3 << 20)), ba.recv())).await;
            sent.unwrap();
            assert!(*got.unwrap().unwrap() == message(1, 3 << 20));
        });
    }
}
