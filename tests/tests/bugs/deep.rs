//! Bugs behind several rare states, one after another: chance alone does not get there, and a guided check does
//!
//! The programs say by `state!` how far they are, as a program under test may.

use std::collections::BTreeMap;

use rdma_core::PortState;
use rdma_sim::{Net, state};
use rdma_tests::DEVICE;

use crate::bug::{Bug, bug};
use crate::tools::{DISK, Post, Shared, join_all, sleep, spawn, within};

pub(crate) const BUGS: &[Bug] = &[
    bug!(
        slots_of_dead_leaders,
        Fault,
        "no slot is left",
        "A leader that dies while it takes over keeps its slot: after three in a row, there is none."
    )
    .faults(6, 4000),
    bug!(
        cable_pulled_during_training,
        Fault,
        "given up",
        "The retries of a link are counted over all its trainings, unless one of them ends."
    )
    .faults(8, 20_000),
    bug!(
        epoch_wraps,
        Several,
        "of another epoch",
        "After eight split votes in a row the epoch is zero again, and the votes of the first one count."
    ),
    bug!(
        resume_counter_wraps,
        Delay,
        "of another resume",
        "The tenth resume before an answer comes has the number of the first, and gets its answer."
    ),
    bug!(
        spare_buffers,
        Several,
        "no spare buffer",
        "Each swap of two writers takes a spare buffer, which only a turn without a swap gives back."
    ),
];

async fn slots_of_dead_leaders(net: Net, is_fixed: bool) {
    const SLOTS: u32 = 3;
    let world = (net.clone(), Shared::new(0_u32));
    net.host("b").start(move |_| {
        let (net, slots) = world.clone();
        async move {
            if is_fixed {
                slots.set(0);
            }
            loop {
                let taken = slots.get();
                assert!(taken < SLOTS, "no slot is left for a leader");
                slots.write(&net, taken + 1).await;
                state!("taking over", taken);
                sleep(&net, DISK).await;
                slots.write(&net, taken).await;
                state!("leader", taken);
                sleep(&net, 300).await;
            }
        }
    });
    sleep(&net, 6000).await;
}

async fn cable_pulled_during_training(net: Net, is_fixed: bool) {
    const RETRIES: u32 = 4;
    let is_up = || net.port("a", DEVICE).is_ok_and(|port| port.state == PortState::Active);
    let mut retries = 0_u32;
    while net.now().as_nanos() < 30_000_000 {
        if !is_up() {
            state!("down", retries);
            while !is_up() {
                if net.now().as_nanos() > 30_000_000 {
                    return;
                }
                sleep(&net, 20).await;
            }
            state!("training", retries);
            let mut training = 0;
            while training < 10 && is_up() {
                sleep(&net, 20).await;
                training += 1;
            }
            retries = if is_up() { 0 } else { retries + 1 };
            if is_fixed {
                retries = 0;
            }
            assert!(retries < RETRIES, "a link that works was given up");
        }
        sleep(&net, 20).await;
    }
}

async fn epoch_wraps(net: Net, is_fixed: bool) {
    const EPOCHS: u32 = 8;
    let mut votes = [0_u32; EPOCHS as usize];
    for election in 0..20_u32 {
        let epoch = if is_fixed { election } else { election % EPOCHS };
        state!("election", election.min(EPOCHS));
        // Each candidate waits for a time of its own; the first one has the votes of the others.
        let patience = [0, 3, 6].map(|usual| (usual + net.pick(8)) % 8);
        sleep(&net, 100).await;
        let first = patience.iter().min().expect("there are three");
        let candidates = patience.iter().filter(|other| *other == first).count();
        if !is_fixed {
            assert!(votes[epoch as usize] == 0, "a leader has votes of another epoch");
            votes[epoch as usize] = 2;
        }
        if candidates == 1 {
            return;
        }
    }
}

async fn resume_counter_wraps(net: Net, is_fixed: bool) {
    const NUMBERS: u32 = 10;
    let post = Post::new(&net, 2);
    let (inbox, server) = (post.bind(1), post.clone());
    spawn(&net, async move {
        // A request that comes again gets the same answer again.
        let mut answers = BTreeMap::new();
        loop {
            let (number, attempt): (u32, u32) = inbox.recv().await;
            server.send(0, (number, *answers.entry(number).or_insert(attempt)));
        }
    });
    let inbox = post.bind(0);
    for attempt in 0..30 {
        let number = if is_fixed { attempt } else { attempt % NUMBERS };
        state!("resuming", attempt.min(2 * NUMBERS));
        post.send(1, (number, attempt));
        let answer = within(&net, 250, inbox.find(|(of, _)| *of == number)).await;
        if let Some((_, answered)) = answer {
            assert!(answered == attempt, "the answer of another resume was taken");
            break;
        }
    }
}

async fn spare_buffers(net: Net, is_fixed: bool) {
    const SPARE: u32 = 24;
    let (mut last, mut taken) = (0, 0_u32);
    for turn in 0..100 {
        let order = Shared::new(Vec::new());
        let write = |writer: u32| {
            let (net, order) = (net.clone(), order.clone());
            async move {
                sleep(&net, 10).await;
                order.lock().push(writer);
            }
        };
        join_all([0, 1].map(|writer| spawn(&net, write(writer)))).await;
        let first = order.lock()[0];
        let is_swapped = turn > 0 && first != last;
        taken = if is_swapped { taken + 1 } else { 0 };
        if is_fixed {
            taken = 0;
        }
        last = first;
        state!("spare buffers in use", taken);
        assert!(taken < SPARE, "no spare buffer is left");
    }
}
