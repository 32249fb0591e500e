//! Decisions that are not durable, or not the only ones: restarts, pauses and late messages show them

use std::collections::BTreeSet;

use rdma_sim::Net;

use crate::bug::{Bug, bug};
use crate::tools::{DISK, Post, SETTLED, Shared, ask, sleep, spawn, within};

pub(crate) const BUGS: &[Bug] = &[
    bug!(answer_before_log, Fault, "forgotten", "The coordinator answers before its decision is on the disk.").faults(3, 1000),
    bug!(forgotten_vote, Fault, "is missing", "A participant keeps its vote in memory, and takes a commit that it does not know for one that it has done.").faults(3, 1000),
    bug!(answer_before_replication, Fault, "did not survive", "The primary acknowledges a write before its backup has it.").faults(3, 1000),
    bug!(timeout_taken_for_abort, Delay, "paid twice", "A client whose request timed out takes it for refused, and pays elsewhere."),
    bug!(head_before_record, Fault, "never written", "The head of the log is moved before the record is written to which it points.").faults(3, 1000),
    bug!(applied_twice, Fault, "applied twice", "The requests that were applied are remembered in memory, and their effect on the disk.").faults(3, 1000),
    bug!(log_cleared_before_snapshot, Fault, "entries are lost", "The log is cleared before the snapshot that replaces it is written.").faults(3, 1000),
    bug!(recovery_is_not_atomic, Fault, "recovered twice", "A second restart during the recovery repeats what the first has recovered.").faults(8, 1500),
    bug!(quorum_counts_messages, Several, "no majority", "Acknowledgements are counted by message, and a backup acknowledges each repetition."),
];

async fn answer_before_log(net: Net, is_fixed: bool) {
    let (post, log) = (Post::new(&net, 2), Shared::new(Vec::new()));
    let world = (net.clone(), post.clone(), log.clone());
    net.host("b").start(move |_| {
        let (net, post, log) = world.clone();
        async move {
            let inbox = post.bind(1);
            loop {
                let transaction = inbox.recv().await;
                if !is_fixed {
                    post.send(0, transaction);
                }
                sleep(&net, DISK).await;
                log.lock().push(transaction);
                if is_fixed {
                    post.send(0, transaction);
                }
            }
        }
    });
    let (inbox, mut answered) = (post.bind(0), Vec::new());
    for transaction in 0..8 {
        post.send(1, transaction);
        answered.extend(within(&net, 300, inbox.recv()).await);
    }
    sleep(&net, SETTLED).await;
    let log = log.get();
    assert!(
        answered.iter().all(|transaction| log.contains(transaction)),
        "a decision was answered and forgotten"
    );
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum TwoPhase {
    Prepare(u32),
    Prepared(u32),
    Commit(u32),
    Committed(u32),
}

async fn forgotten_vote(net: Net, is_fixed: bool) {
    let (post, votes, data) =
        (Post::new(&net, 2), Shared::new(BTreeSet::new()), Shared::new(BTreeSet::new()));
    let world = (net.clone(), post.clone(), votes, data.clone());
    net.host("b").start(move |_| {
        let (net, post, votes, data) = world.clone();
        async move {
            let inbox = post.bind(1);
            let mut prepared = votes.get();
            loop {
                match inbox.recv().await {
                    TwoPhase::Prepare(transaction) => {
                        prepared.insert(transaction);
                        if is_fixed {
                            votes.write(&net, prepared.clone()).await;
                        }
                        post.send(0, TwoPhase::Prepared(transaction));
                    }
                    TwoPhase::Commit(transaction) => {
                        if prepared.contains(&transaction) {
                            sleep(&net, DISK).await;
                            data.lock().insert(transaction);
                        }
                        post.send(0, TwoPhase::Committed(transaction));
                    }
                    TwoPhase::Prepared(_) | TwoPhase::Committed(_) => (),
                }
            }
        }
    });
    let (inbox, mut committed) = (post.bind(0), Vec::new());
    for transaction in 0..6 {
        post.send(1, TwoPhase::Prepare(transaction));
        if within(&net, 300, inbox.until(&TwoPhase::Prepared(transaction))).await.is_none() {
            continue;
        }
        let (request, answer) = (TwoPhase::Commit(transaction), TwoPhase::Committed(transaction));
        if ask(&net, &post, &inbox, request, &answer).await {
            committed.push(transaction);
        }
    }
    assert!(
        committed.iter().all(|transaction| data.lock().contains(transaction)),
        "committed data is missing"
    );
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Replicate {
    Write(u32),
    Copy(u32),
    Copied(u32),
    Done(u32),
}

async fn answer_before_replication(net: Net, is_fixed: bool) {
    let (post, backup) = (Post::new(&net, 3), Shared::new(Vec::new()));
    let (primary, copy) = ((net.clone(), post.clone()), (net.clone(), post.clone(), backup.clone()));
    net.host("a").start(move |_| {
        let (net, post) = primary.clone();
        async move {
            let inbox = post.bind(0);
            loop {
                let Replicate::Write(value) = inbox.recv().await else { continue };
                if !is_fixed {
                    post.send(2, Replicate::Done(value));
                }
                // Writes are collected for a while.
                sleep(&net, 10).await;
                post.send(1, Replicate::Copy(value));
                if is_fixed && within(&net, 200, inbox.until(&Replicate::Copied(value))).await.is_some() {
                    post.send(2, Replicate::Done(value));
                }
            }
        }
    });
    net.host("b").start(move |_| {
        let (net, post, backup) = copy.clone();
        async move {
            let inbox = post.bind(1);
            loop {
                let Replicate::Copy(value) = inbox.recv().await else { continue };
                sleep(&net, DISK).await;
                backup.lock().push(value);
                post.send(0, Replicate::Copied(value));
            }
        }
    });
    let (inbox, mut acknowledged) = (post.bind(2), Vec::new());
    for value in 0..8 {
        post.send(0, Replicate::Write(value));
        if within(&net, 400, inbox.until(&Replicate::Done(value))).await.is_some() {
            acknowledged.push(value);
        }
    }
    sleep(&net, SETTLED).await;
    let backup = backup.get();
    assert!(acknowledged.iter().all(|value| backup.contains(value)), "an acknowledged write did not survive");
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Payment {
    Pay(u32),
    Cancel(u32),
    Paid(u32),
    Cancelled(u32),
}

async fn timeout_taken_for_abort(net: Net, is_fixed: bool) {
    let post = Post::new(&net, 3);
    let payments = Shared::new(Vec::new());
    for bank in [0, 1] {
        let (post, payments, net2) = (post.clone(), payments.clone(), net.clone());
        let inbox = post.bind(bank);
        spawn(&net, async move {
            let (mut paid, mut cancelled) = (BTreeSet::new(), BTreeSet::new());
            loop {
                let letter = inbox.recv().await;
                let (Payment::Pay(id) | Payment::Cancel(id)) = letter else { continue };
                if letter == Payment::Cancel(id) && !paid.contains(&id) {
                    cancelled.insert(id);
                }
                let is_paid = !cancelled.contains(&id);
                if is_paid && paid.insert(id) {
                    sleep(&net2, DISK).await;
                    payments.lock().push(id);
                }
                post.send(2, if is_paid { Payment::Paid(id) } else { Payment::Cancelled(id) });
            }
        });
    }
    let inbox = post.bind(2);
    for id in 0..4 {
        for bank in [0, 1] {
            post.send(bank, Payment::Pay(id));
            let ends =
                |letter: &Payment| matches!(*letter, Payment::Paid(of) | Payment::Cancelled(of) if of == id);
            let mut outcome = within(&net, 250, inbox.find(ends)).await;
            if outcome.is_none() && is_fixed {
                post.send(bank, Payment::Cancel(id));
                outcome = Some(inbox.find(ends).await);
            }
            if outcome == Some(Payment::Paid(id)) {
                break;
            }
        }
    }
    sleep(&net, SETTLED).await;
    let mut once = payments.get();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), payments.lock().len(), "a bill was paid twice");
}

async fn head_before_record(net: Net, is_fixed: bool) {
    let world = (net.clone(), Shared::new(0_usize), Shared::new(Vec::new()));
    net.host("a").start(move |_| {
        let (net, head, records) = world.clone();
        async move {
            let mut last = head.get();
            assert!(records.lock().len() >= last, "the head points to a record that was never written");
            while last < 30 {
                last += 1;
                if !is_fixed {
                    head.write(&net, last).await;
                }
                sleep(&net, DISK).await;
                records.lock().push(last);
                if is_fixed {
                    head.write(&net, last).await;
                }
            }
        }
    });
    sleep(&net, 5000).await;
}

async fn applied_twice(net: Net, is_fixed: bool) {
    let (post, applied) = (Post::new(&net, 2), Shared::new(Vec::new()));
    let world = (net.clone(), post.clone(), applied.clone());
    net.host("b").start(move |_| {
        let (net, post, applied) = world.clone();
        async move {
            let inbox = post.bind(1);
            let mut known = BTreeSet::new();
            if is_fixed {
                known.extend(applied.get());
            }
            loop {
                let request = inbox.recv().await;
                if known.insert(request) {
                    sleep(&net, DISK).await;
                    applied.lock().push(request);
                }
                // The answer is signed.
                sleep(&net, 10).await;
                post.send(0, request);
            }
        }
    });
    let inbox = post.bind(0);
    for request in 0..8 {
        ask(&net, &post, &inbox, request, &request).await;
    }
    let applied = applied.get();
    let once: BTreeSet<_> = applied.iter().collect();
    assert_eq!(once.len(), applied.len(), "a request was applied twice");
}

async fn log_cleared_before_snapshot(net: Net, is_fixed: bool) {
    let world = (net.clone(), Shared::new(Vec::new()), Shared::new(0), Shared::new(0));
    net.host("a").start(move |_| {
        let (net, log, snapshot, last) = world.clone();
        async move {
            let recovered: BTreeSet<u32> = log.lock().iter().copied().chain(1..=snapshot.get()).collect();
            assert_eq!(recovered.len(), last.get() as usize, "entries are lost");
            loop {
                sleep(&net, DISK).await;
                let entry = last.get() + 1;
                last.set(entry);
                log.lock().push(entry);
                if log.lock().len() < 4 {
                    continue;
                }
                if !is_fixed {
                    log.set(Vec::new());
                }
                snapshot.write(&net, entry).await;
                if is_fixed {
                    log.set(Vec::new());
                }
            }
        }
    });
    sleep(&net, 3000).await;
}

async fn recovery_is_not_atomic(net: Net, is_fixed: bool) {
    let disk = Shared::new((0_u32, 0_u32, Vec::new()));
    let world = (net.clone(), disk.clone());
    net.host("a").start(move |_| {
        let (net, disk) = world.clone();
        async move {
            // The sum, how many intents were ever written, and those that are not in the sum yet
            let pending = disk.get().2;
            if !is_fixed {
                for intent in pending {
                    sleep(&net, DISK).await;
                    disk.lock().0 += intent;
                }
                disk.lock().2.clear();
            }
            loop {
                let (sum, written, pending) = disk.get();
                disk.write(&net, (sum + pending.iter().sum::<u32>(), written, Vec::new())).await;
                sleep(&net, 60).await;
                let (sum, written, _) = disk.get();
                disk.write(&net, (sum, written + 3, vec![1; 3])).await;
                sleep(&net, 60).await;
            }
        }
    });
    sleep(&net, 4000).await;
    let (sum, written, _) = disk.get();
    assert!(sum <= written, "an intent was recovered twice");
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Quorum {
    Append(u32),
    Stored(u32, usize),
}

async fn quorum_counts_messages(net: Net, is_fixed: bool) {
    let (post, stored) = (Post::new(&net, 4), Shared::new([0_u32; 3]));
    for backup in 0..3 {
        let (post, stored, net2) = (post.clone(), stored.clone(), net.clone());
        let inbox = post.bind(backup);
        spawn(&net, async move {
            loop {
                let Quorum::Append(entry) = inbox.recv().await else { continue };
                sleep(&net2, DISK).await;
                let newest = stored.lock()[backup].max(entry);
                stored.lock()[backup] = newest;
                post.send(3, Quorum::Stored(entry, backup));
            }
        });
    }
    let inbox = post.bind(3);
    for entry in 1..4 {
        let mut answers = Vec::new();
        // With the primary, two backups are the majority of four.
        while answers.len() < 2 {
            (0..3).for_each(|backup| post.send(backup, Quorum::Append(entry)));
            let collect = async {
                while answers.len() < 2 {
                    let Quorum::Stored(of, backup) = inbox.recv().await else { continue };
                    if of == entry && !(is_fixed && answers.contains(&backup)) {
                        answers.push(backup);
                    }
                }
            };
            within(&net, 200, collect).await;
        }
        let copies = stored.lock().iter().filter(|stored| **stored >= entry).count();
        assert!(copies >= 2, "no majority has the entry");
    }
}
