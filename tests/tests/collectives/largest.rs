//! Large groups: 64 ranks, the most with exact plans, 100, and 272

use std::time::Duration;

use futures::future::join_all;
use rdma_async::NodeOptions;
use rdma_collectives::{Group, GroupError, Reduction};
use rdma_sim::SimDevice;

use crate::cluster::{cabling, connect, joined, name, on_all, sim};

/// Elements of a rank, fewer than trees and more
const LENS: [usize; 2] = [1, 1000];
/// Up to so many ranks send something of their own to each other one, which takes long with more.
const MOST_APART: usize = 64;

/// A torus of Macs with four cables each
fn torus(rows: usize, columns: usize) -> Vec<(usize, usize)> {
    let mut edges = Vec::new();
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let at = |row: usize, column: usize| row % rows * columns + column % columns;
        edges.extend([(at(row, column), at(row, column + 1)), (at(row, column), at(row + 1, column))]);
    }
    edges
}

/// Operations with results that depend on each rank
async fn operate(group: &mut Group<SimDevice>) -> Result<(), GroupError> {
    let (rank, size) = (group.rank() as u64, group.size() as u64);
    let sum = size * (size - 1) / 2;
    for len in LENS {
        let mut vector = vec![rank; len];
        group.all_reduce(&mut vector, Reduction::Sum).await?;
        assert_eq!(vector, vec![sum; len]);

        let root = group.size() - 1;
        let mut vector = vec![rank; len];
        group.broadcast(root, &mut vector).await?;
        assert_eq!(vector, vec![root as u64; len]);
        vector = vec![rank; len];
        group.reduce(root, &mut vector, Reduction::Max).await?;
        if group.rank() == root {
            assert_eq!(vector, vec![root as u64; len]);
        }

        if group.size() <= MOST_APART || len == 1 {
            let all: Vec<_> = (0..size).flat_map(|rank| vec![rank; len]).collect();
            let mut gathered = vec![0; all.len()];
            group.all_gather(&vec![rank; len], &mut gathered).await?;
            assert_eq!(gathered, all);
        }
    }
    if group.size() > MOST_APART {
        return group.barrier().await;
    }
    // Of 64 ranks, rank 3 sends 3 + 64 × 5 to rank 5.
    let sent: Vec<_> = (0..size).map(|to| rank + size * to).collect();
    let mut received = vec![0; sent.len()];
    group.all_to_all(&sent, &mut received).await?;
    assert_eq!(received, (0..size).map(|from| from + size * rank).collect::<Vec<_>>());
    group.barrier().await
}

/// Operations of a torus of ranks, the loss of one, and operations of the others
fn operate_and_lose_one(rows: usize, columns: usize) {
    const LOST: usize = 27;
    let (ranks, edges, timeout) = (rows * columns, torus(rows, columns), Duration::from_millis(20));
    let cabling = cabling(ranks, &edges);
    let options = NodeOptions::new().peer_timeout(timeout).max_peers(1).max_sessions(1);
    sim(ranks, &edges).sanitize(false).run(async |net| {
        let cluster = connect(&net, &cabling, &options).await;
        let mut groups = joined(&cluster, &cabling).await;
        drop(cluster);
        on_all(&mut groups, async |_, group| operate(group).await.unwrap()).await;
        net.inject(format!("at 0us {} kill", name(LOST)).parse().unwrap());
        let survivors = groups.into_iter().enumerate().filter(|(rank, _)| *rank != LOST);
        let ends = survivors.map(async |(_, mut group)| {
            let error = group.barrier().await.unwrap_err();
            assert!(matches!(error, GroupError::Lost { rank: LOST, .. }), "{error}");
            let mut group = group.shrink().await.unwrap();
            assert_eq!(group.size(), ranks - 1);
            operate(&mut group).await.unwrap();
        });
        join_all(ends).await;
    });
}

/// Catches a rank that does not fit into a field of a message, and a survivor that waits for ever.
#[test]
fn sixty_four_ranks_operate_and_go_on_without_one() {
    operate_and_lose_one(8, 8);
}

/// Catches a set of ranks that ends at 64, and an operation that many ranks carry out by another plan than they agree on.
#[test]
fn a_hundred_ranks_operate_and_go_on_without_one() {
    operate_and_lose_one(10, 10);
}

/// Catches a rank that does not fit into a byte, and survivors that send each other all that they know again and again.
#[test]
fn more_ranks_than_a_byte_counts_operate_and_go_on_without_one() {
    operate_and_lose_one(17, 16);
}
