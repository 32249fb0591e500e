//! Tensor-parallel decoding on 1, 2 and 4 Macs: two all_reduces in each layer, with modelled compute
//!
//! The figures are those of Qwen3-235B-A22B with 8 bits on M3 Ultra in DECODE.md: the time for the weights is divided among the Macs, the
//! rest is not. The sums are carried out, and checked.
//!
//! `cargo run --example tensor_parallel_decode`; simulated, with virtual times.
#![allow(clippy::print_stdout, reason = "a program")]

mod cluster;

use std::time::Duration;

use cluster::{RATE, Result, Sessions, connect};
use futures::future::try_join_all;
use half::bf16;
use rdma_collectives::{Cabling, Group, Reduction};
use rdma_sim::{Net, Sim, Topology};

const LAYERS: u32 = 94;
const HIDDEN: usize = 4096;
/// One Mac reads the parameters of a token in this time.
const WEIGHTS: Duration = Duration::from_micros(28_800);
/// What no further Mac shortens.
const REST: Duration = Duration::from_micros(22_480);
const TOKENS: u32 = 2;

fn main() -> Result {
    for macs in [1, 2, 4] {
        let pairs: Vec<_> =
            (0..macs).flat_map(|left| (left + 1..macs).map(move |right| (left, right))).collect();
        let took = Sim::new()
            .topology(Topology::graph(macs, 3, &pairs)?)
            .run(async |net| {
                let cabling = Cabling::of_pairs(macs, pairs.iter().copied(), RATE);
                let (_nodes, sessions) = connect(&net, &cabling).await?;
                let ranks = sessions.into_iter().enumerate();
                let ranks = ranks.map(|(rank, sessions)| decode(&net, &cabling, rank, sessions));
                let took = try_join_all(ranks).await?;
                Ok::<_, Box<dyn std::error::Error>>(took.into_iter().max().unwrap_or_default())
            })
            .value?;
        let rate = f64::from(TOKENS) / took.as_secs_f64();
        println!("{macs} Macs: {rate:.1} tokens/s");
    }
    Ok(())
}

/// Decodes on one Mac; returns how long it took
async fn decode(net: &Net, cabling: &Cabling, rank: usize, sessions: Sessions) -> Result<Duration> {
    let mut group = Group::join(rank, cabling, sessions).await?;
    let macs = group.size();
    // Half of a layer: attention, or the feed-forward part.
    let half_layer = (WEIGHTS / macs as u32 + REST) / (2 * LAYERS);
    let start = net.now();
    for _ in 0..TOKENS {
        let mut activations = vec![bf16::ONE; HIDDEN];
        for _ in 0..2 * LAYERS {
            // Each Mac has the products with its part of the columns; here, equal parts of the whole.
            net.sleep(half_layer).await;
            let part = bf16::from_f32(1.0 / macs as f32);
            activations.iter_mut().for_each(|value| *value *= part);
            group.all_reduce(&mut activations, Reduction::Sum).await?;
        }
        if activations.iter().any(|value| *value != bf16::ONE) {
            return Err("the sum of the parts is not the whole".into());
        }
    }
    Ok(net.now() - start)
}
