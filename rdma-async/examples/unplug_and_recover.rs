//! Counting to a hundred over a cable that is pulled and plugged in again
//!
//! After a cable was pulled, every object of the device is stale. Both sides therefore open it anew, connect, and go on with the
//! next number that the receiver has not seen.
//!
//! `cargo run --example unplug_and_recover`; on two machines `-- --device NAME --listen ADDRESS` and `-- --device NAME --connect
//! ADDRESS`, and pull the cable yourself.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

mod backend;

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use rdma_async::time::sleep;
use rdma_async::{AnyConnection, Endpoint, EndpointOptions};

use self::backend::{End, Result};

const LAST: u8 = 100;
const ATTEMPTS: u32 = 150;

fn main() -> ExitCode {
    // The text of a fault plan: when, where, what.
    backend::run("at 300ms a:rdma_en2 flap 2s", receive, send)
}

fn options() -> EndpointOptions {
    // A pulled cable is noticed by silence: this side gives up after a second without a message.
    EndpointOptions::new()
        .keep_alive_interval(Duration::from_millis(250))
        .peer_timeout(Duration::from_secs(1))
}

/// Receives the numbers, over as many connections as it takes
async fn receive(end: End) -> Result {
    let next = Cell::new(1);
    recover("receiver", &end, async || {
        let endpoint = Endpoint::builder(end.open()?).runtime(end.runtime()).options(options()).build()?;
        let connection = endpoint.accept(end.stream().await?).await?;
        connection.send_bytes(&[next.get()]).await?;
        while let Some(message) = connection.recv().await? {
            assert_eq!(*message, [next.get()], "each number once, in order");
            next.set(next.get() + 1);
        }
        Ok(connection.closed().await?)
    })
    .await?;
    println!("received 1 to {}", next.get() - 1);
    Ok(())
}

/// Sends the numbers that the receiver asks for
async fn send(end: End) -> Result {
    recover("sender", &end, async || {
        let endpoint = Endpoint::builder(end.open()?).runtime(end.runtime()).options(options()).build()?;
        let connection = endpoint.connect(end.stream().await?).await?;
        count(&end, &connection).await
    })
    .await
}

async fn count(end: &End, connection: &AnyConnection) -> Result {
    let asked = connection.recv().await?.ok_or("the receiver closed the connection")?;
    let &[first] = &*asked else { return Err("the receiver asks for no number".into()) };
    for number in first..=LAST {
        connection.send_bytes(&[number]).await?;
        sleep(&*end.runtime(), Duration::from_millis(10)).await;
    }
    Ok(connection.close().await?)
}

/// Runs `attempt` until it succeeds, with a pause after each failure
async fn recover(side: &str, end: &End, mut attempt: impl AsyncFnMut() -> Result) -> Result {
    for _ in 0..ATTEMPTS {
        let Err(error) = attempt().await else { return Ok(()) };
        println!("{side}, {:.1} s: {error}; trying again", end.runtime().now().as_secs_f64());
        sleep(&*end.runtime(), Duration::from_millis(200)).await;
    }
    Err(format!("the {side} gave up after {ATTEMPTS} attempts").into())
}
