//! Counting to a hundred over a cable that is pulled and plugged in again
//!
//! The program does nothing about it: the session waits for the cable, makes a new path, and sends what was under way again.
//!
//! `cargo run --example unplug_and_recover`; on two machines `-- --device NAME --listen ADDRESS` and `-- --device NAME --connect
//! ADDRESS`, and pull the cable yourself.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

mod backend;

use std::process::ExitCode;
use std::time::Duration;

use rdma_async::Node;
use rdma_async::time::sleep;

use self::backend::{End, Result};

const LAST: u8 = 100;

fn main() -> ExitCode {
    // The text of a fault plan: when, where, what.
    backend::run("at 300ms a:rdma_en2 flap 2s", receive, send)
}

/// Receives the numbers
async fn receive(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    node.serve(end.stream().await?).await?;
    let session = node.accept().await.ok_or("the node is closed")?;
    let (mut next, mut longest) = (1, Duration::ZERO);
    let mut latest = end.runtime().now();
    while let Some(message) = session.recv().await? {
        assert_eq!(*message, [next], "each number once, in order");
        next += 1;
        let now = end.runtime().now();
        longest = longest.max(now - latest);
        latest = now;
    }
    println!("the longest pause between two numbers was {:.1} s", longest.as_secs_f64());
    println!("received 1 to {}", next - 1);
    drop(session);
    node.wait_idle().await;
    Ok(())
}

// ANCHOR: send
/// Sends the numbers
async fn send(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    let session = node.connect(end.stream().await?).await?;
    for number in 1..=LAST {
        session.send_bytes(&[number]).await?;
        sleep(&*end.runtime(), Duration::from_millis(10)).await;
    }
    session.close().await?;
    drop(session);
    node.wait_idle().await;
    Ok(())
}
// ANCHOR_END: send
