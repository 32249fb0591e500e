//! Credits: permissions to send that are lost, doubled, miscounted or given too early

use std::collections::VecDeque;

use futures::future::{Either, select};
use rdma_bare::BareQp;
use rdma_core::{Error, FRAME, QpInit};
use rdma_sim::rules::QueueGrant;
use rdma_sim::topology::{MacModel, Shape};
use rdma_sim::{LineRate, Model, Net, SimDevice, Topology};
use rdma_tests::DEVICE;
use tokio::task::yield_now;

use crate::bug::{Bug, STALL, bug};
use crate::tools::{Post, Shared, join_all, sleep, spawn, within};

pub(crate) const BUGS: &[Bug] = &[
    bug!(
        window_at_the_wrap,
        Several,
        "the window was exceeded",
        "Sequence numbers of three bits are subtracted without wrapping around."
    ),
    bug!(
        credit_returned_twice,
        Delay,
        "more credits than buffers",
        "A handler that timed out returns the credit, and so did its caller."
    ),
    bug!(
        credit_of_a_cancelled_handler,
        Delay,
        STALL,
        "The credit is returned by the handler, which a timeout drops."
    ),
    bug!(
        one_credit_for_two,
        Order,
        "without a credit",
        "Two senders look at the same credit before one of them takes it."
    ),
    bug!(
        credit_of_a_cancelled_send,
        Delay,
        STALL,
        "A send that is dropped while it waits for memory keeps its credit."
    ),
    bug!(
        older_grant,
        Delay,
        "overrun",
        "Grants say how much may be sent in all, and an older one that arrives late replaces a newer one."
    ),
    bug!(
        credits_of_a_former_peer,
        Fault,
        "more than the window",
        "The credits of a peer that started anew are added to those that were left."
    )
    .faults(3, 2000),
    bug!(
        credit_before_receive,
        Delay,
        STALL,
        "The credit is returned before the receive is posted, and the adapter drops what finds none."
    )
    .model(Model::roce),
    bug!(
        requests_instead_of_frames,
        Delay,
        "the send queue is full",
        "Requests are counted against a queue that holds frames."
    )
    .model(shallow),
    bug!(
        buffer_reused_after_the_answer,
        Fault,
        "is posted",
        "A buffer is written again when the answer has come, and its own completion has not."
    )
    .faults(3, 2000)
    .on(two_cables),
    bug!(
        batch_of_credits_forgotten,
        Several,
        STALL,
        "Credits are returned in batches, and the last batch is never full when a message was discarded."
    ),
];

/// Two Macs and two cables
fn two_cables() -> Topology {
    let mac = MacModel::Generic { ports: 3 };
    Topology::shaped(Shape::Line, 2, mac, 2, LineRate::TB5).expect("three ports suffice")
}

/// Virtual time after which what should have happened never will
const FOR_EVER: u64 = 1_000_000;

async fn window_at_the_wrap(net: Net, is_fixed: bool) {
    const WINDOW: u8 = 3;
    let (post, processed) = (Post::new(&net, 2), Shared::new(0));
    let (inbox, answers) = (post.bind(0), post.bind(1));
    let (receiver, back, count) = (net.clone(), post.clone(), processed.clone());
    spawn(&net, async move {
        loop {
            inbox.recv().await;
            sleep(&receiver, 10).await;
            *count.lock() += 1;
            back.send(1, ());
        }
    });
    let (mut sent, mut acknowledged) = (0_u8, 0_u8);
    while sent < 24 {
        let (next, oldest) = (sent % 8, acknowledged % 8);
        let in_flight = if is_fixed { next.wrapping_sub(oldest) % 8 } else { next.saturating_sub(oldest) };
        if in_flight < WINDOW {
            assert!(sent - processed.get() < WINDOW, "the window was exceeded");
            post.send(0, ());
            sent += 1;
            if within(&net, 60, answers.recv()).await.is_some() {
                acknowledged += 1;
            }
        } else {
            answers.recv().await;
            acknowledged += 1;
        }
    }
}

async fn credit_returned_twice(net: Net, is_fixed: bool) {
    const BUFFERS: i32 = 2;
    let credits = Shared::new(BUFFERS);
    for message in 0..5 {
        *credits.lock() -= 1;
        let (owed, handler) = (Shared::new(true), net.clone());
        let (credits, held) = (credits.clone(), owed.clone());
        let give_back = move |held: &Shared<bool>| {
            let is_owed = std::mem::replace(&mut *held.lock(), false);
            if is_owed || !is_fixed {
                let mut credits = credits.lock();
                *credits += 1;
                assert!(*credits <= BUFFERS, "more credits than buffers");
            }
        };
        let return_credit = give_back.clone();
        let handle = spawn(&net, async move {
            sleep(&handler, 5 + message).await;
            return_credit(&held);
        });
        if within(&net, 60, handle.join()).await.is_none() {
            give_back(&owed);
        }
    }
    sleep(&net, FOR_EVER).await;
}

async fn credit_of_a_cancelled_handler(net: Net, is_fixed: bool) {
    let (post, receiver) = (Post::new(&net, 2), net.clone());
    let (inbox, credits, back) = (post.bind(0), post.bind(1), post.clone());
    spawn(&net, async move {
        loop {
            inbox.recv().await;
            let handle = async {
                sleep(&receiver, 10).await;
                if !is_fixed {
                    back.send(1, "credit");
                }
            };
            within(&receiver, 60, handle).await;
            if is_fixed {
                back.send(1, "credit");
            }
        }
    });
    let send = async {
        for left in (0..6).rev() {
            post.send(0, "message");
            // Two messages may be under way.
            if left < 5 {
                credits.recv().await;
            }
        }
    };
    assert!(within(&net, FOR_EVER, send).await.is_some(), "the sender stalled: it has no credit");
}

async fn one_credit_for_two(net: Net, is_fixed: bool) {
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
    join_all([0, 3].map(|turns| spawn(&net, send(turns)))).await;
}

async fn credit_of_a_cancelled_send(net: Net, is_fixed: bool) {
    let (credits, sent) = (Shared::new(2_i32), Shared::new(0));
    let (sender, held, count) = (net.clone(), credits.clone(), sent.clone());
    let work = spawn(&net, async move {
        while count.get() < 6 {
            let begin = async {
                while held.get() == 0 {
                    sleep(&sender, 20).await;
                }
                *held.lock() -= 1;
                // Memory for the message is not always free.
                let memory = std::pin::pin!(sleep(&sender, 5));
                let limit = std::pin::pin!(sleep(&sender, 40));
                match select(limit, memory).await {
                    Either::Left(_) if is_fixed => *held.lock() += 1,
                    Either::Left(_) => (),
                    Either::Right(_) => {
                        *count.lock() += 1;
                        // The peer returns the credit with its answer.
                        let (net, held) = (sender.clone(), held.clone());
                        spawn(&sender, async move {
                            sleep(&net, 30).await;
                            *held.lock() += 1;
                        });
                    }
                }
            };
            begin.await;
        }
    });
    assert!(within(&net, FOR_EVER, work.join()).await.is_some(), "the sender stalled: its credits are lost");
}

async fn older_grant(net: Net, is_fixed: bool) {
    let (post, receiver, room) = (Post::new(&net, 2), net.clone(), Shared::new(2));
    let (inbox, grants, back, more) = (post.bind(0), post.bind(1), post.clone(), room.clone());
    spawn(&net, async move {
        loop {
            inbox.recv().await;
            sleep(&receiver, 5).await;
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

#[derive(Clone, Copy)]
enum Flow {
    Hello(u32),
    Credit(u32),
    Data(u32),
}

async fn credits_of_a_former_peer(net: Net, is_fixed: bool) {
    const WINDOW: u32 = 3;
    let (post, starts) = (Post::new(&net, 2), Shared::new(0));
    let world = (net.clone(), post.clone(), starts.clone());
    net.host("b").start(move |_| {
        let (net, post, starts) = world.clone();
        async move {
            let (inbox, me) = (post.bind(1), {
                let mut starts = starts.lock();
                *starts += 1;
                *starts
            });
            post.send(0, Flow::Hello(me));
            loop {
                if let Flow::Data(_) =
                    inbox.find(|letter| matches!(letter, Flow::Data(to) if *to == me)).await
                {
                    sleep(&net, 10).await;
                    post.send(0, Flow::Credit(me));
                }
            }
        }
    });
    let (inbox, mut peer, mut credits, mut in_flight) = (post.bind(0), 0, 0, 0);
    for _ in 0..60 {
        match within(&net, 60, inbox.recv()).await {
            // Peers start one after the other, and greetings may be late.
            Some(Flow::Hello(new)) if new > peer => {
                credits = if is_fixed { WINDOW } else { credits + WINDOW };
                (peer, in_flight) = (new, 0);
            }
            Some(Flow::Credit(of)) if of == peer => {
                credits += 1;
                in_flight -= 1;
            }
            _ => (),
        }
        // The application has messages now and then.
        let sends = if net.pick(3) == 0 { credits } else { 0 };
        for _ in 0..sends {
            credits -= 1;
            in_flight += 1;
            assert!(in_flight <= WINDOW, "more than the window is in flight");
            post.send(1, Flow::Data(peer));
        }
    }
}

/// The next frame of the arena
fn frame(index: usize) -> std::ops::Range<usize> {
    index * FRAME..index * FRAME + 8
}

/// Devices that grant no more than was asked for, so that few frames fill a queue
fn shallow() -> Model {
    let mut model = Model::tb5();
    model.rules.queue_grant = QueueGrant::Exact;
    model
}

fn pair(net: &Net, device: &str, frames: u32) -> Result<[BareQp<SimDevice>; 2], Error> {
    let [a, b] = [net.open("a", device)?, net.open("b", device)?];
    BareQp::pair_of(a, b, &QpInit::with_frames(frames), 16 * FRAME)
}

async fn credit_before_receive(net: Net, is_fixed: bool) {
    let [mut a, mut b] = pair(&net, DEVICE, 63).expect("a fresh pair connects");
    let (receiver, mut posted) = (net.clone(), 1);
    b.recv(0, frame(0)).expect("the queue has room");
    spawn(&net, async move {
        while b.received().await.is_ok() {
            let credit = |b: &mut BareQp<_>| b.send(0, frame(8)).expect("the queue has room");
            if !is_fixed {
                credit(&mut b);
                // The message is decoded.
                sleep(&receiver, 2).await;
            }
            b.recv(posted, frame(posted as usize % 2)).expect("the queue has room");
            posted += 1;
            if is_fixed {
                credit(&mut b);
            }
        }
    });
    let ask = spawn(&net, async move {
        for request in 0..4 {
            a.recv(request, frame(0)).expect("the queue has room");
            a.send(request, frame(1)).expect("the queue has room");
            a.received().await.expect("the device works");
        }
    });
    ask.join().await;
}

async fn requests_instead_of_frames(net: Net, is_fixed: bool) {
    const FRAMES: usize = 7;
    let [mut a, mut b] = pair(&net, DEVICE, FRAMES as u32).expect("a fresh pair connects");
    let length = |message: u64| if message % 3 == 2 { 3 } else { 1 };
    let receiver = spawn(&net, async move {
        for message in 0..12 {
            b.recv(message, 0..length(message) * FRAME).expect("the queue has room");
            b.received().await.expect("the device works");
        }
    });
    let sender = net.clone();
    let send = spawn(&net, async move {
        let mut outstanding = VecDeque::new();
        for message in 0..12 {
            sleep(&sender, 15).await;
            while a.poll().expect("the device works").is_some() {
                outstanding.pop_front();
            }
            let is_full = |outstanding: &VecDeque<usize>| match is_fixed {
                true => outstanding.iter().sum::<usize>() + length(message) > FRAMES,
                false => outstanding.len() == 4,
            };
            while is_full(&outstanding) {
                a.completion().await.expect("the device works");
                outstanding.pop_front();
            }
            outstanding.push_back(length(message));
            a.send(message, 0..length(message) * FRAME).expect("the send queue is full");
        }
        a
    });
    receiver.join().await;
    send.join().await;
}

async fn buffer_reused_after_the_answer(net: Net, is_fixed: bool) {
    let exchange = async {
        let [mut a, mut b] = pair(&net, "rdma_en2", 7)?;
        let [mut answers, mut answer] = pair(&net, "rdma_en3", 7)?;
        let server = async {
            loop {
                b.recv(0, frame(0))?;
                b.received().await?;
                answer.send(0, frame(0))?;
                answer.completion().await?;
            }
        };
        let client = async {
            for request in 0..60_u64 {
                a.write(0, &request.to_le_bytes());
                answers.recv(request, frame(0))?;
                a.send(request, frame(0))?;
                answers.received().await?;
                if is_fixed {
                    a.completion().await?;
                }
                while a.poll()?.is_some() {}
            }
            Ok::<_, Error>(())
        };
        match select(std::pin::pin!(server), std::pin::pin!(client)).await {
            Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
        }
    };
    // Faults end it, or what it waits for.
    let _ = within(&net, FOR_EVER, exchange).await;
}

async fn batch_of_credits_forgotten(net: Net, is_fixed: bool) {
    const WINDOW: u32 = 4;
    let post = Post::new(&net, 2);
    let (inbox, credits, back) = (post.bind(0), post.bind(1), post.clone());
    spawn(&net, async move {
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
        sleep(&net, 60).await;
        while left == 0 {
            left += credits.recv().await;
        }
        left -= 1;
        post.send(0, message);
    }
}
