//! The streams to a neighbour

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_async::future::{Recv, Send};
use rdma_async::{Device, Lease, Runtime, SendError, Session, Stream};

use super::block::Block;
use super::error::GroupError;
use super::wire::{Credit, End, LEAVING};

/// How many messages can be under way to a neighbour, each in a lease of its own.
pub(crate) const MAX_MESSAGES: usize = 8;
/// How many bytes are under way over each cable to a neighbour before the next message waits: as many as keep the cable busy, and no
/// more, because more urgent messages queue behind them. The leases of [`MAX_MESSAGES`] bound both for more than two cables.
const MAX_BYTES: usize = 384 << 10;
/// How many messages may be under way over each cable whatever their length: one crosses it while others are announced and granted.
const MIN_MESSAGES: usize = 3;

/// The streams of a link, from the time of joining on
pub(crate) struct Streams<D: Device> {
    /// Messages of operations
    pub(crate) data: Stream<D>,
    /// Credit for these
    pub(crate) credit: Stream<D>,
    /// Why the group is over, and that the rank has left: at most these two go without waiting, so there is always a place. A rank whose
    /// attempt to go on has failed waits for one, to say that it has.
    pub(crate) end: Arc<Stream<D>>,
}

/// The memory for what a link sends
pub(crate) struct Leases {
    pub(crate) data: Vec<Lease>,
    pub(crate) credit: Lease,
    pub(crate) end: Lease,
    pub(crate) leaving: Lease,
}

/// A neighbour, and what is under way to it
pub(crate) struct Link<D: Device> {
    pub(crate) rank: usize,
    /// The rank of this side
    own: usize,
    /// How many cables lead to the neighbour
    pub(crate) cables: usize,
    streams: Streams<D>,
    recv: Recv<D>,
    /// Whether the neighbour sends no more messages of operations
    has_ended: bool,
    /// `None` once the neighbour sends no more
    recv_credit: Option<Recv<D>>,
    recv_end: Recv<D>,
    /// Why the group is over at the neighbour, as it says
    end: Option<End>,
    /// Why the neighbour is gone
    gone: Option<GroupError>,
    has_left: bool,
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
        self.streams.data.runtime()
    }

    /// A link from rank `own` to rank `rank`
    pub(crate) fn new([own, rank]: [usize; 2], streams: Streams<D>, leases: Leases) -> Self {
        Self {
            rank,
            own,
            cables: 1,
            recv: streams.data.recv(),
            has_ended: false,
            recv_credit: Some(streams.credit.recv()),
            recv_end: streams.end.recv(),
            end: None,
            gone: None,
            has_left: false,
            streams,
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
        self.streams.data.session()
    }

    /// The stream of ends, on which the neighbour says that it has left
    pub(crate) fn end_stream(&self) -> Arc<Stream<D>> {
        Arc::clone(&self.streams.end)
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
        if self.gone.is_none()
            && let Poll::Ready(received) = Pin::new(&mut self.recv_end).poll(cx)
        {
            has_progress = true;
            match received {
                Ok(Some(message)) if *message == LEAVING => {
                    self.has_left = true;
                    self.gone = Some(GroupError::Left { rank });
                }
                Ok(Some(message)) => {
                    let wrong = || End { error: GroupError::Protocol { rank, sequence }, sequence };
                    // The first says why.
                    self.end.get_or_insert_with(|| End::decode(&message).unwrap_or_else(wrong));
                }
                Ok(None) => self.gone = Some(GroupError::Left { rank }),
                Err(error) => self.gone = Some(GroupError::of_recv(rank, error)),
            }
        }
        has_progress
    }

    /// Whether the neighbour has said that it goes on in no other group
    pub(crate) fn has_left(&self) -> bool {
        self.has_left
    }

    /// Why the neighbour does nothing more; it may have done all of its part before
    pub(crate) fn gone(&self) -> Option<&GroupError> {
        self.gone.as_ref()
    }

    /// Why the group is over at the neighbour, as far as it has said so
    pub(crate) fn over(&self) -> Option<&GroupError> {
        self.end.as_ref().map(|end| &end.error).or_else(|| self.gone.as_ref().filter(|_| self.has_left))
    }

    /// Whether the neighbour sends no more messages of operations
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the neighbour did not take a message
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The next message of operations; pending for ever when the neighbour sends no more
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Block> {
        if !self.has_ended {
            match Pin::new(&mut self.recv).poll(cx) {
                Poll::Ready(Ok(Some(message))) => return Poll::Ready(Block::new(message)),
                // The end of the stream of ends says why.
                Poll::Ready(_) => self.has_ended = true,
                Poll::Pending => (),
            }
        }
        Poll::Pending
    }

    /// Expects that each of the messages of operations at `places` has `len` bytes
    pub(crate) fn expect(&self, len: usize, places: Range<u32>) {
        // Without memory to spare they are announced.
        let _ = self.streams.data.expect(len, places.start as usize..places.end as usize);
    }

    /// The next credit; pending for ever when the neighbour sends no more
    pub(crate) fn poll_credit(
        &mut self,
        sequence: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Credit, GroupError>> {
        if let Some(recv) = &mut self.recv_credit {
            match Pin::new(recv).poll(cx) {
                Poll::Ready(Ok(Some(message))) => {
                    let wrong = GroupError::Protocol { rank: self.rank, sequence };
                    return Poll::Ready(Credit::decode(&message).ok_or(wrong));
                }
                Poll::Ready(_) => self.recv_credit = None,
                Poll::Pending => (),
            }
        }
        Poll::Pending
    }

    /// Takes back the leases of what has been sent; returns whether there are any
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let mut has_progress = false;
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
                Err(_) => self.has_failed = true,
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

    /// Whether another message may be under way
    pub(crate) fn has_room(&self) -> bool {
        let has_place =
            self.sending < self.cables * MAX_BYTES || self.sends.len() < self.cables * MIN_MESSAGES;
        has_place && !self.spare.is_empty() && !self.has_failed
    }

    /// Whether everything is sent without another poll
    ///
    /// A stream has a place for one message at least, and gives places in turn: the last of several may still wait for one.
    pub(crate) fn is_queued(&self) -> bool {
        self.sends.len() <= 1 && !self.has_failed
    }

    /// A lease for the next message, if there is [room](Self::has_room)
    pub(crate) fn take_spare(&mut self) -> Option<Lease> {
        self.spare.pop()
    }

    /// Queues a message of an operation
    pub(crate) fn send(&mut self, lease: Lease, cx: &mut Context<'_>) -> Result<(), GroupError> {
        self.sending += lease.len();
        self.sends.push_back((lease.len(), self.streams.data.send(lease)));
        self.poll_sent(cx).map(drop)
    }

    /// Queues credit; returns whether there was room
    pub(crate) fn send_credit(&mut self, credit: Credit, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let Some(mut lease) = self.spare_credit.take() else { return Ok(false) };
        lease.clear();
        lease.extend_from_slice(&credit.encode());
        self.send_credit = Some(self.streams.credit.send(lease));
        self.poll_sent(cx)?;
        Ok(true)
    }

    /// Says why the group is over, if the neighbour can still be reached
    pub(crate) fn end(&mut self, end: &End) {
        if let Some(mut lease) = self.spare_end.take() {
            lease.clear();
            lease.extend_from_slice(&end.encode());
            // Fails if the neighbour is lost, or has left.
            let _ = self.streams.end.try_send(lease);
        }
    }
}

impl<D: Device> Drop for Link<D> {
    fn drop(&mut self) {
        if let Some(mut lease) = self.leaving.take_if(|_| self.is_last) {
            lease.clear();
            lease.extend_from_slice(&LEAVING);
            // Fails if the neighbour is lost, or has left.
            let _ = self.streams.end.try_send(lease);
        }
    }
}
