//! What an application does, and what it may expect: one program, which checks every promise that it meets

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::task::Poll;

use futures::future::{join, maybe_done};
use futures::stream::{FuturesOrdered, StreamExt as _};
use rdma_async::{Device, Lease, Priority, SendError, Session, Stream};
use rdma_tests::message;

/// What the documentation promises
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Promise {
    /// Each message arrives once, and in order
    Order,
    /// Bytes arrive as they were sent, in the place for which they were sent
    Place,
    /// A lease that was returned can be reused
    Reuse,
    /// A message that is said to be delivered is at the peer
    Delivered,
    /// A stream that nobody reads stalls no other
    Pressure,
    /// A task learns within a bound that its peer is gone
    Bound,
    /// A session that was closed in good order has delivered everything
    Close,
    /// A future that is dropped loses nothing
    Cancel,
    /// Nothing is left behind
    Clean,
}

/// The promises that a program has put to the test
#[derive(Debug, Default)]
pub(crate) struct Seen(RefCell<BTreeSet<Promise>>);

impl Seen {
    pub(crate) fn note(&self, promise: Promise) {
        self.0.borrow_mut().insert(promise);
    }

    pub(crate) fn into_set(self) -> BTreeSet<Promise> {
        self.0.into_inner()
    }
}

/// A stream as both sides see it
pub(crate) struct Ends<A: Device, B: Device> {
    pub(crate) from: Stream<A>,
    pub(crate) to: Stream<B>,
    /// Whether the receiver says how long the next messages are
    pub(crate) expects: bool,
    /// Whether the sender lets the node copy its messages
    pub(crate) copies: bool,
}

/// A stream that `from` opens
pub(crate) async fn open<A: Device, B: Device>(
    from: &Session<A>,
    to: &Session<B>,
    priority: Priority,
) -> Ends<A, B> {
    let (opened, accepted) = join(from.open_stream(priority), to.accept_stream()).await;
    let (from, to) = (opened.expect("the session is open"), accepted.expect("as here").expect("and there"));
    Ends { from, to, expects: false, copies: false }
}

/// How many messages are under way at once
const QUEUE: usize = 8;

/// Sends messages of these lengths, each lease again as soon as it is returned; how many were taken before the end
async fn send<D: Device>(
    stream: &Stream<D>,
    lens: &[usize],
    delivers: bool,
    arrived: &RefCell<usize>,
    seen: &Seen,
) -> usize {
    let longest = lens.iter().copied().max().unwrap_or(0);
    let mut free = Vec::<Lease>::new();
    let (mut sends, mut returned) = (FuturesOrdered::new(), 0);
    let collect = |sent: Result<(usize, Lease), SendError>, free: &mut Vec<Lease>| {
        let Ok((number, mut lease)) = sent else { return false };
        if delivers {
            // In order: all before it are there, too.
            assert!(*arrived.borrow() > number, "message {number} was not there when it was delivered");
            seen.note(Promise::Delivered);
        }
        // What goes over the cable now is of another message.
        lease.clear();
        lease.resize(longest, 0xee);
        free.push(lease);
        true
    };
    for (number, &len) in lens.iter().enumerate() {
        if sends.len() == QUEUE {
            let sent = sends.next().await.expect("some are under way");
            if !collect(sent, &mut free) {
                return number;
            }
            returned += 1;
        }
        let mut lease = match free.pop() {
            Some(lease) => {
                seen.note(Promise::Reuse);
                lease
            }
            None => stream.session().alloc(longest).await.expect("the memory holds such messages"),
        };
        lease.clear();
        lease.extend_from_slice(&message(number, len));
        if number % 5 == 3 && !delivers {
            // Dropped after its first poll, by which it has a place in the queue.
            let mut dropped = Box::pin(stream.send(lease));
            if let Poll::Ready(Err(_)) = futures::poll!(dropped.as_mut()) {
                return number;
            }
            seen.note(Promise::Cancel);
            continue;
        }
        let sent = stream.send(lease);
        let sent = if delivers { sent.delivered() } else { sent };
        // Polled at once, so that messages have their places in the order of their numbers.
        let mut sent = Box::pin(maybe_done(sent));
        let _is_ready = futures::poll!(sent.as_mut());
        sends.push_back(async move {
            sent.as_mut().await;
            let sent = sent.as_mut().take_output().expect("it was not taken before");
            sent.map(|lease| (number, lease)).map_err(|failed| failed.error)
        });
    }
    while let Some(sent) = sends.next().await {
        if !collect(sent, &mut free) {
            return returned;
        }
    }
    lens.len()
}

/// Sends copies of messages of these lengths; whether all were taken
async fn send_copies<D: Device>(stream: &Stream<D>, lens: &[usize]) -> bool {
    let mut sends = FuturesOrdered::new();
    for (number, &len) in lens.iter().enumerate() {
        if sends.len() == QUEUE && sends.next().await == Some(false) {
            return false;
        }
        // Polled at once, as above.
        let mut send =
            Box::pin(maybe_done(async move { stream.send_bytes(&message(number, len)).await.is_ok() }));
        let _is_ready = futures::poll!(send.as_mut());
        sends.push_back(async move {
            send.as_mut().await;
            send.as_mut().take_output().expect("it was not taken before")
        });
    }
    sends.all(async |has_sent| has_sent).await
}

/// Says how long the messages from the next one on are, as far as they are equal; one in seven times something else
fn expect<D: Device>(stream: &Stream<D>, number: usize, lens: &[usize]) -> usize {
    let count = lens.iter().take_while(|len| **len == lens[0]).count();
    stream.expect(lens[0] + if number % 7 == 6 { 4096 } else { 0 }, 0..count)
}

/// Receives messages of these lengths, or a part of them and then the end; calls `at_half` in the middle
async fn receive<A: Device, D: Device>(
    Ends { to: stream, expects, .. }: &Ends<A, D>,
    lens: &[usize],
    arrived: &RefCell<usize>,
    seen: &Seen,
    at_half: &(impl Fn() + ?Sized),
) -> usize {
    let mut expected = 0;
    for (number, &len) in lens.iter().enumerate() {
        if number == lens.len() / 2 {
            assert!(!expects || expected > 0, "no message was expected");
            at_half();
        }
        if *expects {
            expected += expect(stream, number, &lens[number..]);
        }
        // Dropped where it has to wait.
        let got = match futures::poll!(Box::pin(stream.recv())) {
            Poll::Ready(got) => got,
            Poll::Pending => {
                seen.note(Promise::Cancel);
                stream.recv().await
            }
        };
        let Ok(Some(got)) = got else { return number };
        *arrived.borrow_mut() += 1;
        assert_eq!(got.len(), len, "message {number}");
        assert!(*got == message(number, len), "message {number} of {len} bytes");
        seen.note(Promise::Order);
        seen.note(Promise::Place);
    }
    lens.len()
}

/// Both at once; whether everything arrived. `delivers` waits until the peer has each message
pub(crate) async fn transfer<A: Device, B: Device>(
    ends: &Ends<A, B>,
    lens: &[usize],
    delivers: bool,
    seen: &Seen,
    at_half: &(impl Fn() + ?Sized),
) -> bool {
    let arrived = RefCell::new(0);
    // A message counts as there when it can be read: the program reads each at once.
    let send = async {
        match ends.copies {
            true => send_copies(&ends.from, lens).await,
            false => send(&ends.from, lens, delivers, &arrived, seen).await == lens.len(),
        }
    };
    let (sent, received) = join(send, receive(ends, lens, &arrived, seen, at_half)).await;
    sent && received == lens.len()
}

/// Fills a stream that nobody reads; how many messages it took
pub(crate) async fn fill<D: Device>(stream: &Stream<D>, len: usize) -> usize {
    let mut taken = 0;
    loop {
        let mut lease = stream.session().alloc(len).await.expect("the memory holds such messages");
        lease.extend_from_slice(&message(taken, len));
        match stream.try_send(lease) {
            Ok(()) => taken += 1,
            Err(_) => return taken,
        }
    }
}

/// Reads what a filled stream holds
pub(crate) async fn empty<D: Device>(stream: &Stream<D>, count: usize, len: usize) {
    for number in 0..count {
        let got = stream.recv().await.expect("the session is open").expect("it is in order");
        assert!(*got == message(number, len), "unread message {number}");
    }
}

/// Closes both sides; both have everything
pub(crate) async fn close<A: Device, B: Device>(ab: &Session<A>, ba: &Session<B>, seen: &Seen) {
    let (at_a, at_b) = join(ab.close(), ba.close()).await;
    at_a.expect("the session ends in good order");
    at_b.expect("on both sides");
    assert!(ba.recv().await.expect("the end is no error").is_none());
    seen.note(Promise::Close);
}
