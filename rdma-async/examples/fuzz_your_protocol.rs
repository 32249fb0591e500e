//! A protocol under faults, three ways: by seed, by the strategies of proptest, and from the bytes of a fuzzer
//!
//! The protocol is a service that adds up the numbers of its client. Under any faults it may fail, but it must neither answer
//! wrongly nor wait for ever. One function states that, [`holds`], and all three ways run it. A session outlives its cable, and waits
//! for one while both processes live: how long is too long is decided here.
//!
//! `cargo run --example fuzz_your_protocol`. On two machines, `-- --device NAME --listen ADDRESS` and `-- --device NAME --connect
//! ADDRESS` run the same protocol once, without faults.
//!
//! The runs in `examples/corpora/fuzz_your_protocol` come first: each has reached something that none before had. After a change of the
//! protocol, `RDMA_SIM_UPDATE_CORPUS=1 RDMA_SIM_RUNS=500 cargo run --example fuzz_your_protocol` adds those that are missing.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

mod backend;

use std::process::ExitCode;
use std::time::Duration;

use proptest::test_runner::{Config, TestRunner};
use rdma_async::time::timeout;
use rdma_async::{Device, Node, NodeOptions, Session};
use rdma_sim::{Check, Choices, Net, RandomFaults, Seeded, Sim, always, check, sometimes, state, try_check};

use self::backend::{End, Result};

const REQUESTS: u64 = 50;
/// What their numbers, 1 to [`REQUESTS`], add up to
const SUM: u64 = REQUESTS * (REQUESTS + 1) / 2;
/// When faults begin at the latest
const HORIZON: Duration = Duration::from_millis(2);
/// Runs that were kept, one in a file
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/corpora/fuzz_your_protocol");
/// How long the client waits for its sum
const PATIENCE: Duration = Duration::from_secs(3);

/// Answers each number with the sum so far
async fn serve<D: Device>(session: &Session<D>) -> Result {
    let mut sum = 0;
    while let Some(message) = session.recv().await? {
        sum += u64::from_le_bytes(message[..].try_into()?);
        session.send_bytes(&sum.to_le_bytes()).await?;
    }
    Ok(())
}

/// Asks for the sum of 1 to [`REQUESTS`]
async fn add_up<D: Device>(session: &Session<D>) -> Result<u64> {
    let mut sum = 0;
    for number in 1..=REQUESTS {
        session.send_bytes(&number.to_le_bytes()).await?;
        let answer = session.recv().await?.ok_or("the server closed the session")?;
        sum = u64::from_le_bytes(answer[..].try_into()?);
        // Guides the check: it varies runs that have come far.
        state!("tens of answers", number / 10);
    }
    session.close().await?;
    Ok(sum)
}

/// What must hold whatever the faults do: the right sum or an error; the simulation fails if the client waits for ever
async fn holds(net: Net) {
    let sum = attempt(&net).await;
    // Without these, a service that always fails would hold, too.
    sometimes!(sum.is_ok(), "the client gets its sum");
    sometimes!(sum.is_err(), "a fault stops the client");
    if let Ok(sum) = sum {
        always!(sum == SUM, "the sum is right");
    }
}

async fn attempt(net: &Net) -> Result<u64> {
    let options = || NodeOptions::new().peer_timeout(Duration::from_secs(1));
    let (here, there) = net.tcp();
    // The server is a process of host b: faults stop, kill and restart it.
    let server = Node::builder(net.opener("b", "rdma_en2"));
    let server = server.runtime(net.host("b").runtime()).options(options()).build()?;
    net.host("b").spawn(async move {
        if server.serve(there).await.is_ok()
            && let Some(session) = server.accept().await
        {
            // The client notices a server that failed.
            let _ = serve(&session).await;
        }
    });
    let client = Node::builder(net.opener("a", "rdma_en2"));
    let client = client.runtime(net.runtime()).options(options()).build()?;
    let sum = async { add_up(&client.connect(here).await?).await };
    timeout(&*net.runtime(), PATIENCE, sum).await.ok_or("no sum in time")?
}

/// What all three ways vary
fn settings() -> Check {
    Check::new().random_faults(RandomFaults::up_to(3).within(HORIZON))
}

/// By seed: a failure is shrunk and printed as a line that repeats it; runs that reach something new are varied, those of the corpus first
fn by_seed() {
    check(settings().corpus(CORPUS), holds);
}

/// By proptest: the strategy combines with those of the caller's own types
fn by_strategy() -> Result {
    let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    runner.run(&settings().strategy(64), |run| {
        try_check(settings().replay(run), holds)?;
        Ok(())
    })?;
    Ok(())
}

/// From bytes: the body of a fuzz target
fn by_bytes(bytes: &[u8]) {
    let run = settings().from_bytes(bytes);
    check(settings().replay(run), holds);
}

fn fuzz() -> Result {
    // A service that always fails would hold, too: without faults it must answer.
    let sum = Sim::new().run(async |net| attempt(&net).await).value?;
    assert_eq!(sum, SUM, "the sum is wrong");
    by_seed();
    println!("100 seeds hold");
    by_strategy()?;
    println!("100 cases of proptest hold");
    // A fuzzer would look for bytes that reach new code; random ones stand in for it here.
    let mut random = Seeded::new(0);
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..200).map(|_| random.pick(256) as u8).collect();
        by_bytes(&bytes);
    }
    println!("100 inputs of bytes hold");
    Ok(())
}

/// The server at one end of a real cable
async fn server(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    node.serve(end.stream().await?).await?;
    let session = node.accept().await.ok_or("the node is closed")?;
    serve(&session).await?;
    drop(session);
    node.wait_idle().await;
    Ok(())
}

/// The client at the other end
async fn client(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    let session = node.connect(end.stream().await?).await?;
    let sum = add_up(&session).await?;
    assert_eq!(sum, SUM, "the sum is wrong");
    println!("{REQUESTS} requests hold, without faults");
    drop(session);
    node.wait_idle().await;
    Ok(())
}

fn main() -> ExitCode {
    backend::run_or(fuzz, server, client)
}
