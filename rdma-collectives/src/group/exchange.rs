//! Sending and receiving between two ranks, without calls of the others

use std::future::poll_fn;
use std::task::Poll;

use rdma_async::Device;
use zerocopy::IntoBytes as _;

use super::call::{Call, OperationKind};
use super::dispatch::call;
use super::element::{Element, Output, store};
use super::error::GroupError;
use super::link::Link;
use super::monitor::{Wait, WaitReason};
use super::relay::State;
use super::state::{Group, Running};
use super::wire::{Channel, Header, PairMessage};

impl<D: Device> Group<D> {
    /// Sends a vector to rank `to`, which [receives](Self::recv) it; no other rank calls anything
    ///
    /// Ranks without a cable reach each other over others, whose groups pass the vector on by themselves. Returns when the other rank has
    /// taken all of it. The n-th call of a rank with another one belongs to the n-th call of that one with this rank, whatever both call in between
    /// with others: one of them sends and the other receives, the same number of elements of the same type. Until the other rank has called,
    /// nothing of the vector is sent; then 1 MiB is under way at most.
    ///
    /// It takes one way and copies on it: where all ranks take part, [`transfer`](Self::transfer) is faster for long vectors.
    ///
    /// ```
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| rdma_async::Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a")?, node("b")?);
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
    /// # let peer = b.accept().await.expect("the node is open");
    /// # use rdma_collectives::{Cabling, Group};
    /// # let cabling = &Cabling::line(2, 9_200_000_000);
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut vector = [0; 2];
    /// match rank {
    ///     0 => group.send(1, &[5, 6]).await?,
    ///     _ => group.recv(0, &mut vector).await?,
    /// }
    /// assert_eq!(vector, if rank == 1 { [5, 6] } else { [0; 2] });
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Rank`] if there is no such rank; [`GroupError::OwnRank`] if it is this one; [`GroupError::Mismatch`] if the other rank makes
    /// another call, also if both send or both receive: its number counts the calls of the two with each other; [`GroupError::Lost`] or
    /// [`GroupError::Left`] if the other rank is gone; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group, as that of the next operation would.
    pub async fn send<T: Element>(&mut self, to: usize, vector: &[T]) -> Result<(), GroupError> {
        let call =
            Call { to: Some(to), root: Some(self.rank), ..call::<T>(OperationKind::Send, vector.len()) };
        self.exchange(to, call, Payload::Sent(T::bytes(vector))).await
    }

    /// Receives a vector that rank `from` [sends](Self::send); no other rank calls anything
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send): a [`GroupError`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group, as that of the next operation would. The vector is then partly changed.
    pub async fn recv<T: Element>(&mut self, from: usize, vector: &mut [T]) -> Result<(), GroupError> {
        let call =
            Call { root: Some(from), to: Some(self.rank), ..call::<T>(OperationKind::Send, vector.len()) };
        match T::output(vector) {
            Output::Bytes(bytes) => self.exchange(from, call, Payload::Received(bytes)).await,
            Output::Booleans(vector) => {
                let mut bytes = vector.as_bytes().to_vec();
                self.exchange(from, call, Payload::Received(&mut bytes)).await?;
                store(vector, &bytes);
                Ok(())
            }
        }
    }

    async fn exchange(&mut self, other: usize, call: Call, payload: Payload<'_>) -> Result<(), GroupError> {
        if let Some(error) = &self.end {
            return Err(error.clone());
        }
        self.check_rank(other)?;
        if other == self.rank {
            return Err(GroupError::OwnRank { rank: other });
        }
        let (own, sequence, relays) = (self.rank, self.sequence, self.relays.shared());
        self.monitor.update(|waits| (waits.sequence, waits.call) = (sequence, Some(call)));
        let running = Running { sequence, group: self };
        let number = relays.lock().begin_call(other);
        let mut exchange = Exchange {
            own,
            other,
            number,
            call,
            payload,
            is_announced: false,
            has_begun: false,
            done: 0,
            blocks: 0,
        };
        let Self { links, relays: registered, monitor, .. } = &mut *running.group;
        let result = poll_fn(|cx| {
            registered.register(cx);
            for link in &mut *links {
                // What ends the next operation leaves a call before it alone.
                while link.poll_end(sequence.wrapping_sub(1), cx)? {}
            }
            let end = {
                let state = &mut *relays.lock();
                if exchange.advance(state)? {
                    return Poll::Ready(Ok(()));
                }
                state.end_of(other)
            };
            if monitor.is_watched() {
                monitor.update(|found| found.neighbours = vec![exchange.wait()]);
            }
            // Links take the lock themselves.
            end.map_or(Poll::Pending, |end| Poll::Ready(Err(exchange.reason(end, links))))
        })
        .await;
        if result.is_ok() {
            relays.lock().end_call();
        }
        running.finish(result)
    }
}

/// The vector of a call
enum Payload<'a> {
    Received(&'a mut [u8]),
    Sent(&'a [u8]),
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Received(bytes) => bytes.len(),
            Self::Sent(bytes) => bytes.len(),
        }
    }
}

/// A call under way
struct Exchange<'a> {
    own: usize,
    other: usize,
    /// The number of the call among those of the two ranks with each other
    number: u32,
    call: Call,
    payload: Payload<'a>,
    /// Whether this rank has announced the call to the other one
    is_announced: bool,
    /// Whether the other rank has made it
    has_begun: bool,
    /// How many bytes have been sent, or received
    done: usize,
    blocks: u32,
}

impl Exchange<'_> {
    /// Goes on until there is nothing to do before something arrives or has been taken; returns whether the call is done
    fn advance<D: Device>(&mut self, state: &mut State<D>) -> Result<bool, GroupError> {
        let (other, len) = (self.other, self.payload.len());
        if !std::mem::replace(&mut self.is_announced, true) {
            let begin = PairMessage::Call(self.header(None), &[]).encode();
            state.send_to(other, begin);
        }
        // What follows the last message of the call belongs to the next one.
        while (!self.has_begun || matches!(self.payload, Payload::Received(_)) && self.done < len)
            && let Some(message) = state.take_from(other)
        {
            self.take(&message)?;
        }
        if !self.has_begun {
            return Ok(false);
        }
        let Payload::Sent(vector) = self.payload else { return Ok(self.done == len) };
        let most = state.pair_bytes() - PairMessage::HEADER;
        while self.done < len && state.has_room_to(other) {
            let end = len.min(self.done + most);
            let block = PairMessage::Call(self.header(Some(self.blocks)), &vector[self.done..end]).encode();
            state.send_to(other, block);
            (self.done, self.blocks) = (end, self.blocks.wrapping_add(1));
        }
        Ok(self.done == len && state.unconfirmed_to(other) == 0)
    }

    fn header(&self, block: Option<u32>) -> Header {
        let block = block.map(|number| (CHANNEL, number));
        Header { sequence: self.number, call: self.call, block, wants_plan: false }
    }

    /// Takes a message of the other rank
    fn take(&mut self, message: &[u8]) -> Result<(), GroupError> {
        let (own, other, sequence) = (self.own, self.other, self.number);
        let protocol = GroupError::Protocol { rank: other, sequence };
        let (header, bytes) = match PairMessage::decode(message) {
            Some(PairMessage::Call(header, bytes)) if header.sequence == sequence => (header, bytes),
            Some(PairMessage::End(end)) => return Err(end.error),
            _ => return Err(protocol),
        };
        if header.call != self.call {
            let (ranks, calls) = ([own, other], [self.call, header.call]);
            return Err(GroupError::Mismatch { sequence, ranks, calls });
        }
        match (&mut self.payload, header.block) {
            (_, None) if !self.has_begun => self.has_begun = true,
            (Payload::Received(vector), Some((CHANNEL, number)))
                if self.has_begun && number == self.blocks =>
            {
                let place = vector.get_mut(self.done..self.done + bytes.len());
                place.filter(|place| !place.is_empty()).ok_or(protocol)?.copy_from_slice(bytes);
                (self.done, self.blocks) = (self.done + bytes.len(), number.wrapping_add(1));
            }
            _ => return Err(protocol),
        }
        Ok(())
    }

    fn wait(&self) -> Wait {
        let reason = match (self.has_begun, &self.payload) {
            (false, _) => WaitReason::Begin,
            (true, Payload::Received(_)) => WaitReason::Send,
            (true, Payload::Sent(_)) => WaitReason::Take,
        };
        Wait { rank: self.other, reason }
    }

    /// Why the other rank does not do its part any more: the session with a neighbour says why that is lost
    fn reason<D: Device>(&self, end: GroupError, links: &[Link<D>]) -> GroupError {
        if end != (GroupError::Lost { rank: self.other, reason: None }) {
            return end;
        }
        let link = links.iter().find(|link| link.rank == self.other);
        link.and_then(Link::gone).cloned().unwrap_or(end)
    }
}

/// The only one of a vector that goes over one way
const CHANNEL: Channel = Channel { tree: 0, is_up: false };
