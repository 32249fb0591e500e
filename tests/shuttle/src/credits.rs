//! Credits, as in `tests/tests/bugs/credits.rs`, under the same names

use shuttle::future::{spawn, yield_now};

use crate::tools::{Post, Shared, join_all, sleep};

pub(crate) async fn one_credit_for_two(is_fixed: bool) {
    let (credits, used) = (Shared::new(1_i32), Shared::new(0));
    let send = |turns: u32| {
        let (credits, used) = (credits.clone(), used.clone());
        async move {
            for _ in 0..turns {
                yield_now().await;
            }
            if credits.get() == 0 {
                return;
            }
            if is_fixed {
                *credits.lock() -= 1;
                yield_now().await;
            } else {
                yield_now().await;
                *credits.lock() -= 1;
            }
            *used.lock() += 1;
            assert_eq!(used.get(), 1, "a message was sent without a credit");
        }
    };
    join_all([0, 3].map(|turns| spawn(send(turns)))).await;
}

pub(crate) async fn older_grant(is_fixed: bool) {
    let (post, room) = (Post::new(2), Shared::new(2));
    let (inbox, grants, back, more) = (post.bind(0), post.bind(1), post.clone(), room.clone());
    spawn(async move {
        loop {
            inbox.recv().await;
            sleep(5).await;
            let granted = more.get() + 1;
            more.set(granted);
            back.send(1, granted);
        }
    });
    let (mut granted, mut sent) = (2, 0);
    while sent < 8 {
        if sent == granted {
            let grant = grants.recv().await;
            granted = if is_fixed { grant.max(granted) } else { grant };
        } else {
            assert!(sent < room.get(), "the receiver was overrun");
            post.send(0, sent);
            sent += 1;
        }
    }
}

pub(crate) async fn batch_of_credits_forgotten(is_fixed: bool) {
    const WINDOW: u32 = 4;
    let post = Post::new(2);
    let (inbox, credits, back) = (post.bind(0), post.bind(1), post.clone());
    spawn(async move {
        let (mut newest, mut owed) = (0, 0);
        loop {
            let message = inbox.recv().await;
            let is_old = message < newest;
            newest = newest.max(message);
            if is_old && !is_fixed {
                // Measurements that come too late are of no use.
                continue;
            }
            owed += 1;
            if owed == WINDOW / 2 {
                back.send(1, owed);
                owed = 0;
            }
        }
    });
    let mut left = WINDOW;
    for message in 0..20 {
        sleep(60).await;
        while left == 0 {
            left += credits.recv().await;
        }
        left -= 1;
        post.send(0, message);
    }
}
