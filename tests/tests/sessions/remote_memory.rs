//! Regions that peers read and write by name

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::time::timeout;
use rdma_async::{
    Access, Adopted, MappedBytes, Priority, RecvError, Regions, RemoteError, SendError, Session,
};
use rdma_sim::{Model, Net, Scheduler, Sim, SimDevice};
use rdma_tests::{DropAfter, Pair, connect, message, node, nodes, on_session, options, zeros};

const MIB: usize = 1 << 20;
const SIZE: usize = 5 * MIB + 77;

/// Lets `b` serve a region of [`SIZE`] bytes, which begins with message 0, while `program` runs with the session of `a`
fn with_region(
    sim: Sim,
    rights: Access,
    program: impl AsyncFnOnce(Net, &Pair, &Arc<Adopted<MappedBytes>>, &Regions),
) {
    let run = sim.run(async |net| {
        let (a, b) = nodes(&net, &options());
        let mut bytes = MappedBytes::zeroed(SIZE).unwrap();
        bytes.copy_from_slice(&message(0, SIZE));
        let memory = Arc::new(b.adopt(bytes).unwrap());
        let regions = Regions::new();
        regions.open("weights", Arc::clone(&memory), rights);
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let pair = Pair { a, b, ab, ba };
        let served = async {
            program(net.clone(), &pair, &memory, &regions).await;
            pair.ab.close().await.unwrap();
        };
        let (served, ()) = join(regions.serve(&pair.ba), served).await;
        served.unwrap();
        drop(regions);
        // What dropped operations were granted is answered first.
        net.sleep(Duration::from_millis(1)).await;
        let memory = Arc::into_inner(memory).expect("no operation is under way");
        memory.into_inner().expect("no lease is left");
    });
    assert_eq!(run.findings, []);
}

const BOTH: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
const WEIGHTS: &str = "weights";

async fn put(session: &Session<SimDevice>, offset: usize, bytes: &[u8]) -> Result<(), RemoteError> {
    let mut lease = session.alloc(bytes.len()).await.unwrap();
    lease.extend_from_slice(bytes);
    session.put(WEIGHTS, offset as u64, lease).await.map(drop)
}

/// Against a vector; catches bytes that go to another place, are read before they are there, or are lost with a cable.
#[test]
fn what_was_written_is_read() {
    let faults =
        ["", "after 300 frames b:rdma_en2 lose 2", "at 2ms b:rdma_en2 unplug; at 6ms b:rdma_en2 replug"];
    for (model, faults) in [Model::default(), Model::roce()]
        .into_iter()
        .flat_map(|model| faults.map(|faults| (model.clone(), faults)))
    {
        let sim = Sim::new().model(model).faults(faults.parse().unwrap());
        with_region(sim, BOTH, async |_, Pair { ab, .. }, _, _| {
            let mut expected = message(0, SIZE);
            for (number, len) in [0, 1, 4096, 68_544, 68_545, 300_001, MIB, 4 * MIB].into_iter().enumerate() {
                for offset in [0, 1, 4096, 5000, SIZE - len] {
                    let bytes = message(number + offset, len);
                    put(ab, offset, &bytes).await.unwrap();
                    expected[offset..][..len].copy_from_slice(&bytes);
                    let from = offset.saturating_sub(3);
                    let len = (len + 6).min(SIZE - from).min(4 * MIB);
                    let got = ab.get(WEIGHTS, from as u64, len).await.unwrap();
                    assert!(*got == expected[from..][..len], "{len} bytes at {from}");
                    let got = ab.get_into(WEIGHTS, from as u64, zeros(ab, len).await).await.unwrap();
                    assert!(*got == expected[from..][..len], "{len} bytes at {from}");
                }
            }
        });
    }
}

/// Catches rights, bounds or names that are not looked at, and an error after which the session is of no use.
#[test]
fn a_region_gives_no_more_than_its_rights() {
    for (rights, other) in
        [(Access::REMOTE_READ, Access::REMOTE_WRITE), (Access::REMOTE_WRITE, Access::REMOTE_READ)]
    {
        with_region(Sim::new(), rights, async |_, Pair { ab, .. }, memory, regions| {
            let is_readable = rights == Access::REMOTE_READ;
            let read = async |offset, len| ab.get(WEIGHTS, offset, len).await.map(drop);
            let write = async |offset, len| ab.put(WEIGHTS, offset, zeros(ab, len).await).await.map(drop);
            for len in [0, 1, 68_545, 4 * MIB] {
                let (permitted, refused) = if is_readable {
                    (read(0, len).await, write(0, len).await)
                } else {
                    (write(0, len).await, read(0, len).await)
                };
                assert_eq!((permitted, refused), (Ok(()), Err(RemoteError::NotPermitted)), "{len} bytes");
                let size = SIZE as u64;
                for offset in [size - len as u64 + 1, size + 1, u64::MAX, u64::MAX - len as u64] {
                    let outside =
                        if is_readable { read(offset, len).await } else { write(offset, len).await };
                    assert_eq!(outside, Err(RemoteError::OutOfBounds { size }), "{len} bytes at {offset}");
                }
            }
            regions.open("empty", Arc::clone(memory), Access::NONE);
            assert_eq!(ab.get("empty", 0, 1).await.unwrap_err(), RemoteError::NotPermitted);
            assert_eq!(ab.get("weight", 0, 1).await.unwrap_err(), RemoteError::NoRegion);
            assert_eq!(ab.get(&"w".repeat(256), 0, 1).await.unwrap_err(), RemoteError::NoRegion);
            // Regression: the panic did not name the limit.
            let open = || regions.open("w".repeat(256), Arc::clone(memory), BOTH);
            let refused = catch_unwind(AssertUnwindSafe(open)).unwrap_err();
            let why = "the name of a region has 256 bytes; it must have at most 255";
            assert_eq!(refused.downcast_ref::<String>().unwrap(), why);
            assert!(regions.close(WEIGHTS) && !regions.close(WEIGHTS));
            assert_eq!(ab.get(WEIGHTS, 0, 1).await.unwrap_err(), RemoteError::NoRegion);
            regions.open(WEIGHTS, Arc::clone(memory), BOTH.union(other));
            let (len, max) = (4 * MIB + 1, 4 * MIB);
            let too_long = ab.get(WEIGHTS, 0, len).await.unwrap_err();
            assert_eq!(too_long, RemoteError::TooLong { len, max });
            let too_long = ab.put(WEIGHTS, 0, zeros(ab, len).await).await.unwrap_err();
            assert_eq!(too_long, RemoteError::Send(SendError::TooLong { len, max }));
            read(0, 10).await.unwrap();
        });
    }
}

/// Catches operations that are not whole, and one that waits for those of other bytes.
#[test]
fn operations_on_the_same_bytes_take_turns() {
    for len in [8192, 68_545, MIB] {
        with_region(Sim::new(), BOTH, async |net, Pair { ab, .. }, memory, _| {
            let writes = (1..=8).map(|number| async move { put(ab, 0, &vec![number; len]).await.unwrap() });
            let reads = (0..8).map(|_| async {
                let got = ab.get(WEIGHTS, 0, len).await.unwrap();
                assert!(
                    got.windows(2).all(|pair| pair[0] == pair[1]) || *got == message(0, len),
                    "{len} bytes"
                );
            });
            join(join_all(writes), join_all(reads)).await;
            // The application has some bytes: others are served.
            let lease = memory.lease_when_free(0..4096).await;
            let waits = timeout(&*net.runtime(), Duration::from_millis(5), ab.get(WEIGHTS, 0, 1));
            let beside = ab.get(WEIGHTS, 2 * MIB as u64, 10);
            let (waits, beside) = join(waits, beside).await;
            assert!(waits.is_none());
            assert!(*beside.unwrap() == message(0, SIZE)[2 * MIB..][..10]);
            drop(lease);
            drop(ab.get(WEIGHTS, 0, 1).await.unwrap());
        });
    }
}

/// Catches a lease, a stream or memory that stays behind with an operation that was given up.
#[test]
fn operations_can_be_given_up_at_any_moment() {
    for len in [10, 100_000, 2 * MIB] {
        with_region(Sim::new(), BOTH, async |net, Pair { a, ab, .. }, memory, _| {
            for polls in 0..60 {
                let every = Duration::from_micros(4);
                let lease = zeros(ab, len).await;
                let write = DropAfter::new(net.runtime(), every, polls, ab.put(WEIGHTS, 4096, lease));
                let read = DropAfter::new(
                    net.runtime(),
                    every,
                    polls,
                    ab.get(WEIGHTS, 4 * MIB as u64, len.min(MIB)),
                );
                drop(join(write, read).await);
            }
            put(ab, 0, &message(9, MIB)).await.unwrap();
            assert!(*ab.get(WEIGHTS, 0, MIB).await.unwrap() == message(9, MIB));
            net.sleep(Duration::from_millis(1)).await;
            assert!(memory.lease(0..SIZE).is_some(), "no operation has it any more");
            let send = a.pool_stats().send;
            assert_eq!(send.free_bytes, send.total_bytes);
        });
    }
}

/// Catches a peer that breaks the owner, or reaches bytes that it did not name.
#[test]
fn a_peer_that_speaks_otherwise_is_answered() {
    with_region(Sim::new(), BOTH, async |net, Pair { ab, .. }, memory, _| {
        // The kind of write, eight bytes of the offset, eight of the length, and the name.
        let request = |len: u64| [&[1][..], &[0; 8], &len.to_le_bytes(), WEIGHTS.as_bytes()].concat();
        let cases = [
            (vec![], vec![]),
            (vec![9; 17], vec![]),
            (message(1, 100_000), vec![]),
            (request(10), vec![7; 11]),
            (request(10), vec![7; 9]),
            (request(100_000), vec![0; 300_000]),
            (request(100_000), vec![0; 102_400]),
        ];
        for (request, data) in cases {
            let stream = ab.open_stream(Priority::Normal).await.unwrap();
            stream.send_bytes(&request).await.unwrap();
            let sent = stream.send_bytes(&data).await;
            assert!(matches!(sent, Ok(()) | Err(SendError::StreamDropped)), "{sent:?}");
            let answer = stream.recv().await.unwrap().expect("an answer");
            assert_eq!(answer[0], 4, "malformed");
        }
        // A write that its sender finishes without data.
        let stream = ab.open_stream(Priority::Normal).await.unwrap();
        stream.send_bytes(&request(10)).await.unwrap();
        stream.finish();
        assert_eq!(stream.recv().await.unwrap().expect("an answer")[0], 4);
        // Nothing but what a request has named.
        let got = ab.get(WEIGHTS, 100_000, 300_000).await.unwrap();
        assert!(*got == message(0, SIZE)[100_000..][..300_000]);
        net.sleep(Duration::from_millis(1)).await;
        assert!(memory.lease(0..SIZE).is_some(), "no operation has it any more");
    });
}

/// Catches a copy: all receive memory is in use.
#[test]
fn long_writes_take_no_receive_memory() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options().receive_memory(4 * MIB));
        let memory = Arc::new(b.adopt(MappedBytes::zeroed(8 * MIB).unwrap()).unwrap());
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let regions = Regions::new();
        regions.open(WEIGHTS, memory, BOTH);
        let other = ab.open().unwrap();
        let served = b.accept().await.unwrap();
        ab.try_send(zeros(&ab, 4 * MIB).await).unwrap();
        let kept = ba.recv().await.unwrap().unwrap();
        let writes = async {
            for offset in [0, 4 * MIB] {
                put(&other, offset, &message(offset, 4 * MIB)).await.unwrap();
            }
            drop(kept);
            for offset in [0, 4 * MIB] {
                let got = other.get(WEIGHTS, offset as u64, 4 * MIB).await.unwrap();
                assert!(*got == message(offset, 4 * MIB));
            }
            other.close().await.unwrap();
        };
        join(regions.serve(&served), writes).await.0.unwrap();
    });
}

/// A session that is lost ends what is under way, with the reason.
#[test]
fn a_lost_session_ends_operations() {
    on_session(Sim::new(), &options(), async |net, Pair { b, ab, ba, .. }| {
        let regions = Regions::new();
        let memory = Arc::new(b.adopt(MappedBytes::zeroed(MIB).unwrap()).unwrap());
        regions.open(WEIGHTS, Arc::clone(&memory), BOTH);
        let lease = memory.lease(0..MIB).unwrap();
        let reads = async { ab.get(WEIGHTS, 0, 10).await.unwrap_err() };
        let resets = async {
            net.sleep(Duration::from_millis(1)).await;
            ba.reset(5);
        };
        let (served, (error, ())) = join(regions.serve(&ba), join(reads, resets)).await;
        assert!(served.is_err());
        assert!(matches!(error, RemoteError::Recv(_)), "{error:?}");
        drop(lease);
        net.sleep(Duration::from_millis(1)).await;
        assert!(memory.lease(0..MIB).is_some());
    });
}

/// Regression: a write into memory that another node had adopted was answered, and wrote nothing.
#[test]
fn a_region_may_be_in_memory_of_another_node() {
    on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
        let other = node(&net, "b", &options());
        let memory = Arc::new(other.adopt(MappedBytes::zeroed(2 * MIB).unwrap()).unwrap());
        let regions = Regions::new();
        regions.open(WEIGHTS, memory, BOTH);
        let uses = async {
            for (offset, len) in [(0, MIB), (4096, 100), (5, 300_000)] {
                put(&ab, offset, &message(offset, len)).await.unwrap();
                assert!(*ab.get(WEIGHTS, offset as u64, len).await.unwrap() == message(offset, len));
            }
            ab.close().await.unwrap();
        };
        join(regions.serve(&ba), uses).await.0.unwrap();
    });
}

/// Regression: a write whose lease was refused waited for an answer for ever, and kept others from the bytes.
#[test]
fn a_lease_of_another_node_is_refused_before_anything_is_written() {
    with_region(Sim::new(), BOTH, async |net, Pair { ab, .. }, memory, _| {
        let other = node(&net, "a", &options());
        let lease = other.alloc(100).await.unwrap();
        assert_eq!(ab.put(WEIGHTS, 0, lease).await.unwrap_err(), RemoteError::Send(SendError::ForeignLease));
        let lease = other.alloc(100).await.unwrap();
        let refused = ab.get_into(WEIGHTS, 0, lease).await.unwrap_err();
        assert_eq!(refused, RemoteError::Recv(RecvError::ForeignLease));
        assert!(memory.lease(0..SIZE).is_some());
    });
}

/// Regression: the peer served dropped puts and a later one in any order, so that bytes of a dropped one replaced those of one that had
/// resolved. Catches a later put that does not wait for the dropped ones of its region.
#[test]
fn a_dropped_put_never_follows_a_later_one() {
    for seed in 0..60 {
        let sim = Sim::new().seed(seed).scheduler(Scheduler::Random);
        let len = if seed % 3 == 0 { 10_000 } else { MIB };
        with_region(sim, BOTH, async |net, Pair { ab, .. }, _, _| {
            for round in 0..2 {
                for number in 0..4 {
                    let polls = 2 + (seed as usize * 7 + number * 5) % 40;
                    let lease = zeros(ab, len).await;
                    let write = ab.put(WEIGHTS, 0, lease);
                    drop(DropAfter::new(net.runtime(), Duration::from_micros(1), polls, write).await);
                }
                let last = message(9 + round, len);
                put(ab, 0, &last).await.unwrap();
                assert!(*ab.get(WEIGHTS, 0, len).await.unwrap() == last, "seed {seed}");
                net.sleep(Duration::from_millis(2)).await;
                assert!(*ab.get(WEIGHTS, 0, len).await.unwrap() == last, "seed {seed}, later");
            }
        });
    }
}
