//! A bug that shows under few seeds: found by `check`, repeated by its replay line, and read from the trace
//!
//! The program sends a message and expects the answer within a deadline that is a little too short. Deliveries of the simulator
//! vary by seed, so some seeds miss it and most do not.
//!
//! `cargo run --example replay_a_seed [-- --sim]` finds a seed and repeats it; `cargo run --example replay_a_seed -- REPLAY`
//! repeats a run, such as `'1 seed=17'`. A seed repeats a run of the simulator only: on a device of this machine (`--device
//! NAME`) the hardware chooses.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use rdma_async::Endpoint;
use rdma_sim::{Check, Net, Replay, Run, Seeded, Sim, check};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The bug: under about every eighth seed one of ten round trips takes longer than this
const DEADLINE: Duration = Duration::from_nanos(12_100);

/// Ten round trips; returns the slowest
async fn round_trips(net: Net) -> Result<Duration> {
    let (here, there) = net.tcp();
    let a = Endpoint::builder(net.open("a", "rdma_en2")?).runtime(net.runtime()).build()?;
    let b = Endpoint::builder(net.open("b", "rdma_en2")?).runtime(net.runtime()).build()?;
    let (a, b) = futures::try_join!(a.connect(here), b.accept(there))?;
    let echo = async {
        while let Some(message) = b.recv().await? {
            b.send_bytes(&message).await?;
        }
        Result::Ok(())
    };
    let ask = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let start = net.now();
            a.send_bytes(b"ping").await?;
            let answer = a.recv().await?.ok_or("the peer closed the connection")?;
            assert_eq!(*answer, *b"ping");
            slowest = slowest.max(net.now() - start);
        }
        a.close().await?;
        Result::Ok(slowest)
    };
    Ok(futures::try_join!(echo, ask)?.1)
}

/// The test that `check` runs under many seeds
async fn test(net: Net) {
    let slowest = round_trips(net).await.expect("no faults are injected");
    assert!(slowest <= DEADLINE, "an answer took {slowest:?}");
}

/// Runs the test until a seed fails, and reads the replay from the message
///
/// A user of `check` copies the line from the output of the test and sets it as an environment variable.
fn find() -> Result<Replay> {
    let failed = catch_unwind(AssertUnwindSafe(|| check(Check::new().runs(1000), test)));
    let message = failed.err().ok_or("no seed fails")?;
    let message = message.downcast_ref::<String>().ok_or("`check` fails with a text")?;
    let (_, line) = message.split_once("RDMA_SIM_REPLAY='").ok_or("the message has no replay")?;
    Ok(line.split('\'').next().unwrap_or(line).parse()?)
}

/// Runs a replay and keeps every event
fn repeat(replay: &Replay) -> Run<Result<Duration>> {
    let choices = Seeded::first(replay.seed, replay.draws.unwrap_or(u64::MAX));
    Sim::new().choices(choices).faults(replay.faults.clone()).keep_records().run(round_trips)
}

fn run(replay: Option<&str>) -> Result {
    let replay = match replay {
        Some(text) => text.parse()?,
        None => find()?,
    };
    println!("the replay is: {replay}");
    let run = repeat(&replay);
    let slowest = run.value?;
    println!("its slowest answer took {slowest:?}, with a deadline of {DEADLINE:?}");
    println!("the last of its {} events:", run.events);
    for record in run.records.iter().rev().take(8).rev() {
        println!("{record}");
    }
    let again = repeat(&replay);
    assert_eq!(run.digest, again.digest, "equal replays are equal runs");
    println!("repeated with the same digest, {}", again.digest);
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let result = match &*args.iter().map(String::as_str).collect::<Vec<_>>() {
        [] | ["--sim"] => run(None),
        [replay] if !replay.starts_with('-') => run(Some(replay)),
        _ => {
            eprintln!(
                "usage: [--sim | REPLAY]; seeds repeat runs of the simulator only, try ping_pong with --device"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
