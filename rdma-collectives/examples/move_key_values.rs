//! A key-value cache goes from a Mac that reads prompts to one that decodes: each layer while the next one is computed
//!
//! The two Macs are at opposite corners of a ring of four: `Group::transfer` takes both ways around at once, so the cache moves with the
//! rate of two cables, although no cable joins them.
//!
//! `cargo run --example move_key_values`; simulated, with virtual times.
#![allow(clippy::print_stdout, reason = "a program")]

mod cluster;

use std::time::Duration;

use cluster::{RATE, Result, Sessions, connect};
use futures::future::{join, try_join_all};
use rdma_collectives::{Cabling, Group};
use rdma_sim::{Net, Sim, Topology};

const MACS: usize = 4;
const CABLES: [(usize, usize); 4] = [(0, 1), (1, 2), (2, 3), (3, 0)];
const PREFILL: usize = 0;
const DECODE: usize = 2;
const LAYERS: usize = 8;
/// Keys and values of a layer: 8 heads of 128 elements of 2 bytes, for 4096 tokens
const LAYER_BYTES: usize = 2 * 8 * 128 * 2 * 4096;
/// What the prefill Mac needs for a layer
const COMPUTE: Duration = Duration::from_millis(1);

fn main() -> Result {
    let took = Sim::new()
        .topology(Topology::graph(MACS, 3, &CABLES)?)
        .run(async |net| {
            let cabling = Cabling::of_pairs(MACS, CABLES, RATE);
            let (_nodes, sessions) = connect(&net, &cabling).await?;
            let macs = sessions.into_iter().enumerate();
            let macs = macs.map(|(rank, sessions)| run(&net, &cabling, rank, sessions));
            Ok::<_, Box<dyn std::error::Error>>(try_join_all(macs).await?[DECODE])
        })
        .value?;
    let total = (LAYERS * LAYER_BYTES) as f64;
    let one_cable = total / RATE as f64;
    println!(
        "{:.0} MiB in {:.2} ms, computed meanwhile",
        total / f64::from(1 << 20),
        took.as_secs_f64() * 1e3
    );
    println!("one cable alone takes {:.2} ms, without computing", one_cable * 1e3);
    Ok(())
}

/// The content of a layer: no two are the same
fn layer(number: usize) -> Vec<u32> {
    (0..LAYER_BYTES / 4).map(|at| (number * 7_919 + at) as u32).collect()
}

/// One Mac; returns how long it took until it had the whole cache
async fn run(net: &Net, cabling: &Cabling, rank: usize, sessions: Sessions) -> Result<Duration> {
    let mut group = Group::join(rank, cabling, sessions).await?;
    let start = net.now();
    // Before the first layer can go, it has to be there.
    net.sleep(COMPUTE).await;
    for number in 0..LAYERS {
        // The Macs between pass it on, and have nothing of it.
        let mut keys_and_values = if rank == PREFILL { layer(number) } else { vec![0; LAYER_BYTES / 4] };
        let transfer = group.transfer(PREFILL, DECODE, &mut keys_and_values);
        // The prefill Mac computes the next layer meanwhile.
        let next_layer = async {
            if rank == PREFILL && number + 1 < LAYERS {
                net.sleep(COMPUTE).await;
            }
        };
        let (moved, ()) = join(transfer, next_layer).await;
        moved?;
        if rank == DECODE && keys_and_values != layer(number) {
            return Err(format!("layer {number} is not what was sent").into());
        }
    }
    let took = net.now() - start;
    group.barrier().await?;
    Ok(took)
}
