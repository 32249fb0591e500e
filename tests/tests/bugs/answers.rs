//! Answers and messages that race: the one that arrives next is not the one that was expected

use std::collections::HashMap;

use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use rdma_bare::BareQp;
use rdma_core::QpInit;
use rdma_sim::Net;
use rdma_tests::DEVICE;

use crate::bug::{Bug, bug};
use crate::tools::{Post, Shared, join_all, sleep, spawn, within};

pub(crate) const BUGS: &[Bug] = &[
    bug!(
        stale_fill,
        Delay,
        "the cache is stale",
        "A value that was loaded before a write is put into the cache after the write has cleared it."
    ),
    bug!(older_answer, Delay, "older configuration", "The answer that arrives last is taken for the newest."),
    bug!(
        replies_by_position,
        Delay,
        "another request",
        "Answers of concurrent handlers are taken in the order of the requests."
    ),
    bug!(
        reused_slot,
        Delay,
        "another request",
        "A slot is reused after a timeout, and the late answer to its former request is taken."
    ),
    bug!(
        marker_on_another_queue_pair,
        Frames,
        "overtaken",
        "A message on one queue pair says that another has arrived, which was sent on another queue pair."
    ),
    bug!(
        answer_to_the_former_question,
        Several,
        "another question",
        "A request is sent again after a timeout, and the answers to both are counted one by one."
    ),
];

async fn stale_fill(net: Net, is_fixed: bool) {
    let (stored, cache, clears) = (Shared::new(1), Shared::new(None), Shared::new(0));
    let read = {
        let (net, stored, cache, clears) = (net.clone(), stored.clone(), cache.clone(), clears.clone());
        spawn(&net.clone(), async move {
            let (loaded, before) = (stored.get(), clears.get());
            sleep(&net, 5).await;
            if !is_fixed || clears.get() == before {
                cache.set(Some(loaded));
            }
        })
    };
    sleep(&net, 20).await;
    stored.set(2);
    cache.set(None);
    *clears.lock() += 1;
    read.join().await;
    assert_eq!(cache.get().unwrap_or_else(|| stored.get()), 2, "the cache is stale");
}

async fn older_answer(net: Net, is_fixed: bool) {
    let (versions, current) = (Shared::new(0), Shared::new(0));
    let refresh = |at: u64| {
        let (net, versions, current) = (net.clone(), versions.clone(), current.clone());
        async move {
            sleep(&net, at).await;
            let answer = {
                let mut version = versions.lock();
                *version += 1;
                *version
            };
            sleep(&net, 5).await;
            let newest = current.get().max(answer);
            current.set(if is_fixed { newest } else { answer });
        }
    };
    join_all([0, 60, 120].map(|at| spawn(&net, refresh(at)))).await;
    assert_eq!(current.get(), 3, "an older configuration replaced a newer one");
}

async fn replies_by_position(net: Net, is_fixed: bool) {
    let (requests, mut incoming) = mpsc::channel::<u32>(8);
    let (replies, mut answers) = mpsc::channel::<(u32, u32)>(8);
    let serve = net.clone();
    spawn(&net, async move {
        while let Some(request) = incoming.next().await {
            let (net, mut replies) = (serve.clone(), replies.clone());
            spawn(&serve, async move {
                sleep(&net, 3).await;
                let _ = replies.send((request, request * request)).await;
            });
        }
    });
    let client = net.clone();
    let ask = spawn(&net, async move {
        let mut requests = requests;
        for request in 0..4 {
            requests.send(request).await.expect("the server runs");
            sleep(&client, 1).await;
        }
        let mut found = HashMap::new();
        for position in 0..4 {
            let (id, answer) = answers.next().await.expect("each request is answered");
            found.insert(if is_fixed { id } else { position }, answer);
        }
        found
    });
    let found = ask.join().await;
    assert!((0..4).all(|request| found[&request] == request * request), "the answer to another request");
}

async fn reused_slot(net: Net, is_fixed: bool) {
    let slot = Shared::new((0_u32, None));
    let answer = |generation: u32, question: &'static str| {
        let (net, slot) = (net.clone(), slot.clone());
        spawn(&net.clone(), async move {
            sleep(&net, 20).await;
            let mut slot = slot.lock();
            if !is_fixed || slot.0 == generation {
                slot.1 = Some(question);
            }
        })
    };
    let mut answers = Vec::new();
    for question in ["first", "second", "third"] {
        let generation = {
            let mut slot = slot.lock();
            *slot = (slot.0 + 1, None);
            slot.0
        };
        answers.push(answer(generation, question));
        for _ in 0..4 {
            sleep(&net, 10).await;
            let answered = slot.lock().1;
            if let Some(answered) = answered {
                assert_eq!(answered, question, "the answer to another request");
                break;
            }
        }
    }
    join_all(answers).await;
}

async fn marker_on_another_queue_pair(net: Net, is_fixed: bool) {
    let open = |host| net.open(host, DEVICE).expect("the device of the pair is there");
    let pair = || {
        BareQp::pair_of(open("a"), open("b"), &QpInit::with_frames(7), 8192).expect("a fresh pair connects")
    };
    let ([mut data_a, mut data_b], [mut marker_a, mut marker_b]) = (pair(), pair());
    for message in 0..5 {
        data_b.recv(message, 0..8).expect("the queue has room");
        marker_b.recv(message, 0..4096).expect("the queue has room");
        data_a.send(message, 0..8).expect("the queue has room");
        marker_a.send(message, 0..1000).expect("the queue has room");
        marker_b.received().await.expect("the device works");
        let has_data = data_b.poll().expect("the device works").is_some();
        assert!(has_data || is_fixed, "the marker has overtaken the data");
        if !has_data {
            data_b.received().await.expect("the device works");
        }
        while data_a.poll().expect("the device works").is_some() {}
        while marker_a.poll().expect("the device works").is_some() {}
    }
}

async fn answer_to_the_former_question(net: Net, is_fixed: bool) {
    let (post, server) = (Post::new(&net, 2), net.clone());
    let (inbox, answers, back) = (post.bind(0), post.bind(1), post.clone());
    spawn(&net, async move {
        loop {
            let (question, _) = inbox.recv().await;
            sleep(&server, 10).await;
            back.send(1, (question, question * question));
        }
    });
    for question in 0..6 {
        let answer = loop {
            post.send(0, (question, 0_u32));
            let next = answers.find(|(of, _)| *of == question || !is_fixed);
            if let Some((_, answer)) = within(&net, 400, next).await {
                break answer;
            }
        };
        assert_eq!(answer, question * question, "the answer to another question");
    }
}
