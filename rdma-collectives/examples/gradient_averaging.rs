//! Data-parallel training on four Macs: each step averages the gradients of all, and one cable is pulled meanwhile
//!
//! The Macs are cabled as people find cables: a ring with one across. The program does nothing about the cable.
//!
//! `cargo run --example gradient_averaging`; simulated, with virtual times.
#![allow(clippy::print_stdout, reason = "a program")]

mod cluster;

use cluster::{RATE, Result, Sessions, connect};
use futures::future::try_join_all;
use rdma_collectives::{Cabling, Group, Reduction};
use rdma_sim::{Net, Sim, Topology};

const MACS: usize = 4;
const CABLES: [(usize, usize); 5] = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)];
/// 16 MiB of gradients in each step
const PARAMETERS: usize = 4 << 20;
const STEPS: usize = 8;

fn main() -> Result {
    let topology = Topology::graph(MACS, 3, &CABLES)?;
    let faults = "at 5ms b:rdma_en2 unplug; at 15ms b:rdma_en2 replug".parse()?;
    Sim::new()
        .topology(topology)
        .faults(faults)
        .run(async |net| {
            let cabling = Cabling::of_pairs(MACS, CABLES, RATE);
            let (_nodes, sessions) = connect(&net, &cabling).await?;
            let cabling = &cabling;
            let macs =
                sessions.into_iter().enumerate().map(|(rank, sessions)| train(&net, cabling, rank, sessions));
            let weights = try_join_all(macs).await?;
            assert!(weights.iter().all(|other| *other == weights[0]), "the same bits on all Macs");
            println!("all Macs have the same weights");
            Ok(())
        })
        .value
}

// ANCHOR: train
/// Trains one Mac's copy of the model on its own data, and returns the weights
async fn train(net: &Net, cabling: &Cabling, rank: usize, sessions: Sessions) -> Result<Vec<f32>> {
    let mut group = Group::join(rank, cabling, sessions).await?;
    // The best weights for the data of this Mac; those for all data are in the middle, at 1.5.
    let best = rank as f32;
    let mut weights = vec![0.0; PARAMETERS];
    for step in 1..=STEPS {
        let mut gradient: Vec<f32> = weights.iter().map(|weight| weight - best).collect();
        let start = net.now();
        group.all_reduce(&mut gradient, Reduction::Average).await?;
        let took = net.now() - start;
        weights.iter_mut().zip(&gradient).for_each(|(weight, gradient)| *weight -= 0.5 * gradient);
        if rank == 0 {
            println!("step {step}: {:.3} ms, weights {:.4}", took.as_secs_f64() * 1e3, weights[0]);
        }
    }
    group.barrier().await?;
    Ok(weights)
}
// ANCHOR_END: train
