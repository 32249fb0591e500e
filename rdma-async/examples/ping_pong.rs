//! A message back and forth, with the time of the round trip
//!
//! `cargo run --example ping_pong`, or on two machines `-- --device NAME --listen ADDRESS` and `-- --device NAME --connect ADDRESS`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

mod backend;

use std::process::ExitCode;

use rdma_async::Node;

use self::backend::{End, Result};

const ROUNDS: usize = 1000;
const LEN: usize = 64;

fn main() -> ExitCode {
    backend::run("", echo, ping)
}

/// Sends every message back
async fn echo(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    node.serve(end.stream().await?).await?;
    let session = node.accept().await.ok_or("the node is closed")?;
    while let Some(message) = session.recv().await? {
        session.send_bytes(&message).await?;
    }
    // The peer has closed; wait until it knows that everything arrived.
    drop(session);
    node.wait_idle().await;
    Ok(())
}

/// Measures round trips
async fn ping(end: End) -> Result {
    let runtime = end.runtime();
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    let session = node.connect(end.stream().await?).await?;
    // A lease is memory for a message. Sending returns it, so that the next message needs no new one.
    let mut lease = session.alloc(LEN).await?;
    lease.resize(LEN, 7);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = runtime.now();
        lease = session.send(lease).await?;
        let answer = session.recv().await?.ok_or("the peer closed the session")?;
        assert_eq!(*answer, *lease);
        times.push(runtime.now() - start);
    }
    session.close().await?;
    drop(session);
    node.wait_idle().await;
    times.sort_unstable();
    println!("{ROUNDS} round trips of {LEN} bytes, median {:?}", times[ROUNDS / 2]);
    Ok(())
}
