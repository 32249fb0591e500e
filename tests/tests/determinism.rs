//! Equal seeds give equal runs: in one process, in two, in debug and in release
//!
//! The digests in `golden/digests.txt` were made by one build and are compared by all others: CI runs this test in debug
//! and in release. A change of the model or of the protocol changes them; then run the test with `UPDATE_GOLDEN=1` and
//! commit the file with the change. A mutant that let the address of a buffer into the trace was caught.

use std::fmt::Write;

use futures::future::join;
use rdma_sim::{Digest, Run, Scheduler, Seeded, Sim};
use rdma_tests::files::assert_golden;
use rdma_tests::oracle::Program;
use rdma_tests::{connected, options};

/// The schedulers whose runs are compared, and what their lines begin with
const SCHEDULERS: [(&str, Scheduler); 3] = [
    ("messages", Scheduler::Fifo),
    ("messages by chance", Scheduler::Random),
    ("messages by priorities", Scheduler::Pct { depth: 3, steps: 500 }),
];

/// A bit of everything: small and large messages both ways, pauses, an end
fn run(seed: u64, scheduler: Scheduler) -> Run<()> {
    Sim::new().seed(seed).scheduler(scheduler).run(async |net| {
        let pair = connected(&net, &options()).await;
        let send = async {
            for number in 0..100_usize {
                let len = (number * 7919 + seed as usize) % 40_000;
                pair.ab.send_bytes(&vec![number as u8; len]).await.unwrap();
                if number % 10 == 0 {
                    net.sleep(std::time::Duration::from_micros(30)).await;
                }
            }
            pair.ab.close().await.unwrap();
        };
        let receive = async {
            while let Some(message) = pair.ba.recv().await.unwrap() {
                if message.len() % 2 == 0 {
                    let _ = pair.ba.send_bytes(&message[..message.len() / 2]).await;
                }
            }
        };
        let drain = async { while pair.ab.recv().await.unwrap().is_some() {} };
        join(join(send, receive), drain).await;
    })
}

fn digests(seeds: std::ops::Range<u64>, scheduler: Scheduler) -> Vec<Digest> {
    seeds.map(|seed| run(seed, scheduler).digest).collect()
}

#[test]
fn equal_seeds_give_equal_digests_and_other_seeds_others() {
    for (name, scheduler) in SCHEDULERS {
        let (once, again) = (digests(0..20, scheduler), digests(0..20, scheduler));
        assert_eq!(once, again, "{name}");
        let mut distinct = once.clone();
        distinct.sort_by_key(Digest::to_string);
        distinct.dedup();
        assert_eq!(distinct.len(), once.len(), "{name}");
    }
}

#[test]
fn virtual_times_are_exact() {
    for (name, scheduler) in SCHEDULERS {
        let (once, again) = (run(5, scheduler), run(5, scheduler));
        assert_eq!((once.time, once.events), (again.time, again.events), "{name}");
    }
}

#[test]
fn digests_are_those_of_every_other_build() {
    let mut current = String::new();
    for (name, scheduler) in SCHEDULERS {
        for (seed, digest) in digests(0..20, scheduler).into_iter().enumerate() {
            writeln!(current, "{name} {seed} {digest}").unwrap();
        }
    }
    for seed in 0..120 {
        let program = Program::generate(&mut Seeded::new(seed));
        let (once, again) = (program.run(seed).digest, program.run(seed).digest);
        assert_eq!(once, again);
        writeln!(current, "verbs {seed} {once}").unwrap();
    }
    assert_golden("tests/golden/digests.txt", &current);
}
