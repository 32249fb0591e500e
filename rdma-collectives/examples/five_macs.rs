//! Five Macs: the best cabling of their ports on paper, with the proof and the cables to plug for it, what it gains, a cable that is pulled, and a Mac that is lost, without which the others go on
//!
//! `cargo run --example five_macs`; simulated, with virtual times.
#![allow(clippy::print_stdout, reason = "a program")]

mod cluster;

use std::time::Duration;

use cluster::{RATE, Result, Sessions, connect};
use futures::future::join_all;
use rdma_collectives::{Cabling, Group, GroupError, Operation, Reduction, all_reduce, recommend_for};
use rdma_sim::{Net, Sim, SimDevice, Topology};

const MACS: usize = 5;
const PORTS: usize = 3;
/// As found on a desk: one behind the other
const LINE: [(usize, usize); 4] = [(0, 1), (1, 2), (2, 3), (3, 4)];
/// 16 MiB on each Mac
const ELEMENTS: usize = 4 << 20;
/// The Mac that is killed in step [`LOST_IN`]
const LOST: usize = 4;
const STEPS: usize = 7;
const PULLED_IN: usize = 3;
const LOST_IN: usize = 6;

fn main() -> Result {
    // On paper: the best cabling of these ports, with as many of the present cables as possible in their places.
    let line = Cabling::of_pairs(MACS, LINE, RATE);
    let best = recommend_for(&[PORTS; MACS], RATE, &Operation::AllReduce)?.nearest_to(&line);
    println!("{best}");
    let gain = all_reduce(&line)?.time.to_f64() / best.time.to_f64();
    println!("Over it, an all_reduce is {gain:.2} times as fast as over the cables as found.");
    let pairs = pairs(&best.cabling);
    let name = |mac: usize| &line.hosts()[mac];
    for (left, right) in LINE.iter().filter(|pair| !pairs.contains(pair)) {
        println!("unplug {} - {}", name(*left), name(*right));
    }
    for (left, right) in pairs.iter().filter(|pair| !LINE.contains(pair)) {
        println!("plug {} - {}", name(*left), name(*right));
    }

    // Simulated: both cablings.
    for (name, pairs) in [("as found", &LINE[..]), ("as advised", &pairs)] {
        let took = run(pairs, async |net, groups| time_of_third(&net, groups).await)?;
        println!("{name}: 16 MiB in {:.3} ms over {} cables", millis(took), pairs.len());
    }

    // The second one, with a cable that is pulled, and a process that ends.
    run(&pairs, async |net, groups| {
        let ranks = groups.into_iter().enumerate().map(|(rank, group)| work(&net, rank, group));
        let mut results = join_all(ranks).await;
        // The process that ends has an error of its own.
        results.remove(LOST).err().ok_or("the process has not ended")?;
        results.into_iter().collect()
    })
}

/// The Macs at both ends of each cable
fn pairs(cabling: &Cabling) -> Vec<(usize, usize)> {
    let ends = cabling.cables().iter().map(|cable| cable.ends);
    ends.map(|[left, right]| (left.min(right), left.max(right))).collect()
}

/// Runs `program` with the groups of all Macs over these cables
fn run<T>(
    pairs: &[(usize, usize)],
    program: impl AsyncFnOnce(Net, Vec<Group<SimDevice>>) -> Result<T>,
) -> Result<T> {
    let cabling = &Cabling::of_pairs(MACS, pairs.iter().copied(), RATE);
    Sim::new()
        .topology(Topology::graph(MACS, PORTS, pairs)?)
        .run(async |net| {
            let (_nodes, sessions) = connect(&net, cabling).await?;
            let join = async |(rank, sessions): (usize, Sessions)| Group::join(rank, cabling, sessions).await;
            let groups = join_all(sessions.into_iter().enumerate().map(join)).await;
            program(net, groups.into_iter().collect::<std::result::Result<_, _>>()?).await
        })
        .value
}

/// How long the third all_reduce takes: the first ones also get memory ready
async fn time_of_third(net: &Net, groups: Vec<Group<SimDevice>>) -> Result<Duration> {
    let third = async |mut group: Group<SimDevice>| {
        let mut vector = vec![1.0_f32; ELEMENTS];
        group.all_reduce(&mut vector, Reduction::Average).await?;
        group.all_reduce(&mut vector, Reduction::Average).await?;
        let start = net.now();
        group.all_reduce(&mut vector, Reduction::Average).await?;
        let took = net.now() - start;
        group.barrier().await?;
        Ok::<_, GroupError>(took)
    };
    let times = join_all(groups.into_iter().map(third)).await;
    Ok(times.into_iter().collect::<std::result::Result<Vec<_>, _>>()?.into_iter().max().unwrap_or_default())
}

/// Adds vectors up as one of the Macs, step by step, with those that are left
async fn work(net: &Net, rank: usize, mut group: Group<SimDevice>) -> Result {
    for step in 1..=STEPS {
        if rank == 0 {
            // In the middle of the step.
            let at = (net.now() + Duration::from_micros(500)).as_nanos();
            match step {
                PULLED_IN => net.inject(format!("at {at}ns a:rdma_en2 unplug").parse()?),
                LOST_IN => net.inject(format!("at {at}ns e kill").parse()?),
                _ => (),
            }
        }
        let start = net.now();
        let sum = loop {
            // The contents are undefined after an error: begin with the input again.
            let mut vector = vec![1_u32 << rank; ELEMENTS];
            match group.all_reduce(&mut vector, Reduction::Sum).await {
                Ok(()) => break vector[0],
                Err(error) if rank == LOST => return Err(error.into()),
                Err(error) => {
                    group = group.shrink().await?;
                    if rank == 0 {
                        println!("step {step}: {error}; {} go on", group.hosts().join(", "));
                    }
                }
            }
        };
        let expected: u32 = group.hosts().iter().map(|name| 1 << (name.as_bytes()[0] - b'a')).sum();
        assert_eq!(sum, expected, "of the Macs that are left");
        if rank == 0 {
            println!(
                "step {step}: the sum of {} Macs after {:.3} ms",
                group.size(),
                millis(net.now() - start)
            );
        }
    }
    group.barrier().await?;
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
