//! How long planning takes: `cargo bench -p rdma-collectives`
//!
//! The targets are 10 ms for up to 8 hosts, and 1 s for 32: each plan is asserted to be made in this time, before the figures are taken.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use rdma_collectives::{
    Cable, Cabling, MAX_EXACT_ALL_TO_ALL_HOSTS, Operation, all_gather, all_reduce, all_to_all, broadcast,
    plan, scatter, verify,
};

const RATE: u64 = 9_200_000_000;

/// A cabling with rates without a common unit, as measured ones are
fn measured(cabling: &Cabling) -> Cabling {
    let rate =
        |index: usize| RATE + (index as u64 * 7_919 + 13) % 1_000_003 - RATE / 2 * (index as u64 % 3 / 2);
    let cables = cabling.cables().iter().enumerate();
    let cables: Vec<_> =
        cables.map(|(index, cable)| Cable::new(cable.ends[0], cable.ends[1], rate(index))).collect();
    Cabling::new(cabling.hosts().iter().cloned(), cables).expect("a cabling")
}

/// The operations that are planned over so many hosts
fn operations(hosts: usize) -> Vec<(&'static str, Operation)> {
    let (root, amounts) = (0, vec![1; hosts]);
    let all_to_all = Operation::AllToAll { amounts: vec![amounts.clone(); hosts] };
    let mut operations = vec![
        ("all_reduce", Operation::AllReduce),
        ("broadcast", Operation::Broadcast { root }),
        ("reduce", Operation::Reduce { root }),
        ("all_gather", Operation::AllGather { amounts: amounts.clone() }),
        ("reduce_scatter", Operation::ReduceScatter { amounts: amounts.clone() }),
        ("scatter", Operation::Scatter { root, amounts: amounts.clone() }),
        ("gather", Operation::Gather { root, amounts }),
    ];
    operations.extend((hosts <= MAX_EXACT_ALL_TO_ALL_HOSTS).then_some(("all_to_all", all_to_all)));
    operations
}

/// The least time of a few, which other programs on the machine disturb least
#[expect(clippy::disallowed_methods, reason = "a benchmark asks the clock on the wall")]
fn planning_time(cabling: &Cabling, operation: &Operation) -> Duration {
    let time = |_| {
        let start = Instant::now();
        black_box(plan(black_box(cabling), operation)).expect("the cabling is connected");
        start.elapsed()
    };
    (0..5).map(time).min().expect("it was planned")
}

/// Asserts that plans are made in the promised time
#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn assert_targets(cablings: &[(&str, Cabling)]) {
    for (name, cabling) in cablings {
        let hosts = cabling.hosts().len();
        let target = Duration::from_millis(if hosts <= 8 { 10 } else { 1000 });
        let times =
            operations(hosts).into_iter().map(|(name, operation)| (planning_time(cabling, &operation), name));
        let (longest, operation) = times.max().expect("there are operations");
        println!("{name}: {operation} takes longest to plan, {longest:.2?}");
        assert!(longest < target, "{name}: {operation} was planned in {longest:?}, not within {target:?}");
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    let cablings = [
        ("ring 4", Cabling::ring(4, RATE)),
        ("mesh 4", Cabling::mesh(4, RATE)),
        ("cube 8", Cabling::hypercube(3, RATE)),
        ("mesh 8", Cabling::mesh(8, RATE)),
        ("mesh 8, measured rates", measured(&Cabling::mesh(8, RATE))),
        ("petersen 10", Cabling::petersen(RATE)),
        ("ring 32", Cabling::ring(32, RATE)),
        ("hypercube 32", Cabling::hypercube(5, RATE)),
        ("6 cables per host, 32", Cabling::circulant(32, &[1, 5, 12], RATE)),
        ("6 cables per host, 32, measured rates", measured(&Cabling::circulant(32, &[1, 5, 12], RATE))),
    ];
    // Not when `cargo test` builds and tries benchmarks, without optimisation.
    if std::env::args().any(|arg| arg == "--bench") {
        assert_targets(&cablings);
    }
    for (name, cabling) in &cablings {
        criterion.bench_function(&format!("all_reduce/{name}"), |bencher| {
            bencher.iter(|| all_reduce(black_box(cabling)));
        });
        let plan = all_reduce(cabling).expect("a plan");
        criterion.bench_function(&format!("verify all_reduce/{name}"), |bencher| {
            bencher.iter(|| verify(black_box(cabling), black_box(&plan)));
        });
    }
    for (name, cabling) in &cablings {
        let ones = vec![1; cabling.hosts().len()];
        criterion.bench_function(&format!("broadcast/{name}"), |bencher| {
            bencher.iter(|| broadcast(black_box(cabling), 0));
        });
        criterion.bench_function(&format!("all_gather/{name}"), |bencher| {
            bencher.iter(|| all_gather(black_box(cabling), &ones));
        });
        criterion.bench_function(&format!("scatter/{name}"), |bencher| {
            bencher.iter(|| scatter(black_box(cabling), 0, &ones));
        });
        if ones.len() <= MAX_EXACT_ALL_TO_ALL_HOSTS {
            let amounts = vec![ones.clone(); ones.len()];
            criterion.bench_function(&format!("all_to_all/{name}"), |bencher| {
                bencher.iter(|| all_to_all(black_box(cabling), &amounts));
            });
        }
    }
    criterion.final_summary();
}
