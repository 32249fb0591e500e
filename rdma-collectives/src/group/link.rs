//! The streams to a neighbour

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use rdma_async::future::{Recv, Send};
use rdma_async::{Device, Lease, Message, Session, Stream};

use super::error::GroupError;
use super::wire::{Control, Header};

/// How many messages can be under way to a neighbour, each in a lease of its own.
pub(crate) const MAX_MESSAGES: usize = 8;
/// How many bytes are under way to a neighbour before the next message waits: as many as keep the cable busy, and no more, because what
/// is more urgent queues behind them.
const MAX_BYTES: usize = 384 << 10;

/// A neighbour, and what is under way to it
pub(crate) struct Link<D: Device> {
    pub(crate) rank: usize,
    pub(crate) session: Session<D>,
    data: Stream<D>,
    control: Stream<D>,
    recv: Recv<D>,
    /// `None` once the neighbour sends no more
    recv_control: Option<Recv<D>>,
    spare: Vec<Lease>,
    sends: VecDeque<(usize, Send<D>)>,
    /// The sum of the lengths of `sends`
    sending: usize,
    spare_control: Option<Lease>,
    send_control: Option<Send<D>>,
    /// The first message of the next operation, which arrived during this one
    pub(crate) early: Option<Block>,
}

/// The longest message that takes room of the share of its stream at the receiver, in bytes.
const MAX_EAGER: usize = 68_544;

/// A message that arrived; a short one is copied, so that none waits for its share of the stream until it is used
pub(crate) enum Block {
    Heap(Box<[u8]>),
    Lease(Lease),
}

impl Block {
    fn new(message: Message) -> Self {
        let message = if message.len() > MAX_EAGER { message.into_lease() } else { Err(message) };
        match message {
            Ok(lease) => Self::Lease(lease),
            Err(message) => Self::Heap(Box::from(&*message)),
        }
    }

    pub(crate) fn message(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Lease(lease) => lease,
        }
    }

    /// What stands behind the header
    pub(crate) fn payload(&self) -> &[u8] {
        self.message().get(Header::LEN..).unwrap_or_default()
    }
}

impl<D: Device> Link<D> {
    /// A link over these streams, with [`MAX_MESSAGES`] leases for blocks and one for control
    pub(crate) fn new(
        rank: usize,
        session: Session<D>,
        [data, control]: [Stream<D>; 2],
        spare: Vec<Lease>,
        spare_control: Lease,
    ) -> Self {
        let (recv, recv_control) = (data.recv(), Some(control.recv()));
        Self {
            rank,
            session,
            data,
            control,
            recv,
            recv_control,
            spare,
            sends: VecDeque::new(),
            sending: 0,
            spare_control: Some(spare_control),
            send_control: None,
            early: None,
        }
    }

    /// The next message of operations
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Block, GroupError>> {
        if let Some(early) = self.early.take() {
            return Poll::Ready(Ok(early));
        }
        let rank = self.rank;
        Pin::new(&mut self.recv).poll(cx).map(|received| match received {
            Ok(Some(message)) => Ok(Block::new(message)),
            Ok(None) => Err(GroupError::Left { rank }),
            Err(error) => Err(GroupError::of_recv(rank, error)),
        })
    }

    /// The next message beside the data; pending for ever when the neighbour sends no more
    pub(crate) fn poll_control(&mut self, cx: &mut Context<'_>) -> Poll<Control> {
        while let Some(recv) = &mut self.recv_control {
            match Pin::new(recv).poll(cx) {
                Poll::Ready(Ok(Some(message))) => {
                    if let Some(control) = Control::decode(&message) {
                        return Poll::Ready(control);
                    }
                }
                // What is needed of the neighbour is found missing by `poll_message`.
                Poll::Ready(_) => self.recv_control = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }

    /// Takes back the leases of what has been sent; returns whether there are any
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let rank = self.rank;
        let mut has_progress = false;
        let mut index = 0;
        while let Some((len, send)) = self.sends.get_mut(index) {
            match Pin::new(send).poll(cx) {
                Poll::Ready(Ok(lease)) => {
                    self.sending -= *len;
                    self.spare.push(lease);
                    self.sends.remove(index);
                    has_progress = true;
                }
                Poll::Ready(Err(failed)) => {
                    self.sends.remove(index);
                    return Err(GroupError::of_send(rank, failed.error));
                }
                Poll::Pending => index += 1,
            }
        }
        if let Some(send) = &mut self.send_control
            && let Poll::Ready(sent) = Pin::new(send).poll(cx)
        {
            self.send_control = None;
            // Without a lease no more credit is sent: the neighbour takes none any more.
            self.spare_control = sent.ok();
            has_progress = true;
        }
        Ok(has_progress)
    }

    /// Whether another message may be under way
    pub(crate) fn has_room(&self) -> bool {
        !self.spare.is_empty() && self.sending < MAX_BYTES
    }

    /// A lease for the next message, if there is [room](Self::has_room)
    pub(crate) fn take_spare(&mut self) -> Option<Lease> {
        self.spare.pop()
    }

    /// Queues a block
    pub(crate) fn send(&mut self, lease: Lease, cx: &mut Context<'_>) -> Result<(), GroupError> {
        self.sending += lease.len();
        self.sends.push_back((lease.len(), self.data.send(lease)));
        self.poll_sent(cx).map(drop)
    }

    /// Queues a control message; returns whether there was room
    pub(crate) fn send_control(
        &mut self,
        control: &Control,
        cx: &mut Context<'_>,
    ) -> Result<bool, GroupError> {
        let Some(mut lease) = self.spare_control.take() else { return Ok(false) };
        lease.clear();
        lease.extend_from_slice(&control.encode());
        self.send_control = Some(self.control.send(lease));
        self.poll_sent(cx)?;
        Ok(true)
    }

    /// Sends the last message, if the neighbour can still be reached
    pub(crate) fn end(&mut self, error: &GroupError) {
        let lease = self.spare_control.take().or_else(|| self.session.try_alloc(Control::LEN).ok());
        let Some(mut lease) = lease.or_else(|| self.spare.pop()) else { return };
        lease.clear();
        lease.extend_from_slice(&Control::End(error.clone()).encode());
        // Fails if the neighbour is lost, or has left.
        let _ = self.control.try_send(lease);
    }
}
