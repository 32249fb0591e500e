//! Each fault at each frame of each operation, for up to four ranks

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_async::{Device as _, NodeOptions};
use rdma_collectives::{Group, GroupError, Reduction};
use rdma_sim::SimDevice;

use crate::cluster::{Shape, cabling, connect, joined, name, sim};
use crate::outages::{inject, port};

/// Cablings of up to four ranks, and whether each two neighbours have another way to each other
const SHAPES: [(Shape, bool); 4] = [
    ((2, &[(0, 1)]), false),
    ((3, &[(0, 1), (1, 2), (2, 0)]), true),
    ((4, &[(0, 1), (1, 2), (2, 3)]), false),
    ((4, &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]), true),
];
const TIMEOUT: Duration = Duration::from_millis(10);
/// By when all ranks that live are done or have an error
const PATIENCE: Duration = Duration::from_millis(40);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The cable stays out
    Unplug,
    /// The cable is back after a while
    Replug,
    /// The host goes on after a while
    Pause,
    Kill,
    /// The host is killed while another cable of it is out
    KillInOutage,
}

/// All kinds of operations on parts of `len` elements, with results that are checked
pub(crate) async fn work(group: &mut Group<SimDevice>, len: usize) -> Result<(), GroupError> {
    let (rank, size) = (group.rank() as u64, group.size());
    let sum: u64 = (0..size as u64).sum();
    let own = vec![rank; len];

    let mut vector = own.clone();
    group.all_reduce(&mut vector, Reduction::Sum).await?;
    assert_eq!(vector, vec![sum; len]);

    let mut all = vec![u64::MAX; size * len];
    group.all_gather(&own, &mut all).await?;
    assert!(all.iter().enumerate().all(|(at, element)| *element == (at / len) as u64));

    let mut vector = own.clone();
    group.broadcast(size - 1, &mut vector).await?;
    assert_eq!(vector, vec![size as u64 - 1; len]);

    let mut part = vec![u64::MAX; len];
    group.reduce_scatter(&vec![rank; size * len], &mut part, Reduction::Sum).await?;
    assert_eq!(part, vec![sum; len]);

    let mut received = vec![u64::MAX; size * len];
    group.all_to_all(&vec![rank; size * len], &mut received).await?;
    assert_eq!(received, all);

    let mut moved = own.clone();
    group.transfer(0, size - 1, &mut moved).await?;
    assert!(rank + 1 < size as u64 || moved == vec![0; len]);

    group.barrier().await
}

/// What became of the ranks when `event` happened after so many frames from the first rank to the second; and how many frames there were
fn run(
    shape: Shape,
    [from, to]: [usize; 2],
    event: Option<(Event, u64)>,
) -> (Vec<Option<Result<(), GroupError>>>, u64) {
    let cabling = cabling(shape.0, shape.1);
    let run = sim(shape.0, shape.1).sanitize(false).run(async |net| {
        // Little memory: hundreds of nodes are made.
        let options = NodeOptions::new().max_peers(1).max_sessions(1).peer_timeout(TIMEOUT);
        let cluster = connect(&net, &cabling, &options).await;
        let groups = joined(&cluster, &cabling).await;
        let device = net.host(&name(from)).open_to(&name(to)).expect("a cable joins them");
        let device = device.name().to_owned();
        let sent = || net.cable_stats(&name(from), &device).map_or(0, |[sent, _]| sent.frames);
        let before = sent();
        let host = name(from);
        if let Some((event, number)) = event {
            let what = match event {
                Event::Unplug => format!("{host}:{device} unplug"),
                Event::Replug => format!("{host}:{device} flap 300us"),
                Event::Pause => format!("{host} pause"),
                Event::Kill | Event::KillInOutage => format!("{host} kill"),
            };
            let other = shape
                .1
                .iter()
                .rev()
                .find(|(one, other)| (*one == from || *other == from) && *one != to && *other != to);
            if let (Event::KillInOutage, Some(&(one, other))) = (event, other) {
                inject(&net, Duration::ZERO, &port(&net, [one, other]), "unplug");
            }
            net.inject(format!("after {} frames {what}", before + number).parse().expect("a fault"));
        }
        let results = Arc::new(Mutex::new(vec![None; shape.0]));
        for (rank, mut group) in groups.into_iter().enumerate() {
            let results = Arc::clone(&results);
            // Part of the host: it dies with it.
            net.host(&name(rank)).spawn(async move {
                let result = work(&mut group, 600).await;
                results.lock().unwrap()[rank] = Some(result);
                // As a program does that goes on.
                std::future::pending::<()>().await;
            });
        }
        net.sleep(Duration::from_millis(2)).await;
        if event.is_some_and(|(event, _)| event == Event::Pause) {
            inject(&net, Duration::ZERO, &host, "resume");
        }
        net.sleep(PATIENCE).await;
        let results = results.lock().unwrap().clone();
        (results, sent() - before)
    });
    assert_eq!(run.findings, [], "{event:?}");
    run.value
}

/// Every `step`-th run; returns how many there were, by kind of event
fn each_frame(step: usize) -> [usize; 5] {
    let mut runs = [0; 5];
    let mut number = 0;
    for (shape, has_other_ways) in SHAPES {
        for ends in shape.1.iter().flat_map(|&(one, other)| [[one, other], [other, one]]) {
            let (results, frames) = run(shape, ends, None);
            assert!(results.iter().all(|result| *result == Some(Ok(()))), "{results:?}");
            for event in [Event::Unplug, Event::Replug, Event::Pause, Event::Kill, Event::KillInOutage] {
                if matches!(event, Event::Unplug | Event::KillInOutage) && !has_other_ways {
                    continue;
                }
                for frame in 0..=frames {
                    number += 1;
                    if number % step != 0 {
                        continue;
                    }
                    let (results, _) = run(shape, ends, Some((event, frame)));
                    let is_kill = matches!(event, Event::Kill | Event::KillInOutage);
                    let is_right = |(rank, result): (usize, &Option<Result<(), GroupError>>)| match result {
                        _ if is_kill && rank == ends[0] => true,
                        Some(Ok(())) => true,
                        Some(Err(GroupError::Lost { rank, .. })) => is_kill && *rank == ends[0],
                        _ => false,
                    };
                    let is_right = results.iter().enumerate().all(is_right);
                    assert!(is_right, "{shape:?}, {event:?} after {frame} frames of {ends:?}: {results:?}");
                    runs[event as usize] += 1;
                }
            }
        }
    }
    runs
}

/// Catches the loss of a last frame that is not noticed, and a rank that waits for ever for a dead one.
#[test]
fn a_fault_may_come_at_any_frame() {
    let runs = each_frame(7);
    assert!(runs.iter().all(|runs| *runs > 10), "{runs:?}");
}

#[test]
#[ignore = "takes a minute"]
#[expect(clippy::print_stdout, reason = "the count is the result")]
fn each_fault_at_each_frame() {
    println!("runs with a cable out, back, a host paused, killed, killed in an outage: {:?}", each_frame(1));
}
