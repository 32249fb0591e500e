//! The time of the processor that posts, polls, wake-ups and work on memory take
//!
//! Each cost is measured alone, before the ways of messages, which contain posts, polls and wake-ups: the timing subtracts them.

mod tasks;

use rdma_core::{Cause, FRAME, Runtime, Time, Work};

use self::tasks::{most_at_once, wake_up};
use super::samples::median;
use crate::error::CalibrateError;
use crate::findings::Findings;
use crate::lab::Lab;
use crate::message::Request;
use crate::station::slot;

const ROUNDS: usize = 5;
/// Posts in a row, of receives and of sends.
const POSTS: usize = 32;
/// The frames of the queues that measure posts.
const FRAMES: u32 = 192;
/// The memory for these queues, in bytes: a frame for each receive, and one for sends.
const MEMORY: usize = (ROUNDS * POSTS + 1) * FRAME;
const POLLS: usize = 256;
/// The bytes that are copied, and combined with as many.
const BYTES: usize = 1 << 20;
/// Wake-ups in the first sample, after which more follow if any of them took time.
const FEW_WAKE_UPS: usize = 200;
const WAKE_UPS: usize = 40_000;
/// One in so many wake-ups is late at most.
const MOST_LATE: f64 = 4.0;
/// The longest time for all wake-ups, in nanoseconds.
const WAKE_UPS_NS: f64 = 2e9;
/// The number of tasks that run at once if there are cores for them.
const TASKS: usize = 64;

const WAKE_FIELDS: [&str; 3] = ["timing.wake_ns", "timing.wake_tail_one_in", "timing.wake_tail_ns"];
const STILL: &str = "the clock did not move meanwhile";

/// The time of each part, in nanoseconds
struct Costs {
    post_recv: f64,
    post_send: f64,
    poll: f64,
    /// Of [`BYTES`] bytes
    copy: f64,
    /// Of [`BYTES`] bytes
    reduce: f64,
    wake_ups: WakeUps,
}

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let (post_recv, post_send) = posts(lab).await?;
    let poll = polls(lab).await?;
    let (copy, reduce) = work(&*lab.runtime);
    let wake_ups = WakeUps::of(wake_ups(lab).await);
    let costs = Costs { post_recv, post_send, poll, copy, reduce, wake_ups };
    let is_polling = lab.machine.is_polling();
    enter(&mut lab.findings, &costs, is_polling);
    cores(lab, costs.copy).await;
    Ok(())
}

fn enter(findings: &mut Findings, costs: &Costs, is_polling: bool) {
    let Costs { post_recv, post_send, poll, copy, reduce, ref wake_ups } = *costs;
    let figures = [
        ("post of a receive, median", post_recv),
        ("post of a send, median", post_send),
        ("poll of an empty completion queue, median", poll),
        ("wake-up of a task by another one, median", wake_ups.median),
        ("copy of 1 MiB, median", copy),
        ("sum of two vectors of 1 MiB, median", reduce),
    ];
    for (what, ns) in figures {
        findings.figure(what, format_args!("{:.3} µs", ns / 1000.0));
    }
    let is_on = figures.iter().any(|(_, ns)| *ns > 0.0);
    findings.decide("timing.cpu", is_on);
    if !is_on {
        let works =
            ["timing.post_ns", "timing.poll_ns", "timing.copy_bytes_per_us", "timing.reduce_bytes_per_us"];
        works.into_iter().chain(WAKE_FIELDS).for_each(|field| findings.leave(field, STILL));
        return;
    }
    findings.decide("timing.post_ns", ((post_recv + post_send) / 2.0).round() as u64);
    findings
        .profile
        .remark("timing.post_ns", "the mean of posts of receives and of sends; the page has both");
    findings.decide("timing.poll_ns", poll.round() as u64);
    for (field, ns) in [("timing.copy_bytes_per_us", copy), ("timing.reduce_bytes_per_us", reduce)] {
        // Work that takes no time has no rate: zero.
        findings.decide(field, if ns > 0.0 { (BYTES as f64 * 1000.0 / ns).round() as u64 } else { 0 });
    }
    if is_polling {
        let why = "a task that waits for a completion polls all the time, so that no wake-up is on the way of a message; the page \
                   has that of a task by another one";
        WAKE_FIELDS.into_iter().for_each(|field| findings.leave(field, why));
    } else {
        wake_ups.enter(findings);
    }
}

/// The time of each of `count` calls in a row that began at `start`, in nanoseconds
fn each(lab: &Lab<'_>, start: Time, count: usize) -> f64 {
    (lab.now() - start).as_nanos() as f64 / count as f64
}

/// The times of a post of a receive, and of one of a send
async fn posts(lab: &mut Lab<'_>) -> Result<(f64, f64), CalibrateError> {
    let room = room(lab).await?;
    if room < ROUNDS * POSTS {
        lab.queue_room = room.min(lab.queue_room);
    }
    let (rounds, posts) = (ROUNDS.min(room), (room / ROUNDS).max(1));
    let mut station = lab.pair(FRAMES, MEMORY).await?;
    let (mut receives, mut sends) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let start = lab.now();
        for number in 0..posts {
            station.recv(slot(round * posts + number, 8))?;
        }
        receives.push(each(lab, start, posts));
        lab.recv(posts, 8).await?;
        let start = lab.now();
        for _ in 0..posts {
            station.send(8)?;
        }
        sends.push(each(lab, start, posts));
        for _ in 0..posts {
            station.sent().await?;
        }
        lab.ask(Request::Received { count: posts }).await?;
    }
    Ok((median(&mut receives), median(&mut sends)))
}

/// How many receives of 8 bytes a queue takes, of those that [`posts`] would post, on a queue pair that receives nothing
async fn room(lab: &mut Lab<'_>) -> Result<usize, CalibrateError> {
    let mut station = lab.pair(FRAMES, MEMORY).await?;
    for number in 0..ROUNDS * POSTS {
        match station.recv(slot(number, 8)) {
            Err(error) if error.cause == Cause::QueueFull && number > 0 => return Ok(number),
            posted => posted?,
        }
    }
    Ok(ROUNDS * POSTS)
}

/// The time of a poll of an empty completion queue
async fn polls(lab: &mut Lab<'_>) -> Result<f64, CalibrateError> {
    let station = lab.pair(16, 1 << 14).await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = lab.now();
        for _ in 0..POLLS {
            station.poll()?;
        }
        times.push(each(lab, start, POLLS));
    }
    Ok(median(&mut times))
}

/// The times of a copy of [`BYTES`] bytes, and of a sum of as many of them
fn work(runtime: &dyn Runtime) -> (f64, f64) {
    let (source, mut target) = (vec![1_u8; BYTES], vec![0_u8; BYTES]);
    let copy = median_of(runtime, || {
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&target);
        runtime.spend(Work::Copy { bytes: BYTES });
    });
    let (source, mut sums) = (vec![1_f32; BYTES / 4], vec![0_f32; BYTES / 4]);
    let reduce = median_of(runtime, || {
        let both = sums.iter_mut().zip(std::hint::black_box(&source));
        both.for_each(|(sum, value)| *sum += value);
        std::hint::black_box(&sums);
        runtime.spend(Work::Reduce { bytes: BYTES });
    });
    (copy, reduce)
}

fn median_of(runtime: &dyn Runtime, mut work: impl FnMut()) -> f64 {
    // The first round touches the memory.
    work();
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = runtime.now();
            work();
            (runtime.now() - start).as_nanos() as f64
        })
        .collect();
    median(&mut times)
}

/// The times of wake-ups of a task by another one; a few if none takes time
async fn wake_ups(lab: &Lab<'_>) -> Vec<f64> {
    let runtime = &lab.runtime;
    // What the task has called before takes its time first.
    wake_up(runtime).await;
    let start = lab.now();
    let mut times = Vec::with_capacity(FEW_WAKE_UPS);
    while times.len() < WAKE_UPS {
        times.push(wake_up(runtime).await);
        let is_few = times.len() == FEW_WAKE_UPS && times.iter().all(|ns| *ns == 0.0);
        if is_few || (lab.now() - start).as_nanos() as f64 > WAKE_UPS_NS {
            break;
        }
    }
    times
}

/// The distribution of wake-ups, as far as the model has it
struct WakeUps {
    count: usize,
    median: f64,
    /// The late ones; `None` if none was late
    tail: Option<Tail>,
}

struct Tail {
    one_in: f64,
    most: f64,
    /// The number of wake-ups that were late
    late: usize,
}

impl WakeUps {
    fn of(mut times: Vec<f64>) -> Self {
        let (count, median) = (times.len(), median(&mut times));
        // Those that are late by less count by the share of an even distribution.
        let late = times.len() - times.partition_point(|ns| *ns <= 2.0 * median);
        let beyond = times[count - 1] - 2.0 * median;
        let tail = (late > 0).then(|| {
            let beyond = beyond * (1.0 + 1.0 / late as f64);
            let most = beyond + median;
            Tail { one_in: count as f64 * beyond / (late as f64 * most), most, late }
        });
        Self { count, median, tail }
    }

    fn enter(&self, findings: &mut Findings) {
        findings.decide("timing.wake_ns", self.median.round() as u64);
        let Some(Tail { one_in, most, late }) = self.tail else {
            findings.decide("timing.wake_tail_one_in", 0);
            findings.leave("timing.wake_tail_ns", "no wake-up was late");
            return;
        };
        // If more are late, they are no tail beside usual ones.
        findings.decide("timing.wake_tail_one_in", one_in.round().max(MOST_LATE) as u64);
        findings.decide("timing.wake_tail_ns", most.round() as u64);
        let why = format!(
            "{late} of {} wake-ups took more than twice the median: a share with a standard error of {:.1} %",
            self.count,
            100.0 * standard_error(late),
        );
        findings.profile.remark("timing.wake_tail_one_in", &why);
        // Three standard deviations of the count.
        let deviations = 3.0 * standard_error(late) * late as f64;
        let with = |count: f64| if count > 0.0 { one_in * late as f64 / count } else { f64::INFINITY };
        let [least, most] = [deviations, -deviations].map(|more| with(late as f64 + more));
        findings.know_between("timing.wake_tail_one_in", least, most);
    }
}

/// The relative standard error of the share of late wake-ups, by the number of those that were late
fn standard_error(late: usize) -> f64 {
    1.0 / (late as f64).sqrt()
}

/// Counts how many tasks of this machine run at once, by copies of which each takes `copy_ns`
async fn cores(lab: &mut Lab<'_>, copy_ns: f64) {
    const FIELD: &str = "timing.cores";
    if let Some(cores) = lab.machine.cores() {
        lab.findings.decide(FIELD, cores);
        lab.findings.profile.remark(FIELD, "the system states it");
    } else if copy_ns > 0.0 {
        let runtime = &lab.runtime;
        match most_at_once(runtime, TASKS, BYTES).await {
            TASKS => {
                lab.findings.decide(FIELD, 0);
                lab.findings.profile.remark(FIELD, "64 tasks ran at once");
            }
            cores => lab.findings.decide(FIELD, cores),
        }
    } else {
        lab.findings.leave(FIELD, "copies take no time, so that no task waits for a core");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a tail that leaves out wake-ups which are hardly late, and a tail that ends at the longest sample.
    #[test]
    fn the_tail_of_wake_ups_is_that_of_an_even_distribution() {
        // One in 50 is late by up to 5 µs, of which a fifth is within twice the median.
        let times = (0..10_000_u32).map(|n| match n % 50 {
            0 => 1000.0 + f64::from(n / 50 % 200) * 25.0 + 12.5,
            _ => 1000.0,
        });
        let found = WakeUps::of(times.collect());
        let tail = found.tail.unwrap();
        assert_eq!(found.median, 1000.0);
        assert!((48.0..52.0).contains(&tail.one_in), "{}", tail.one_in);
        assert!((4_900.0..5_100.0).contains(&tail.most), "{}", tail.most);
        assert!(WakeUps::of(vec![7.0; 100]).tail.is_none());
    }
}
