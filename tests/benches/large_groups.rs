//! An all_reduce of 1,024 ranks on a torus of 32 × 32 simulated Macs
//!
//! Prints its virtual time beside the bound, and the wall time of planning, connecting, joining and each operation:
//! `cargo bench -p rdma-tests --bench large_groups`. `RANKS_SIDE` is the side of another torus. Of the figures only virtual time is that
//! of other machines as well.

#[allow(dead_code, reason = "tests use more of it")]
#[path = "../tests/collectives/cluster.rs"]
mod cluster;

use std::time::Duration;

use rdma_async::NodeOptions;
use rdma_collectives::{GroupOptions, Reduction, all_reduce, verify};
use rdma_tests::now;

use crate::cluster::{cabling, connect, joined_with, on_all, sim_of};

/// Bytes of the vector of each rank.
const BYTES: [usize; 2] = [8, 1 << 20];
/// So many nodes of a process have little memory each.
const BLOCK: usize = 32 << 10;
const NODE_MEMORY: usize = 512 << 10;

/// Each Mac of a square with the next one in its row and in its column, counted round
fn torus(side: usize) -> Vec<(usize, usize)> {
    let at = |row: usize, column: usize| row % side * side + column % side;
    let hosts = (0..side).flat_map(|row| (0..side).map(move |column| (row, column)));
    let edges = hosts
        .flat_map(|(row, column)| [(row, column + 1), (row + 1, column)].map(|next| ((row, column), next)));
    edges.map(|(from, to)| (at(from.0, from.1), at(to.0, to.1))).collect()
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let side = std::env::var("RANKS_SIDE").ok().and_then(|side| side.parse().ok());
    // Small when `cargo test` tries benchmarks.
    let side: usize = side.unwrap_or(if is_bench { 32 } else { 4 });
    let (ranks, edges) = (side * side, torus(side));
    let cabling = cabling(ranks, &edges);
    let start = now();
    let plan = all_reduce(&cabling).expect("the torus is connected");
    let planned = start.elapsed();
    let excess = verify(&cabling, &plan).expect("a plan of the planner").to_f64();
    println!(
        "{ranks} ranks: planned in {planned:.2?}, {} trees, {excess:.4} times the bound",
        plan.trees.len()
    );
    let options = NodeOptions::new().max_peers(1).max_sessions(1).max_message(BLOCK);
    let options = options.send_memory(NODE_MEMORY).receive_memory(NODE_MEMORY);
    let start = now();
    sim_of(&cabling).sanitize(false).run(async |net| {
        let cluster = connect(&net, &cabling, &options).await;
        println!("connected after {:.2?}", start.elapsed());
        let mut groups = joined_with(GroupOptions::new().block_bytes(BLOCK), &cluster, &cabling).await;
        println!("joined after {:.2?}", start.elapsed());
        for bytes in BYTES {
            let elements = bytes / size_of::<u64>();
            let sum = (ranks * (ranks - 1) / 2) as u64;
            let (begun, start) = (net.now(), now());
            on_all(&mut groups, async |rank, group| {
                let mut vector = vec![rank as u64; elements];
                group.all_reduce(&mut vector, Reduction::Sum).await.expect("no rank is lost");
                assert!(vector.iter().all(|element| *element == sum));
            })
            .await;
            let (took, wall) = (net.now() - begun, start.elapsed());
            let bound = Duration::from_secs_f64(plan.bound.to_f64() * bytes as f64);
            println!(
                "all_reduce of {bytes} bytes: {took:.1?} virtual, bound by rates {bound:.1?}, {wall:.2?} wall"
            );
        }
    });
}
