//! Every published figure, with the figure of the model

use std::time::Duration;

use rdma_sim::{LineRate, Model, Sim};
use rdma_tests::value_of;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::Basis::{Again, Calibrated, Missed, Predicted};
use super::no_figure;
use super::programs::{BUFFER, Program, accepted_receives, time_of};

/// A published figure beside that of the model
pub(crate) struct Row {
    pub(crate) setup: &'static str,
    pub(crate) source: &'static str,
    pub(crate) unit: &'static str,
    /// The least and the greatest figure
    pub(crate) published: [f64; 2],
    pub(crate) basis: Basis,
    /// That of the model, if it has one
    pub(crate) figure: Option<f64>,
    /// Whether the costs of processors are part of the figure
    pub(crate) has_cpu: bool,
}

/// What the figure of the model rests on
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Basis {
    /// Predicted, and repeats the figure that is named
    Again(&'static str),
    /// Part of the model was chosen so that this figure comes out
    Calibrated(&'static str),
    /// Nothing was chosen for it
    Predicted,
    /// Predicted, and more than 15 % off: why
    Missed(&'static str),
    /// The model has no such figure: why
    None(&'static str),
}

impl Row {
    /// How far the figure is beyond the nearer end of the published range, as a part of that end
    pub(crate) fn error(&self) -> Option<f64> {
        let [least, greatest] = self.published;
        self.figure.map(|figure| match () {
            () if figure < least => figure / least - 1.0,
            () if figure > greatest => figure / greatest - 1.0,
            () => 0.0,
        })
    }
}

/// What MLX adds to an operation that is called from Python, in microseconds: calibrated with the sum of 4 KB.
const PYTHON_US: f64 = 17.2;
/// How many bytes of messages the check of hellas compares in a microsecond: calibrated with its messages of 1 MiB.
const CHECKED_BYTES_PER_US: u64 = 1_920;
/// Bytes that one core adds in a microsecond since MLX pull request 3412: calibrated with its own figure.
const FAST_BYTES_PER_US: u64 = 40_000;

/// Ranks that sum vectors with processors, in microseconds
fn sum(hosts: usize, program: Program) -> f64 {
    micros(time_of(Model::tb5_cpu(), hosts, LineRate::TB5, program))
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn mesh(hosts: usize, bytes: usize) -> f64 {
    // The largest buffer that the vector fills.
    let buffer = (0..8).map(|class| 4096 << class).rfind(|buffer| *buffer <= bytes).unwrap_or(4096);
    sum(hosts, Program::Mesh { bytes, buffer: buffer.min(BUFFER) })
}

/// Bytes of the vector in a nanosecond, on a ring of four
fn ring(bytes_per_us: u64, depths: [usize; 2]) -> f64 {
    let mut model = Model::tb5_cpu();
    (model.timing.copy_bytes_per_us, model.timing.reduce_bytes_per_us) = (bytes_per_us, bytes_per_us);
    let bytes = 256 << 20;
    bytes as f64 / (1e3 * micros(time_of(model, 4, LineRate::TB5, Program::Ring { bytes, depths })))
}

/// A round trip in microseconds
fn ping(model: Model, rate: LineRate, bytes: usize) -> f64 {
    const ROUNDS: u32 = 100;
    micros(time_of(model, 2, rate, Program::Ping { bytes, rounds: ROUNDS })) / f64::from(ROUNDS)
}

/// Gigabits in a second
fn stream(rate: LineRate, bytes: usize, count: usize, depth: usize, verifies: bool) -> f64 {
    let mut model = Model::tb5_cpu();
    if verifies {
        model.timing.reduce_bytes_per_us = CHECKED_BYTES_PER_US;
    }
    let time = time_of(model, 2, rate, Program::Stream { bytes, count, depth, verifies });
    (8 * bytes * count) as f64 / time.as_nanos() as f64
}

/// A round trip of 8 bytes over a stream, in microseconds
fn tcp() -> f64 {
    value_of(Sim::new(), async |net| {
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
        micros(net.now().since(start))
    })
}

/// All rows
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |setup, source, unit, published, basis, figure, has_cpu| {
        rows.push(Row { setup, source, unit, published, basis, figure, has_cpu });
    };
    latencies(&mut add);
    sums(&mut add);
    streams(&mut add);
    others(&mut add);
    no_figure::add_all(&mut add);
    rows
}

/// Adds a row: setup, source, unit, published range, basis, figure of the model, and whether processors are part of that
pub(super) type Add<'a> =
    &'a mut dyn FnMut(&'static str, &'static str, &'static str, [f64; 2], Basis, Option<f64>, bool);

fn latencies(add: Add<'_>) {
    let (source, setup) = ("mesh-flow field notes", "8 bytes there and back, a process that polls");
    let wire = "the latency of the wire, between this and the 10 µs of Apple's announcements";
    let eight = ping(Model::tb5(), LineRate::TB5, 8);
    add(setup, source, "µs", [13.0; 2], Calibrated(wire), Some(eight), false);
    let why = "how long the process sleeps is not published";
    add(
        "8 bytes there and back, a process that sleeps between polls",
        source,
        "µs",
        [778.0; 2],
        Basis::None(why),
        None,
        false,
    );
    let why = "contradicts the 13 µs of mesh-flow, which the latency of the wire is taken from";
    let round_trip = Some(ping(Model::tb5_cpu(), LineRate::TB5, 8));
    add(
        "8 bytes there and back, ib_send_lat (4.15 µs one way)",
        "hellas thunderbolt-ibverbs PR 28",
        "µs",
        [8.3; 2],
        Missed(why),
        round_trip,
        true,
    );
    let why = "secondary source without a setup, and half of what mesh-flow measured";
    let one_way = Some(eight / 2.0);
    add("one way, 8 bytes", "sean-weldon.com", "µs", [3.0; 2], Missed(why), one_way, false);
    let one_way = ping(Model::tb5_cpu(), LineRate::TB4, 4096) / 2.0;
    let why = "one end is a Linux driver with costs of its own, which are not published";
    for (setup, figure) in [
        ("4 KiB one way from Linux to an M4 Max, 40 Gb/s, send_lat", 9.59),
        ("4 KiB one way from an M4 Max to Linux, 40 Gb/s, send_lat", 10.93),
    ] {
        add(setup, "hellas thunderbolt-ibverbs", "µs", [figure; 2], Missed(why), Some(one_way), true);
    }
    add(
        "small all_reduce of 4 M3 Ultra (4 KiB)",
        "anemll, techboards",
        "µs",
        [5.0, 9.0],
        Predicted,
        Some(mesh(4, 4096)),
        true,
    );
    add(
        "8 bytes there and back over TCP",
        "adwaitx; jeffgeerling.com",
        "µs",
        [300.0; 2],
        Calibrated("simulated TCP streams"),
        Some(tcp()),
        false,
    );
}

fn sums(add: Add<'_>) {
    let source = "omar-karray/mlx-jaccl-cluster";
    let python = |bytes| Some(mesh(2, bytes) + PYTHON_US);
    let why = "what a call from Python adds to each sum";
    add(
        "all_sum of 4 KB from Python, 2 M4 Pro, mlx 0.30.6",
        source,
        "µs",
        [25.5; 2],
        Calibrated(why),
        python(4 << 10),
        true,
    );
    let why = "something that grows neither with the call nor with the bytes: sums of 4 KB and 4 MB fit";
    add("all_sum of 256 KB, the same", source, "µs", [120.0; 2], Missed(why), python(256 << 10), true);
    add("all_sum of 4 MB, the same", source, "µs", [560.0; 2], Predicted, python(4 << 20), true);
    add("all_sum of 64 MB, the same", source, "µs", [7_600.0; 2], Predicted, python(64 << 20), true);
    let rate = |bytes| python(bytes).map(|micros| bytes as f64 / (1e3 * micros));
    let again = Again("the best of the runs whose mean is above");
    for (setup, bytes, peak, basis) in [
        ("all_sum of 256 KB, the best run", 256 << 10, 2.14, Missed(why)),
        ("all_sum of 4 MB, the best run", 4 << 20, 7.38, again),
        ("all_sum of 64 MB, the best run", 64 << 20, 8.05, again),
    ] {
        add(setup, source, "GB/s", [peak; 2], basis, rate(bytes), true);
    }

    let source = "pytorch PR 181087";
    add(
        "all_reduce of 1 MiB, 2 nodes, torch MPS over JACCL",
        source,
        "µs",
        [150.0; 2],
        Predicted,
        Some(mesh(2, 1 << 20)),
        true,
    );
    add(
        "all_reduce of 16 MiB, the same",
        source,
        "µs",
        [1_850.0; 2],
        Predicted,
        Some(mesh(2, 16 << 20)),
        true,
    );
    let why = "the overhead of a packet, and so the ceiling of the cable";
    add(
        "all_reduce of 128 MiB, the same",
        source,
        "µs",
        [14_520.0; 2],
        Calibrated(why),
        Some(mesh(2, 128 << 20)),
        true,
    );

    let source = "tb5-jaccl-toolkit";
    let why = "waits between the processor and the GPU, which mlx#4438 puts between 4 µs and 180 µs for each operation";
    add(
        "all_sum of 3.8 MB (10⁶ floats), 3 nodes, mesh, JACCL before mlx#3412",
        source,
        "µs",
        [700.0; 2],
        Missed(why),
        Some(mesh(3, 4_000_000)),
        true,
    );
    add(
        "all_sum of 38.1 MB, the same",
        source,
        "µs",
        [5_200.0; 2],
        Predicted,
        Some(mesh(3, 40_000_000)),
        true,
    );
    let why = "the rate of copies and reductions";
    add(
        "all_sum of 381.5 MB, the same",
        source,
        "µs",
        [51_300.0; 2],
        Calibrated(why),
        Some(mesh(3, 400_000_000)),
        true,
    );

    let source = "mlx#3412";
    let slow = ring(Model::tb5_cpu().timing.reduce_bytes_per_us, [2, 2]);
    add(
        "all_reduce of 256 MB bf16, 4 M3 Ultra, mesh with a ring inside, before",
        source,
        "GB/s",
        [9.0; 2],
        Predicted,
        Some(slow),
        true,
    );
    let fast = ring(FAST_BYTES_PER_US, [2, 2]);
    let why = "the faster additions that this pull request brings: 40 bytes in a nanosecond";
    add("the same, after", source, "GB/s", [12.2; 2], Calibrated(why), Some(fast), true);
    let why = "the same measurement: 3/2 of the row above";
    add(
        "the same as the rate of a rank over its 3 links",
        source,
        "GB/s",
        [18.3; 2],
        Calibrated(why),
        Some(1.5 * fast),
        true,
    );
    let lockstep = ring(Model::tb5_cpu().timing.reduce_bytes_per_us, [1, 1]);
    add(
        "fp32 collectives over rings of 4 M4 Pro, read as reductions, with one message in flight, each rank",
        "pytorch PR 189856",
        "GB/s",
        [7.6; 2],
        Predicted,
        Some(lockstep),
        true,
    );
    add(
        "the same, read with two messages in flight while parts are gathered, as its all_gather has them",
        "pytorch PR 189856",
        "GB/s",
        [7.6; 2],
        Again("another reading of the row above"),
        Some(ring(Model::tb5_cpu().timing.reduce_bytes_per_us, [1, 2])),
        true,
    );
    let why = "at the rate of additions of bf16: what those of uint8 cost is not published, and the wire alone takes 14.6 ms";
    let bytes_per_us = 1e3 * fast;
    add(
        "all_sum of 256 MiB uint8, 4 M3 Ultra, mlx 0.32.0, as the sum of bf16 after",
        "mlx#4319",
        "µs",
        [56_000.0; 2],
        Missed(why),
        Some(f64::from(256 << 20) / bytes_per_us),
        true,
    );
}

fn streams(add: Add<'_>) {
    let figure = stream(LineRate::TB4, 4096, 50_000, 255, false);
    let again = Again("another run of the same program");
    for (setup, figure_of_source, basis) in [
        (
            "50,000 messages of 4 KiB, M2 Ultra, 40 Gb/s, perhaps not Apple's driver, one way",
            35.08,
            Predicted,
        ),
        ("the same, another run", 35.58, again),
        ("the same, the other way", 30.42, again),
        ("the same, the other way, another run", 33.03, again),
    ] {
        add(setup, "ds4 rig notes, R10b", "Gb/s", [figure_of_source; 2], basis, Some(figure), true);
    }
    let source = "hellas thunderbolt-ibverbs PR 44";
    let mebibyte = Some(stream(LineRate::TB5, 1 << 20, 200, 15, true));
    let why = "what the check of each byte costs on the one core";
    add(
        "1 MiB messages, every byte verified on one core",
        source,
        "Gb/s",
        [14.7, 15.9],
        Calibrated(why),
        mebibyte,
        true,
    );
    let why = "the test program has a cost for each message, which is not published, and which no one constant fits";
    let single = Some(stream(LineRate::TB5, 4096, 10_000, 1, true));
    add("4 KiB messages, one in flight, the same", source, "Gb/s", [3.2, 4.3], Predicted, single, true);
    let figure = Some(stream(LineRate::TB5, 64 << 10, 2_000, 16, true));
    add("64 KiB messages, the same", source, "Gb/s", [9.8, 11.8], Missed(why), figure, true);
    let figure = Some(stream(LineRate::TB5, 4096, 65_536, 256, true));
    add(
        "65,536 messages of 4 KiB, 256 in flight, the same",
        source,
        "Gb/s",
        [9.2, 9.6],
        Missed(why),
        figure,
        true,
    );
    let figure = Some(stream(LineRate::TB5, 64 << 10, 256, 32, true));
    let setup = "64K × 256, depth 32, the same, read as 256 messages of 64 KiB";
    let why = "half of what the same program reaches with messages of 64 KiB at other depths; its source does not say why";
    add(setup, source, "Gb/s", [5.2, 5.9], Missed(why), figure, true);
    let why = "secondary source without a setup, read as a stream of messages of 1 MiB that nothing copies";
    let ceiling = stream(LineRate::TB5, 1 << 20, 200, 15, false);
    add(
        "Apple's wording at WWDC26, session 233",
        "byteiota",
        "Gb/s",
        [50.0, 60.0],
        Missed(why),
        Some(ceiling),
        true,
    );
}

fn others(add: Add<'_>) {
    let receives = |asked| Some(accepted_receives(asked));
    let source = "hellas thunderbolt-ibverbs PR 35, PR 41";
    let rule = "the rule queue-grant";
    for (setup, asked) in [
        ("receives of 64 KiB that a queue pair of depth 64 takes", 64),
        ("receives of 64 KiB that a queue pair of depth 256 takes", 256),
    ] {
        add(setup, source, "", [63.0; 2], Calibrated(rule), receives(asked), false);
    }
    let at_least = "at least this: MLX posts no more";
    add(
        "frames of posted messages, in buffers of 512 KiB, that a queue pair of depth 32 takes",
        "MLX source, jaccl/rdma.cpp",
        "",
        [256.0, 1023.0],
        Calibrated(at_least),
        receives(32).map(|count| 16.0 * count),
        false,
    );
    let rtr = Model::tb5().timing.unresolved_rtr_ns as f64 / 1e9;
    add(
        "a transition to RTR that finds no neighbour, at least",
        "hellas thunderbolt-ibverbs",
        "s",
        [1.0; 2],
        Calibrated("the rule rtr-second"),
        Some(rtr),
        false,
    );
}
