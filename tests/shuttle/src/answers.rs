//! Answers that race, as in `tests/tests/bugs/answers.rs`, under the same names

use std::collections::HashMap;

use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use shuttle::future::spawn;

use crate::tools::{Shared, join, join_all, sleep};

pub(crate) async fn stale_fill(is_fixed: bool) {
    let (stored, cache, clears) = (Shared::new(1), Shared::new(None), Shared::new(0));
    let read = {
        let (stored, cache, clears) = (stored.clone(), cache.clone(), clears.clone());
        spawn(async move {
            let (loaded, before) = (stored.get(), clears.get());
            sleep(5).await;
            if !is_fixed || clears.get() == before {
                cache.set(Some(loaded));
            }
        })
    };
    sleep(20).await;
    stored.set(2);
    cache.set(None);
    *clears.lock() += 1;
    join(read).await;
    assert_eq!(cache.get().unwrap_or_else(|| stored.get()), 2, "the cache is stale");
}

pub(crate) async fn older_answer(is_fixed: bool) {
    let (versions, current) = (Shared::new(0), Shared::new(0));
    let refresh = |at: u64| {
        let (versions, current) = (versions.clone(), current.clone());
        async move {
            sleep(at).await;
            let answer = {
                let mut version = versions.lock();
                *version += 1;
                *version
            };
            sleep(5).await;
            let newest = current.get().max(answer);
            current.set(if is_fixed { newest } else { answer });
        }
    };
    join_all([0, 60, 120].map(|at| spawn(refresh(at)))).await;
    assert_eq!(current.get(), 3, "an older configuration replaced a newer one");
}

pub(crate) async fn replies_by_position(is_fixed: bool) {
    let (requests, mut incoming) = mpsc::channel::<u32>(8);
    let (replies, mut answers) = mpsc::channel::<(u32, u32)>(8);
    spawn(async move {
        while let Some(request) = incoming.next().await {
            let mut replies = replies.clone();
            spawn(async move {
                sleep(3).await;
                let _ = replies.send((request, request * request)).await;
            });
        }
    });
    let ask = spawn(async move {
        let mut requests = requests;
        for request in 0..4 {
            requests.send(request).await.expect("the server runs");
            sleep(1).await;
        }
        let mut found = HashMap::new();
        for position in 0..4 {
            let (id, answer) = answers.next().await.expect("each request is answered");
            found.insert(if is_fixed { id } else { position }, answer);
        }
        found
    });
    let found = join(ask).await;
    assert!((0..4).all(|request| found[&request] == request * request), "the answer to another request");
}

pub(crate) async fn reused_slot(is_fixed: bool) {
    let slot = Shared::new((0_u32, None));
    let answer = |generation: u32, question: &'static str| {
        let slot = slot.clone();
        spawn(async move {
            sleep(20).await;
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
            sleep(10).await;
            let answered = slot.lock().1;
            if let Some(answered) = answered {
                assert_eq!(answered, question, "the answer to another request");
                break;
            }
        }
    }
    join_all(answers).await;
}
