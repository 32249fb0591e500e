//! An all_reduce of the ranks that `mlx.launch` or `tb5 run` has started, one process on each host
//!
//! On four simulated Macs in a ring, after `cargo build -p rdma-collectives --features launch --example launched_ranks`:
//! `tb5 run --topology ring:4 --timeout 60s -- target/debug/examples/launched_ranks`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::process::ExitCode;

use rdma_collectives::launch::Launch;
use rdma_collectives::{Group, Reduction};
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};

/// Each rank has a mebibyte.
const LEN: usize = 1 << 18;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    // ANCHOR: join
    let launch = Launch::from_env()?;
    let provider = Provider::load()?;
    let node =
        launch.node(move |device| VerbsDevice::open(&provider, device, OpenOptions::new()))?.build()?;
    let sessions = launch.connect(&node).await?;
    let (rank, neighbours) = (launch.rank(), sessions.len());
    let mut group = Group::join(rank, launch.cabling(), sessions).await?;
    // ANCHOR_END: join

    let mut vector = vec![rank as f32; LEN];
    group.all_reduce(&mut vector, Reduction::Sum).await?;
    let size = group.size();
    let expected = (size * (size - 1) / 2) as f32;
    if vector.iter().any(|sum| *sum != expected) {
        return Err("the sum is wrong".into());
    }
    println!("rank {rank} of {size}, cabled to {neighbours}: the sum of all is {expected}");
    // Others may still wait for what this rank passes on.
    group.barrier().await?;
    drop(group);
    node.close();
    node.wait_idle().await;
    Ok(())
}
