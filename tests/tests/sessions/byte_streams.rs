//! Sessions and streams as streams of bytes

use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

use futures::future::join;
use rdma_async::time::timeout;
use rdma_async::{ByteStream, Priority, SendError, SessionError};
use rdma_sim::{LineRate, Sim, SimDevice};
use rdma_tests::{Pair, begun, message, on_session, options, stream_of, zeros};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use super::pairing::exchange_of;

type SimBytes = ByteStream<SimDevice>;

fn of(pair: &Pair) -> (SimBytes, SimBytes) {
    (ByteStream::from(pair.ab.clone()), ByteStream::from(pair.ba.clone()))
}

/// Sends bytes in writes of these lengths, and reads them in pieces of `piece` bytes
async fn carry(from: &mut SimBytes, to: &mut SimBytes, lens: &[usize], piece: usize) {
    let bytes = message(5, lens.iter().sum());
    let write = async {
        let mut rest = bytes.as_slice();
        for &len in lens {
            let (now, later) = rest.split_at(len);
            from.write_all(now).await.unwrap();
            rest = later;
        }
        from.shutdown().await.unwrap();
    };
    let read = async {
        let (mut read, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match to.read(&mut buffer).await.unwrap() {
                0 => return read,
                len => read.extend_from_slice(&buffer[..len]),
            }
        }
    };
    let ((), read) = join(write, read).await;
    assert!(read == bytes, "{} of {} bytes in pieces of {piece}", read.len(), bytes.len());
}

/// Catches bytes that are lost, repeated or out of place where a write or a message ends, whatever happens to the cable.
#[test]
fn bytes_arrive_as_they_were_written() {
    let faults = [
        "",
        "at 100us b:rdma_en2 lose 3",
        "at 300us b:rdma_en2 unplug; at 5ms b:rdma_en2 replug",
        "at 200us b pause; at 30ms b resume",
    ];
    for faults in faults {
        for (lens, piece) in [
            ([1; 500].as_slice(), 1),
            (&[4032, 4033, 68_544, 68_545, 1, 0, 200_000], 4096),
            (&[3 << 20], 1 << 20),
            (&[], 10),
        ] {
            on_session(Sim::new().faults(faults.parse().unwrap()), &options(), async |_, pair| {
                let (mut a, mut b) = of(&pair);
                carry(&mut a, &mut b, lens, piece).await;
                carry(&mut b, &mut a, lens, piece).await;
            });
        }
    }
}

/// Catches a stream that takes more of its node than there is: one message of one frame at a time.
#[test]
fn a_small_node_carries_any_length() {
    let small = options().send_memory(4096).receive_memory(4096).max_message(100).max_in_flight_sends(1);
    on_session(Sim::new(), &small, async |_, pair| {
        let (mut a, mut b) = of(&pair);
        carry(&mut a, &mut b, &[100_000], 77).await;
    });
}

/// Catches streams of bytes whose peer does not read them, and which take all send memory of their node from the others.
#[test]
fn unread_streams_of_bytes_leave_send_memory_to_others() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let piece = vec![1; 1 << 20];
        let (mut unread, mut kept) = (Vec::new(), Vec::new());
        for _ in 0..15 {
            let mut bytes = ByteStream::from(pair.ab.open_stream(Priority::Normal).await.unwrap());
            kept.push(pair.ba.accept_stream().await.unwrap().unwrap());
            while timeout(&*net.runtime(), Duration::from_millis(5), bytes.write(&piece)).await.is_some() {}
            unread.push(bytes);
        }
        // Regression: not the longest message, which found no memory in one piece beside six of them.
        exchange_of(&[4 << 20, 100, 70_000], &pair.ab, &pair.ba).await;
        let (mut a, mut b) = of(&pair);
        carry(&mut a, &mut b, &[1, 3 << 20, 100], 1 << 20).await;
        // Those that wait go on when they are read.
        for (mut bytes, stream) in unread.into_iter().zip(kept) {
            let read =
                async { tokio::io::copy_buf(&mut ByteStream::from(stream), &mut tokio::io::sink()).await };
            let write = async {
                bytes.write_all(&piece).await.unwrap();
                bytes.shutdown().await.unwrap();
            };
            let (read, ()) = join(read, write).await;
            assert!(read.unwrap() >= 1 << 20);
        }
    });
}

#[test]
fn lines_and_slices() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let (mut a, mut b) = of(&pair);
        let slices = [IoSlice::new(b"one\nt"), IoSlice::new(b""), IoSlice::new(b"wo\nthree")];
        assert_eq!(a.write_vectored(&slices).await.unwrap(), 13);
        a.flush().await.unwrap();
        a.shutdown().await.unwrap();
        let mut lines = Vec::new();
        let mut line = String::new();
        while b.read_line(&mut line).await.unwrap() > 0 {
            lines.push(std::mem::take(&mut line));
        }
        assert_eq!(lines, ["one\n", "two\n", "three"]);
    });
}

/// Catches bytes that are lost with a read or a write that was dropped, and a place in the send queue that stays taken.
#[test]
fn what_is_dropped_while_it_waits_has_done_nothing() {
    on_session(Sim::new(), &options().max_in_flight_sends(2), async |net, pair| {
        let (mut a, mut b) = of(&pair);
        let mut byte = [0];
        drop(begun(b.read(&mut byte)).await);
        a.write_all(b"1").await.unwrap();
        assert_eq!(b.read_u8().await.unwrap(), b'1');
        // All memory is leased, and one message is on the heap, so a write waits for memory.
        let all = pair.a.alloc(16 << 20).await.unwrap();
        let long = message(1, 100_000);
        a.write_all(&long).await.unwrap();
        for _ in 0..5 {
            drop(begun(a.write(b"lost")).await);
        }
        let mut waits = begun(a.write(b"2")).await;
        drop(all);
        assert_eq!(waits.as_mut().await.unwrap(), 1);
        drop(waits);
        let mut read = vec![0; long.len()];
        b.read_exact(&mut read).await.unwrap();
        assert!(read == long);
        assert_eq!(b.read_u8().await.unwrap(), b'2');
        // No more places, as nobody reads.
        drop((a, b));
        net.sleep(Duration::from_millis(1)).await;
        assert_eq!(pair.ab.snapshot().messages_in_flight, 0);
        pair.ab.send_bytes(b"3").await.unwrap();
        assert_eq!(*pair.ba.recv().await.unwrap().unwrap(), *b"3");
    });
}

/// Catches a task that waits for ever, and an error without its reason.
#[test]
fn the_end_of_the_session_ends_reads_and_writes() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let (mut a, mut b) = of(&pair);
        let all = pair.a.alloc(16 << 20).await.unwrap();
        let (mut reader, mut writer) =
            tokio::io::split(ByteStream::from(pair.ab.open_stream(Priority::Normal).await.unwrap()));
        let mut byte = [0];
        writer.write_all(&[0; 100_000]).await.unwrap();
        let (read, written) =
            (begun(reader.read(&mut byte)).await, begun(writer.write(b"waits for memory")).await);
        pair.ba.reset(5);
        let (read, written) = join(read, written).await;
        let reason = SessionError::Reset(5);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(written.unwrap_err().downcast::<SendError>().unwrap(), SendError::Lost(reason));
        assert_eq!(a.write(b"late").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(b.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionAborted);
        drop(all);
    });
    on_session(Sim::new(), &options(), async |net, pair| {
        let (mut a, mut b) = of(&pair);
        pair.ba.close().await.unwrap();
        net.sleep(Duration::from_millis(1)).await;
        assert_eq!(a.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(a.write(b"late").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(b.write(b"late").await.unwrap_err().kind(), ErrorKind::NotConnected);
    });
}

/// Catches a stream of bytes that waits for each message, and messages that share no cable.
#[test]
fn bytes_fill_the_cable() {
    const LEN: usize = 64 << 20;
    let seconds = on_session(Sim::new(), &options(), async |net, pair| {
        let (mut a, mut b) = of(&pair);
        let start = net.now();
        let write = async {
            let piece = vec![1; 1 << 20];
            for _ in 0..LEN / piece.len() {
                a.write_all(&piece).await.unwrap();
            }
            a.shutdown().await.unwrap();
        };
        let read = async { tokio::io::copy_buf(&mut b, &mut tokio::io::sink()).await.unwrap() };
        let ((), read) = join(write, read).await;
        assert_eq!(read, LEN as u64);
        (net.now() - start).as_secs_f64()
    });
    let (goodput, ceiling) = (LEN as f64 / seconds, LineRate::TB5.ceiling_bytes_per_second());
    assert!(goodput >= 0.95 * ceiling, "{:.4} of the ceiling", goodput / ceiling);
}

/// Catches a sink that takes a message without a place for it, and a place that is lost with the sink.
#[test]
fn a_sink_takes_messages_while_there_are_places() {
    use futures::{SinkExt as _, StreamExt as _, TryStreamExt as _};
    on_session(Sim::new(), &options().max_in_flight_sends(2), async |_, Pair { ab, ba, .. }| {
        for _ in 0..5 {
            let mut sink = ab.sink();
            std::future::poll_fn(|cx| sink.poll_ready_unpin(cx)).await.unwrap();
        }
        let feed = async {
            let leases = futures::stream::iter(0..100).then(|number| {
                let ab = ab.clone();
                async move { Ok(zeros(&ab, number * 700).await) }
            });
            let mut sink = ab.sink();
            sink.send_all(&mut std::pin::pin!(leases)).await.unwrap();
            sink.close().await.unwrap();
        };
        let lens = ba.messages().map_ok(|message| message.len()).try_collect::<Vec<_>>();
        let ((), lens) = join(feed, lens).await;
        assert_eq!(lens.unwrap(), (0..100).map(|number| number * 700).collect::<Vec<_>>());
    });
}

/// Regression: flushing and closing succeeded although the session was lost, or the peer had dropped the stream.
#[test]
fn a_sink_tells_that_its_messages_may_be_lost() {
    use futures::SinkExt as _;
    for is_dropped in [true, false] {
        on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
            let (from, to) = stream_of(&ab, &ba).await;
            let mut sink = from.sink();
            sink.send(zeros(&ab, 10).await).await.unwrap();
            sink.flush().await.unwrap();
            let error = if is_dropped {
                drop(to);
                SendError::StreamDropped
            } else {
                ba.reset(3);
                SendError::Lost(SessionError::Reset(3))
            };
            net.sleep(Duration::from_millis(1)).await;
            assert_eq!(sink.flush().await, Err(error.clone()));
            assert_eq!(sink.close().await, Err(error.clone()));
            assert_eq!(sink.feed(zeros(&ab, 10).await).await, Err(error));
        });
    }
}
