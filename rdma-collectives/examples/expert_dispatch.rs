//! Expert dispatch on four Macs: tokens go to the Macs of their experts and come back; a hot expert is replicated on all of them
//!
//! Half of the tokens want expert 0. If one Mac has it, the others wait for that Mac; if each has a copy, these tokens stay where they are.
//!
//! `cargo run --example expert_dispatch`; simulated, with virtual times.
#![allow(clippy::print_stdout, reason = "a program")]

mod cluster;

use std::time::Duration;

use cluster::{RATE, Result, Sessions, connect};
use futures::future::try_join_all;
use rdma_collectives::{Cabling, Group};
use rdma_sim::{Net, Sim, Topology};

const MACS: usize = 4;
/// A ring: tokens for the Mac across go over a neighbour.
const CABLES: [(usize, usize); 4] = [(0, 1), (1, 2), (2, 3), (3, 0)];
const EXPERTS: usize = 8;
const HOT: usize = 0;
/// Tokens of each Mac, and elements of each token
const TOKENS: usize = 64;
const HIDDEN: usize = 1024;
/// What an expert needs for a token
const COMPUTE: Duration = Duration::from_micros(10);

fn main() -> Result {
    let mut times = Vec::new();
    for is_replicated in [false, true] {
        let took = Sim::new()
            .topology(Topology::graph(MACS, 3, &CABLES)?)
            .run(async |net| {
                let cabling = Cabling::of_pairs(MACS, CABLES, RATE);
                let (_nodes, sessions) = connect(&net, &cabling).await?;
                let macs = sessions.into_iter().enumerate();
                let macs = macs.map(|(rank, sessions)| run(&net, &cabling, rank, sessions, is_replicated));
                let took = try_join_all(macs).await?;
                Ok::<_, Box<dyn std::error::Error>>(took.into_iter().max().unwrap_or_default())
            })
            .value?;
        let experts = if is_replicated { "replicated" } else { "on one Mac" };
        println!("hot expert {experts}: {:.3} ms", took.as_secs_f64() * 1e3);
        times.push(took);
    }
    println!("replication is {:.2} times as fast", times[0].as_secs_f64() / times[1].as_secs_f64());
    Ok(())
}

/// The expert of each token of a Mac: the hot one for every second
fn expert(rank: usize, token: usize) -> usize {
    if token.is_multiple_of(2) { HOT } else { (rank + token / 2) % EXPERTS }
}

/// One layer on one Mac; returns how long it took
async fn run(
    net: &Net,
    cabling: &Cabling,
    rank: usize,
    sessions: Sessions,
    is_replicated: bool,
) -> Result<Duration> {
    let mut group = Group::join(rank, cabling, sessions).await?;
    let mac_of = |expert: usize| match expert {
        HOT if is_replicated => rank,
        expert => expert % MACS,
    };
    // Tokens in the order of the Macs that they go to. The first element says which expert a token wants.
    let mut order: Vec<_> = (0..TOKENS).collect();
    order.sort_by_key(|&token| mac_of(expert(rank, token)));
    let value = |token: usize| (rank * TOKENS + token) as f32;
    let sent: Vec<f32> = order
        .iter()
        .flat_map(|&token| {
            let mut elements = vec![value(token); HIDDEN];
            elements[0] = expert(rank, token) as f32;
            elements
        })
        .collect();
    let mut counts = [0_u64; MACS];
    order.iter().for_each(|&token| counts[mac_of(expert(rank, token))] += HIDDEN as u64);

    let start = net.now();
    // Each Mac knows what it sends, and not what it receives.
    let mut incoming = [0_u64; MACS];
    group.all_to_all(&counts, &mut incoming).await?;
    let [counts, incoming] = [counts, incoming].map(|counts| counts.map(|count| count as usize));
    let mut received = vec![0.0; incoming.iter().sum()];
    group.all_to_all_v(&sent, &counts, &mut received, &incoming).await?;
    let tokens = received.as_chunks_mut::<HIDDEN>().0;
    net.sleep(COMPUTE * tokens.len() as u32).await;
    for token in tokens {
        // Expert `e` multiplies by `e + 1`.
        let factor = token[0] + 1.0;
        token.iter_mut().for_each(|element| *element *= factor);
    }
    let mut back = vec![0.0; sent.len()];
    group.all_to_all_v(&received, &incoming, &mut back, &counts).await?;
    let took = net.now() - start;

    for (token, elements) in order.iter().zip(back.as_chunks::<HIDDEN>().0) {
        let expected = value(*token) * (expert(rank, *token) + 1) as f32;
        if elements[1..].iter().any(|element| *element != expected) {
            return Err(format!("token {token} of Mac {rank} was not at its expert").into());
        }
    }
    group.barrier().await?;
    Ok(took)
}
