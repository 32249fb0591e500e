//! Figures that others measured between Macs, within 15 %
//!
//! Virtual time is exact: the assertions are about the model, not this machine.

use std::time::Duration;

use rdma_async::time::sleep;
use rdma_bare::BareQp;
use rdma_sim::{Model, Net, Sim, SimDevice};
use rdma_tests::{bare_pair, value_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Whether `figure` is within 15 % of `measured`.
fn assert_near(figure: Duration, measured: Duration) {
    let ratio = figure.as_secs_f64() / measured.as_secs_f64();
    assert!((0.85..=1.15).contains(&ratio), "{figure:?} instead of {measured:?}: {ratio:.3}");
}

/// Source: field notes of a bridge process between two Macs, 8 B round trip 13 µs while polling.
#[test]
fn eight_bytes_return_in_13_us() {
    Sim::new().run(async |net| {
        let [mut a, mut b] = bare_pair(&net, 4096);
        a.recv(1, 0..8).unwrap();
        b.recv(1, 0..8).unwrap();
        let start = net.now();
        a.send(2, 8..16).unwrap();
        b.received().await.unwrap();
        b.send(2, 8..16).unwrap();
        a.received().await.unwrap();
        assert_near(net.now() - start, Duration::from_micros(13));
    });
}

/// What a program spends on copying or adding a buffer, in bytes per nanosecond: a core of an M-series Mac (assumed).
const COPY_BYTES_PER_NS: u64 = 50;

async fn copy(net: &Net, len: usize) {
    sleep(&*net.runtime(), Duration::from_nanos(len as u64 / COPY_BYTES_PER_NS)).await;
}

/// One side of an exchange-and-reduce: every buffer is copied out, sent, received and added, two in flight in each
/// direction (as MLX's JACCL does between two nodes)
async fn exchange(net: &Net, qp: &mut BareQp<SimDevice>, total: usize, buffer: usize) {
    let count = total.div_ceil(buffer);
    let send_buffer = |number: usize| (number % 2) * buffer..(number % 2 + 1) * buffer;
    let recv_buffer = |number: usize| (2 + number % 2) * buffer..(3 + number % 2) * buffer;
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    for number in 0..count.min(2) {
        qp.recv(number as u64, recv_buffer(number)).unwrap();
    }
    while sent < count || received < count {
        if posted < count && posted - sent < 2 {
            copy(net, buffer).await;
            qp.send(posted as u64, send_buffer(posted)).unwrap();
            posted += 1;
            continue;
        }
        match qp.completion().await.unwrap().opcode {
            rdma_core::Opcode::Recv => {
                copy(net, buffer).await;
                if received + 2 < count {
                    qp.recv((received + 2) as u64, recv_buffer(received + 2)).unwrap();
                }
                received += 1;
            }
            _ => sent += 1,
        }
    }
}

fn exchange_time(model: Model, total: usize, buffer: usize) -> Duration {
    value_of(Sim::new().sanitize(false).model(model), async |net| {
        let [mut a, mut b] = bare_pair(&net, 4 * buffer);
        let start = net.now();
        let (side_a, side_b) = (exchange(&net, &mut a, total, buffer), exchange(&net, &mut b, total, buffer));
        futures::future::join(side_a, side_b).await;
        net.now() - start
    })
}

/// Source: all-reduce of two nodes over MLX's JACCL, PyTorch pull request 181087.
#[test]
fn an_exchange_of_two_nodes_takes_as_long_as_measured() {
    let table = [(1 << 20, 150), (16 << 20, 1_850), (128 << 20, 14_520)];
    for (bytes, micros) in table {
        assert_near(exchange_time(Model::tb5(), bytes, 512 << 10), Duration::from_micros(micros));
    }
}

/// Source: MLX pull request 3094, which replaced the buffers of 4 KiB that macOS 26.2 needs: much less bandwidth.
#[test]
fn buffers_of_4_kib_collapse() {
    let large = exchange_time(Model::tb5(), 4 << 20, 512 << 10);
    let small = exchange_time(Model::tb5_macos_26_2(), 4 << 20, 4 << 10);
    let ratio = small.as_secs_f64() / large.as_secs_f64();
    assert!(ratio > 5.0, "{small:?} against {large:?}");
}

/// Source: published comparisons, about 300 µs over TCP.
#[test]
fn tcp_beside_rdma_takes_300_us() {
    Sim::new().run(async |net| {
        let (mut a, mut b) = net.tcp();
        let echo = async {
            let mut bytes = [0; 8];
            b.read_exact(&mut bytes).await.unwrap();
            b.write_all(&bytes).await.unwrap();
        };
        let start = net.now();
        let ping = async {
            a.write_all(b"8 bytes.").await.unwrap();
            let mut bytes = [0; 8];
            a.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes, *b"8 bytes.");
        };
        futures::future::join(ping, echo).await;
        assert_near(net.now() - start, Duration::from_micros(300));
    });
}
