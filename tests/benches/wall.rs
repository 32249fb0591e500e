//! Wall time of a message, as a ratio to well-known operations
//!
//! * the bulk path beside a plain copy of the same sizes;
//! * a ping-pong of 64 bytes beside bare verbs on the same simulator, and beside TCP in turmoil.
//!
//! `cargo bench` prints criterion's figures and then the ratios. Only the ratios mean something on another machine.

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::cell::Cell;
use std::hint::black_box;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use futures::channel::oneshot;
use futures::future::{join, join_all};

use rdma_arena::Arena;
use rdma_async::{Integrity, Session};
use rdma_bare::BareQp;
use rdma_core::Device;
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{bare_pair, now, on_session, options, value_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SIZES: [usize; 3] = [64 << 10, 1 << 20, 4 << 20];

/// Sessions that carry nothing meanwhile.
const RESTING: u32 = 4000;
/// Round trips that are not timed: setting up the sessions at rest leaves the caches cold.
const WARM_UP: u64 = 5000;
/// Messages in flight at once.
const AT_ONCE: u64 = 3;

/// `count` messages of `len` bytes one way, a few at a time, each again in the memory of an earlier one
fn bulk(len: usize, count: u64, integrity: Integrity) -> Duration {
    on_session(Sim::new(), &options().integrity(integrity), async |_, pair| {
        let send = async |count| {
            let sends = (0..AT_ONCE).map(async |number| {
                let mut lease = pair.ab.alloc(len).await.unwrap();
                lease.resize(len, 1);
                for _ in 0..(count + number) / AT_ONCE {
                    lease = pair.ab.send(lease).await.unwrap();
                }
            });
            join_all(sends).await;
        };
        let receive = async |count| {
            for _ in 0..count {
                assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), len);
            }
        };
        // The first touch of memory is not the copy's.
        join(send(64), receive(64)).await;
        let start = now();
        join(send(count), receive(count)).await;
        start.elapsed()
    })
}

fn copy(len: usize, count: u64) -> Duration {
    // Memory of the same kind: some processors copy much more slowly between other alignments.
    let (from, to) = (Arena::new(len).unwrap(), Arena::new(len).unwrap());
    let copy = || {
        let (from, to) = (black_box(from.as_ptr()), black_box(to.as_ptr()));
        // SAFETY: two mappings of this length, which nothing else uses.
        unsafe { from.copy_to_nonoverlapping(to, len) };
    };
    (0..64).for_each(|_| copy());
    let start = now();
    (0..count).for_each(|_| copy());
    start.elapsed()
}

async fn echo(session: Session<SimDevice>) {
    let mut lease = session.alloc(64).await.unwrap();
    while let Ok(Some(message)) = session.recv().await {
        lease.clear();
        lease.extend_from_slice(&message);
        drop(message);
        lease = session.send(lease).await.unwrap();
    }
}

/// `count` round trips of 64 bytes over a session, beside `resting` others with the same peer
fn ping(count: u64, resting: u32) -> Duration {
    let options = options().max_peers(1).max_sessions(resting + 1).stream_share(17);
    on_session(Sim::new(), &options, async |net, pair| {
        let mut others = Vec::new();
        for _ in 0..resting {
            others.push((pair.ab.open().unwrap(), pair.b.accept().await.unwrap()));
        }
        net.runtime().spawn(Box::pin(echo(pair.ba)));
        let mut lease = pair.ab.alloc(64).await.unwrap();
        lease.resize(64, 1);
        let mut start = now();
        for number in 0..WARM_UP + count {
            if number == WARM_UP {
                start = now();
            }
            lease = pair.ab.send(lease).await.unwrap();
            drop(pair.ab.recv().await.unwrap().unwrap());
        }
        let spent = start.elapsed();
        drop(others);
        spent
    })
}

/// The same on bare verbs
fn raw_ping(count: u64) -> Duration {
    value_of(Sim::new(), async |net| {
        let [mut a, mut b] = bare_pair(&net, 1 << 16);
        for side in [&mut a, &mut b] {
            side.recv(1, 4096..4160).unwrap();
            side.recv(2, 8192..8256).unwrap();
        }
        async fn bounce(side: &mut BareQp<impl Device>) {
            let id = side.received().await.unwrap().id.0;
            side.recv(id, id as usize * 4096..id as usize * 4096 + 64).unwrap();
        }
        let (done, ended) = oneshot::channel();
        net.runtime().spawn(Box::pin(async move {
            for _ in 0..count {
                bounce(&mut b).await;
                b.send(0, 0..64).unwrap();
            }
            let _ = done.send(b);
        }));
        let start = now();
        for _ in 0..count {
            a.send(0, 0..64).unwrap();
            bounce(&mut a).await;
        }
        let spent = start.elapsed();
        drop(ended.await);
        spent
    })
}

/// The same over TCP in turmoil, each way one tick of a millisecond
fn turmoil_ping(count: u64) -> Duration {
    let tick = Duration::from_millis(1);
    let mut sim = turmoil::Builder::new()
        .tick_duration(tick)
        .min_message_latency(tick)
        .max_message_latency(tick)
        .simulation_duration(Duration::from_secs(3600))
        .build();
    sim.host("b", || async {
        let listener = turmoil::net::TcpListener::bind("0.0.0.0:9000").await?;
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut message = [0; 64];
        while stream.read_exact(&mut message).await.is_ok() {
            stream.write_all(&message).await?;
        }
        Ok(())
    });
    let spent = Rc::new(Cell::new(Duration::ZERO));
    let report = Rc::clone(&spent);
    sim.client("a", async move {
        let mut stream = turmoil::net::TcpStream::connect("b:9000").await?;
        stream.set_nodelay(true)?;
        let mut message = [0; 64];
        let start = now();
        for _ in 0..count {
            stream.write_all(&message).await?;
            stream.read_exact(&mut message).await?;
        }
        report.set(start.elapsed());
        Ok(())
    });
    sim.run().unwrap();
    spent.get()
}

/// Median of a benchmark, in nanoseconds, as criterion recorded it in this run
fn median(id: &str) -> Option<f64> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let home = std::env::var_os("CRITERION_HOME").map_or_else(|| target.join("criterion"), PathBuf::from);
    let text = std::fs::read_to_string(home.join(id).join("new/estimates.json")).ok()?;
    let estimates: serde_json::Value = serde_json::from_str(&text).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("one_way");
    for len in SIZES {
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("copy_{len}"), |b| b.iter_custom(|n| copy(len, n)));
        group.bench_function(format!("bulk_{len}"), |b| {
            b.iter_custom(|n| bulk(len, n, Integrity::Crc32));
        });
        group.bench_function(format!("unchecked_{len}"), |b| {
            b.iter_custom(|n| bulk(len, n, Integrity::Unchecked));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("ping_64");
    group.bench_function("session", |b| b.iter_custom(|n| ping(n, 0)));
    group.bench_function("session_beside_4000", |b| b.iter_custom(|n| ping(n, RESTING)));
    group.bench_function("bare_verbs", |b| b.iter_custom(raw_ping));
    group.sample_size(10).bench_function("turmoil_tcp", |b| b.iter_custom(turmoil_ping));
    group.finish();
    criterion.final_summary();
    summary();
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn summary() {
    println!();
    for len in SIZES {
        for (id, name) in [("bulk", "bulk"), ("unchecked", "without integrity checks")] {
            let medians = (median(&format!("one_way/copy_{len}")), median(&format!("one_way/{id}_{len}")));
            if let (Some(copy), Some(bulk)) = medians {
                let rate = len as f64 / bulk;
                println!("{name}, {:>4} KiB: {:.2} of plain memcpy ({rate:.1} GB/s)", len >> 10, copy / bulk);
            }
        }
    }
    if let Some(ping) = median("ping_64/session") {
        println!("ping-pong, 64 B: {:.2} µs of wall time per round trip", ping / 1e3);
        for (id, name) in [("ping_64/bare_verbs", "bare verbs"), ("ping_64/turmoil_tcp", "TCP in turmoil")] {
            if let Some(other) = median(id) {
                println!("  {name}: {:.2} µs, {:.2} × that", other / 1e3, other / ping);
            }
        }
        if let Some(bare) = median("ping_64/bare_verbs") {
            if let Some(turmoil) = median("ping_64/turmoil_tcp") {
                println!("  bare verbs: {:.2} of TCP in turmoil (at most 0.2)", bare / turmoil);
            }
            println!("  a message takes {:.0} ns more than on bare verbs", (ping - bare) / 2.0);
        }
        if let Some(beside) = median("ping_64/session_beside_4000") {
            println!("  beside {RESTING} sessions at rest: {:.2} × that", beside / ping);
        }
    }
}
