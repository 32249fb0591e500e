//! Memory of the application: sent from and received into without a copy, and given back
#![allow(unsafe_code, reason = "an owner of memory promises where its bytes are")]

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{join, select};
use rdma_async::time::timeout;
use rdma_async::{Adopted, MappedBytes, RecvError, SendError, Session};
use rdma_sim::{Model, Sim, SimDevice};
use rdma_tests::{
    DropAfter, Pair, begun, connect, connected, message, node, nodes, on_session, options, zeros,
};
use stable_deref_trait::StableDeref;

const MIB: usize = 1 << 20;

fn mapped(len: usize) -> MappedBytes {
    MappedBytes::zeroed(len).unwrap()
}

/// Sends message `number` from the first bytes of `from`, and receives it into those of `to`
async fn carry(
    [ab, ba]: [&Session<SimDevice>; 2],
    [from, to]: [&Adopted<MappedBytes>; 2],
    number: usize,
    len: usize,
) {
    let mut lease = from.lease(0..len.max(1)).expect("nobody else has it");
    lease.truncate(len);
    lease.copy_from_slice(&message(number, len));
    let recv = ba.recv_into(to.lease(0..to.len()).expect("nobody else has it"));
    let (sent, received) = join(ab.send(lease), recv).await;
    sent.unwrap();
    let received = received.unwrap().unwrap();
    assert!(*received == message(number, len), "message {number} of {len} bytes");
    let place = to_address(&received) - BASE.with(|base| base.get());
    assert_eq!(place, 0, "message {number} of {len} bytes is where it should be");
}

thread_local! {
    /// Where the memory that is received into begins.
    static BASE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn to_address(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

fn based(bytes: MappedBytes) -> MappedBytes {
    BASE.with(|base| base.set(to_address(&bytes)));
    bytes
}

const LENS: [usize; 9] = [0, 1, 4032, 4033, 68_544, 68_545, 300_001, MIB, 4 * MIB];

/// Catches bytes that are sent from or received at another place, on a path made before or after the memory was adopted, and what an
/// outage or a loss on either lane leaves there.
#[test]
fn messages_go_from_memory_to_memory() {
    let faults =
        ["", "after 300 frames b:rdma_en2 lose 3", "at 1ms b:rdma_en2 unplug; at 4ms b:rdma_en2 replug"];
    for (is_early, faults) in [(true, faults), (false, faults)]
        .into_iter()
        .flat_map(|(early, faults)| faults.map(|fault| (early, fault)))
    {
        let sim = Sim::new().faults(faults.parse().unwrap());
        let run = sim.run(async |net| {
            let (a, b) = nodes(&net, &options());
            let memory = || (a.adopt(mapped(5 * MIB)).unwrap(), b.adopt(based(mapped(4 * MIB))).unwrap());
            let early = is_early.then(memory);
            let (ab, ba) = connect(&a, &b).await.unwrap();
            let (from, to) = early.unwrap_or_else(memory);
            for (number, len) in LENS.into_iter().chain(LENS).enumerate() {
                carry([&ab, &ba], [&from, &to], number, len).await;
            }
            // A device that ignores receives into memory that it was told of too late costs a path.
            assert!(!faults.is_empty() || ba.snapshot().paths[0].counts.made == 1);
            let to = to.into_inner().expect("no lease is left");
            assert!(to[..] == message(17, 4 * MIB));
            drop(from.into_inner().expect("no lease is left"));
        });
        assert_eq!(run.findings, [], "{faults}");
    }
}

/// Catches a copy: all receive memory is in use, so that the message can only go to the memory of the application.
#[test]
fn long_messages_take_no_receive_memory() {
    Sim::new().run(async |net| {
        let options = options().receive_memory(4 * MIB);
        let (a, b) = nodes(&net, &options);
        let to = b.adopt(based(mapped(4 * MIB))).unwrap();
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let late = b.adopt(mapped(4 * MIB)).unwrap();
        ab.try_send(zeros(&ab, 4 * MIB).await).unwrap();
        let kept = ba.recv().await.unwrap().unwrap();
        for number in 0..3 {
            ab.try_send(zeros(&ab, 4 * MIB - number).await).unwrap();
            let recv = ba.recv_into(to.lease(0..4 * MIB).unwrap());
            let received =
                timeout(&*net.runtime(), Duration::from_millis(2), recv).await.expect("there is memory");
            assert_eq!(received.unwrap().unwrap().len(), 4 * MIB - number);
        }
        // Apple's device writes only to memory that was registered before its queue pairs were set up.
        ab.try_send(zeros(&ab, 4 * MIB).await).unwrap();
        let recv = begun(ba.recv_into(late.lease(0..4 * MIB).unwrap())).await;
        net.sleep(Duration::from_millis(2)).await;
        let received = timeout(&*net.runtime(), Duration::from_millis(2), recv).await;
        assert!(received.is_none(), "it would be copied, from memory that is not there");
        drop(kept);
        assert_eq!(ba.recv().await.unwrap().unwrap().len(), 4 * MIB);
    });
}

/// Catches a message that is lost with its future, memory that is given back while a device writes there, and an offer that another future
/// takes back.
#[test]
fn receiving_can_be_given_up_at_any_moment() {
    for len in [64, 300_000, 2 * MIB] {
        for polls in 0..40 {
            let run = Sim::new().run(async |net| {
                let (a, b) = nodes(&net, &options());
                let to = b.adopt(based(mapped(4 * MIB))).unwrap();
                let (ab, ba) = connect(&a, &b).await.unwrap();
                for number in 0..2 {
                    ab.try_send({
                        let mut lease = ab.alloc(len).await.unwrap();
                        lease.extend_from_slice(&message(number, len));
                        lease
                    })
                    .unwrap();
                }
                let every = Duration::from_micros(3);
                let first = ba.recv_into(to.lease(0..2 * MIB).unwrap());
                let second = ba.recv_into(to.lease(2 * MIB..4 * MIB).unwrap());
                let first = DropAfter::new(net.runtime(), every, polls, first);
                let second = DropAfter::new(net.runtime(), every, polls / 2, second);
                let (first, second) = join(first, second).await;
                let mut received = [first, second]
                    .into_iter()
                    .flatten()
                    .map(|received| received.unwrap().unwrap())
                    .collect::<Vec<_>>();
                while received.len() < 2 {
                    received.push(ba.recv().await.unwrap().unwrap());
                }
                // Tasks that share a stream share its messages.
                for number in 0..2 {
                    assert!(
                        received.iter().any(|received| **received == message(number, len)),
                        "message {number}"
                    );
                }
                assert!(
                    to.lease(0..4096).is_some()
                        || received
                            .iter()
                            .any(|received| to_address(received) == BASE.with(|base| base.get()))
                );
                drop(received);
                to.into_inner().expect("no lease is left");
            });
            assert_eq!(run.findings, [], "{len} bytes, {polls} polls");
        }
    }
}

/// Catches memory that no device can take and that fails later, and an owner that is lost.
#[test]
fn memory_that_a_device_refuses_comes_back() {
    on_session(Sim::new(), &options(), async |net, Pair { a, .. }| {
        let refused = a.adopt(vec![7; 10]).unwrap_err();
        assert!(refused.refusal.is_some());
        assert_eq!(refused.owner, Some(vec![7; 10]));
        let empty = a.adopt(Vec::new()).unwrap_err();
        assert!(empty.refusal.is_none() && empty.owner.is_some(), "{empty}");
        // Also without a path.
        let alone = node(&net, "b", &options());
        assert!(alone.adopt(vec![7; 10]).is_err());
    });
    // Other devices take memory of the heap.
    on_session(Sim::new().model(Model::roce()), &options(), async |_, Pair { a, ab, ba, .. }| {
        let heap = a.adopt(message(3, 100_001)).unwrap();
        ab.try_send(heap.lease(0..100_001).unwrap()).unwrap();
        assert!(*ba.recv().await.unwrap().unwrap() == message(3, 100_001));
    });
}

/// Catches leases that overlap, and ranges that are not those of the bytes.
#[test]
fn leases_of_adopted_memory_do_not_overlap() {
    Sim::new().run(async |net| {
        let a = node(&net, "a", &options());
        let mut bytes = mapped(10_000);
        bytes.copy_from_slice(&message(1, 10_000));
        let memory = a.adopt(bytes).unwrap();
        let first = memory.lease(0..4096).unwrap();
        let rest = memory.lease(4096..10_000).unwrap();
        assert_eq!((first.capacity(), rest.capacity()), (4096, 10_000 - 4096));
        assert_eq!([&*first, &*rest].concat(), message(1, 10_000));
        for range in [0..1, 0..10_000, 4096..4097, 8192..10_000] {
            assert!(memory.lease(range).is_none());
        }
        let memory = memory.into_inner().expect_err("there are leases");
        drop(first);
        let mut short = memory.lease(0..5).unwrap();
        assert_eq!((short.len(), short.capacity()), (5, 4096));
        short.copy_from_slice(b"hello");
        drop((short, rest));
        assert_eq!(memory.into_inner().unwrap()[..8], [b"hello".as_slice(), &message(1, 8)[5..]].concat());
    });
}

/// Catches registrations that are kept: the device has a hundred.
#[test]
fn memory_can_be_adopted_and_given_back_any_number_of_times() {
    on_session(Sim::new(), &options(), async |net, Pair { a, b, ab, ba }| {
        let before = net.objects();
        for round in 0..300 {
            let (from, to) = (a.adopt(mapped(MIB)).unwrap(), b.adopt(based(mapped(MIB))).unwrap());
            if round % 50 == 0 {
                carry([&ab, &ba], [&from, &to], round, 100_000).await;
            }
            if round % 3 == 0 {
                drop((from, to));
            } else {
                from.into_inner().unwrap();
                to.into_inner().unwrap();
            }
        }
        assert_eq!(net.objects(), before);
        let many = (0..200).map(|_| a.adopt(mapped(4096))).take_while(Result::is_ok).collect::<Vec<_>>();
        assert!((50..100).contains(&many.len()), "{} registrations", many.len());
        // The session goes on, and a path can be made again.
        drop(many);
        ab.send_bytes(&message(1, MIB)).await.unwrap();
        assert!(*ba.recv().await.unwrap().unwrap() == message(1, MIB));
    });
}

/// Bytes that count how many of them are left
struct Counted(MappedBytes, Arc<AtomicUsize>);

impl Deref for Counted {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Counted {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: the bytes are those of the mapping inside, which stay where they are.
unsafe impl StableDeref for Counted {}

/// Regression: a simulation that ended while devices gave up paths kept all that was posted there for good, some megabytes each.
///
/// Catches an outcome of a teardown that is lost with the task that should have reported it.
#[test]
fn a_simulation_that_ends_in_the_middle_frees_its_memory() {
    for (model, len) in [Model::tb5(), Model::tb5_cpu()].iter().flat_map(|model| [(model, 64), (model, MIB)])
    {
        let left = Arc::new(AtomicUsize::new(2));
        for end in [10, 100, 1000] {
            left.store(2, Ordering::Relaxed);
            let sim = Sim::new().model(model.clone());
            on_session(sim, &options(), async |net, Pair { a, b, ab, ba }| {
                let [from, to] =
                    [&a, &b].map(|node| node.adopt(Counted(mapped(MIB), Arc::clone(&left))).unwrap());
                let (lease, place) = (from.lease(0..len).unwrap(), to.lease(0..MIB).unwrap());
                let exchange = join(ab.send(lease), ba.recv_into(place));
                select(pin!(exchange), pin!(net.sleep(Duration::from_micros(end)))).await;
            });
            assert_eq!(left.load(Ordering::Relaxed), 0, "{len} bytes, {end} µs, {:?}", model.timing);
        }
    }
}

/// Catches memory that is freed under a lease, or never.
#[test]
fn dropped_memory_is_freed_after_its_last_lease() {
    on_session(Sim::new(), &options(), async |net, Pair { a, b, ab, ba }| {
        let left = Arc::new(AtomicUsize::new(2));
        let [from, to] = [&a, &b].map(|node| node.adopt(Counted(mapped(MIB), Arc::clone(&left))).unwrap());
        let (lease, place) = (from.lease(0..MIB).unwrap(), to.lease(0..MIB).unwrap());
        drop((from, to));
        // The path that is made now knows memory that was given up and is still leased.
        for fault in ["at 0s b:rdma_en2 unplug", "at 1ms b:rdma_en2 replug"] {
            net.inject(fault.parse().unwrap());
        }
        net.sleep(Duration::from_millis(40)).await;
        let (sent, received) = join(ab.send(lease), ba.recv_into(place)).await;
        let received = received.unwrap().unwrap();
        assert_eq!((received.len(), left.load(Ordering::Relaxed)), (MIB, 2));
        drop((sent.unwrap(), received));
        // Looked for when memory is adopted or given up.
        [&a, &b].into_iter().for_each(|node| drop(node.adopt(mapped(4096)).unwrap()));
        assert_eq!(left.load(Ordering::Relaxed), 0);
    });
}

/// Catches memory of one node that another node's devices are told of.
#[test]
fn memory_is_of_one_node() {
    on_session(Sim::new(), &options(), async |net, Pair { b, ab, ba, .. }| {
        let memory = b.adopt(based(mapped(MIB))).unwrap();
        let failed = ab.send(memory.lease(0..MIB).unwrap()).await.unwrap_err();
        assert_eq!(failed.error, SendError::ForeignLease);
        drop(failed);
        let other = connected(&net, &options()).await;
        other.ab.send_bytes(&message(0, MIB)).await.unwrap();
        let refused = other.ba.recv_into(memory.lease(0..MIB).unwrap()).await.unwrap_err();
        assert_eq!(refused, RecvError::ForeignLease);
        assert!(*other.ba.recv().await.unwrap().unwrap() == message(0, MIB), "it is not lost");
        memory.into_inner().expect("no lease is left");
        drop(ba);
    });
}

/// Catches memory that keeps the devices of its node open.
#[test]
fn adopted_memory_outlives_its_node() {
    Sim::new().run(async |net| {
        let before = net.objects();
        let pair = connected(&net, &options()).await;
        let memory = pair.a.adopt(mapped(MIB)).unwrap();
        let lease = memory.lease(0..4096).unwrap();
        drop(pair);
        net.sleep(Duration::from_secs(1)).await;
        assert_eq!(net.objects(), before);
        drop(lease);
        assert_eq!(memory.into_inner().expect("nothing else knows it").len(), MIB);
    });
}

/// Catches a future that takes back what another one has offered.
#[test]
fn a_future_that_is_dropped_takes_its_own_offer_only() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options());
        let to = b.adopt(based(mapped(2 * MIB))).unwrap();
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let first = begun(ba.recv_into(to.lease(0..MIB).unwrap())).await;
        ab.try_send(zeros(&ab, MIB).await).unwrap();
        // The message is arriving in the first place.
        net.sleep(Duration::from_micros(60)).await;
        let second = begun(ba.recv_into(to.lease(MIB..2 * MIB).unwrap())).await;
        drop(first);
        let received = second.await.unwrap().unwrap();
        assert_eq!(to_address(&received) - BASE.with(|base| base.get()), MIB);
    });
}

/// Regression: the lease was dropped under the lock of the peering when an earlier message waited for memory, and the reactor waited for
/// itself.
#[test]
fn an_offer_outlives_an_earlier_message_that_does_not_fit() {
    on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
        for len in [4 * MIB, MIB] {
            ab.try_send(zeros(&ab, len).await).unwrap();
        }
        let kept = ba.recv().await.unwrap().unwrap();
        let lease = ba.recv().await.unwrap().unwrap().into_lease().unwrap();
        for len in [4 * MIB, 100_000] {
            ab.try_send(zeros(&ab, len).await).unwrap();
        }
        let recv = begun(ba.recv_into(lease)).await;
        net.sleep(Duration::from_millis(5)).await;
        drop(kept);
        assert_eq!(recv.await.unwrap().unwrap().len(), 4 * MIB);
        assert_eq!(ba.recv().await.unwrap().unwrap().len(), 100_000);
    });
}

/// Regression: a long message that was announced while an earlier one was on its way got the place of the future that returned the
/// earlier one.
#[test]
fn the_place_is_for_the_message_that_is_returned() {
    for frame in 1..40 {
        let fault = format!("after {frame} frames b:rdma_en2 lose 1");
        Sim::new().faults(fault.parse().unwrap()).run(async |net| {
            let (a, b) = nodes(&net, &options());
            let to = b.adopt(based(mapped(MIB))).unwrap();
            let (ab, ba) = connect(&a, &b).await.unwrap();
            let recv = begun(ba.recv_into(to.lease(0..MIB).unwrap())).await;
            for (number, len) in [20_000, 300_000].into_iter().enumerate() {
                let mut lease = ab.alloc(len).await.unwrap();
                lease.extend_from_slice(&message(number, len));
                ab.try_send(lease).unwrap();
            }
            let first = recv.await.unwrap().unwrap();
            assert!(*first == message(0, 20_000));
            assert_eq!(to_address(&first), BASE.with(|base| base.get()), "{fault}");
            assert!(*ba.recv().await.unwrap().unwrap() == message(1, 300_000));
        });
    }
}

/// Regression: a message with a place of its own waited behind one for which there was no memory.
#[test]
fn an_offer_does_not_wait_in_line() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options().receive_memory(4 * MIB));
        let to = b.adopt(mapped(MIB)).unwrap();
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let sessions = [(); 2].map(|()| ab.open().unwrap());
        let others = [b.accept().await.unwrap(), b.accept().await.unwrap()];
        ab.try_send(zeros(&ab, 4 * MIB).await).unwrap();
        let kept = ba.recv().await.unwrap().unwrap();
        sessions[0].try_send(zeros(&ab, 4 * MIB).await).unwrap();
        let waits = begun(others[0].recv()).await;
        net.sleep(Duration::from_millis(1)).await;
        sessions[1].try_send(zeros(&ab, MIB).await).unwrap();
        let recv = others[1].recv_into(to.lease(0..MIB).unwrap());
        let received = timeout(&*net.runtime(), Duration::from_millis(2), recv).await;
        assert_eq!(received.expect("it has a place").unwrap().unwrap().len(), MIB);
        drop(kept);
        assert_eq!(waits.await.unwrap().unwrap().len(), 4 * MIB);
    });
}

/// Regression: memory that could not be given back was unknown to its node afterwards.
#[test]
fn memory_that_is_not_given_back_stays_adopted() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options());
        let mut memory = b.adopt(based(mapped(4 * MIB))).unwrap();
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let mut refusals = 0;
        for fault in ["at 0s a:rdma_en2 unplug", "at 30ms a:rdma_en2 replug"] {
            net.inject(fault.parse().unwrap());
        }
        for _ in 0..400 {
            net.sleep(Duration::from_micros(100)).await;
            memory = match memory.into_inner() {
                Ok(owner) => b.adopt(owner).unwrap(),
                Err(memory) => {
                    refusals += 1;
                    memory
                }
            };
        }
        assert!(refusals < 400);
        carry_from(&ba, &ab, &memory).await;
    });
}

/// Sends from the memory, on the path that there is
async fn carry_from(from: &Session<SimDevice>, to: &Session<SimDevice>, memory: &Adopted<MappedBytes>) {
    let made = from.snapshot().paths[0].counts.made;
    let (sent, received) = join(from.send(memory.lease(0..MIB).unwrap()), to.recv()).await;
    drop(sent.unwrap());
    assert_eq!(received.unwrap().unwrap().len(), MIB);
    assert_eq!(from.snapshot().paths[0].counts.made, made, "it costs no path");
}
