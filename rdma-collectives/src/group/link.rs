//! The streams to a neighbour, and the way over other ranks while its cables are out

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rdma_async::future::{Recv, Send};
use rdma_async::{Device, Lease, Message, Runtime, SendError, Session, Stream};

use super::block::Block;
use super::buffer::Buffer;
use super::error::GroupError;
use super::relay::{Arrival, Peer, Purpose, Shared, State, is_silence};
use super::wire::{Credit, End, LEAVING, leaving_after, left_after};

/// How many messages can be under way to a neighbour, each in a lease of its own.
pub(crate) const MAX_MESSAGES: usize = 8;
/// How many bytes are under way over each cable to a neighbour before the next message waits: as many as keep the cable busy, and no
/// more, because more urgent messages queue behind them. The leases of [`MAX_MESSAGES`] bound both for more than two cables.
const MAX_BYTES: usize = 384 << 10;
/// How many messages may be under way over each cable whatever their length: one crosses it while others are announced and granted.
const MIN_MESSAGES: usize = 3;
/// How many bytes are under way over other ranks before the next message waits.
const MAX_RELAYED: usize = 1 << 20;
/// A path that is gone for a shorter time was lost with a message, and is made again: ranks do not plan anew for it.
const SETTLED: Duration = Duration::from_micros(200);

/// The streams of a link, from the time of joining on
pub(crate) struct Streams<D: Device> {
    /// Messages of operations
    pub(crate) data: Stream<D>,
    /// Credit for these
    pub(crate) credit: Stream<D>,
    /// Why the group is over, and that the rank has left: at most these two go without waiting, so there is always a place. A rank whose
    /// attempt to go on has failed waits for one, to say that it has.
    pub(crate) end: Arc<Stream<D>>,
    /// What goes to other ranks, or comes from them
    pub(crate) relay: Stream<D>,
}

/// The memory for what a link sends
pub(crate) struct Leases {
    pub(crate) data: Vec<Lease>,
    pub(crate) credit: Lease,
    pub(crate) end: Lease,
    pub(crate) leaving: Lease,
    pub(crate) relay: Lease,
}

/// What a link is made of
pub(crate) struct Parts<D: Device> {
    pub(crate) rank: usize,
    pub(crate) streams: Streams<D>,
    pub(crate) leases: Leases,
    /// The longest message that the node of this rank takes over it
    pub(crate) max_message: usize,
}

/// A message of the neighbour
enum Received {
    /// Other ranks have brought it
    Relayed(Box<[u8]>),
    /// It came on its stream
    Streamed(Message),
}

/// A neighbour, and what is under way to it
pub(crate) struct Link<D: Device> {
    pub(crate) rank: usize,
    /// The rank of this side
    own: usize,
    /// How many cables lead to the neighbour
    all_cables: usize,
    /// For how many of them the present plan is
    pub(crate) cables: usize,
    /// How many of them worked when this rank last reported it to the others
    pub(crate) reported_cables: usize,
    relays: Shared<D>,
    /// Whether messages go over other ranks, as far as the link has noticed
    is_detoured: bool,
    data: Stream<D>,
    credit: Stream<D>,
    end_stream: Arc<Stream<D>>,
    /// Messages of operations, and credit for these, by purpose; `None` once the stream of the neighbour has ended
    recvs: [Option<Recv<D>>; 2],
    recv_end: Recv<D>,
    /// Whether the neighbour says no more on its stream why the group is over
    has_end_ended: bool,
    /// Why the group is over at the neighbour, as it says
    end: Option<End>,
    /// Why the neighbour is gone
    gone: Option<GroupError>,
    /// Whether that is only because nothing came from it
    is_silent: bool,
    has_left: bool,
    /// The number of the message of operations that there will not be, if the neighbour has left and said so over other ranks
    left_after: Option<u32>,
    spare: Vec<Lease>,
    sends: VecDeque<(usize, Send<D>)>,
    /// The sum of the lengths of `sends`
    sending: usize,
    /// Whether the neighbour did not take a message
    has_failed: bool,
    spare_credit: Option<Lease>,
    send_credit: Option<Send<D>>,
    spare_end: Option<Lease>,
    leaving: Option<Lease>,
    /// Whether the rank has left the group when the link is dropped, and does not go on in another one
    pub(crate) is_last: bool,
}

impl<D: Device> Link<D> {
    /// The runtime of the node
    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        self.data.runtime()
    }

    /// A link of rank `own` over so many cables, and the neighbour as that rank relays for it
    pub(crate) fn new(own: usize, parts: Parts<D>, cables: usize, relays: Shared<D>) -> Self {
        let Parts { rank, streams, leases, .. } = parts;
        let by_purpose = [streams.data.clone(), streams.credit.clone(), Stream::clone(&streams.end)];
        relays.lock().add(Peer::new(rank, by_purpose, streams.relay, leases.relay));
        Self {
            rank,
            own,
            all_cables: cables,
            cables,
            reported_cables: cables,
            relays,
            is_detoured: false,
            recvs: [&streams.data, &streams.credit].map(|stream| Some(stream.recv())),
            recv_end: streams.end.recv(),
            has_end_ended: false,
            end: None,
            gone: None,
            is_silent: false,
            has_left: false,
            left_after: None,
            data: streams.data,
            credit: streams.credit,
            end_stream: streams.end,
            spare: leases.data,
            sends: VecDeque::new(),
            sending: 0,
            has_failed: false,
            spare_credit: Some(leases.credit),
            send_credit: None,
            spare_end: Some(leases.end),
            leaving: Some(leases.leaving),
            is_last: false,
        }
    }

    /// The session with the neighbour
    pub(crate) fn session(&self) -> Session<D> {
        self.data.session()
    }

    /// How many cables to the neighbour work
    pub(crate) fn working_cables(&self) -> usize {
        let Some(outage) = self.relays.lock().peer(self.rank).and_then(|peer| peer.outage()) else {
            return self.all_cables;
        };
        if self.runtime().now() < outage.since + SETTLED {
            return self.reported_cables;
        }
        if outage.is_reached { self.all_cables.saturating_sub(outage.paths).max(1) } else { 0 }
    }

    /// The stream of ends, on which the neighbour says that it has left
    pub(crate) fn end_stream(&self) -> Arc<Stream<D>> {
        Arc::clone(&self.end_stream)
    }

    /// Fails if the neighbour has ended operation `sequence`, and notes whether it is gone; returns whether there was news
    pub(crate) fn poll_end(&mut self, sequence: u32, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let has_progress = self.receive_end(sequence, cx);
        let end = self.end.as_ref().filter(|end| end.ends(sequence));
        end.map_or(Ok(has_progress), |end| Err(end.error.clone()))
    }

    /// Ready when the neighbour says that it has not completed operation `sequence`, and never will
    pub(crate) fn poll_given_up(&mut self, sequence: u32, cx: &mut Context<'_>) -> Poll<GroupError> {
        while self.receive_end(sequence, cx) {}
        let end = self.end.as_ref().filter(|end| !end.is_after(sequence));
        end.map_or(Poll::Pending, |end| Poll::Ready(end.error.clone()))
    }

    /// Notes why the group is over at the neighbour, and whether it is gone; returns whether there was news
    fn receive_end(&mut self, sequence: u32, cx: &mut Context<'_>) -> bool {
        let rank = self.rank;
        let mut has_progress = false;
        if !self.has_end_ended
            && let Poll::Ready(received) = Pin::new(&mut self.recv_end).poll(cx)
        {
            has_progress = true;
            self.has_end_ended = !matches!(received, Ok(Some(_)));
            match received {
                Ok(Some(message)) => self.on_end(&message, sequence),
                Ok(None) => drop(self.gone.get_or_insert(GroupError::Left { rank })),
                Err(error) if self.gone.is_none() => {
                    self.is_silent = is_silence(&error);
                    self.gone = Some(GroupError::of_recv(rank, error));
                }
                Err(_) => (),
            }
        } else if let Some(message) = self.pop(Purpose::End) {
            self.on_end(&message, sequence);
            has_progress = true;
        }
        has_progress
    }

    fn on_end(&mut self, message: &[u8], sequence: u32) {
        let rank = self.rank;
        self.left_after = self.left_after.or_else(|| left_after(message));
        if *message == LEAVING || self.left_after.is_some() {
            self.has_left = true;
            (self.gone, self.is_silent) = (Some(GroupError::Left { rank }), false);
        } else {
            let wrong = || End { error: GroupError::Protocol { rank, sequence }, sequence };
            // The first says why.
            self.end.get_or_insert_with(|| End::decode(message).unwrap_or_else(wrong));
        }
    }

    /// The next message that came over other ranks
    fn pop(&mut self, purpose: Purpose) -> Option<Box<[u8]>> {
        self.relays.lock().peer(self.rank)?.messages(purpose).pop()
    }

    /// What a message on the stream of the neighbour is, by its number
    fn arrival(&mut self, purpose: Purpose, message: &[u8]) -> Arrival {
        let Some(number) = purpose.number(message) else { return Arrival::Early };
        let mut relays = self.relays.lock();
        relays.peer(self.rank).map_or(Arrival::Next, |peer| peer.messages(purpose).arrives(number))
    }

    /// Whether the neighbour has said that it goes on in no other group
    pub(crate) fn has_left(&self) -> bool {
        self.has_left
    }

    /// Why the neighbour does nothing more, unless others still reach it; it may have done all of its part before
    pub(crate) fn gone(&self) -> Option<&GroupError> {
        self.gone.as_ref().filter(|_| !self.is_silent || !self.goes_around())
    }

    /// Whether messages to the neighbour go over others that reach it
    fn goes_around(&self) -> bool {
        self.relays.lock().goes_around(self.rank)
    }

    /// Why the group is over at the neighbour, as far as it has said so
    pub(crate) fn over(&self) -> Option<&GroupError> {
        self.end.as_ref().map(|end| &end.error).or_else(|| self.gone.as_ref().filter(|_| self.has_left))
    }

    /// Whether the neighbour sends no more messages of operations
    pub(crate) fn has_ended(&self) -> bool {
        let has_all = |next| {
            let mut relays = self.relays.lock();
            relays.peer(self.rank).is_some_and(|peer| peer.messages(Purpose::Data).is_read_until(next))
        };
        self.recvs[Purpose::Data as usize].is_none() || self.left_after.is_some_and(has_all)
    }

    /// Whether the neighbour did not take a message
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The next message of operations; pending for ever when the neighbour sends no more
    pub(crate) fn poll_message(
        &mut self,
        sequence: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Block, GroupError>> {
        let received = ready!(self.poll_next(Purpose::Data, sequence, cx))?;
        Poll::Ready(Ok(match received {
            Received::Relayed(message) => Block::Heap(message),
            Received::Streamed(message) => Block::new(message),
        }))
    }

    /// The next message for a purpose, which other ranks have brought or the stream; pending for ever when the neighbour sends no more
    fn poll_next(
        &mut self,
        purpose: Purpose,
        sequence: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Received, GroupError>> {
        if let Some(message) = self.pop(purpose) {
            return Poll::Ready(Ok(Received::Relayed(message)));
        }
        while let Some(recv) = &mut self.recvs[purpose as usize] {
            match ready!(Pin::new(recv).poll(cx)) {
                Ok(Some(message)) => match self.arrival(purpose, &message) {
                    Arrival::Next => return Poll::Ready(Ok(Received::Streamed(message))),
                    Arrival::Repeated => (),
                    Arrival::Early => {
                        return Poll::Ready(Err(GroupError::Protocol { rank: self.rank, sequence }));
                    }
                },
                // The end of the stream of ends says why.
                _ => self.recvs[purpose as usize] = None,
            }
        }
        Poll::Pending
    }

    /// Expects that each of the messages of operations at `places` has `len` bytes
    pub(crate) fn expect(&self, len: usize, places: Range<u32>) {
        // Without memory to spare they are announced.
        let _ = self.data.expect(len, places.start as usize..places.end as usize);
    }

    /// The next credit; pending for ever when the neighbour sends no more
    pub(crate) fn poll_credit(
        &mut self,
        sequence: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Credit, GroupError>> {
        let received = ready!(self.poll_next(Purpose::Credit, sequence, cx))?;
        let credit = Credit::decode(match &received {
            Received::Relayed(message) => message,
            Received::Streamed(message) => message,
        });
        Poll::Ready(credit.ok_or(GroupError::Protocol { rank: self.rank, sequence }))
    }

    /// Takes back the leases of what has been sent; returns whether there are any
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let relays = self.relays.clone();
        // Locked, so that a message that gets a place in its stream is found there.
        let mut relays = relays.lock();
        let mut has_progress = self.follow_detour(&mut relays);
        let mut index = 0;
        while let Some((len, send)) = self.sends.get_mut(index) {
            let Poll::Ready(sent) = Pin::new(send).poll(cx) else {
                index += 1;
                continue;
            };
            self.sending -= *len;
            self.sends.remove(index);
            has_progress = true;
            match sent {
                Ok(lease) => self.spare.push(lease),
                // The application has closed the session below the group.
                Err(failed) if failed.error == SendError::Closed => {
                    return Err(GroupError::Left { rank: self.own });
                }
                // The stream of ends says why the neighbour does not take it.
                Err(_) => self.has_failed |= !self.is_detoured,
            }
        }
        if let Some(send) = &mut self.send_credit
            && let Poll::Ready(sent) = Pin::new(send).poll(cx)
        {
            self.send_credit = None;
            // Without a lease no more credit is sent: the neighbour takes none any more.
            self.spare_credit = sent.ok();
            has_progress = true;
        }
        Ok(has_progress)
    }

    /// Notices whether messages go over other ranks; sends those over them that have no place in the stream
    fn follow_detour(&mut self, relays: &mut State<D>) -> bool {
        let is_detoured = relays.peer(self.rank).is_some_and(|peer| peer.is_detoured());
        let was_detoured = std::mem::replace(&mut self.is_detoured, is_detoured);
        if is_detoured && !was_detoured {
            let unqueued = self.sends.iter().map(|(_, send)| (Purpose::Data, send));
            let unqueued = unqueued.chain(self.send_credit.iter().map(|send| (Purpose::Credit, send)));
            for (purpose, send) in unqueued {
                if let Some(message) = send.unqueued()
                    && let Some(number) = purpose.number(message)
                {
                    relays.send(self.rank, purpose, number, message.into());
                }
            }
        }
        is_detoured != was_detoured
    }

    /// Writes the next number into a message
    fn number(&self, relays: &mut State<D>, purpose: Purpose, message: &mut [u8]) -> u32 {
        let number = relays.peer(self.rank).map_or(0, |peer| peer.messages(purpose).take_number());
        purpose.write_number(message, number);
        number
    }

    /// Whether another message may be under way
    pub(crate) fn has_room(&self) -> bool {
        if self.is_detoured {
            let mut relays = self.relays.lock();
            return relays.peer(self.rank).is_some_and(|peer| peer.has_room(MAX_RELAYED));
        }
        let has_place =
            self.sending < self.cables * MAX_BYTES || self.sends.len() < self.cables * MIN_MESSAGES;
        has_place && !self.spare.is_empty() && !self.has_failed
    }

    /// Whether everything is sent without another poll
    ///
    /// A stream has a place for one message at least, and gives places in turn: the last of several may still wait for one.
    pub(crate) fn is_queued(&self) -> bool {
        self.is_detoured || self.sends.len() <= 1 && !self.has_failed
    }

    /// Memory for the next message, if there is [room](Self::has_room)
    pub(crate) fn take_spare(&mut self) -> Option<Buffer> {
        if self.is_detoured {
            return Some(Buffer::Heap(Vec::new()));
        }
        let mut lease = self.spare.pop()?;
        lease.clear();
        Some(Buffer::Lease(lease))
    }

    /// Queues a message of an operation
    pub(crate) fn send(&mut self, mut message: Buffer, cx: &mut Context<'_>) -> Result<(), GroupError> {
        let relays = self.relays.clone();
        let mut relays = relays.lock();
        self.follow_detour(&mut relays);
        let number = self.number(&mut relays, Purpose::Data, &mut message);
        match message {
            Buffer::Lease(lease) if !self.is_detoured => {
                self.sending += lease.len();
                self.sends.push_back((lease.len(), self.data.send(lease)));
                drop(relays);
                self.poll_sent(cx)?;
            }
            Buffer::Lease(lease) => {
                relays.send(self.rank, Purpose::Data, number, Box::from(&*lease));
                self.spare.push(lease);
            }
            Buffer::Heap(message) => relays.send(self.rank, Purpose::Data, number, message.into()),
        }
        Ok(())
    }

    /// Queues credit; returns whether there was room
    pub(crate) fn send_credit(&mut self, credit: Credit, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let relays = self.relays.clone();
        let mut relays = relays.lock();
        self.follow_detour(&mut relays);
        let mut message = credit.encode();
        if self.is_detoured {
            let number = self.number(&mut relays, Purpose::Credit, &mut message);
            relays.send(self.rank, Purpose::Credit, number, message.into());
            return Ok(true);
        }
        let Some(mut lease) = self.spare_credit.take() else { return Ok(false) };
        self.number(&mut relays, Purpose::Credit, &mut message);
        lease.clear();
        lease.extend_from_slice(&message);
        self.send_credit = Some(self.credit.send(lease));
        drop(relays);
        self.poll_sent(cx)?;
        Ok(true)
    }

    /// Says why the group is over, if the neighbour can still be reached
    pub(crate) fn end(&mut self, end: &End) {
        if let Some(lease) = self.spare_end.take() {
            self.send_end(lease, &end.encode());
        }
    }

    fn send_end(&self, mut lease: Lease, message: &[u8]) {
        let mut relays = self.relays.lock();
        lease.clear();
        lease.extend_from_slice(message);
        // Fails if the neighbour is lost, or has left.
        let _ = self.end_stream.try_send(lease);
        if let Some(peer) = relays.peer(self.rank).filter(|peer| peer.is_detoured()) {
            let number = peer.messages(Purpose::End).take_number();
            let after = leaving_after(peer.messages(Purpose::Data).next_out());
            let message = if *message == LEAVING { &after } else { message };
            relays.send(self.rank, Purpose::End, number, message.into());
        }
    }
}

impl<D: Device> Drop for Link<D> {
    fn drop(&mut self) {
        if let Some(lease) = self.leaving.take_if(|_| self.is_last) {
            self.send_end(lease, &LEAVING);
        }
    }
}
