//! What groups promise about their speed, on every row of the reference table of cablings, in virtual time

use std::cell::Cell;
use std::time::Duration;

use futures::future::join;
use rdma_collectives::{Cable, Cabling, Operation, Reduction, bound};
use rdma_sim::{LineRate, Net};
use rdma_tests::options;

use crate::cluster::{LATENCY_NS, RATE, connect, joined, macs, name, on_all, sim_of};
use crate::figures::{OTHER_OPERATIONS, others, time_of};
use crate::outages::{inject, port};

/// A cabling of the table
struct Row {
    name: &'static str,
    cabling: Cabling,
}

fn row(name: &'static str, cabling: Cabling) -> Row {
    let hosts = cabling.hosts().iter().cloned();
    let cables = cabling.cables().iter().map(|cable| cable.latency_ns(latency_ns(cable)));
    Row { name, cabling: Cabling::new(hosts, cables.collect::<Vec<_>>()).expect("a cabling") }
}

/// The latency of a cable: that of [`LATENCY_NS`] contains a frame, which takes twice as long with 40 Gb/s
fn latency_ns(cable: &Cable) -> u64 {
    let [fast, slow] = [LineRate::TB5, LineRate::TB4].map(|rate| rate.frame_ns(4096));
    if cable.rates[0] < RATE { LATENCY_NS + slow - fast } else { LATENCY_NS }
}

/// A cabling with a cable of 40 Gb/s from rank 0 to rank 1 beside those of the shape
fn with_slow_cable(shape: &Cabling) -> Cabling {
    shape.with_cable(Cable::new(0, 1, RATE / 2)).expect("both ranks exist")
}

/// The rows of `rdma-collectives/tests/reference.rs`
fn table() -> Vec<Row> {
    let of = |hosts: usize, pairs: &[(usize, usize)]| Cabling::of_pairs(hosts, pairs.iter().copied(), RATE);
    vec![
        row("pair", of(2, &[(0, 1)])),
        row("pair, 2 cables", of(2, &[(0, 1), (0, 1)])),
        row("pair, 80+40", with_slow_cable(&of(2, &[(0, 1)]))),
        row("mesh 3", Cabling::mesh(3, RATE)),
        row("mesh 4", Cabling::mesh(4, RATE)),
        row("mesh 5", Cabling::mesh(5, RATE)),
        row("ring 4", Cabling::ring(4, RATE)),
        row("ring 5", Cabling::ring(5, RATE)),
        row("ring 6", Cabling::ring(6, RATE)),
        row("ring 8", Cabling::ring(8, RATE)),
        row("line 3", Cabling::line(3, RATE)),
        row("line 4", Cabling::line(4, RATE)),
        row("star 4", Cabling::star(4, RATE)),
        row("ring 4 + chord", of(4, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])),
        row("prism 6", Cabling::prism(3, RATE)),
        row("K3,3", Cabling::bipartite(3, 3, RATE)),
        row("cube 8", Cabling::hypercube(3, RATE)),
        row("Petersen 10", Cabling::petersen(RATE)),
        row("two triangles + bridge", of(6, &[(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3)])),
        row("mesh 4, one 40 Gb/s cable", with_slow_cable(&of(4, &[(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]))),
        row("triangle 80+80+40", with_slow_cable(&of(3, &[(1, 2), (2, 0)]))),
        row("line 3, first doubled", of(3, &[(0, 1), (0, 1), (1, 2)])),
    ]
}

/// The latency between the two ranks that are furthest apart: with equal cables, their number times the latency of one
fn diameter(cabling: &Cabling) -> Duration {
    let hosts = cabling.hosts().len();
    let mut latencies = vec![vec![u64::MAX / 2; hosts]; hosts];
    (0..hosts).for_each(|host| latencies[host][host] = 0);
    for _ in 0..hosts {
        for &Cable { ends: [left, right], latency_ns, .. } in cabling.cables() {
            for latencies in &mut latencies {
                latencies[left] = latencies[left].min(latencies[right] + latency_ns);
                latencies[right] = latencies[right].min(latencies[left] + latency_ns);
            }
        }
    }
    Duration::from_nanos(latencies.into_iter().flatten().max().expect("a cabling has hosts"))
}

/// Catches short vectors that go over trees or wait for credit, for whichever cabling, and ranks that pass on what others have already.
#[test]
fn short_vectors_take_at_most_a_tenth_longer_than_the_latency_of_the_way() {
    for Row { name, cabling } in table() {
        let diameter = diameter(&cabling);
        for len in [4, 64, 1024, 2048, 4096] {
            let time = time_of(&cabling, 0, &|group| {
                Box::pin(async move { group.all_reduce(&mut vec![1_u8; len], Reduction::Sum).await })
            });
            assert!(time * 10 <= diameter * 11, "{name}, {len} bytes: {time:?} over a way of {diameter:?}");
        }
    }
}

/// The part of the rates of their bounds that operations of 16 MiB reach on every row
const PROMISED: f64 = 0.95;

/// What operations of 16 MiB reach where it is less: blocks of high trees are on their way for long, and those of many trees are short
const REACHED: [(&str, &str, f64); 30] = [
    ("mesh 3", "reduce", 0.94),
    ("mesh 4", "broadcast", 0.93),
    ("mesh 4", "reduce", 0.93),
    ("mesh 5", "broadcast", 0.92),
    ("mesh 5", "reduce", 0.92),
    ("ring 4", "broadcast", 0.93),
    ("ring 4", "reduce", 0.93),
    ("ring 5", "broadcast", 0.91),
    ("ring 5", "reduce", 0.91),
    ("ring 6", "broadcast", 0.90),
    ("ring 6", "reduce", 0.90),
    ("ring 8", "broadcast", 0.88),
    ("ring 8", "reduce", 0.88),
    ("ring 4 + chord", "broadcast", 0.93),
    ("ring 4 + chord", "reduce", 0.93),
    ("prism 6", "broadcast", 0.91),
    ("prism 6", "reduce", 0.91),
    ("prism 6", "all_gather", 0.92),
    ("K3,3", "broadcast", 0.91),
    ("K3,3", "reduce", 0.91),
    ("cube 8", "broadcast", 0.87),
    ("cube 8", "reduce", 0.87),
    ("cube 8", "all_gather", 0.94),
    ("cube 8", "reduce_scatter", 0.93),
    ("Petersen 10", "broadcast", 0.89),
    ("Petersen 10", "reduce", 0.89),
    ("two triangles + bridge", "reduce_scatter", 0.93),
    ("mesh 4, one 40 Gb/s cable", "broadcast", 0.94),
    ("mesh 4, one 40 Gb/s cable", "reduce", 0.94),
    ("line 3, first doubled", "scatter", 0.94),
];

/// Measures the rows with the other operations, and compares with what is promised
fn compare_with_bounds(rows: impl Iterator<Item = Row>) {
    let mut wrong = String::new();
    for Row { name, cabling } in rows {
        for (operation, found) in OTHER_OPERATIONS.into_iter().zip(others(&cabling, 16 << 20)) {
            let reached = REACHED.iter().find(|(row, of, _)| (*row, *of) == (name, operation));
            let least = reached.map_or(PROMISED, |(_, _, least)| *least);
            if !(least..=1.0).contains(&found) {
                wrong += &format!("{name}, {operation}: {found:.3} of the bound, not {least}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Catches a plan that is not followed, over one of two cables alone or a slow cable as if it were fast, and blocks that wait for each other.
///
/// The rows with up to three ranks; all: [`other_operations_reach_what_is_promised_on_every_row`].
#[test]
fn other_operations_of_few_ranks_reach_what_is_promised() {
    compare_with_bounds(table().into_iter().filter(|row| row.cabling.hosts().len() <= 3));
}

/// `cargo test --release -p rdma-tests --test collectives promised -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn other_operations_reach_what_is_promised_on_every_row() {
    compare_with_bounds(table().into_iter());
}

/// The time of the third all_reduce of so many bytes
fn all_reduce(cabling: &Cabling, bytes: usize) -> Duration {
    time_of(cabling, 2, &|group| {
        Box::pin(async move { group.all_reduce(&mut vec![1_f32; bytes / 4], Reduction::Sum).await })
    })
}

/// The same by a reduce_scatter and an all_gather after it
fn in_two_steps(cabling: &Cabling, bytes: usize) -> Duration {
    let part = bytes / 4 / cabling.hosts().len();
    let len = part * cabling.hosts().len();
    time_of(cabling, 2, &|group| {
        Box::pin(async move {
            let (mut vector, mut own) = (vec![1_f32; len], vec![0_f32; part]);
            group.reduce_scatter(&vector, &mut own, Reduction::Sum).await?;
            group.all_gather(&own, &mut vector).await
        })
    })
}

/// What all_reduces are measured against
#[derive(Clone, Copy, Debug)]
enum Rival {
    /// An all_reduce around the best ring of the cabling
    Ring,
    /// A reduce_scatter, and then an all_gather, each as fast as it can be
    TwoSteps,
}

/// Rows, the rival, how many times as long it takes at least, as promised, and what is reached with 16 MiB if that is less
const RIVALS: [(&str, Rival, f64, Option<f64>); 7] = [
    ("line 3", Rival::TwoSteps, 1.3, None),
    ("line 4", Rival::TwoSteps, 1.3, None),
    ("star 4", Rival::TwoSteps, 1.3, None),
    ("ring 4 + chord", Rival::Ring, 1.2, Some(1.18)),
    ("prism 6", Rival::Ring, 1.45, None),
    ("K3,3", Rival::Ring, 1.45, None),
    ("cube 8", Rival::Ring, 1.45, Some(1.43)),
];

/// Runs all_reduces of so many bytes and their rivals on the same simulated cables
fn compare_with_rivals(rows: &[&str], bytes: usize) {
    let mut table = table();
    table.retain(|row| rows.is_empty() || rows.contains(&row.name));
    let mut wrong = String::new();
    for (name, rival, promised, reached) in RIVALS {
        let Some(Row { cabling, .. }) = table.iter().find(|row| row.name == name) else { continue };
        let other = match rival {
            Rival::Ring => {
                all_reduce(&Cabling::ring(cabling.hosts().len(), RATE).with_latency(LATENCY_NS), bytes)
            }
            Rival::TwoSteps => in_two_steps(cabling, bytes),
        };
        let found = other.as_secs_f64() / all_reduce(cabling, bytes).as_secs_f64();
        let least = reached.filter(|_| bytes < 64 << 20).unwrap_or(promised);
        if found < least {
            wrong +=
                &format!("{name}, {bytes} bytes: {rival:?} takes {found:.3} times as long, not {least}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Catches an all_reduce that is no better than two operations one after the other, or than a ring that leaves cables unused.
///
/// Three rows; all: [`all_reduces_beat_their_rivals_on_every_row`].
#[test]
fn all_reduces_beat_their_rivals() {
    compare_with_rivals(&["line 3", "ring 4 + chord", "K3,3"], 16 << 20);
}

/// `cargo test --release -p rdma-tests --test collectives promised -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn all_reduces_beat_their_rivals_on_every_row() {
    compare_with_rivals(&[], 16 << 20);
    compare_with_rivals(&[], 64 << 20);
}

/// Fewer frames than these are not those of a block.
const FEW_FRAMES: u64 = 16;

/// The longest time in which a rank got fewer frames than those of a block before it was done
async fn longest_stall(net: &Net, ports: &[Vec<String>], is_over: &[Cell<bool>]) -> Duration {
    const STEP: Duration = Duration::from_micros(5);
    let mut counts: Vec<Vec<u64>> = ports.iter().map(|ports| vec![0; ports.len()]).collect();
    let mut progress = vec![(0, net.now()); ports.len()];
    let mut longest = Duration::ZERO;
    while !is_over.iter().all(Cell::get) {
        for (rank, devices) in ports.iter().enumerate().filter(|(rank, _)| !is_over[*rank].get()) {
            for (device, count) in devices.iter().zip(&mut counts[rank]) {
                // Nothing is known of a port without its cable.
                if let Some([_, received]) = net.cable_stats(&name(rank), device) {
                    *count = received.frames;
                }
            }
            let frames = counts[rank].iter().sum::<u64>();
            if frames >= progress[rank].0 + FEW_FRAMES {
                progress[rank] = (frames, net.now());
            }
            longest = longest.max(net.now() - progress[rank].1);
        }
        net.sleep(STEP).await;
    }
    longest
}

/// Pulls a cable of a mesh of 4 in an all_reduce: the longest time without a block at a rank, and those of this operation and of the next one
fn unplugged(whole: &Cabling, cable: usize, after: Duration, len: usize) -> [Duration; 3] {
    let macs = macs(whole);
    let run = sim_of(whole).sanitize(false).run(async |net| {
        let cluster = connect(&net, whole, &options()).await;
        let mut groups = joined(&cluster, whole).await;
        let port = port(&net, whole.cables()[cable].ends);
        let devices =
            macs.hosts().iter().map(|host| host.ports().iter().map(|port| port.device().to_owned()));
        let ports: Vec<Vec<String>> = devices.map(Iterator::collect).collect();
        let mut operate = async |unplug: bool| {
            let (start, is_over) = (net.now(), [const { Cell::new(false) }; 4]);
            if unplug {
                inject(&net, after, &port, "unplug");
            }
            let work = on_all(&mut groups, async |rank, group| {
                let mut vector = vec![rank as f32 + 1.0; len];
                group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
                assert!(vector.iter().all(|element| *element == 10.0));
                is_over[rank].set(true);
                net.now() - start
            });
            let (times, stall) = join(work, longest_stall(&net, &ports, &is_over)).await;
            (times.into_iter().max().expect("there are ranks"), stall)
        };
        operate(false).await;
        let (time, stall) = operate(true).await;
        let (next, _) = operate(false).await;
        [stall, time, next]
    });
    run.value
}

/// Catches blocks that wait until the ranks have planned anew, or until a timeout finds that the cable is out, and a next operation that is
/// carried out with the plan for all cables.
#[test]
fn an_unplug_stalls_no_rank_for_a_millisecond() {
    const LEN: usize = 16 << 20;
    let whole = Cabling::mesh(4, RATE).with_latency(LATENCY_NS);
    for (cable, micros) in [(0, 100), (5, 2000)] {
        let rest = whole.without_cable(cable).expect("there is a cable");
        let degraded = bound(&rest, &Operation::AllReduce).unwrap().0.to_f64() * 4.0 * LEN as f64;
        let [stall, time, next] = unplugged(&whole, cable, Duration::from_micros(micros), LEN);
        assert!(time > Duration::from_micros(micros), "it was over before: {time:?}");
        assert!(stall <= Duration::from_millis(1), "cable {cable} after {micros} µs: {stall:?}");
        let next = next.as_secs_f64();
        assert!(next <= degraded / 0.95, "cable {cable}: {next} s where {degraded} is the bound");
    }
}
