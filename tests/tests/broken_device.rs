//! A device that reports what cannot be: only the connection that it concerns ends

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join3};
use rdma_async::{ConnectError, Connection, ConnectionError, Endpoint, RecvError, time::timeout};
use rdma_core::protocol::Violation;
use rdma_core::{Cause, Completion, Error, FRAME, Opcode, Status, Verb, WrId};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{DEVICE, Hooked, Hooks, connect, endpoint, endpoint_on, options};

/// Changes a completion, once, and tells whether it has
type Lie = Box<dyn Fn(&mut Completion) -> bool + Send + Sync>;

/// Changes the next matching completion when the device is told to lie
struct Lies {
    lie: Lie,
    is_due: AtomicBool,
    /// The queue cannot be polled.
    is_gone: AtomicBool,
}

const GONE: Error = Error::new(Verb::PollCq, Cause::DeviceGone);

impl Hooks for Lies {
    fn poll(&self) -> Result<(), Error> {
        if self.is_gone.load(Ordering::Relaxed) { Err(GONE) } else { Ok(()) }
    }

    fn polled(&self, completions: &mut [Completion]) {
        for completion in completions {
            if self.is_due.load(Ordering::Relaxed) && (self.lie)(completion) {
                self.is_due.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Two endpoints, of which the second has a device that tells `lie`
fn endpoints(net: &Net, lie: Lie) -> (Arc<Lies>, Endpoint<SimDevice>, Endpoint<Hooked<Lies>>) {
    let lies = Arc::new(Lies { lie, is_due: AtomicBool::new(false), is_gone: AtomicBool::new(false) });
    let broken = Hooked::new(net.open("b", DEVICE).unwrap(), &lies);
    (lies, endpoint(net, "a", &options()), endpoint_on(net, broken, &options()))
}

/// Two connections of one endpoint whose device lies once to the first: it ends for `reason`, the second does not notice
fn only_one_connection_ends(lie: Lie, reason: fn(&ConnectionError) -> bool) {
    Sim::new().run(async |net: Net| {
        let (lies, a, b) = endpoints(&net, lie);
        let (first, second) = (connect(&a, &b).await.unwrap(), connect(&a, &b).await.unwrap());
        let works = async |(ab, ba): &(Connection<_>, Connection<_>), len| {
            ab.send_bytes(&vec![7; len]).await.unwrap();
            assert_eq!(*ba.recv().await.unwrap().unwrap(), *vec![7; len]);
            ba.send_bytes(b"answer").await.unwrap();
            assert_eq!(*ab.recv().await.unwrap().unwrap(), *b"answer");
        };
        works(&first, 10_000).await;
        lies.is_due.store(true, Ordering::Relaxed);
        // Requests of all kinds complete; the peer learns of the end by silence, if at all.
        let (ab, ba) = &first;
        let send = async {
            for len in [10, 10_000] {
                drop(ba.send_bytes(&vec![7; len]).await);
            }
        };
        let receive = async {
            loop {
                if let Err(error) = ba.recv().await {
                    return error;
                }
            }
        };
        let ended = timeout(&*net.runtime(), Duration::from_secs(60), receive);
        let (_, (), ended) = join3(ab.send_bytes(&[7; 10_000]), send, ended).await;
        let Some(RecvError::Lost(error)) = ended else { panic!("the connection is not lost: {ended:?}") };
        assert!(reason(&error), "{error:?}");
        assert!(!lies.is_due.load(Ordering::Relaxed));
        works(&second, 10_000).await;
        drop((first, second));
        join(a.wait_idle(), b.wait_idle()).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
}

fn lengthen(completion: &mut Completion, by: u32) -> bool {
    completion.byte_len += by;
    true
}

/// Catches a failed request that counts as completed, and memory of a failed request that is not given back.
#[test]
fn a_request_that_fails_ends_one_connection() {
    for kind in 0..KINDS {
        let lie = move |completion: &mut Completion| {
            let is_meant = completion.id.0 >> 24 & 0xff == kind;
            if is_meant {
                completion.status = Status::BadResponse;
            }
            is_meant
        };
        const FAILED: ConnectionError = ConnectionError::Completion(Status::BadResponse);
        only_one_connection_ends(Box::new(lie), |error| *error == FAILED);
    }
}

/// Catches connections that go on without a completion queue, and attempts that wait for one.
#[test]
fn a_queue_that_cannot_be_polled_ends_all_connections() {
    Sim::new().run(async |net: Net| {
        let (lies, a, b) = endpoints(&net, Box::new(|_| false));
        let (first, second) = (connect(&a, &b).await.unwrap(), connect(&a, &b).await.unwrap());
        lies.is_gone.store(true, Ordering::Relaxed);
        let gone = RecvError::Lost(ConnectionError::Device(GONE));
        assert_eq!(join(first.0.send_bytes(b"wake"), first.1.recv()).await.1.unwrap_err(), gone);
        assert_eq!(second.1.recv().await.unwrap_err(), gone);
        b.wait_idle().await;
        let (to_b, to_a) = tokio::io::duplex(256);
        let refused = join(a.connect(to_b), b.accept(to_a)).await.1.unwrap_err();
        assert_eq!(
            refused,
            ConnectError::Lost(ConnectionError::Device(GONE)),
            "not that the runtime is gone"
        );
        b.wait_idle().await;
        assert!(b.pool_stats().is_whole());
    });
}

/// Catches a length that is taken from the completion unchecked: it panicked in the reactor.
#[test]
fn an_eager_receive_longer_than_a_frame_ends_one_connection() {
    let lie = |completion: &mut Completion| {
        completion.opcode == Opcode::Recv
            && completion.byte_len < FRAME as u32
            && lengthen(completion, FRAME as u32)
    };
    only_one_connection_ends(
        Box::new(lie),
        |error| matches!(error, ConnectionError::Overlong { found, max } if *found > *max && *max == FRAME as u32),
    );
}

/// Catches a bulk length that is not compared with the announced one.
#[test]
fn a_bulk_receive_longer_than_announced_ends_one_connection() {
    let lie = |completion: &mut Completion| {
        completion.opcode == Opcode::Recv && completion.byte_len == 10_000 && lengthen(completion, 1)
    };
    const LONGER: Violation = Violation::BulkLength { announced: 10_000, received: 10_001 };
    only_one_connection_ends(Box::new(lie), |error| *error == ConnectionError::Protocol(LONGER));
}

/// The kinds of requests, as the ids of their completions name them: a bulk receive, the send of a bulk message, the send of a
/// message of the protocol, an eager receive, the send of an eager message.
const KINDS: u64 = 5;

/// A completion of a request of `kind` gets another id
fn renamed(kind: u64, rename: fn(u64) -> u64) -> Lie {
    Box::new(move |completion| {
        let is_meant = completion.id.0 >> 24 & 0xff == kind;
        if is_meant {
            completion.id = WrId(rename(completion.id.0));
        }
        is_meant
    })
}

fn ends_as_unknown(lie: Lie) {
    only_one_connection_ends(lie, |error| matches!(error, ConnectionError::UnknownCompletion(_)));
}

/// Catches a slot or a place that is looked up unchecked, for each kind of request that has one.
#[test]
fn a_completion_of_no_request_ends_one_connection() {
    for kind in 1..KINDS {
        // The kind stays; no queue is that long.
        ends_as_unknown(renamed(kind, |id| id | 0x00ff_fff0));
    }
    for kind in 0..KINDS {
        ends_as_unknown(renamed(kind, |id| id | 0xff00_0000));
    }
    // A bulk receive, of which there is none yet.
    ends_as_unknown(renamed(3, |id| id & !0xff00_0000));
}

/// Catches a send that is counted although its slot or place is free: the account of what is in flight would be wrong.
#[test]
fn a_send_that_completes_without_having_been_posted_ends_one_connection() {
    for kind in [1, 2, 4] {
        ends_as_unknown(renamed(kind, |id| id ^ 7));
    }
}

/// Catches a send that is looked up by its slot only: its frames were counted on the other lane, which panicked in the reactor.
#[test]
fn a_send_reported_on_the_other_lane_ends_one_connection() {
    for kind in [1, 4] {
        ends_as_unknown(renamed(kind, |id| id ^ (1 ^ 4) << 24));
    }
}
