//! How long planning takes: `cargo bench -p rdma-collectives`
//!
//! The targets are 10 ms for up to 8 hosts, and 1 s for 32.

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use rdma_collectives::{
    Cable, Cabling, MAX_ALL_TO_ALL_HOSTS, all_gather, all_reduce, all_to_all, broadcast, scatter, verify,
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
        if ones.len() <= MAX_ALL_TO_ALL_HOSTS {
            let amounts = vec![ones.clone(); ones.len()];
            criterion.bench_function(&format!("all_to_all/{name}"), |bencher| {
                bencher.iter(|| all_to_all(black_box(cabling), &amounts));
            });
        }
    }
    criterion.final_summary();
}
