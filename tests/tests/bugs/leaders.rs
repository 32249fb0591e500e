//! Leaders and leases: two that lead at once, and one that does not know that it was replaced

use std::collections::BTreeSet;

use rdma_sim::{Net, Topology};

use crate::bug::{Bug, bug};
use crate::tools::{DISK, Post, Shared, sleep, spawn, within};

pub(crate) const BUGS: &[Bug] = &[
    bug!(
        two_votes_in_a_term,
        Fault,
        "two leaders",
        "A node that starts anew has forgotten for whom it voted in this term."
    )
    .faults(4, 1000)
    .on(three),
    bug!(votes_of_an_older_term, Several, "two leaders", "A candidate counts a late vote of an older term.")
        .on(three),
    bug!(
        stale_leader_answers,
        FaultOrDelay,
        "older than",
        "A leader that was replaced while it was stopped answers a read from its memory."
    )
    .faults(3, 4000),
    bug!(
        lease_without_fence,
        FaultOrDelay,
        "an expired lease",
        "The storage takes the write of a worker that looked at its lease before it was stopped."
    )
    .faults(3, 2000),
];

/// Three Macs, each joined to each other
fn three() -> Topology {
    Topology::mesh(3, rdma_sim::topology::MacModel::Generic { ports: 3 }).expect("three ports suffice")
}

#[derive(Clone, Copy)]
enum Election {
    Ask { term: u32, candidate: usize },
    Vote { term: u32, voter: usize },
}

/// Three nodes elect leaders for a while; returns who led which term
async fn elect(
    net: &Net,
    forgets_votes: bool,
    counts_old_votes: bool,
    retries: u32,
) -> BTreeSet<(u32, usize)> {
    let (post, leaders) = (Post::new(net, 3), Shared::new(BTreeSet::new()));
    for (me, (name, patience)) in [("a", 110), ("b", 900), ("c", 140)].into_iter().enumerate() {
        let ballot = Shared::new((0, None));
        let world = (net.clone(), post.clone(), leaders.clone(), ballot);
        net.host(name).start(move |_| {
            let (net, post, leaders, ballot) = world.clone();
            async move {
                let inbox = post.bind(me);
                let (mut campaign, mut tries, mut votes) = (None, 0, BTreeSet::new());
                if forgets_votes {
                    ballot.lock().1 = None;
                }
                loop {
                    match within(&net, patience, inbox.recv()).await {
                        Some(Election::Ask { term, candidate }) => {
                            let mut next = ballot.get();
                            if term > next.0 {
                                next = (term, None);
                            }
                            if term < next.0 || next.1.is_some_and(|chosen| chosen != candidate) {
                                continue;
                            }
                            ballot.set((term, Some(candidate)));
                            post.send(candidate, Election::Vote { term, voter: me });
                        }
                        Some(Election::Vote { term, voter }) => {
                            let (mine, _) = ballot.get();
                            if campaign == Some(mine) && (counts_old_votes || term == mine) {
                                votes.insert(voter);
                            }
                            if votes.len() == 2 && campaign == Some(mine) {
                                leaders.lock().insert((mine, me));
                            }
                        }
                        None => {
                            let (term, _) = ballot.get();
                            if campaign != Some(term) || tries == retries {
                                ballot.set((term + 1, Some(me)));
                                (campaign, tries, votes) = (Some(term + 1), 0, BTreeSet::from([me]));
                            }
                            tries += 1;
                            let term = ballot.get().0;
                            let others = (0..3).filter(|other| *other != me);
                            others.for_each(|other| post.send(other, Election::Ask { term, candidate: me }));
                        }
                    }
                }
            }
        });
    }
    sleep(net, 2000).await;
    leaders.get()
}

fn assert_one_leader(leaders: &BTreeSet<(u32, usize)>) {
    let terms: BTreeSet<_> = leaders.iter().map(|(term, _)| term).collect();
    assert_eq!(terms.len(), leaders.len(), "a term has two leaders");
}

async fn two_votes_in_a_term(net: Net, is_fixed: bool) {
    assert_one_leader(&elect(&net, !is_fixed, false, 3).await);
}

async fn votes_of_an_older_term(net: Net, is_fixed: bool) {
    assert_one_leader(&elect(&net, false, !is_fixed, 1).await);
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Register {
    Write(u32),
    Written(u32),
    Read(u32),
    Value(u32, u32),
}

async fn stale_leader_answers(net: Net, is_fixed: bool) {
    let (post, leader, storage, beats) = (Post::new(&net, 3), Shared::new(0), Shared::new(0), Shared::new(0));
    for (me, name) in ["a", "b"].into_iter().enumerate() {
        let world = (net.clone(), post.clone(), leader.clone(), storage.clone(), beats.clone());
        net.host(name).start(move |host| {
            let (net, post, leader, storage, beats) = world.clone();
            if me == 0 {
                let net = net.clone();
                host.spawn(async move {
                    loop {
                        sleep(&net, 50).await;
                        *beats.lock() += 1;
                    }
                });
            }
            async move {
                let (inbox, mut cached) = (post.bind(me), storage.get());
                loop {
                    match inbox.recv().await {
                        Register::Write(value) => {
                            sleep(&net, DISK).await;
                            // The storage refuses all but the leader.
                            let leader = leader.lock();
                            if *leader == me {
                                // A write that was late is older than this one.
                                cached = value.max(cached);
                                storage.set(cached);
                                post.send(2, Register::Written(value));
                            }
                        }
                        Register::Read(number) => {
                            if !is_fixed || leader.get() == me {
                                post.send(2, Register::Value(number, cached));
                            }
                        }
                        Register::Written(_) | Register::Value(..) => (),
                    }
                }
            }
        });
    }
    let (watch, now_leads) = (net.clone(), leader.clone());
    spawn(&net, async move {
        let mut seen = None;
        while seen != Some(beats.get()) {
            seen = Some(beats.get());
            sleep(&watch, 200).await;
        }
        now_leads.set(1);
    });
    let inbox = post.bind(2);
    let mut written = 0;
    for value in 1..20 {
        post.send(leader.get(), Register::Write(value));
        if within(&net, 300, inbox.until(&Register::Written(value))).await.is_some() {
            written = value;
        }
        post.send(0, Register::Read(value));
        let is_answer = |letter: &Register| matches!(letter, Register::Value(number, _) if *number == value);
        if let Some(Register::Value(_, read)) = within(&net, 300, inbox.find(is_answer)).await {
            assert!(read >= written, "a read is older than a write that had completed");
        }
    }
}

async fn lease_without_fence(net: Net, is_fixed: bool) {
    // The owner's token and the end of its lease, and the tokens with which the storage was written
    let (lease, writes) = (Shared::new((0_u64, net.now())), Shared::new(Vec::new()));
    for name in ["a", "b"] {
        let world = (net.clone(), lease.clone(), writes.clone());
        net.host(name).start(move |_| {
            let (net, lease, writes) = world.clone();
            async move {
                loop {
                    let (token, end) = lease.get();
                    if net.now() < end {
                        sleep(&net, 40).await;
                        continue;
                    }
                    let (mine, end) = (token + 1, net.now() + std::time::Duration::from_micros(200));
                    lease.set((mine, end));
                    sleep(&net, 50).await;
                    if net.now() < end {
                        sleep(&net, DISK).await;
                        let mut writes = writes.lock();
                        if !is_fixed || writes.last().is_none_or(|last| *last <= mine) {
                            writes.push(mine);
                        }
                    }
                    sleep(&net, 150).await;
                }
            }
        });
    }
    sleep(&net, 4000).await;
    assert!(writes.lock().is_sorted(), "the storage took a write of an expired lease");
}
