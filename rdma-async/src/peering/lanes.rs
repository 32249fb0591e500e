//! The queue pairs of a path and the memory that is posted on them
//!
//! The only module that posts. It keeps the promise that the verbs ask for: memory that a device works on is owned here,
//! or by the tables of the peering, until its completion has come or the path has stopped.

#![allow(unsafe_code, reason = "posting needs a promise about the memory")]

use std::collections::VecDeque;
use std::sync::Arc;

use rdma_core::session::{BulkTrailer, MAX_SLOTS};
use rdma_core::{
    CompletionQueue, Device, FRAME, QpAddress, QpCapacity, QpInit, QueuePair, RecvRequest, SendOp,
    SendRequest, Sge, Teardown, WrId,
};

use crate::pool::{AdoptedMemory, Lease, Registration};

type Qp<D> = <<D as Device>::Cq as CompletionQueue>::Qp;

/// Which request of a path completed
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// The oldest receive of the bulk lane
    BulkReceive,
    /// The send of bytes of a message, by number of the message
    BulkPayload(u32),
    /// The send of a trailer on the bulk lane
    BulkTrailer,
    /// The send of a packet, by number of its frame
    Packet(u16),
    /// A receive of the eager lane
    Receive(u16),
}

impl Request {
    /// The name of this request of path `path`
    fn wr_id(self, path: u32) -> WrId {
        let (kind, index) = match self {
            Self::BulkReceive => (0, 0),
            Self::BulkPayload(message) => (1, message),
            Self::BulkTrailer => (2, 0),
            Self::Packet(frame) => (3, frame.into()),
            Self::Receive(index) => (4, index.into()),
        };
        WrId(u64::from(path) << 32 | kind << 28 | u64::from(index))
    }

    /// Which path and which of its requests `id` names
    pub(crate) fn parse(id: WrId) -> (u32, Option<Self>) {
        let index = id.0 as u32 & 0xfff_ffff;
        let request = match id.0 >> 28 & 0xf {
            0 => Some(Self::BulkReceive),
            1 => Some(Self::BulkPayload(index)),
            2 => Some(Self::BulkTrailer),
            3 => u16::try_from(index).ok().map(Self::Packet),
            4 => u16::try_from(index).ok().map(Self::Receive),
            _ => None,
        };
        ((id.0 >> 32) as u32, request)
    }
}

/// Tokens of messages are below this: the ID of a work request has 28 bits for them.
pub(super) const MAX_TOKENS: u32 = SCRATCH;
/// Stands for the message in bulk sends from the scratch lease; the receiver discards these bytes.
pub(super) const SCRATCH: u32 = (1 << 28) - 1;

/// Both lanes of a path
pub(crate) struct Lanes<D: Device> {
    key: u32,
    eager: Qp<D>,
    bulk: Qp<D>,
    /// The pool, then adopted memory, and whether receives may name it: Apple's device does not write to memory that was registered
    /// after its queue pair was set up (field reports).
    registrations: Vec<(Registration<D>, bool)>,
    /// Receives of the eager lane, by index.
    receives: Box<[Option<Lease>]>,
    /// Receives of the bulk lane, oldest first.
    bulk_receives: VecDeque<BulkReceive>,
    /// The payload that the bulk lane has received without its trailer: the buffer, the offset and the length.
    pub(super) payload: Option<(u32, u64, u32)>,
    /// The message of each payload that is posted for sending on the bulk lane, oldest first.
    bulk_sends: VecDeque<u32>,
    /// Places for the trailers of the bulk lane: those that are received, then those that are sent.
    trailers: Option<Lease>,
    /// How many trailers were posted for receiving, and for sending.
    trailer_count: [u32; 2],
    /// How many sends of trailers have not completed.
    trailer_sends: u32,
    /// The device and its completion queue, which go last.
    port: Arc<dyn DeviceHandle<D>>,
}

/// Keeps a device open
pub(crate) trait DeviceHandle<D>: Send + Sync {
    fn device(&self) -> &D;
}

/// A receive of the bulk lane
#[derive(Clone, Copy, Debug)]
pub(super) enum BulkReceive {
    /// Bytes of a message that arrives: the key of its buffer, where and how many
    Payload { buffer: u32, offset: u64, len: u32 },
    /// In a place for trailers
    Trailer { place: u32 },
}

/// Bytes of a place for a trailer.
const PLACE: usize = 64;
const _: () = assert!(BulkTrailer::LEN <= PLACE && 2 * MAX_SLOTS as usize * PLACE <= FRAME);

impl<D: Device> Lanes<D> {
    /// Unconnected queue pairs, with the memory of the pool, adopted memory, and that for the trailers of the bulk lane
    pub(crate) fn new(
        cq: &D::Cq,
        key: u32,
        eager: &QpInit,
        bulk: &QpInit,
        registrations: Vec<Registration<D>>,
        trailers: Lease,
        port: Arc<dyn DeviceHandle<D>>,
    ) -> Result<Self, rdma_core::Error> {
        Ok(Self {
            key,
            eager: cq.create_qp(eager)?,
            bulk: cq.create_qp(bulk)?,
            registrations: registrations.into_iter().map(|registration| (registration, true)).collect(),
            receives: Box::default(),
            bulk_receives: VecDeque::with_capacity(2 * MAX_SLOTS as usize),
            payload: None,
            bulk_sends: VecDeque::with_capacity(MAX_SLOTS as usize),
            trailers: Some(trailers),
            trailer_count: [0; 2],
            trailer_sends: 0,
            port,
        })
    }

    /// Registers memory of the application, unless it is; from now on, it can be sent from
    pub(super) fn adopt(&mut self, memory: &AdoptedMemory) -> Result<(), rdma_core::Error> {
        if !self.registrations.iter().any(|(registration, _)| registration.is_of(memory)) {
            self.registrations.push((Registration::adopted(memory, self.port.device())?, false));
        }
        Ok(())
    }

    /// Forgets all memory of the application but this; of the other there is no lease
    pub(super) fn retain_adopted(&mut self, adopted: &[AdoptedMemory]) -> Vec<AdoptedMemory> {
        // Behind that of the pool.
        let forgotten = self
            .registrations
            .extract_if(1.., |(registration, _)| !adopted.iter().any(|memory| registration.is_of(memory)));
        forgotten.map(|(registration, _)| registration.into_memory()).collect()
    }

    /// Whether receives may name `lease`
    pub(super) fn receives_into(&self, lease: &Lease) -> bool {
        self.registrations.iter().any(|(registration, is_early)| *is_early && registration.holds(lease))
    }

    fn pool(&self) -> &Registration<D> {
        &self.registrations[0].0
    }

    /// `len` bytes at `offset` of a lease, as the device names them; registers memory that was adopted while the path was being made
    fn sge(&mut self, lease: &Lease, offset: usize, len: usize) -> Result<Sge, rdma_core::Error> {
        let known = self.registrations.iter().position(|(registration, _)| registration.holds(lease));
        let index = match known {
            Some(index) => index,
            None => {
                let registration = Registration::of(lease, self.port.device())?;
                self.registrations.push((registration, false));
                self.registrations.len() - 1
            }
        };
        Ok(self.registrations[index].0.sge(lease, offset, len))
    }

    /// The name of the path in requests
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    pub(crate) fn device(&self) -> &D {
        self.port.device()
    }

    /// The addresses of the eager and of the bulk queue pair
    pub(crate) fn addresses(&self) -> [QpAddress; 2] {
        [self.eager.address(), self.bulk.address()]
    }

    /// What the device granted for the eager and for the bulk lane
    pub(crate) fn capacities(&self) -> [QpCapacity; 2] {
        [self.eager.capacity(), self.bulk.capacity()]
    }

    /// Connects both queue pairs to those of the peer
    pub(crate) fn connect(&self, [eager, bulk]: &[QpAddress; 2]) -> Result<(), rdma_core::Error> {
        self.eager.connect(eager)?;
        self.bulk.connect(bulk)
    }

    /// Posts the receives of the eager lane
    pub(crate) fn open(&mut self, leases: Vec<Lease>) -> Result<(), rdma_core::Error> {
        self.receives = leases.iter().map(|_| None).collect();
        leases.into_iter().enumerate().try_for_each(|(index, lease)| self.post_receive(index as u16, lease))
    }

    /// Offers a frame for the next packet, under a number that is free
    pub(super) fn post_receive(&mut self, index: u16, lease: Lease) -> Result<(), rdma_core::Error> {
        let sgl = [self.pool().sge(&lease, 0, FRAME)];
        let request = RecvRequest { id: Request::Receive(index).wr_id(self.key), sgl: &sgl };
        let place = &mut self.receives[index as usize];
        debug_assert!(place.is_none(), "the number is free");
        *place = Some(lease);
        // SAFETY: `&mut self` excludes other posts on the queue pair. The lease stays in `receives`, which hands out no bytes,
        // until `take_receive` on its completion, or until `stop` has quarantined it or proved the end.
        unsafe { self.eager.post_recv(&request) }
    }

    /// The frame of a completed receive of the eager lane
    pub(super) fn take_receive(&mut self, index: u16) -> Option<Lease> {
        self.receives.get_mut(index as usize)?.take()
    }

    /// Offers `len` bytes at `offset` of `lease`, which stays in its table until the receive has completed
    pub(super) fn post_bulk_receive(
        &mut self,
        buffer: u32,
        lease: &Lease,
        offset: u64,
        len: u32,
    ) -> Result<(), rdma_core::Error> {
        let sge = self.sge(lease, offset as usize, len as usize)?;
        self.push_bulk_receive(BulkReceive::Payload { buffer, offset, len }, sge)
    }

    /// Offers a place for a trailer
    pub(super) fn post_trailer_receive(&mut self) -> Result<(), rdma_core::Error> {
        let place = self.trailer_count[0] % MAX_SLOTS;
        self.trailer_count[0] += 1;
        let trailers = self.trailers.as_ref().expect("a path that has not stopped has places");
        let sge = self.pool().sge(trailers, place as usize * PLACE, PLACE);
        self.push_bulk_receive(BulkReceive::Trailer { place }, sge)
    }

    fn push_bulk_receive(&mut self, receive: BulkReceive, sge: Sge) -> Result<(), rdma_core::Error> {
        self.bulk_receives.push_back(receive);
        let request = RecvRequest { id: Request::BulkReceive.wr_id(self.key), sgl: &[sge] };
        // SAFETY: `&mut self` excludes other posts on the queue pair. The bytes belong to a buffer that its table keeps while
        // receives are posted for it, or to `trailers`, until the completion of this receive or `stop`.
        let posted = unsafe { self.bulk.post_recv(&request) };
        if posted.is_err() {
            self.bulk_receives.pop_back();
        }
        posted
    }

    /// The oldest receive of the bulk lane, which has completed
    pub(super) fn take_bulk_receive(&mut self) -> Option<BulkReceive> {
        self.bulk_receives.pop_front()
    }

    /// The trailer that was received in a place
    pub(super) fn trailer(&self, place: u32, len: usize) -> &[u8] {
        let trailers = self.trailers.as_ref().expect("a path that has not stopped has places");
        trailers.part(place as usize * PLACE, len.min(PLACE))
    }

    /// Sends the first `len` bytes of the frame with number `frame`
    pub(super) fn send_packet(
        &mut self,
        frame: u16,
        lease: &Lease,
        len: usize,
    ) -> Result<(), rdma_core::Error> {
        let sge = self.pool().sge(lease, 0, len);
        let id = Request::Packet(frame).wr_id(self.key);
        let request = SendRequest { id, op: SendOp::Send, sgl: &[sge], signaled: true };
        // SAFETY: `&mut self` excludes other posts on the queue pair. The frame is noted as posted on this path, and not written
        // until the completion of this request or `stop`.
        unsafe { self.eager.post_send(&request) }
    }

    /// Sends `len` bytes at `offset` of the message with number `message`
    pub(super) fn send_bulk(
        &mut self,
        message: u32,
        lease: &Lease,
        offset: usize,
        len: usize,
    ) -> Result<(), rdma_core::Error> {
        let sge = self.sge(lease, offset, len)?;
        let id = Request::BulkPayload(message).wr_id(self.key);
        let request = SendRequest { id, op: SendOp::Send, sgl: &[sge], signaled: true };
        // SAFETY: `&mut self` excludes other posts on the queue pair. The message stays in its table, which counts the posts, and
        // is not written until the completion of this request or `stop`.
        unsafe { self.bulk.post_send(&request) }?;
        self.bulk_sends.push_back(message);
        Ok(())
    }

    /// Notes that the bytes of `message` have been sent; false if others were posted before
    pub(super) fn take_bulk_send(&mut self, message: u32) -> bool {
        self.bulk_sends.pop_front_if(|first| *first == message).is_some()
    }

    /// Sends a trailer on the bulk lane
    pub(super) fn send_trailer(&mut self, trailer: &[u8]) -> Result<(), rdma_core::Error> {
        // At most `MAX_SLOTS` trailers are under way: the send of the one that was here has completed.
        let place = MAX_SLOTS + self.trailer_count[1] % MAX_SLOTS;
        self.trailer_count[1] += 1;
        let at = place as usize * PLACE;
        let trailers = self.trailers.as_mut().expect("a path that has not stopped has places");
        trailers.write_at(at, trailer);
        let sge = self.registrations[0].0.sge(trailers, at, trailer.len());
        let id = Request::BulkTrailer.wr_id(self.key);
        let request = SendRequest { id, op: SendOp::Send, sgl: &[sge], signaled: true };
        // SAFETY: `&mut self` excludes other posts on the queue pair. The place is written again only after the completion of
        // this request.
        unsafe { self.bulk.post_send(&request) }?;
        self.trailer_sends += 1;
        Ok(())
    }

    /// Notes that a trailer has been sent; false if none was posted
    pub(super) fn take_trailer_send(&mut self) -> bool {
        let is_posted = self.trailer_sends > 0;
        self.trailer_sends -= u32::from(is_posted);
        is_posted
    }

    /// Destroys both queue pairs and deregisters the memory; whether one or the other proves that the device has stopped
    fn quiesce(&mut self) -> bool {
        let destroyed = [self.eager.destroy(), self.bulk.destroy()];
        let registrations = self.registrations.iter_mut();
        let is_unknown = registrations.fold(false, |is_unknown, (registration, _)| {
            is_unknown | (registration.deregister() == Teardown::Unknown)
        });
        destroyed == [Teardown::Quiesced; 2] || !is_unknown
    }

    /// Ends the path; returns what was posted, and whether it may be used again
    pub(super) fn stop(mut self) -> Stopped {
        let is_quiesced = self.quiesce();
        let leases = self.receives.iter_mut().filter_map(Option::take).chain(self.trailers.take()).collect();
        let bulk_receives = std::mem::take(&mut self.bulk_receives);
        let adopted = self.retain_adopted(&[]);
        Stopped {
            adopted,
            is_quiesced,
            leases,
            bulk_receives,
            bulk_sends: std::mem::take(&mut self.bulk_sends),
        }
    }
}

/// What a path leaves behind
pub(super) struct Stopped {
    /// Whether the device has proved that it works on nothing any more
    pub(super) is_quiesced: bool,
    /// Frames that were posted
    pub(super) leases: Vec<Lease>,
    pub(super) bulk_receives: VecDeque<BulkReceive>,
    /// Memory of the application that was registered, to be dropped after unlocking
    pub(super) adopted: Vec<AdoptedMemory>,
    /// Messages that were posted on the bulk lane, once for each post
    pub(super) bulk_sends: VecDeque<u32>,
}

impl<D: Device> Drop for Lanes<D> {
    /// A path that was never handed to a peering has nothing posted but what it owns
    fn drop(&mut self) {
        if !self.quiesce() {
            let leases = self.receives.iter_mut().filter_map(Option::take).chain(self.trailers.take());
            // The device may still write there.
            leases.for_each(std::mem::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_again_by_its_name() {
        for request in [
            Request::BulkReceive,
            Request::BulkPayload(SCRATCH),
            Request::BulkTrailer,
            Request::Packet(u16::MAX),
            Request::Receive(u16::MAX),
        ] {
            assert_eq!(Request::parse(request.wr_id(0xdead_beef)), (0xdead_beef, Some(request)));
        }
    }
}
