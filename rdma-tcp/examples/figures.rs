//! Round trips and throughput over loopback: raw TCP, queue pairs of the device, and sessions over them, in one run
//!
//! `cargo run --release -p rdma-tcp --example figures`
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures::future::{join, try_join};
use rdma_async::{Node, Session};
use rdma_bare::BareQp;
use rdma_core::Opcode;
use rdma_tcp::{BindError, TcpDevice, TcpOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 10_000;
const LEN: usize = 64;
const TOTAL: usize = 1 << 30;
/// Bytes of a write of raw TCP and of a message of queue pairs.
const CHUNK: usize = 1 << 20;
/// Messages of queue pairs that are under way.
const WINDOW: usize = 8;
/// Bytes of a message of sessions.
const MESSAGE: usize = 4 << 20;

fn main() -> Result {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        println!("{:<12} {:>12} {:>12} {:>12}", "", "64 B p50", "64 B p99", "1 GiB");
        for _ in 0..3 {
            raw_tcp().await?;
            queue_pairs().await?;
            sessions().await?;
        }
        Ok(())
    })
}

#[expect(clippy::disallowed_methods, reason = "measures wall time")]
fn now() -> Instant {
    Instant::now()
}

fn report(name: &str, mut times: Vec<Duration>, transfer: Duration) {
    times.sort_unstable();
    let [p50, p99] = [times.len() / 2, times.len() * 99 / 100].map(|at| times[at].as_secs_f64() * 1e6);
    let rate = TOTAL as f64 / transfer.as_secs_f64() / 1e6;
    println!("{name:<12} {p50:>9.1} µs {p99:>9.1} µs {rate:>7.0} MB/s");
}

async fn raw_tcp() -> Result {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (mut a, (mut b, _)) = try_join(TcpStream::connect(listener.local_addr()?), listener.accept()).await?;
    a.set_nodelay(true)?;
    b.set_nodelay(true)?;
    let echo = tokio::spawn(async move {
        let mut message = [0; LEN];
        for _ in 0..ROUNDS {
            b.read_exact(&mut message).await?;
            b.write_all(&message).await?;
        }
        std::io::Result::Ok(b)
    });
    let (mut times, mut message) = (Vec::new(), [7; LEN]);
    for _ in 0..ROUNDS {
        let start = now();
        a.write_all(&message).await?;
        a.read_exact(&mut message).await?;
        times.push(start.elapsed());
    }
    let mut b = echo.await??;
    let start = now();
    let send = tokio::spawn(async move {
        let chunk = vec![7; CHUNK];
        for _ in 0..TOTAL / CHUNK {
            a.write_all(&chunk).await?;
        }
        std::io::Result::Ok(())
    });
    let mut chunk = vec![0; CHUNK];
    for _ in 0..TOTAL / CHUNK {
        b.read_exact(&mut chunk).await?;
    }
    let took = start.elapsed();
    send.await??;
    report("raw TCP", times, took);
    Ok(())
}

fn open() -> std::result::Result<TcpDevice, BindError> {
    TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), TcpOptions::new())
}

async fn queue_pairs() -> Result {
    let [mut a, mut b] = BareQp::pair(open()?, open()?, WINDOW * CHUNK)?;
    let echo = tokio::spawn(async move {
        b.recv(0, 0..LEN)?;
        for _ in 0..ROUNDS {
            b.received().await?;
            b.recv(0, 0..LEN)?;
            b.send(0, CHUNK..CHUNK + LEN)?;
        }
        Result::<BareQp<TcpDevice>>::Ok(b)
    });
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = now();
        a.recv(0, 0..LEN)?;
        a.send(0, CHUNK..CHUNK + LEN)?;
        a.received().await?;
        times.push(start.elapsed());
    }
    drop(echo.await??);
    drop(a);

    let [mut a, mut b] = BareQp::pair(open()?, open()?, WINDOW * CHUNK)?;
    for slot in 0..WINDOW {
        b.recv(slot as u64, slot * CHUNK..(slot + 1) * CHUNK)?;
    }
    let start = now();
    // A message without a receive is lost: the receiver grants each message with a short one.
    let send = tokio::spawn(async move {
        for slot in 0..WINDOW {
            a.recv(0, 0..0)?;
            a.send(slot as u64, slot * CHUNK..(slot + 1) * CHUNK)?;
        }
        let mut granted = WINDOW;
        while granted < TOTAL / CHUNK {
            if a.completion().await?.opcode == Opcode::Recv {
                a.recv(0, 0..0)?;
                let slot = granted % WINDOW;
                a.send(slot as u64, slot * CHUNK..(slot + 1) * CHUNK)?;
                granted += 1;
            }
        }
        Result::<BareQp<TcpDevice>>::Ok(a)
    });
    for number in 0..TOTAL / CHUNK {
        let slot = number % WINDOW;
        b.received().await?;
        b.recv(slot as u64, slot * CHUNK..(slot + 1) * CHUNK)?;
        b.send(0, 0..0)?;
    }
    let took = start.elapsed();
    drop(send.await??);
    report("queue pairs", times, took);
    Ok(())
}

async fn sessions() -> Result {
    let (a, b) = (Node::builder(open).build()?, Node::builder(open).build()?);
    let (to_b, to_a) = tokio::io::duplex(64 << 10);
    let (ab, ()) = try_join(a.connect(to_b), b.serve(to_a)).await?;
    let ba = b.accept().await.ok_or("the node is open")?;
    let echo = tokio::spawn(async move {
        for _ in 0..ROUNDS {
            let message = ba.recv().await?.ok_or("a message")?;
            ba.send_bytes(&message).await?;
        }
        Result::<Session<TcpDevice>>::Ok(ba)
    });
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = now();
        ab.send_bytes(&[7; LEN]).await?;
        drop(ab.recv().await?.ok_or("a message")?);
        times.push(start.elapsed());
    }
    let ba = echo.await??;
    let start = now();
    let send = async {
        for _ in 0..TOTAL / MESSAGE {
            let mut lease = ab.alloc(MESSAGE).await?;
            lease.resize(MESSAGE, 7);
            drop(ab.send(lease).await?);
        }
        Result::Ok(())
    };
    let receive = async {
        for _ in 0..TOTAL / MESSAGE {
            assert_eq!(ba.recv().await?.ok_or("a message")?.len(), MESSAGE);
        }
        Result::Ok(())
    };
    let (sent, received) = join(send, receive).await;
    sent?;
    received?;
    let took = start.elapsed();
    report("sessions", times, took);
    Ok(())
}
