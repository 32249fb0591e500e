//! A message back and forth, with the time of the round trip
//!
//! `cargo run --example ping_pong`, or on two machines `-- --device NAME --listen ADDRESS` and `-- --device NAME --connect ADDRESS`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

mod backend;

use std::process::ExitCode;

use rdma_async::Endpoint;

use self::backend::{End, Result};

const ROUNDS: usize = 1000;
const LEN: usize = 64;

fn main() -> ExitCode {
    backend::run("", echo, ping)
}

/// Sends every message back
async fn echo(end: End) -> Result {
    let endpoint = Endpoint::builder(end.open()?).runtime(end.runtime()).build()?;
    let connection = endpoint.accept(end.stream().await?).await?;
    while let Some(message) = connection.recv().await? {
        connection.send_bytes(&message).await?;
    }
    // The peer has closed; wait until it knows that everything arrived.
    connection.closed().await?;
    Ok(())
}

/// Measures round trips
async fn ping(end: End) -> Result {
    let runtime = end.runtime();
    let endpoint = Endpoint::builder(end.open()?).runtime(end.runtime()).build()?;
    let connection = endpoint.connect(end.stream().await?).await?;
    // The device reads the message in the memory of the lease, which comes back for the next one.
    let mut lease = connection.alloc(LEN).await?;
    lease.resize(LEN, 7);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = runtime.now();
        lease = connection.send(lease).await?;
        let answer = connection.recv().await?.ok_or("the peer closed the connection")?;
        assert_eq!(*answer, *lease);
        times.push(runtime.now() - start);
    }
    connection.close().await?;
    times.sort_unstable();
    println!("{ROUNDS} round trips of {LEN} bytes, median {:?}", times[ROUNDS / 2]);
    Ok(())
}
