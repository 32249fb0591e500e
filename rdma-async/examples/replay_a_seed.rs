//! A bug that shows under few seeds: found by `check`, repeated by its replay line, and read from the trace
//!
//! The program sends a message and expects the answer within a deadline that is a little too short. Deliveries of the simulator
//! vary by seed, so some seeds miss it and most do not.
//!
//! `cargo run --example replay_a_seed` finds a seed and repeats it; `cargo run --example replay_a_seed -- REPLAY` repeats a run,
//! such as `'2 seed=17'`. On two machines, `-- --device NAME --listen ADDRESS` and `-- --device NAME --connect ADDRESS` run the same
//! program once, and print the time of its slowest answer: there, the hardware chooses it.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

mod backend;

use std::process::ExitCode;
use std::time::Duration;

use rdma_async::{Device, Node, Runtime, Session};
use rdma_sim::{Check, Net, Replay, Run, Scheduler, Sim, try_check};

use self::backend::{End, Result};

/// The bug: under about every eighth seed one of ten round trips takes longer than this
const DEADLINE: Duration = Duration::from_nanos(12_107);

/// Sends every message back
async fn echo<D: Device>(session: &Session<D>) -> Result {
    while let Some(message) = session.recv().await? {
        session.send_bytes(&message).await?;
    }
    Ok(())
}

/// Ten round trips; returns the slowest
async fn ask<D: Device>(session: &Session<D>, runtime: &dyn Runtime) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    for number in 0..=10 {
        let start = runtime.now();
        session.send_bytes(b"ping").await?;
        let answer = session.recv().await?.ok_or("the peer closed the session")?;
        assert_eq!(*answer, *b"ping");
        // The first message waits until the path is proven.
        if number > 0 {
            slowest = slowest.max(runtime.now() - start);
        }
    }
    session.close().await?;
    Ok(slowest)
}

/// Both ends in one simulation
async fn round_trips(net: Net) -> Result<Duration> {
    let (here, there) = net.tcp();
    let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    let (a, b) = (node("a")?, node("b")?);
    let (to_b, ()) = futures::try_join!(a.connect(here), b.serve(there))?;
    let to_a = b.accept().await.ok_or("the node is closed")?;
    let runtime = net.runtime();
    Ok(futures::try_join!(echo(&to_a), ask(&to_b, &*runtime))?.1)
}

/// The test that `check` runs under many seeds
async fn test(net: Net) {
    let slowest = round_trips(net).await.expect("no faults are injected");
    assert!(slowest <= DEADLINE, "an answer took {slowest:?}");
}

// ANCHOR: find
/// Runs the test until a seed fails
///
/// In a test, `check` panics with the same text, whose last line can be set as an environment variable to repeat the run.
fn find() -> Result<Replay> {
    // The test measures time: tasks that are late would fail it for another reason.
    let check = Check::new().runs(1000).scheduler(Scheduler::Fifo);
    let failure = try_check(check, test).err().ok_or("no seed fails")?;
    Ok(failure.replay)
}
// ANCHOR_END: find

// ANCHOR: repeat
/// Runs a replay and keeps every event
fn repeat(replay: &Replay) -> Run<Result<Duration>> {
    Sim::new().replay(replay).keep_records().run(round_trips)
}
// ANCHOR_END: repeat

fn find_and_repeat(replay: Option<&str>) -> Result {
    let replay = match replay {
        Some(text) => text.parse()?,
        None => find()?,
    };
    println!("the replay is: {replay}");
    let run = repeat(&replay);
    let slowest = run.value?;
    println!("its slowest answer took {slowest:?}, with a deadline of {DEADLINE:?}");
    println!("the last of its {} events:", run.events);
    for line in run.history.lines().skip(run.history.records.len().saturating_sub(8)) {
        println!("{line}");
    }
    let again = repeat(&replay);
    assert_eq!(run.digest, again.digest, "equal replays are equal runs");
    println!("repeated with the same digest, {}", again.digest);
    Ok(())
}

/// The answering end of a real cable
async fn answering(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    node.serve(end.stream().await?).await?;
    let session = node.accept().await.ok_or("the node is closed")?;
    echo(&session).await?;
    drop(session);
    node.wait_idle().await;
    Ok(())
}

/// The asking end
async fn asking(end: End) -> Result {
    let node = Node::builder(end.opener()).runtime(end.runtime()).build()?;
    let session = node.connect(end.stream().await?).await?;
    let slowest = ask(&session, &*end.runtime()).await?;
    println!("the slowest answer took {slowest:?}");
    drop(session);
    node.wait_idle().await;
    Ok(())
}

fn main() -> ExitCode {
    let replay = std::env::args().nth(1).filter(|first| !first.starts_with('-'));
    match replay {
        Some(replay) => backend::exit(find_and_repeat(Some(&replay))),
        None => backend::run_or(|| find_and_repeat(None), answering, asking),
    }
}
