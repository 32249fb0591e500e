//! How fast operations are, in virtual time: exact figures of the model, which the README has as tables

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use rdma_collectives::{Cabling, Group, GroupError, Operation, Reduction, bound};
use rdma_sim::SimDevice;
use rdma_tests::files::{assert_golden, root};
use rdma_tests::options;

use crate::cluster::{LINE_3, MESH_4, RATE, Shape, cabling, connect, joined, on_all, sim, sim_of};

const PAIR: Shape = (2, &[(0, 1)]);
const RING_4: Shape = (4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
/// A ring of four with a chord, and a fifth Mac with two cables
const IRREGULAR_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]);

/// The cablings on which all operations are measured
const SHAPES: [(&str, Shape); 5] = [
    ("pair", PAIR),
    ("mesh of 4", MESH_4),
    ("ring of 4", RING_4),
    ("line of 3", LINE_3),
    ("5 hosts, 7 cables", IRREGULAR_5),
];

/// Further cablings on which all_reduce is measured
const OTHERS: [(&str, Shape); 11] = [
    ("mesh of 3", (3, &[(0, 1), (0, 2), (1, 2)])),
    ("mesh of 5", (5, &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)])),
    ("ring of 5", (5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])),
    ("ring of 8", (8, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 0)])),
    ("star of 4", (4, &[(0, 1), (0, 2), (0, 3)])),
    ("ring of 4, chord", (4, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])),
    ("prism", (6, &[(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (0, 3), (1, 4), (2, 5)])),
    ("K3,3", (6, &[(0, 3), (0, 4), (0, 5), (1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)])),
    (
        "cube",
        (
            8,
            &[(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7)],
        ),
    ),
    (
        "Petersen graph",
        (
            10,
            &[
                (0, 1),
                (1, 2),
                (2, 3),
                (3, 4),
                (4, 0),
                (5, 7),
                (7, 9),
                (9, 6),
                (6, 8),
                (8, 5),
                (0, 5),
                (1, 6),
                (2, 7),
                (3, 8),
                (4, 9),
            ],
        ),
    ),
    ("two triangles, bridge", (6, &[(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)])),
];

/// The program of each rank
pub(crate) trait Program:
    for<'a> Fn(&'a mut Group<SimDevice>) -> LocalBoxFuture<'a, Result<(), GroupError>>
{
}

impl<F: for<'a> Fn(&'a mut Group<SimDevice>) -> LocalBoxFuture<'a, Result<(), GroupError>>> Program for F {}

/// How long it takes until all ranks have done it, when they begin at the same time, after they have done it `before` times
pub(crate) fn time_of(cabling: &Cabling, before: usize, program: &dyn Program) -> Duration {
    let run = sim_of(cabling).sanitize(false).run(async |net| {
        let cluster = connect(&net, cabling, &options()).await;
        let mut groups = joined(&cluster, cabling).await;
        on_all(&mut groups, async |_, group| group.barrier().await.unwrap()).await;
        for _ in 0..before {
            on_all(&mut groups, async |_, group| program(group).await.unwrap()).await;
        }
        net.sleep(Duration::from_millis(1)).await;
        let start = net.now();
        let ends = on_all(&mut groups, async |_, group| {
            program(group).await.unwrap();
            net.now()
        });
        ends.await.into_iter().max().unwrap() - start
    });
    run.value
}

/// The part of the rate of the bound that an operation with so many bytes of payload reaches
fn efficiency(cabling: &Cabling, operation: &Operation, payload: usize, program: &dyn Program) -> f64 {
    let (bound, _) = bound(cabling, operation).unwrap();
    // Longer ones gain less than a thousandth when they are repeated.
    let before = if payload < 64 << 20 { 2 } else { 0 };
    payload as f64 * bound.to_f64() / time_of(cabling, before, program).as_secs_f64()
}

fn all_reduce(cabling: &Cabling, bytes: usize) -> f64 {
    efficiency(cabling, &Operation::AllReduce, bytes, &|group| {
        Box::pin(async move { group.all_reduce(&mut vec![1_f32; bytes / 4], Reduction::Sum).await })
    })
}

/// The other operations, in the order of their efficiencies in [`others`]
pub(crate) const OTHER_OPERATIONS: [&str; 7] =
    ["broadcast", "reduce", "all_gather", "reduce_scatter", "scatter", "gather", "all_to_all"];

/// The parts of the rates of their bounds that the other operations reach with so many bytes of payload
pub(crate) fn others(cabling: &Cabling, bytes: usize) -> [f64; 7] {
    let ranks = cabling.hosts().len();
    let (root, amounts) = (0, vec![1; ranks]);
    let part = bytes / 8 / ranks;
    let len = part * ranks;
    let measure = |operation: Operation, copies: usize, program: &dyn Program| {
        efficiency(cabling, &operation, 8 * len * copies, program)
    };
    [
        measure(Operation::Broadcast { root }, 1, &|group| {
            Box::pin(async move { group.broadcast(0, &mut vec![1_u64; len]).await })
        }),
        measure(Operation::Reduce { root }, 1, &|group| {
            Box::pin(async move { group.reduce(0, &mut vec![1_u64; len], Reduction::Sum).await })
        }),
        measure(Operation::AllGather { amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move { group.all_gather(&vec![1_u64; part], &mut vec![0; len]).await })
        }),
        measure(Operation::ReduceScatter { amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move {
                group.reduce_scatter(&vec![1_u64; len], &mut vec![0; part], Reduction::Sum).await
            })
        }),
        measure(Operation::Scatter { root, amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move { group.scatter(0, &vec![1_u64; len], &mut vec![0; part]).await })
        }),
        measure(Operation::Gather { root, amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move { group.gather(0, &vec![1_u64; part], &mut vec![0; len]).await })
        }),
        measure(Operation::AllToAll { amounts: vec![amounts; ranks] }, ranks, &|group| {
            Box::pin(async move { group.all_to_all(&vec![1_u64; len], &mut vec![0; len]).await })
        }),
    ]
}

/// The rate of messages of 256 KiB over a session, without a group, as a part of that of the cable
fn session_alone() -> f64 {
    const MESSAGES: usize = 256;
    let (hosts, edges) = PAIR;
    let run = sim(hosts, edges).sanitize(false).run(async |net| {
        let mut cluster = connect(&net, &cabling(hosts, edges), &options()).await;
        let [(_, a), (_, b)] = [0, 1].map(|host| cluster.sessions[host].remove(0));
        let start = net.now();
        let sends = futures::future::join_all((0..MESSAGES).map(async |_| {
            let mut lease = a.alloc(256 << 10).await.unwrap();
            lease.resize(256 << 10, 1);
            a.send(lease).await.unwrap();
        }));
        let receives = async {
            for _ in 0..MESSAGES {
                drop(b.recv().await.unwrap().expect("a message"));
            }
        };
        futures::future::join(sends, receives).await;
        net.now() - start
    });
    (MESSAGES * (256 << 10)) as f64 / RATE as f64 / run.value.as_secs_f64()
}

/// The figures of the README, in its words
fn figures() -> String {
    let mut text = format!("| cabling | {} |\n|{}\n", OTHER_OPERATIONS.join(" | "), "---|".repeat(8));
    for (name, shape) in SHAPES {
        let found = others(&cabling(shape.0, shape.1), 64 << 20);
        assert!(found.iter().all(|found| (0.95..=1.0).contains(found)), "{name}: {found:.4?} of the bounds");
        let cells = found.map(|found| format!("{found:.3}")).join(" | ");
        writeln!(text, "| {name} | {cells} |").expect("a string takes everything");
    }
    text.push_str("\n| all_reduce of | 1 MiB | 16 MiB | 64 MiB |\n|---|---|---|---|\n");
    for (name, shape) in SHAPES.into_iter().chain(OTHERS) {
        let found = [1, 16, 64].map(|mebibytes| all_reduce(&cabling(shape.0, shape.1), mebibytes << 20));
        assert!(found[1] > 0.87 && found[2] > 0.945, "{name}: {found:.4?} of the bound");
        let cells = found.map(|found| format!("{found:.3}")).join(" | ");
        writeln!(text, "| {name} | {cells} |").expect("a string takes everything");
    }
    let microseconds = [PAIR, LINE_3].map(|shape| {
        let time = time_of(&cabling(shape.0, shape.1), 0, &|group| {
            Box::pin(async move { group.all_reduce(&mut [1_u8], Reduction::Sum).await })
        });
        format!("{:.1}", time.as_secs_f64() * 1e6)
    });
    let [one, two] = microseconds;
    write!(
        text,
        "\nSessions alone carry {:.3}. An all_reduce of 1 byte takes {one} µs over one cable, and {two} µs over two.\n",
        session_alone()
    )
    .expect("a string takes everything");
    text
}

/// Catches a figure in the README that is not true, a plan that is not followed, blocks that wait for each other, trees that wait for
/// each other at the end, and cables that carry a byte twice.
#[test]
fn operations_are_as_fast_as_the_readme_says() {
    const NAME: &str = "rdma-collectives/README.md";
    let [begin, end] = ["<!-- figures -->\n", "<!-- end of figures -->"];
    let readme = fs::read_to_string(root().join(NAME)).unwrap();
    let (before, rest) = readme.split_once(begin).expect("the README has figures");
    let (_, after) = rest.split_once(end).expect("the figures have an end");
    assert_golden(NAME, &format!("{before}{begin}{}{end}{after}", figures()));
}

/// Catches a small vector that goes over trees, or waits for an announcement or a credit.
#[test]
fn short_vectors_take_the_latency_of_the_way() {
    // From posting a frame to reading it, without jitter.
    let hop = Duration::from_nanos(5_900);
    for ((name, shape), hops) in SHAPES.into_iter().zip([1, 1, 2, 2, 2]) {
        for (len, percent) in [(1, 103), (1024, 105), (4000, 113)] {
            let time = time_of(&cabling(shape.0, shape.1), 0, &|group| {
                Box::pin(async move { group.all_reduce(&mut vec![1_u8; len], Reduction::Sum).await })
            });
            assert!(time <= hops * hop * percent / 100, "{name}, {len} bytes: {time:?} over {hops} cables");
        }
    }
}
