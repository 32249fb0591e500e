//! Streams of a session: independent of each other, each with its own end

use std::time::Duration;

use futures::future::{join, join_all, try_join};
use rdma_async::{OpenError, Priority, RecvError, SendError, SessionError, Stream};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{Pair, begun, message, on_session, options, stream_of, zeros};

type SimStream = Stream<SimDevice>;

async fn send(stream: &SimStream, lens: impl IntoIterator<Item = usize>) {
    for (number, len) in lens.into_iter().enumerate() {
        stream.send_bytes(&message(number, len)).await.unwrap();
    }
}

async fn receive(stream: &SimStream, lens: impl IntoIterator<Item = usize>) {
    for (number, len) in lens.into_iter().enumerate() {
        let got = stream.recv().await.unwrap().expect("every message comes before the end");
        assert!(*got == message(number, len), "message {number} of {len} bytes");
    }
}

const LENS: [usize; 7] = [0, 64, 4032, 4033, 68_544, 68_545, 300_000];

/// Fills a stream that nobody reads with messages of `len` bytes until no more are taken
async fn fill(stream: &SimStream, len: usize) {
    let session = stream.session();
    loop {
        let filled = stream.try_send(zeros(&session, len).await).err().map(|failed| failed.error);
        match filled {
            Some(SendError::WouldBlock) => return,
            refused => assert_eq!(refused, None),
        }
    }
}

/// Catches room, memory or places in the queue that streams of a session share.
#[test]
fn a_stream_that_nobody_reads_stalls_only_itself() {
    for unread in [64, 20_000, 68_545, 1 << 20] {
        // Of each message, no more may be in flight than there is memory to write others.
        let options = options().max_in_flight_sends(12).receive_memory(32 << 20);
        on_session(Sim::new(), &options, async |_, Pair { ab, ba, .. }| {
            let (stalled, nobody) = stream_of(&ab, &ba).await;
            fill(&stalled, unread).await;
            let (opened, accepted) = stream_of(&ab, &ba).await;
            for lens in [[64; 300].as_slice(), &[30_000; 30], &LENS, &[1 << 20; 10]] {
                let lens = || lens.iter().copied();
                join(send(&opened, lens()), receive(&accepted, lens())).await;
                join(send(ab.main_stream(), lens()), receive(ba.main_stream(), lens())).await;
                join(send(&accepted, lens()), receive(&opened, lens())).await;
            }
            // The one that was not read goes on when it is.
            stalled.finish();
            let mut read = 0;
            while let Some(message) = nobody.recv().await.unwrap() {
                assert_eq!(message.len(), unread);
                read += 1;
            }
            assert!(read >= 12, "{read} messages of {unread} bytes");
        });
    }
}

/// Catches an end that overtakes messages, that ends the other direction or another stream, or that is not forgotten.
#[test]
fn each_direction_of_a_stream_ends_by_itself() {
    on_session(Sim::new(), &options(), async |_, Pair { ab, ba, .. }| {
        let (opened, accepted) = stream_of(&ab, &ba).await;
        send(&opened, LENS).await;
        opened.finish();
        assert_eq!(opened.send_bytes(b"late").await, Err(SendError::Closed));
        receive(&accepted, LENS).await;
        for _ in 0..2 {
            assert!(accepted.recv().await.unwrap().is_none(), "the end stays");
        }
        join(send(&accepted, LENS), receive(&opened, LENS)).await;
        accepted.finish();
        assert!(opened.recv().await.unwrap().is_none());
        join(send(ab.main_stream(), LENS), receive(ba.main_stream(), LENS)).await;
        // The main stream can be finished, and leaves the session open.
        ab.main_stream().finish();
        assert!(ba.recv().await.unwrap().is_none());
        assert_eq!(ab.close_reason(), None);
        join(send(ba.main_stream(), LENS), receive(ab.main_stream(), LENS)).await;
        let (opened, accepted) = stream_of(&ba, &ab).await;
        join(send(&opened, LENS), receive(&accepted, LENS)).await;
    });
}

/// Regression: a side that had finished the main stream could send nothing on streams that its peer opened later. Catches a stream that
/// begins refused because another one ended.
#[test]
fn streams_that_come_after_the_end_of_the_main_one_work_in_both_directions() {
    for [a_finishes, b_finishes] in [[true, false], [false, true], [true, true]] {
        on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
            if a_finishes {
                ab.main_stream().finish();
            }
            if b_finishes {
                ba.main_stream().finish();
            }
            for has_rested in [false, true] {
                if has_rested {
                    net.sleep(Duration::from_millis(1)).await;
                }
                for (from, to) in [(&ab, &ba), (&ba, &ab)] {
                    let (opened, accepted) = stream_of(from, to).await;
                    join(send(&opened, LENS), receive(&accepted, LENS)).await;
                    join(send(&accepted, LENS), receive(&opened, LENS)).await;
                    drop((opened, accepted));
                    let answer = async {
                        let stream = to.accept_stream().await.unwrap().unwrap();
                        stream.answer(async |request| request.into_lease().unwrap()).await.unwrap();
                    };
                    let mut question = from.alloc(5).await.unwrap();
                    question.extend_from_slice(b"again");
                    let (answered, ()) = join(from.request(question), answer).await;
                    assert_eq!(*answered.unwrap(), *b"again");
                }
            }
            assert_eq!((ab.close_reason(), ba.close_reason()), (None, None));
        });
    }
}

/// Catches a stream that is accepted only with its first message, in another order, or by a task that gave up.
#[test]
fn streams_are_accepted_in_order_before_they_carry_anything() {
    on_session(Sim::new(), &options(), async |_, Pair { ab, ba, .. }| {
        drop(begun(ba.accept_stream()).await);
        let mut opened = Vec::new();
        for _ in 0..5 {
            opened.push(ab.open_stream(Priority::Normal).await.unwrap());
        }
        for stream in &opened {
            let accepted = ba.accept_stream().await.unwrap().unwrap();
            assert_eq!(accepted.id(), stream.id());
            // The side that accepts may speak first.
            accepted.send_bytes(b"welcome").await.unwrap();
            assert_eq!(*stream.recv().await.unwrap().unwrap(), *b"welcome");
        }
        let (from_a, from_b) =
            try_join(ab.open_stream(Priority::Low), ba.open_stream(Priority::High)).await.unwrap();
        assert_ne!(from_a.id(), from_b.id());
    });
}

/// Catches a place that is lost with a task that gave up, or with a stream that is over.
#[test]
fn opening_waits_for_a_stream_to_be_over() {
    on_session(Sim::new(), &options().max_streams(2), async |net, Pair { ab, ba, .. }| {
        for round in 0..40 {
            let (first, accepted) = stream_of(&ab, &ba).await;
            let (_second, other) = stream_of(&ab, &ba).await;
            let gave_up = begun(ab.open_stream(Priority::Normal)).await;
            let waits = begun(ab.open_stream(Priority::Normal)).await;
            drop(gave_up);
            assert_eq!(ab.snapshot().streams, 3);
            drop(first);
            net.sleep(Duration::from_millis(1)).await;
            assert!(accepted.recv().await.unwrap().is_none());
            // Over only when both sides have finished it.
            assert_eq!(ab.snapshot().streams, 3);
            drop(accepted);
            let third = waits.await.unwrap();
            assert_eq!(ba.accept_stream().await.unwrap().unwrap().id(), third.id(), "round {round}");
            drop((third, other));
        }
        net.sleep(Duration::from_millis(1)).await;
        assert_eq!([&ab, &ba].map(|session| session.snapshot().streams), [1, 1]);
    });
}

/// Catches messages that are dropped with their stream, and memory that stays behind.
#[test]
fn what_was_queued_arrives_after_a_stream_is_dropped() {
    let run = Sim::new().run(async |net| {
        let Pair { a, b, ab, ba } = rdma_tests::connected(&net, &options()).await;
        for round in 0..50 {
            let (opened, accepted) = stream_of(&ab, &ba).await;
            for (number, len) in LENS.into_iter().enumerate() {
                let mut lease = ab.alloc(len).await.unwrap();
                lease.extend_from_slice(&message(number, len));
                opened.try_send(lease).unwrap();
            }
            drop(opened);
            if round % 2 == 0 {
                receive(&accepted, LENS).await;
                assert!(accepted.recv().await.unwrap().is_none());
            } else {
                // Nobody reads it, and nobody will.
                drop(accepted);
            }
        }
        // One that nobody accepts, with messages.
        let unaccepted = ab.open_stream(Priority::Normal).await.unwrap();
        send(&unaccepted, LENS).await;
        drop((unaccepted, ab, ba));
        net.sleep(Duration::from_millis(100)).await;
        assert!(a.pool_stats().is_whole(), "{:?}", a.pool_stats());
        assert!(b.pool_stats().is_whole(), "{:?}", b.pool_stats());
    });
    assert_eq!(run.findings, []);
}

/// Catches a stream whose tasks wait for ever, or that keeps no session open.
#[test]
fn streams_end_with_their_session() {
    on_session(Sim::new(), &options().max_streams(1), async |_, Pair { ab, ba, .. }| {
        let (opened, accepted) = stream_of(&ab, &ba).await;
        drop(ab);
        join(send(&opened, LENS), receive(&accepted, LENS)).await;
        let session = opened.session();
        let waits = [begun(session.open_stream(Priority::Normal)).await];
        let reads = [begun(opened.recv()).await, begun(accepted.recv()).await];
        let accepts = begun(ba.accept_stream()).await;
        ba.reset(9);
        let lost = |error| RecvError::Lost(error);
        let [at_a, at_b] = <[_; 2]>::try_from(join_all(reads).await).unwrap();
        assert_eq!(at_a.unwrap_err(), lost(SessionError::Reset(9)));
        assert_eq!(at_b.unwrap_err(), lost(SessionError::Aborted));
        assert_eq!(accepts.await.unwrap_err(), lost(SessionError::Aborted));
        for opening in join_all(waits).await {
            assert_eq!(opening.unwrap_err(), OpenError::Lost(SessionError::Reset(9)));
        }
        assert_eq!(opened.send_bytes(b"late").await, Err(SendError::Lost(SessionError::Reset(9))));
    });
    on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
        let (opened, accepted) = stream_of(&ab, &ba).await;
        send(&opened, LENS).await;
        let (closed, ()) = join(ab.close(), receive(&accepted, LENS)).await;
        closed.unwrap();
        net.sleep(Duration::from_millis(1)).await;
        assert!(accepted.recv().await.unwrap().is_none());
        assert_eq!(accepted.send_bytes(b"late").await, Err(SendError::PeerClosed));
        assert!(ba.accept_stream().await.unwrap().is_none());
        assert_eq!(ba.open_stream(Priority::Normal).await.unwrap_err(), OpenError::PeerClosed);
        assert_eq!(ab.open_stream(Priority::Normal).await.unwrap_err(), OpenError::Closed);
    });
}

/// Catches a writer that is not told, or that waits for a place for ever, and an end that takes the other direction along.
#[test]
fn a_writer_learns_that_the_peer_has_dropped_the_stream() {
    on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
        for len in [64, 20_000, 100_000] {
            let (opened, accepted) = stream_of(&ab, &ba).await;
            // Until the peer takes no more, either.
            for _ in 0..3 {
                fill(&opened, len).await;
                net.sleep(Duration::from_millis(1)).await;
            }
            let waits = begun(opened.send(zeros(&ab, len).await)).await;
            drop(accepted);
            assert_eq!(waits.await.unwrap_err().error, SendError::StreamDropped);
            assert_eq!(opened.send_bytes(b"late").await, Err(SendError::StreamDropped));
            assert!(opened.recv().await.unwrap().is_none());
        }
        // The end of what one side sends does not say that it reads no more.
        let (opened, accepted) = stream_of(&ab, &ba).await;
        accepted.finish();
        net.sleep(Duration::from_millis(1)).await;
        join(send(&opened, LENS), receive(&accepted, LENS)).await;
        drop((opened, accepted));
        net.sleep(Duration::from_millis(1)).await;
        assert_eq!([&ab, &ba].map(|session| session.snapshot().streams), [1, 1]);
    });
}

/// Catches a message of one stream that waits for those of another.
#[test]
fn a_stream_with_priority_goes_before_the_others() {
    on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
        let (bulk, sink) = stream_of(&ab, &ba).await;
        let (urgent, heard) = stream_of(&ab, &ba).await;
        bulk.set_priority(Priority::Low);
        urgent.set_priority(Priority::High);
        let latency = async || {
            let start = net.now();
            let sent = urgent.send_bytes(&[7; 64]);
            let (sent, got) = join(sent, heard.recv()).await;
            sent.unwrap();
            assert_eq!(got.unwrap().unwrap().len(), 64);
            net.now() - start
        };
        let idle = latency().await;
        for len in [1 << 20, 4032, 68_544] {
            let mut beside = Duration::ZERO;
            let feed = async {
                for _ in 0..(16 << 20) / len {
                    bulk.send(zeros(&ab, len).await).await.unwrap();
                }
            };
            let drain = async {
                for _ in 0..(16 << 20) / len {
                    assert_eq!(sink.recv().await.unwrap().unwrap().len(), len);
                }
            };
            let probe = async {
                for _ in 0..20 {
                    net.sleep(Duration::from_micros(37)).await;
                    beside = beside.max(latency().await);
                }
            };
            futures::join!(feed, drain, probe);
            assert!(beside <= 2 * idle, "{beside:?} beside messages of {len} bytes, {idle:?} alone");
        }
    });
}
