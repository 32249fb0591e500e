//! Data-parallel training on four Macs: each step averages the gradients of all, and one cable is pulled meanwhile
//!
//! The Macs are cabled as people find cables: a ring with one across. The program does nothing about the cable.
//!
//! `cargo run --example gradient_averaging`; simulated, with virtual times.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use futures::future::{try_join, try_join_all};
use rdma_async::{Node, Session};
use rdma_collectives::{Cabling, Group, Reduction};
use rdma_sim::{Net, Sim, SimDevice, Topology};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

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
            let cabling = Cabling::of_pairs(MACS, CABLES, 9_200_000_000);
            let sessions = connect(&net, &cabling).await?;
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
async fn train(
    net: &Net,
    cabling: &Cabling,
    rank: usize,
    sessions: Vec<(usize, Session<SimDevice>)>,
) -> Result<Vec<f32>> {
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

/// A node on all devices of each Mac, and a session for each cable, as both of its Macs see it, by Mac
async fn connect(net: &Net, cabling: &Cabling) -> Result<Vec<Vec<(usize, Session<SimDevice>)>>> {
    let node = |mac: &String| {
        let [first, second, third] =
            ["rdma_en2", "rdma_en3", "rdma_en4"].map(|device| net.opener(mac, device));
        // It finds out by itself where each cable leads.
        Node::builder(first).device(second).device(third).runtime(net.runtime()).build()
    };
    let nodes: Vec<_> = cabling.hosts().iter().map(node).collect::<std::result::Result<_, _>>()?;
    let mut sessions: Vec<Vec<_>> = nodes.iter().map(|_| Vec::new()).collect();
    for cable in cabling.cables() {
        let [left, right] = cable.ends;
        // Between Macs, this is a TCP connection over another network.
        let (to_right, to_left) = tokio::io::duplex(1024);
        let (session, ()) = try_join(nodes[left].connect(to_right), nodes[right].serve(to_left)).await?;
        sessions[left].push((right, session));
        sessions[right].push((left, nodes[right].accept().await.ok_or("the node is closed")?));
    }
    Ok(sessions)
}
