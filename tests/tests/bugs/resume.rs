//! Sessions that go on after a restart or on a new connection: messages that are repeated, skipped, or of the wrong incarnation

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rdma_async::{Node, NodeOptions};
use rdma_sim::{Net, SimDevice, SimStream};
use rdma_tests::DEVICE;

use crate::bug::{Bug, STALL, bug};
use crate::tools::{ATTEMPTS, DISK, Post, SETTLED, Shared, ask, join_all, sleep, spawn, within};
use crate::waiting::{Waiters, wait_until};

pub(crate) const BUGS: &[Bug] = &[
    bug!(
        delivered_before_position,
        Fault,
        "delivered twice",
        "The receiver writes down its position after it has delivered the message."
    )
    .faults(3, 1000),
    bug!(
        position_before_send,
        Fault,
        "was skipped",
        "The sender writes down that a message is done before it is acknowledged."
    )
    .faults(3, 1000),
    bug!(
        message_of_an_old_incarnation,
        Several,
        "of an old incarnation",
        "A message that was under way at the restart counts as one of the new session."
    )
    .faults(3, 1000),
    bug!(
        sequence_begins_anew,
        Fault,
        "never delivered",
        "A sender that starts anew counts from zero, and the receiver takes its messages for repetitions."
    )
    .faults(3, 1000),
    bug!(
        accepted_in_memory,
        Fault,
        "accepted and lost",
        "A message is accepted before it is in the outbox on the disk."
    )
    .faults(3, 1000),
    bug!(
        highest_is_acknowledged,
        Fault,
        "acknowledged and lost",
        "The highest number that has arrived is acknowledged, although one below it is missing."
    )
    .faults(3, 1000),
    bug!(
        two_readers,
        Delay,
        "out of order",
        "The reader of the old connection still works on a message when that of the new one begins."
    ),
    bug!(
        both_dial,
        Delay,
        STALL,
        "Both sides reconnect at once, and each keeps the connection that the other drops."
    ),
    bug!(
        late_goodbye,
        Delay,
        "the new session was closed",
        "The goodbye of the old session arrives in the new one."
    ),
    bug!(
        sent_is_not_received,
        Fault,
        "is missing",
        "The sender resumes after the last completed send, which the peer may never have received."
    )
    .faults(3, 3000),
];

async fn delivered_before_position(net: Net, is_fixed: bool) {
    let (post, delivered) = (Post::new(&net, 2), Shared::new(Vec::new()));
    let world = (net.clone(), post.clone(), delivered.clone(), Shared::new(0));
    net.host("b").start(move |_| {
        let (net, post, delivered, position) = world.clone();
        async move {
            let inbox = post.bind(1);
            loop {
                let message = inbox.recv().await;
                if message == position.get() {
                    if is_fixed {
                        position.write(&net, message + 1).await;
                        delivered.lock().push(message);
                    } else {
                        delivered.lock().push(message);
                        position.write(&net, message + 1).await;
                    }
                }
                post.send(0, message);
            }
        }
    });
    let inbox = post.bind(0);
    for message in 0..8 {
        ask(&net, &post, &inbox, message, &message).await;
    }
    let delivered = delivered.get();
    assert!(delivered.is_sorted_by(|one, next| one < next), "a message was delivered twice");
}

async fn position_before_send(net: Net, is_fixed: bool) {
    const MESSAGES: u32 = 8;
    let (post, position) = (Post::new(&net, 2), Shared::new(0));
    let world = (net.clone(), post.clone(), position.clone());
    let inbox = post.bind(1);
    net.host("a").start(move |_| {
        let (net, post, position) = world.clone();
        async move {
            let inbox = post.bind(0);
            for message in position.get()..MESSAGES {
                if !is_fixed {
                    position.write(&net, message + 1).await;
                }
                // The message is read from the disk.
                sleep(&net, DISK).await;
                post.send(1, message);
                inbox.until(&message).await;
                if is_fixed {
                    position.write(&net, message + 1).await;
                }
            }
        }
    });
    let mut received = BTreeSet::new();
    while let Some(message) = within(&net, SETTLED, inbox.recv()).await {
        received.insert(message);
        post.send(0, message);
    }
    let sent: BTreeSet<_> = (0..received.last().map_or(0, |last| last + 1)).collect();
    assert_eq!(received, sent, "a message was skipped");
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Session {
    Hello(u32),
    Data(u32, u32),
    Goodbye(u32),
}

async fn message_of_an_old_incarnation(net: Net, is_fixed: bool) {
    let post = Post::new(&net, 2);
    let world = (net.clone(), post.clone(), Shared::new(0));
    let inbox = post.bind(1);
    net.host("a").start(move |_| {
        let (net, post, starts) = world.clone();
        async move {
            let (inbox, me) = (post.bind(0), {
                let mut starts = starts.lock();
                *starts += 1;
                *starts
            });
            post.send(1, Session::Hello(me));
            inbox.until(&Session::Hello(me)).await;
            for number in 0..20 {
                post.send(1, Session::Data(me, number));
                sleep(&net, 30).await;
            }
        }
    });
    let (mut current, mut next) = (0, 0);
    while let Some(letter) = within(&net, SETTLED, inbox.recv()).await {
        match letter {
            Session::Hello(incarnation) if incarnation > current => {
                (current, next) = (incarnation, 0);
                post.send(0, letter);
            }
            Session::Data(incarnation, number) if number == next && (incarnation == current || !is_fixed) => {
                assert_eq!(incarnation, current, "a message of an old incarnation was taken");
                next += 1;
            }
            _ => (),
        }
    }
}

async fn sequence_begins_anew(net: Net, is_fixed: bool) {
    let (post, outbox, done) =
        (Post::new(&net, 2), Shared::new((0..8).collect::<VecDeque<u32>>()), Shared::new(Vec::new()));
    let world = (net.clone(), post.clone(), outbox, done.clone());
    let inbox = post.bind(1);
    net.host("a").start(move |_| {
        let (net, post, outbox, done) = world.clone();
        async move {
            let inbox = post.bind(0);
            let mut number = if is_fixed { done.lock().len() as u32 } else { 0 };
            loop {
                let Some(message) = outbox.lock().front().copied() else { break };
                post.send(1, (number, message));
                inbox.find(|(of, _)| *of == number).await;
                sleep(&net, DISK).await;
                number += 1;
                outbox.lock().pop_front();
                done.lock().push(message);
            }
        }
    });
    let (mut next, mut delivered) = (0, BTreeSet::new());
    while let Some((number, message)) = within(&net, SETTLED, inbox.recv()).await {
        if number == next {
            next += 1;
            delivered.insert(message);
        }
        if number < next {
            post.send(0, (number, message));
        }
    }
    assert!(
        done.lock().iter().all(|message| delivered.contains(message)),
        "an acknowledged message was never delivered"
    );
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Outbox {
    Submit(u32),
    Accepted(u32),
    Deliver(u32),
    Delivered(u32),
}

async fn accepted_in_memory(net: Net, is_fixed: bool) {
    let (post, delivered) = (Post::new(&net, 3), Shared::new(BTreeSet::new()));
    let world = (net.clone(), post.clone(), Shared::new(BTreeSet::new()));
    net.host("a").start(move |_| {
        let (net, post, disk) = world.clone();
        async move {
            let inbox = post.bind(0);
            let mut outbox = disk.get();
            loop {
                match within(&net, 200, inbox.recv()).await {
                    Some(Outbox::Submit(message)) => {
                        outbox.insert(message);
                        if is_fixed {
                            disk.write(&net, outbox.clone()).await;
                        }
                        post.send(2, Outbox::Accepted(message));
                        sleep(&net, 10).await;
                        post.send(1, Outbox::Deliver(message));
                    }
                    Some(Outbox::Delivered(message)) => {
                        outbox.remove(&message);
                        disk.write(&net, outbox.clone()).await;
                    }
                    Some(_) => (),
                    None => outbox.iter().for_each(|message| post.send(1, Outbox::Deliver(*message))),
                }
            }
        }
    });
    let (inbox, receiver, taken) = (post.bind(1), post.clone(), delivered.clone());
    spawn(&net, async move {
        loop {
            if let Outbox::Deliver(message) = inbox.recv().await {
                taken.lock().insert(message);
                receiver.send(0, Outbox::Delivered(message));
            }
        }
    });
    let (inbox, mut accepted) = (post.bind(2), Vec::new());
    for message in 0..8 {
        post.send(0, Outbox::Submit(message));
        if within(&net, 150, inbox.until(&Outbox::Accepted(message))).await.is_some() {
            accepted.push(message);
        }
    }
    sleep(&net, SETTLED).await;
    assert!(
        accepted.iter().all(|message| delivered.lock().contains(message)),
        "a message was accepted and lost"
    );
}

async fn highest_is_acknowledged(net: Net, is_fixed: bool) {
    const MESSAGES: u32 = 20;
    let (post, delivered) = (Post::new(&net, 2), Shared::new(BTreeSet::new()));
    let world = (post.clone(), delivered.clone());
    net.host("b").start(move |_| {
        let (post, delivered) = world.clone();
        async move {
            let inbox = post.bind(1);
            loop {
                let message = inbox.recv().await;
                let mut delivered = delivered.lock();
                delivered.insert(message);
                let complete = (0..MESSAGES).find(|number| !delivered.contains(number)).unwrap_or(MESSAGES);
                let highest = delivered.last().map_or(0, |last| last + 1);
                post.send(0, if is_fixed { complete } else { highest });
            }
        }
    });
    let (inbox, mut acknowledged) = (post.bind(0), 0);
    for _ in 0..ATTEMPTS {
        let first = acknowledged;
        for message in first..MESSAGES {
            post.send(1, message);
            if let Some(up_to) = within(&net, 20, inbox.recv()).await {
                acknowledged = up_to.max(acknowledged);
            }
        }
        while let Some(up_to) = within(&net, 400, inbox.recv()).await {
            acknowledged = up_to.max(acknowledged);
        }
    }
    let delivered = delivered.get();
    assert!(
        (0..acknowledged).all(|message| delivered.contains(&message)),
        "a message was acknowledged and lost"
    );
}

async fn two_readers(net: Net, is_fixed: bool) {
    let delivered = Shared::new(Vec::new());
    let read = |first: u32, at: u64| {
        let (net, delivered) = (net.clone(), delivered.clone());
        async move {
            sleep(&net, at).await;
            for message in first..first + 3 {
                sleep(&net, 5).await;
                delivered.lock().push(message);
            }
        }
    };
    let old = spawn(&net, read(0, 0));
    if is_fixed {
        old.join().await;
        spawn(&net, read(3, 40)).join().await;
    } else {
        join_all([old, spawn(&net, read(3, 40))]).await;
    }
    assert!(delivered.lock().is_sorted(), "messages were delivered out of order");
}

async fn both_dial(net: Net, is_fixed: bool) {
    let post = Post::new(&net, 2);
    // A side that is connected answers no greeting: the peer took the connection that both have.
    let side = |me: usize, patience: u64| {
        let (net, post) = (net.clone(), post.clone());
        let inbox = post.bind(me);
        async move {
            let mut kept = within(&net, patience, inbox.recv()).await;
            if kept.is_none() {
                post.send(1 - me, me);
                let offered = inbox.recv().await;
                // Of two connections, the one that the lower side has dialled is kept.
                kept = Some(if is_fixed { offered.min(me) } else { offered });
            } else {
                post.send(1 - me, 1 - me);
            }
            kept
        }
    };
    let sides = [(0, 0), (1, 150)].map(|(me, patience)| spawn(&net, side(me, patience)));
    let kept = join_all(sides).await;
    assert!(kept[0] == kept[1], "both sides stalled: each keeps another connection");
}

async fn late_goodbye(net: Net, is_fixed: bool) {
    let (post, receiver) = (Post::new(&net, 2), net.clone());
    let inbox = post.bind(1);
    let serve = spawn(&net, async move {
        let (mut current, mut is_open, mut ended) = (0, false, BTreeSet::new());
        while let Some(letter) = within(&receiver, SETTLED, inbox.recv()).await {
            match letter {
                Session::Hello(session) => (current, is_open) = (session.max(current), true),
                Session::Goodbye(session) => {
                    is_open = is_open && is_fixed && session != current;
                    ended.insert(session);
                }
                Session::Data(session, _) => {
                    let is_refused = session == current && !is_open && !ended.contains(&session);
                    assert!(!is_refused, "the new session was closed");
                }
            }
        }
    });
    for session in 1..4 {
        post.send(1, Session::Hello(session));
        for number in 0..3 {
            sleep(&net, 40).await;
            post.send(1, Session::Data(session, number));
        }
        sleep(&net, 40).await;
        post.send(1, Session::Goodbye(session));
        sleep(&net, 40).await;
    }
    serve.join().await;
}

/// How long a process waits for its peer: a cable that is out may stay out
const PATIENCE: u64 = 20_000;

/// A node with little memory; the main task runs the one of host a, and faults of processes do not stop it
fn node(net: &Net, host: &str) -> Node<SimDevice> {
    let (patience, lost) = (Duration::from_micros(PATIENCE), Duration::from_millis(10));
    let options = NodeOptions::new().max_peers(1).max_message(4096).max_sessions(1);
    let options = options.connect_timeout(patience).peer_timeout(lost);
    let options = options.send_memory(64 << 10).receive_memory(512 << 10);
    let runtime = if host == "a" { net.runtime() } else { net.host(host).runtime() };
    let builder = Node::builder(net.opener(host, DEVICE)).options(options).runtime(runtime);
    builder.build().expect("the options are usable")
}

/// Says how much was received before, and receives more until the session ends
async fn receive(session: &rdma_async::Session<SimDevice>, delivered: &Shared<Vec<u8>>) -> Option<()> {
    let received = delivered.lock().len() as u8;
    session.send_bytes(&[received]).await.ok()?;
    while let Some(message) = session.recv().await.ok()? {
        delivered.lock().push(message[0]);
    }
    Some(())
}

async fn sent_is_not_received(net: Net, is_fixed: bool) {
    const MESSAGES: u8 = 60;
    let (delivered, streams) = (Shared::new(Vec::new()), Shared::new(VecDeque::<SimStream>::new()));
    let dialled = Shared::<Waiters>::default();
    let world = (net.clone(), delivered.clone(), streams.clone(), dialled.clone());
    net.host("b").start(move |_| {
        let (net, delivered, streams, dialled) = world.clone();
        async move {
            loop {
                wait_until(&dialled, || !streams.lock().is_empty()).await;
                let (stream, node) = (streams.lock().pop_front(), node(&net, "b"));
                if let Some(stream) = stream
                    && node.serve(stream).await.is_ok()
                    && let Some(Some(session)) = within(&net, PATIENCE, node.accept()).await
                {
                    within(&net, PATIENCE, receive(&session, &delivered)).await;
                }
                sleep(&net, 50).await;
            }
        }
    });
    let mut sent = 0;
    for _ in 0..ATTEMPTS {
        sleep(&net, 100).await;
        let (here, there) = net.tcp();
        streams.lock().push_back(there);
        dialled.notify_all();
        let Ok(session) = node(&net, "a").connect(here).await else { continue };
        let Some(Ok(Some(greeting))) = within(&net, PATIENCE, session.recv()).await else { continue };
        if is_fixed {
            sent = greeting[0];
        }
        if sent == MESSAGES {
            sleep(&net, SETTLED).await;
            assert_eq!(delivered.get(), (0..MESSAGES).collect::<Vec<_>>(), "a message is missing");
            break;
        }
        let send_all = async {
            while sent < MESSAGES && session.send_bytes(&[sent]).await.is_ok() {
                sent += 1;
            }
            session.close().await
        };
        let _ = within(&net, PATIENCE, send_all).await;
    }
}
