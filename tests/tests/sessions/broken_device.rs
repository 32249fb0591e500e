//! A device that reports what cannot be: its paths are made again, and where that proves nothing, the peer that it concerns is lost

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join;
use rdma_async::time::timeout;
use rdma_async::{CloseError, Node, Session, SessionError};
use rdma_core::{Cause, Completion, Device, Error, FRAME, Opcode, Status, Verb, WrId};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{Hooked, Hooks, connect, hooked_node, message, node, options};

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

/// Two nodes, of which the second has a device that tells `lie`
fn nodes(net: &Net, lie: Lie) -> (Arc<Lies>, Node<SimDevice>, Node<Hooked<Lies>>) {
    let lies = Arc::new(Lies { lie, is_due: AtomicBool::new(false), is_gone: AtomicBool::new(false) });
    let broken = hooked_node(net, "b", &lies, &options());
    (lies, node(net, "a", &options()), broken)
}

/// Above what the eager lane carries: requests of all kinds complete.
const LONG: usize = 100_000;

/// Sends messages until one side fails, and checks what arrives
async fn one_way<A: Device, B: Device>(from: &Session<A>, to: &Session<B>) {
    let send = async {
        for len in [10, LONG] {
            if from.send_bytes(&message(len, len)).await.is_err() {
                break;
            }
        }
    };
    let receive = async {
        for len in [10, LONG] {
            match to.recv().await {
                Ok(got) => assert!(*got.expect("nobody closes") == message(len, len)),
                Err(_) => break,
            }
        }
    };
    join(send, receive).await;
}

/// Sends messages both ways; why the second side has lost the session, if so
async fn exchange<A: Device, B: Device>(
    net: &Net,
    (ab, ba): &(Session<A>, Session<B>),
) -> Option<SessionError> {
    let both = join(one_way(ab, ba), one_way(ba, ab));
    timeout(&*net.runtime(), Duration::from_secs(60), both).await.expect("every task learns of an end");
    match ba.close_reason() {
        None => None,
        Some(Err(CloseError::Lost(error))) => Some(error),
        ended => panic!("nobody closes: {ended:?}"),
    }
}

/// A device with two peers lies once about the first: what that costs is `expected`, and the second peer does not notice
fn lies_once(lie: Lie, expected: impl Fn(Option<&SessionError>) -> bool) {
    Sim::new().run(async |net: Net| {
        let (lies, a, b) = nodes(&net, lie);
        let (first, second) = (connect(&a, &b).await.unwrap(), connect(&a, &b).await.unwrap());
        assert_eq!(exchange(&net, &first).await, None);
        lies.is_due.store(true, Ordering::Relaxed);
        let lost = exchange(&net, &first).await;
        assert!(expected(lost.as_ref()), "{lost:?}");
        assert!(!lies.is_due.load(Ordering::Relaxed));
        assert_eq!(exchange(&net, &first).await, lost);
        assert_eq!(exchange(&net, &second).await, None);
        drop((first, second));
        join(a.wait_idle(), b.wait_idle()).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
}

fn is_survived(lost: Option<&SessionError>) -> bool {
    lost.is_none()
}

fn is_unknown(lost: Option<&SessionError>) -> bool {
    matches!(lost, Some(SessionError::UnknownCompletion(_)))
}

/// The kinds of requests, as the ids of their completions name them: a bulk receive, the send of a part, the send of a trailer, the
/// send of a packet, an eager receive
const KINDS: u64 = 5;
const BULK_RECEIVE: u64 = 0;
const PART: u64 = 1;
const TRAILER: u64 = 2;
const PACKET: u64 = 3;
const EAGER_RECEIVE: u64 = 4;
/// Where an id has the kind, and the number of the request.
const KIND_SHIFT: u32 = 28;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

fn kind(completion: &Completion) -> u64 {
    completion.id.0 >> KIND_SHIFT & 0xf
}

/// Changes the next completion of a request of `meant`
fn changed(meant: u64, change: impl Fn(&mut Completion) + Send + Sync + 'static) -> Lie {
    Box::new(move |completion| {
        let is_meant = kind(completion) == meant;
        if is_meant {
            change(completion);
        }
        is_meant
    })
}

/// A completion of a request of `meant` gets another id
fn renamed(meant: u64, rename: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Lie {
    changed(meant, move |completion| completion.id = WrId(rename(completion.id.0)))
}

/// Catches a failed request that counts as completed, one that ends a session, and memory of a failed request that is not given back.
#[test]
fn a_request_that_fails_ends_one_path_and_no_session() {
    for kind in 0..KINDS {
        let lie = changed(kind, |completion| completion.status = Status::BadResponse);
        lies_once(lie, is_survived);
    }
}

/// Catches sessions that wait for a completion queue that has failed.
#[test]
fn a_queue_that_cannot_be_polled_is_made_again() {
    Sim::new().run(async |net: Net| {
        let (lies, a, b) = nodes(&net, Box::new(|_| false));
        let (first, second) = (connect(&a, &b).await.unwrap(), connect(&a, &b).await.unwrap());
        lies.is_gone.store(true, Ordering::Relaxed);
        let repair = async {
            net.sleep(Duration::from_millis(100)).await;
            lies.is_gone.store(false, Ordering::Relaxed);
        };
        let (lost, other, ()) = futures::join!(exchange(&net, &first), exchange(&net, &second), repair);
        assert_eq!((lost, other), (None, None));
        drop((first, second));
        join(a.wait_idle(), b.wait_idle()).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
}

/// Catches a length that is taken from the completion unchecked.
#[test]
fn a_packet_longer_than_a_frame_loses_one_peer() {
    let lie = changed(EAGER_RECEIVE, |completion| completion.byte_len += FRAME as u32);
    lies_once(
        lie,
        |lost| matches!(lost, Some(SessionError::Overlong { found, max }) if found > max && *max == FRAME as u32),
    );
}

/// Catches the length of a part that is not compared with that of its receive.
#[test]
fn a_part_of_another_length_ends_one_path_and_no_session() {
    for change in [|len: u32| len + 1, |len: u32| len - 1, |_: u32| 0] {
        let lie = Box::new(move |completion: &mut Completion| {
            let is_meant = completion.opcode == Opcode::Recv && completion.byte_len == LONG as u32;
            if is_meant {
                completion.byte_len = change(completion.byte_len);
            }
            is_meant
        });
        lies_once(lie, is_survived);
    }
}

/// Catches a number or a place that is looked up unchecked, for each kind of request that has one.
#[test]
fn a_completion_of_no_request_loses_one_peer() {
    for kind in [PART, PACKET, EAGER_RECEIVE] {
        // No queue is that long.
        lies_once(renamed(kind, |id| id | (NUMBER - 0xf)), is_unknown);
    }
    for kind in 0..KINDS {
        lies_once(renamed(kind, |id| id | 0xf << KIND_SHIFT), is_unknown);
    }
    // A bulk receive and a trailer, of which there is none yet.
    for other in [BULK_RECEIVE, TRAILER] {
        let rename = move |id| id & !(0xf << KIND_SHIFT) | other << KIND_SHIFT;
        lies_once(renamed(PACKET, rename), is_unknown);
    }
}

/// Catches a send that is counted although its place is free: the account of what is in flight would be wrong.
#[test]
fn a_send_that_completes_without_having_been_posted_loses_one_peer() {
    for kind in [PART, PACKET] {
        lies_once(renamed(kind, |id| id ^ 7), is_unknown);
    }
}

/// Catches a send that is looked up by its number only.
#[test]
fn a_send_reported_on_the_other_lane_loses_one_peer() {
    for kind in [PART, PACKET] {
        lies_once(renamed(kind, |id| id ^ (PART ^ PACKET) << KIND_SHIFT), is_unknown);
    }
}
