//! A neighbour, as a rank relays for it

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_async::future::{PathChange, Recv, Send};
use rdma_async::{
    Device, Lease, Message, PathStatus, RecvError, Runtime, Session, SessionError, Stream, Time,
};

use super::super::wire::{LEAVING, leaving_after};
use super::numbered::{Numbered, Purpose};
use super::packet::Packet;

/// A neighbour, what goes to it over other ranks, and what others send over it
pub(crate) struct Peer<D: Device> {
    pub(crate) rank: usize,
    session: Session<D>,
    change: PathChange<D>,
    /// How many paths carry data, and how many have
    paths: [usize; 2],
    /// When the number of paths has changed last
    changed_at: Time,
    /// The streams of the link, by purpose, as long as they may have messages that the neighbour does not have
    streams: Option<[Stream<D>; 3]>,
    pub(super) numbered: [Numbered; 3],
    /// Whether messages go over other ranks
    is_detoured: bool,
    /// Whether the group of the neighbour is over, or its process, and not only the cables to it
    pub(super) has_closed: bool,
    /// Whether the neighbour has ended its stream of what is relayed, and not its session
    pub(super) has_left: bool,
    /// Since when no other rank has reached it
    pub(super) no_way_since: Option<Time>,
    /// Carries what is relayed
    relay: Stream<D>,
    /// `None` once the neighbour relays no more
    recv: Option<Recv<D>>,
    /// Packets to the neighbour
    pub(super) queue: VecDeque<Box<[u8]>>,
    lease: Option<Lease>,
    send: Option<Send<D>>,
}

/// Whether a session may be over only because its cables were out for too long: the other side may have noticed that first, and said so
pub(crate) fn is_silence(error: &RecvError) -> bool {
    matches!(error, RecvError::Lost(SessionError::PeerLost(_) | SessionError::PeerGone(_)))
}

/// Paths to a neighbour that carry no data
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// How many paths that there were carry no data
    pub(crate) paths: usize,
    /// Whether another path does
    pub(crate) is_reached: bool,
    /// When the number of paths has changed last
    pub(crate) since: Time,
}

impl<D: Device> Peer<D> {
    /// A neighbour with the streams of its link by purpose, one for packets, and memory for one packet
    pub(crate) fn new(rank: usize, streams: [Stream<D>; 3], relay: Stream<D>, lease: Lease) -> Self {
        let session = relay.session();
        let up = session.paths_up();
        // A path may have been lost before, and is to come back.
        let paths = session.snapshot().paths;
        let lost =
            paths.iter().filter(|path| path.status != PathStatus::Up && path.counts.last_loss.is_some());
        let most = up + lost.count();
        Self {
            rank,
            change: session.path_change(up),
            session,
            paths: [up, most],
            changed_at: Time::ZERO,
            streams: Some(streams),
            numbered: Default::default(),
            is_detoured: false,
            has_closed: false,
            has_left: false,
            no_way_since: None,
            recv: Some(relay.recv()),
            relay,
            queue: VecDeque::new(),
            lease: Some(lease),
            send: None,
        }
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.relay.runtime()
    }

    /// Whether a path carries data, and the neighbour relays
    pub(super) fn is_reached(&self) -> bool {
        self.paths[0] > 0 && self.recv.is_some()
    }

    /// The paths that there were and that carry no data
    pub(crate) fn outage(&self) -> Option<Outage> {
        let [up, most] = self.paths;
        let outage = Outage { paths: most - up, is_reached: up > 0, since: self.changed_at };
        (up < most).then_some(outage)
    }

    /// Whether messages go over other ranks; also when a path is back, until the neighbour has confirmed those that did
    pub(crate) fn is_detoured(&self) -> bool {
        self.is_detoured
    }

    /// Whether another message may go over other ranks, if so many bytes may be under way there
    pub(crate) fn has_room(&self, most: usize) -> bool {
        // What is under way gets there before messages go to the stream again.
        !self.is_reached() && self.unconfirmed_bytes() < most
    }

    pub(super) fn unconfirmed_bytes(&self) -> usize {
        self.numbered.iter().map(Numbered::unconfirmed_bytes).sum()
    }

    pub(crate) fn messages(&mut self, purpose: Purpose) -> &mut Numbered {
        &mut self.numbered[purpose as usize]
    }

    /// Notes how many paths carry data; returns whether that has changed
    pub(super) fn watch(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_news = false;
        while let Poll::Ready(up) = Pin::new(&mut self.change).poll(cx) {
            self.change = self.session.path_change(up);
            self.paths = [up, self.paths[1].max(up)];
            self.changed_at = self.runtime().now();
            is_news = true;
        }
        is_news
    }

    /// Whether only the cables to the neighbour are out
    pub(crate) fn is_cut(&self) -> bool {
        !self.is_reached() && !self.has_closed
    }

    /// Keeps what the neighbour does not have, which goes over other ranks from now on
    pub(super) fn begin_detour(&mut self) {
        if self.is_over() {
            // It is not known any more.
            self.has_closed = true;
            return;
        }
        self.is_detoured = true;
        let Some(streams) = &self.streams else { return };
        let data = self.numbered[Purpose::Data as usize].next_out();
        for (purpose, stream) in Purpose::OF_LINK.into_iter().zip(streams) {
            let numbered = &mut self.numbered[purpose as usize];
            let mut undelivered = stream.undelivered();
            // That the rank leaves is what it says last.
            undelivered.sort_by_key(|message| **message == LEAVING);
            let with_number = |message: Box<[u8]>| match purpose.number(&message) {
                Some(number) => (number, message),
                None if *message == LEAVING => (numbered.take_number(), Box::from(leaving_after(data))),
                None => (numbered.take_number(), message),
            };
            let messages = undelivered.into_iter().map(with_number).collect();
            numbered.keep(messages);
        }
    }

    /// Whether the neighbour has all messages, or takes none any more
    fn has_all(&self) -> bool {
        let streamed = self.streams.iter().flatten().filter(|_| !self.is_detoured && !self.is_over());
        self.has_closed
            || self.unconfirmed_bytes() == 0 && streamed.flat_map(Stream::undelivered).next().is_none()
    }

    /// Whether nothing more comes from the neighbour over its cables
    pub(super) fn is_over(&self) -> bool {
        self.session.close_reason().is_some()
    }

    /// Whether the rank has left, and the neighbour has all messages
    pub(super) fn has_ended(&self) -> bool {
        self.streams.is_none()
    }

    /// Lets the streams of the link end, once the rank has left and the neighbour has all messages
    pub(super) fn end_streams(&mut self) {
        if self.has_all() {
            self.streams = None;
        }
    }

    /// Lets messages go to the stream again, if there is a path, and nothing is under way over other ranks
    pub(super) fn end_detour(&mut self) {
        self.is_detoured &= !self.is_reached() || self.unconfirmed_bytes() > 0;
    }

    /// The next message on the stream of what is relayed
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let Some(recv) = &mut self.recv else { return Poll::Pending };
        let Poll::Ready(received) = Pin::new(recv).poll(cx) else { return Poll::Pending };
        // Only the cables to a neighbour may be lost, and others reach it.
        let may_live = self.is_detoured() && received.as_ref().err().is_some_and(is_silence);
        self.has_left = matches!(received, Ok(None));
        let message = received.ok().flatten();
        if message.is_none() {
            self.recv = None;
            self.queue.clear();
            if !may_live {
                (self.has_closed, self.is_detoured) = (true, false);
                self.numbered.iter_mut().for_each(Numbered::give_up);
            }
        }
        Poll::Ready(message)
    }

    /// Whether all packets are sent that the neighbour can get
    pub(super) fn is_flushed(&self) -> bool {
        !self.is_reached() || self.queue.is_empty() && self.send.is_none()
    }

    /// Queues a packet, unless it is queued already because its sender has sent it again
    pub(super) fn push(&mut self, packet: Box<[u8]>) {
        self.queue.retain(|queued| !Packet::is_outdated(queued, &packet));
        if !self.queue.iter().any(|queued| Packet::is_repeated(queued, &packet)) {
            self.queue.push_back(packet);
        }
    }

    /// Sends packets of the queue, one after another
    pub(super) fn transmit(&mut self, cx: &mut Context<'_>) {
        loop {
            if let Some(send) = &mut self.send {
                let Poll::Ready(sent) = Pin::new(send).poll(cx) else { return };
                // Without a lease nothing more is sent: the neighbour takes nothing any more.
                (self.send, self.lease) = (None, sent.ok());
            }
            let Some(lease) = &mut self.lease else { return self.queue.clear() };
            let Some(packet) = self.queue.pop_front() else { return };
            lease.clear();
            lease.extend_from_slice(&packet);
            self.send = self.lease.take().map(|lease| self.relay.send(lease));
        }
    }
}
