//! The queue pairs of a connection and the memory that is posted on them
//!
//! The only module that posts. It keeps the promise that the verbs ask for: memory that a device works on is owned here,
//! or by the op table for the application's sends, until its completion has come or the queue pair is destroyed.

#![allow(unsafe_code, reason = "posting needs a promise about the memory")]

use std::collections::VecDeque;

use rdma_core::protocol::Trailer;
use rdma_core::{
    CompletionQueue, Device, FRAME, QpInit, QueuePair, RecvRequest, SendOp, SendRequest, Sge, Teardown, WrId,
};

use crate::error::SendError;
use crate::op_table::OpTable;
use crate::options::MAX_BULK_RECEIVES;
use crate::pool::{Effects, Lease, Zone};

pub(crate) type Ops = OpTable<Lease, SendError>;
type Qp<D> = <<D as Device>::Cq as CompletionQueue>::Qp;

/// Which request of a connection completed
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// The next bulk receive
    BulkRecv,
    /// The send of a bulk message, by op slot
    BulkSend(u32),
    /// The send of a message of the protocol
    Control(u32),
    /// An eager receive
    EagerRecv(u32),
    /// The send of an eager message, by op slot
    EagerSend(u32),
}

impl Request {
    /// The name of this request of connection number `connection`
    fn wr_id(self, connection: u32) -> WrId {
        let (kind, index) = match self {
            Self::BulkRecv => (0, 0),
            Self::BulkSend(slot) => (1, slot),
            Self::Control(index) => (2, index),
            Self::EagerRecv(index) => (3, index),
            Self::EagerSend(slot) => (4, slot),
        };
        WrId(u64::from(connection) << 32 | kind << 24 | u64::from(index))
    }

    /// Which connection and which of its requests `id` names
    pub(crate) fn parse(id: WrId) -> (u32, Option<Self>) {
        let index = id.0 as u32 & 0xff_ffff;
        let request = match id.0 >> 24 & 0xff {
            0 => Some(Self::BulkRecv),
            1 => Some(Self::BulkSend(index)),
            2 => Some(Self::Control(index)),
            3 => Some(Self::EagerRecv(index)),
            4 => Some(Self::EagerSend(index)),
            _ => None,
        };
        ((id.0 >> 32) as u32, request)
    }
}

/// Both queue pairs of a connection, and the memory that is posted on them, except for the application's sends
pub(crate) struct QueuePairs<D: Device> {
    connection: u32,
    eager: Qp<D>,
    bulk: Qp<D>,
    /// Eager receives, by index; `None` while the message is with the application.
    receives: Box<[Option<Lease>]>,
    vacant: Vec<u32>,
    /// Bulk receives, in the order in which they will complete.
    bulk_receives: VecDeque<Lease>,
    bulk_frames: u32,
    bulk_recv_capacity: u32,
    /// The lane on which the message of each op slot is posted; `None` while it waits, or is complete.
    sends: Vec<Option<Zone>>,
    /// One frame, divided into places for messages of the protocol.
    control: Option<Lease>,
    control_free: Vec<u32>,
}

/// Bytes of a place for a message of the protocol.
const CONTROL: usize = 64;
/// Places for messages of the protocol.
const CONTROLS: u32 = (FRAME / CONTROL) as u32;

impl<D: Device> QueuePairs<D> {
    /// Unconnected queue pairs, with space for `window` eager receives
    pub(crate) fn new(
        cq: &D::Cq,
        connection: u32,
        eager: &QpInit,
        bulk: &QpInit,
        window: u32,
        control: Lease,
    ) -> Result<Self, rdma_core::Error> {
        let eager = cq.create_qp(eager)?;
        let bulk = cq.create_qp(bulk)?;
        let bulk_recv_capacity = bulk.capacity().recv_frames;
        Ok(Self {
            connection,
            eager,
            bulk,
            receives: (0..window).map(|_| None).collect(),
            vacant: (0..window).rev().collect(),
            bulk_receives: VecDeque::with_capacity(MAX_BULK_RECEIVES as usize),
            bulk_frames: 0,
            bulk_recv_capacity,
            sends: Vec::new(),
            control: Some(control),
            control_free: (0..CONTROLS).rev().collect(),
        })
    }

    /// How many eager receives there are
    pub(crate) fn window(&self) -> usize {
        self.receives.len()
    }

    pub(crate) fn eager(&self) -> &Qp<D> {
        &self.eager
    }

    pub(crate) fn bulk(&self) -> &Qp<D> {
        &self.bulk
    }

    /// Offers a frame for the next eager message
    ///
    /// # Errors
    ///
    /// The device refused; the lease comes back.
    pub(crate) fn post_eager_recv(&mut self, lease: Lease) -> Result<(), (rdma_core::Error, Option<Lease>)> {
        let index = self.vacant.pop().expect("no more receives exist than places for them");
        let sgl = [lease.sge(FRAME)];
        let request = RecvRequest { id: Request::EagerRecv(index).wr_id(self.connection), sgl: &sgl };
        self.receives[index as usize] = Some(lease);
        // SAFETY: `&mut self` excludes other posts on the queue pair. The lease stays in `receives`, which hands out no bytes,
        // until `take_eager` on its completion, or until `settle` has quarantined it or `destroy` has proved the end.
        let posted = unsafe { self.eager.post_recv(&request) };
        posted.map_err(|error| (error, self.take_eager(index)))
    }

    /// The frame of a completed eager receive
    pub(crate) fn take_eager(&mut self, index: u32) -> Option<Lease> {
        let lease = self.receives.get_mut(index as usize)?.take()?;
        self.vacant.push(index);
        Some(lease)
    }

    /// Whether a bulk receive of `frames` frames can be posted now
    pub(crate) fn has_bulk_space(&self, frames: u32) -> bool {
        self.bulk_frames + frames <= self.bulk_recv_capacity
    }

    /// Offers exactly the frames of the next bulk message
    ///
    /// # Errors
    ///
    /// The device refused; the lease comes back.
    pub(crate) fn post_bulk_recv(&mut self, lease: Lease) -> Result<(), (rdma_core::Error, Option<Lease>)> {
        let frames = lease.frame_count();
        let sgl = [lease.sge(lease.len())];
        let request = RecvRequest { id: Request::BulkRecv.wr_id(self.connection), sgl: &sgl };
        self.bulk_receives.push_back(lease);
        // SAFETY: as for eager receives, with `bulk_receives` and `take_bulk`: completions come in the order of the posts.
        let posted = unsafe { self.bulk.post_recv(&request) };
        posted.map_err(|error| (error, self.bulk_receives.pop_back()))?;
        self.bulk_frames += frames;
        Ok(())
    }

    /// The buffer of the completed bulk receive, which is the oldest
    pub(crate) fn take_bulk(&mut self) -> Option<Lease> {
        let lease = self.bulk_receives.pop_front()?;
        self.bulk_frames -= lease.frame_count();
        Some(lease)
    }

    /// Whether a message of the protocol can be sent
    pub(crate) fn has_control(&self) -> bool {
        !self.control_free.is_empty()
    }

    /// Sends a message of the protocol
    pub(crate) fn send_control(
        &mut self,
        body: Option<u32>,
        trailer: Trailer,
    ) -> Result<(), rdma_core::Error> {
        let index = self.control_free.pop().expect("`poll_transmit` was told whether there is a place");
        let at = index as usize * CONTROL;
        let mut message = [0; 4 + Trailer::LEN];
        let at_trailer = if body.is_some() { 4 } else { 0 };
        message[..4].copy_from_slice(&body.unwrap_or(0).to_le_bytes());
        message[at_trailer..][..Trailer::LEN].copy_from_slice(&trailer.to_bytes());
        let len = at_trailer + Trailer::LEN;
        let control = self.control.as_mut().expect("only a destroyed connection has no places");
        control.write_at(at, &message[..len]);
        let whole = control.sge(FRAME);
        let sgl = [Sge { addr: whole.addr + at as u64, len: len as u32, ..whole }];
        let id = Request::Control(index).wr_id(self.connection);
        let request = SendRequest { id, op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: `&mut self` excludes other posts on the queue pair. The place is not among the free ones until its
        // completion gives it back; `destroy` ends the queue pair before it lets go of the lease of all places, or
        // quarantines that.
        unsafe { self.eager.post_send(&request) }
    }

    /// The message of the protocol at `index` has left; `None` if none was sent from there
    pub(crate) fn control_sent(&mut self, index: u32) -> Option<()> {
        let was_posted = index < CONTROLS && !self.control_free.contains(&index);
        was_posted.then(|| self.control_free.push(index))
    }

    /// Sends the message in op slot `slot`, with `trailer` behind it on the eager lane
    ///
    /// # Errors
    ///
    /// The device refused; the message is still in its slot.
    pub(crate) fn send(
        &mut self,
        ops: &mut Ops,
        slot: u32,
        trailer: Option<Trailer>,
    ) -> Result<(), rdma_core::Error> {
        let lease = ops.buffer(slot).expect("a message that was queued is in its slot");
        let mut len = lease.len();
        let (lane, qp, request) = match trailer {
            Some(trailer) => {
                lease.write_at(len, &trailer.to_bytes());
                len += Trailer::LEN;
                (Zone::Eager, &self.eager, Request::EagerSend(slot))
            }
            None => (Zone::Bulk, &self.bulk, Request::BulkSend(slot)),
        };
        let sgl = [lease.sge(len)];
        let request =
            SendRequest { id: request.wr_id(self.connection), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: `&mut self` excludes other posts on the queue pair. The slot owns the lease until the completion of this
        // request, and until then its bytes are not written; the slots are emptied only after `destroy`, and quarantined if it
        // proved nothing.
        unsafe { qp.post_send(&request) }?;
        let slot = slot as usize;
        if slot >= self.sends.len() {
            self.sends.resize(slot + 1, None);
        }
        self.sends[slot] = Some(lane);
        Ok(())
    }

    /// The message in op slot `slot` has left on `lane`; `None` if it was not posted there
    pub(crate) fn sent(&mut self, slot: u32, lane: Zone) -> Option<()> {
        let posted = self.sends.get_mut(slot as usize)?;
        (*posted == Some(lane)).then(|| *posted = None)
    }

    /// Ends both queue pairs
    ///
    /// Posted receives go back to the pool, or stay out of it if the device may still touch them
    /// ([`Teardown::Unknown`]); then the sends in the op table must stay out of it, too.
    pub(crate) fn destroy(&mut self, effects: &mut Effects) -> Teardown {
        let eager = self.eager.destroy();
        let bulk = self.bulk.destroy();
        settle(eager, self.receives.iter_mut().filter_map(Option::take).chain(self.control.take()), effects);
        settle(bulk, self.bulk_receives.drain(..), effects);
        if eager == Teardown::Quiesced { bulk } else { eager }
    }
}

impl<D: Device> Drop for QueuePairs<D> {
    fn drop(&mut self) {
        let mut effects = Effects::new();
        let _ = self.destroy(&mut effects);
        effects.run_alone();
    }
}

fn settle(teardown: Teardown, leases: impl IntoIterator<Item = Lease>, effects: &mut Effects) {
    match teardown {
        Teardown::Quiesced => effects.drop(leases),
        Teardown::Unknown => leases.into_iter().for_each(|lease| lease.quarantine(effects)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_again_by_its_name() {
        for request in [
            Request::BulkRecv,
            Request::BulkSend(7),
            Request::Control(63),
            Request::EagerRecv(4095),
            Request::EagerSend(0xff_ffff),
        ] {
            assert_eq!(Request::parse(request.wr_id(0xdead_beef)), (0xdead_beef, Some(request)));
        }
    }
}
