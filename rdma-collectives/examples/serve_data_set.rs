//! One Mac serves a data set to three others, which read the samples that they train on by name and offset
//!
//! The data set lies in memory that the server adopts: what a reader gets goes from there to the reader's memory without a copy by the
//! server's processor. The readers shuffle, each with its own part of the samples.
//!
//! `cargo run --example serve_data_set`; simulated, with virtual times.
#![allow(clippy::print_stdout, reason = "a program")]

mod cluster;

use std::sync::Arc;

use cluster::{RATE, Result, connect};
use futures::future::{join_all, try_join, try_join_all};
use rdma_async::{Access, MappedBytes, Regions, Session};
use rdma_collectives::Cabling;
use rdma_sim::{Sim, SimDevice, Topology};

const READERS: usize = 3;
/// The server is Mac 0, with a cable to each reader.
const CABLES: [(usize, usize); READERS] = [(0, 1), (0, 2), (0, 3)];
const SAMPLES: usize = 48;
const SAMPLE_BYTES: usize = 1 << 20;
/// Reads that each reader has under way at once
const AHEAD: usize = 4;

fn main() -> Result {
    Sim::new()
        .topology(Topology::graph(READERS + 1, 3, &CABLES)?)
        .run(async |net| {
            let cabling = Cabling::of_pairs(READERS + 1, CABLES, RATE);
            let (nodes, mut sessions) = connect(&net, &cabling).await?;
            let mut data = MappedBytes::zeroed(SAMPLES * SAMPLE_BYTES)?;
            for (number, sample) in data.chunks_mut(SAMPLE_BYTES).enumerate() {
                sample.fill(number as u8);
            }
            let regions = Regions::new();
            regions.open("train", Arc::new(nodes[0].adopt(data)?), Access::REMOTE_READ);

            let start = net.now();
            let served = std::mem::take(&mut sessions[0]);
            let serving = try_join_all(served.iter().map(|(_, session)| regions.serve(session)));
            let readers = sessions[1..].iter().enumerate();
            let reading = try_join_all(readers.map(|(reader, sessions)| read(reader, &sessions[0].1)));
            let (_, samples) = try_join(async { Ok(serving.await?) }, reading).await?;
            let took = (net.now() - start).as_secs_f64();

            let mut all: Vec<_> = samples.concat();
            all.sort_unstable();
            if all != (0..SAMPLES).collect::<Vec<_>>() {
                return Err("a sample was read twice or never".into());
            }
            let rate = (SAMPLES * SAMPLE_BYTES) as f64 / took;
            println!(
                "{SAMPLES} samples of 1 MiB to {READERS} readers: {:.2} ms, {:.1} GB/s",
                took * 1e3,
                rate / 1e9
            );
            Ok(())
        })
        .value
}

/// Reads the samples of one reader in an order of its own, and returns their numbers
async fn read(reader: usize, session: &Session<SimDevice>) -> Result<Vec<usize>> {
    let own: Vec<_> = (0..SAMPLES).filter(|sample| sample % READERS == reader).collect();
    // 5 and the number of samples of a reader, 16, have no common factor: this visits each once.
    let order: Vec<_> = (0..own.len()).map(|at| own[(at * 5 + reader) % own.len()]).collect();
    for batch in order.chunks(AHEAD) {
        let reads = batch.iter().map(async |&sample| {
            let offset = (sample * SAMPLE_BYTES) as u64;
            (sample, session.get("train", offset, SAMPLE_BYTES).await)
        });
        for (sample, message) in join_all(reads).await {
            if message?.iter().any(|byte| *byte != sample as u8) {
                return Err(format!("sample {sample} has the content of another").into());
            }
        }
    }
    session.close().await?;
    Ok(order)
}
