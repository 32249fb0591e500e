//! The queue pairs of a path and the memory that is posted on them
//!
//! The only module that posts. It keeps the promise that the verbs ask for: memory that a device works on is owned here,
//! or by the tables of the peering, until its completion has come or the path has stopped.

#![allow(unsafe_code, reason = "posting needs a promise about the memory")]

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use rdma_core::session::{BulkTrailer, MAX_SLOTS};
use rdma_core::{
    CompletionQueue, Device, FRAME, QpAddress, QpCapacity, QpInit, QueuePair, RecvRequest, SendOp,
    SendRequest, Sge, Teardown, WrId, frames,
};

use super::post_queue::{Post, PostQueue, Refused};
use super::posted::{BulkReceive, BulkSend, Posted};
use super::request::Request;
use super::staging::Staging;
use crate::blocked_call::DeviceCall;
use crate::device_calls::DeviceCalls;
use crate::pool::{AdoptedMemory, Lease, Registration};

type Qp<D> = <<D as Device>::Cq as CompletionQueue>::Qp;

/// Both lanes of a path
pub(crate) struct Lanes<D: Device> {
    key: u32,
    /// `None` once the path has ended.
    hardware: Option<Hardware<D>>,
    calls: Arc<DeviceCalls>,
    /// Kept alive until the device has given up all of the path.
    pub(crate) attempt: Weak<dyn Send + Sync>,
    /// That of the path; shared, because under the lock no subscriber is called
    pub(crate) span: Arc<tracing::Span>,
    eager_sends: PostQueue,
    eager_receives: PostQueue,
    bulk_sends_posted: PostQueue,
    bulk_receives_posted: PostQueue,
    /// Receives of the eager lane, by index.
    receives: Box<[Option<Lease>]>,
    /// Receives of the bulk lane, oldest first.
    bulk_receives: VecDeque<BulkReceive>,
    /// The payload that the bulk lane has received without its trailer: the buffer, the offset and the length.
    pub(super) payload: Option<(u32, u64, u32)>,
    /// The payloads that are posted for sending on the bulk lane, oldest first.
    bulk_sends: VecDeque<BulkSend>,
    /// Memory for payloads of messages on the heap.
    staging: Staging,
    /// Places for the trailers of the bulk lane: those that are received, then those that are sent.
    trailers: Option<Lease>,
    /// How many trailers were posted for receiving, and for sending.
    trailer_count: [u32; 2],
    /// How many sends of trailers have not completed.
    trailer_sends: u32,
}

/// What the device has for a path; dropping it may block
pub(crate) struct Hardware<D: Device> {
    // In the order in which they must go.
    eager: Qp<D>,
    bulk: Qp<D>,
    /// The pool, then adopted memory, and whether receives may name it: Apple's device does not write to memory that was registered
    /// after its queue pair was set up (field reports).
    registrations: Vec<(Registration<D>, bool)>,
    /// The device and its completion queue
    port: Arc<dyn DeviceHandle<D>>,
}

/// The hardware of a path that has not ended; a function, so that other fields can be borrowed mutably
fn live<D: Device>(hardware: &Option<Hardware<D>>) -> &Hardware<D> {
    hardware.as_ref().expect("the path has not ended")
}

impl<D: Device> Hardware<D> {
    /// Notes the depth that a refusal shows, and returns its error
    #[cold]
    fn note(&self, refused: Refused) -> rdma_core::Error {
        if let Some(depth) = refused.depth {
            self.port.note_depth(depth);
        }
        refused.error
    }

    /// Destroys both queue pairs and deregisters the memory; whether one or the other proves that the device has stopped
    pub(super) fn quiesce(mut self) -> bool {
        let destroyed = [self.eager.destroy(), self.bulk.destroy()];
        let registrations = self.registrations.iter_mut();
        let is_unknown = registrations.fold(false, |is_unknown, (registration, _)| {
            is_unknown | (registration.deregister() == Teardown::Unknown)
        });
        destroyed == [Teardown::Quiesced; 2] || !is_unknown
    }
}

/// Keeps a device open
pub(crate) trait DeviceHandle<D>: Send + Sync {
    fn device(&self) -> &D;

    /// Its calls that may block
    fn calls(&self) -> &Arc<DeviceCalls>;

    /// Notes that the queues of the device hold at most this number of frames, although the device may report more
    fn note_depth(&self, frames: NonZeroU32);
}

/// Bytes of a place for a trailer.
const PLACE: usize = 64;
const _: () = assert!(BulkTrailer::LEN <= PLACE && 2 * MAX_SLOTS as usize * PLACE <= FRAME);

impl<D: Device> Lanes<D> {
    /// Unconnected queue pairs, with the memory of the pool, adopted memory, that for the trailers of the bulk lane, and that for payloads
    #[expect(clippy::too_many_arguments, reason = "each is another part of a path")]
    pub(crate) fn new(
        cq: &D::Cq,
        key: u32,
        eager: &QpInit,
        bulk: &QpInit,
        registrations: Vec<Registration<D>>,
        trailers: Lease,
        staging: Vec<Lease>,
        port: Arc<dyn DeviceHandle<D>>,
    ) -> Result<Self, rdma_core::Error> {
        let calls = Arc::clone(port.calls());
        let hardware = Hardware {
            eager: cq.create_qp(eager)?,
            bulk: cq.create_qp(bulk)?,
            registrations: registrations.into_iter().map(|registration| (registration, true)).collect(),
            port,
        };
        Ok(Self {
            key,
            hardware: Some(hardware),
            calls,
            attempt: Weak::<()>::new(),
            span: Arc::new(tracing::Span::none()),
            eager_sends: PostQueue::default(),
            eager_receives: PostQueue::default(),
            bulk_sends_posted: PostQueue::default(),
            bulk_receives_posted: PostQueue::default(),
            receives: Box::default(),
            bulk_receives: VecDeque::with_capacity(2 * MAX_SLOTS as usize),
            payload: None,
            bulk_sends: VecDeque::with_capacity(MAX_SLOTS as usize),
            staging: Staging::new(staging),
            trailers: Some(trailers),
            trailer_count: [0; 2],
            trailer_sends: 0,
        })
    }

    #[inline]
    fn hardware(&self) -> &Hardware<D> {
        live(&self.hardware)
    }

    #[inline]
    fn hardware_mut(&mut self) -> &mut Hardware<D> {
        self.hardware.as_mut().expect("the path has not ended")
    }

    /// The calls of the device that may block
    pub(crate) fn calls(&self) -> &Arc<DeviceCalls> {
        &self.calls
    }

    /// What the path needs to register memory of the application: the device; `None` if it has
    pub(super) fn wants(&self, memory: &AdoptedMemory) -> Option<Arc<dyn DeviceHandle<D>>> {
        let Hardware { registrations, port, .. } = self.hardware();
        let is_known = registrations.iter().any(|(registration, _)| registration.is_of(memory));
        (!is_known).then(|| Arc::clone(port))
    }

    /// Takes memory of the application that was registered: from now on, it can be sent from
    pub(super) fn adopt(&mut self, registration: Registration<D>) {
        self.hardware_mut().registrations.push((registration, false));
    }

    /// Forgets all memory of the application but this; of the other there is no lease
    pub(super) fn retain_adopted(&mut self, adopted: &[AdoptedMemory]) -> Vec<Registration<D>> {
        // Behind that of the pool.
        let registrations = &mut self.hardware_mut().registrations;
        let forgotten = registrations
            .extract_if(1.., |(registration, _)| !adopted.iter().any(|memory| registration.is_of(memory)));
        forgotten.map(|(registration, _)| registration).collect()
    }

    /// Whether receives may name `lease`
    pub(super) fn receives_into(&self, lease: &Lease) -> bool {
        self.hardware()
            .registrations
            .iter()
            .any(|(registration, is_early)| *is_early && registration.holds(lease))
    }

    fn pool(&self) -> &Registration<D> {
        &self.hardware().registrations[0].0
    }

    /// `len` bytes at `offset` of a lease, as the device names them; registers memory that was adopted while the path was being made
    fn sge(&mut self, lease: &Lease, offset: usize, len: usize) -> Result<Sge, rdma_core::Error> {
        let Hardware { registrations, port, .. } = self.hardware_mut();
        let known = registrations.iter().position(|(registration, _)| registration.holds(lease));
        let index = match known {
            Some(index) => index,
            None => {
                registrations.push((Registration::of(lease, port.device())?, false));
                registrations.len() - 1
            }
        };
        Ok(registrations[index].0.sge(lease, offset, len))
    }

    /// The name of the path in requests
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    pub(crate) fn device(&self) -> &D {
        self.hardware().port.device()
    }

    /// The addresses of the eager and of the bulk queue pair
    pub(crate) fn addresses(&self) -> [QpAddress; 2] {
        [self.hardware().eager.address(), self.hardware().bulk.address()]
    }

    /// What the device granted for the eager and for the bulk lane
    pub(crate) fn capacities(&self) -> [QpCapacity; 2] {
        [self.hardware().eager.capacity(), self.hardware().bulk.capacity()]
    }

    /// Connects both queue pairs to those of the peer
    pub(crate) fn connect(&self, [eager, bulk]: &[QpAddress; 2]) -> Result<(), rdma_core::Error> {
        self.hardware().eager.connect(eager)?;
        self.hardware().bulk.connect(bulk)
    }

    /// Posts the receives of the eager lane, as many as the device takes; returns the rest
    pub(crate) fn open(&mut self, leases: Vec<Lease>) -> Result<Vec<Lease>, rdma_core::Error> {
        self.receives = leases.iter().map(|_| None).collect();
        let mut leases = leases.into_iter().enumerate();
        while let Some((index, lease)) = leases.next() {
            if !self.post_receive(index as u16, lease)? {
                self.eager_receives.forget_waiting();
                let depth = NonZeroU32::new(index as u32).expect("the first receive does not wait");
                self.hardware().port.note_depth(depth);
                let refused = self.receives[index].take();
                return Ok(refused.into_iter().chain(leases.map(|(_, lease)| lease)).collect());
            }
        }
        Ok(Vec::new())
    }

    /// Offers a frame for the next packet, under a number that is free; whether the device has it, or the frame waits for room
    pub(super) fn post_receive(&mut self, index: u16, lease: Lease) -> Result<bool, rdma_core::Error> {
        let sge = self.pool().sge(&lease, 0, FRAME);
        let id = Request::Receive(index).wr_id(self.key);
        let place = &mut self.receives[index as usize];
        debug_assert!(place.is_none(), "the number is free");
        *place = Some(lease);
        let hardware = live(&self.hardware);
        let request = Post { id, sge, least: 1, depth: None };
        let pushed = self.eager_receives.push(request, |id, sge| post_recv::<D>(&hardware.eager, id, sge));
        pushed.map_err(|refused| hardware.note(refused))
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
        let depth = frames(len as usize) - 1;
        self.push_bulk_receive(BulkReceive::Payload { buffer, offset, len }, sge, 1, depth)
    }

    /// Offers a place for a trailer
    pub(super) fn post_trailer_receive(&mut self) -> Result<(), rdma_core::Error> {
        let place = self.trailer_count[0] % MAX_SLOTS;
        self.trailer_count[0] += 1;
        let trailers = self.trailers.as_ref().expect("a path that has not stopped has places");
        let sge = self.pool().sge(trailers, place as usize * PLACE, PLACE);
        // Its own payload completes only after the grant, so it makes no room for the trailer.
        let (least, depth) = match self.bulk_receives.back() {
            Some(BulkReceive::Payload { len, .. }) => (2, frames(*len as usize)),
            _ => (1, 0),
        };
        self.push_bulk_receive(BulkReceive::Trailer { place }, sge, least, depth)
    }

    /// Posts a receive, or lets it wait if the device has at least `least` others; if it takes none, its queue holds at most `depth` frames
    fn push_bulk_receive(
        &mut self,
        receive: BulkReceive,
        sge: Sge,
        least: usize,
        depth: usize,
    ) -> Result<(), rdma_core::Error> {
        let id = Request::BulkReceive.wr_id(self.key);
        let hardware = live(&self.hardware);
        let request = Post { id, sge, least, depth: NonZeroU32::new(depth as u32) };
        let pushed =
            self.bulk_receives_posted.push(request, |id, sge| post_recv::<D>(&hardware.bulk, id, sge));
        pushed.map_err(|refused| hardware.note(refused))?;
        self.bulk_receives.push_back(receive);
        Ok(())
    }

    /// Whether receives of the bulk lane wait for room
    pub(super) fn has_waiting_receives(&self) -> bool {
        self.bulk_receives_posted.is_waiting()
    }

    /// A request has completed: posts requests of its queue that wait, as far as there is room, and returns how many
    #[inline]
    pub(super) fn make_room(&mut self, request: Request) -> Result<usize, rdma_core::Error> {
        let Some(hardware) = &self.hardware else { return Ok(0) };
        let Hardware { eager, bulk, .. } = hardware;
        let made = match request {
            Request::Packet(_) => self.eager_sends.completed(|id, sge| post_send::<D>(eager, id, sge)),
            Request::Receive(_) => self.eager_receives.completed(|id, sge| post_recv::<D>(eager, id, sge)),
            Request::BulkReceive => {
                self.bulk_receives_posted.completed(|id, sge| post_recv::<D>(bulk, id, sge))
            }
            Request::BulkPayload(_) | Request::BulkTrailer => {
                self.bulk_sends_posted.completed(|id, sge| post_send::<D>(bulk, id, sge))
            }
        };
        made.map_err(|refused| hardware.note(refused))
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
        let hardware = live(&self.hardware);
        let request = Post { id, sge, least: 1, depth: None };
        let pushed = self.eager_sends.push(request, |id, sge| post_send::<D>(&hardware.eager, id, sge));
        pushed.map(drop).map_err(|refused| hardware.note(refused))
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
        self.push_bulk_send(id, sge, frames(len) - 1)?;
        self.bulk_sends.push_back(BulkSend { message, is_staged: false });
        Ok(())
    }

    /// As [`send_bulk`](Self::send_bulk), of bytes that no device knows; there is [room](Self::has_staging) for them
    pub(super) fn send_staged(&mut self, message: u32, bytes: &[u8]) -> Result<(), rdma_core::Error> {
        let place = self.staging.put(bytes);
        let sge = live(&self.hardware).registrations[0].0.sge(place, 0, bytes.len());
        let id = Request::BulkPayload(message).wr_id(self.key);
        self.push_bulk_send(id, sge, frames(bytes.len()) - 1)?;
        self.bulk_sends.push_back(BulkSend { message, is_staged: true });
        Ok(())
    }

    /// Whether another payload can be copied
    pub(super) fn has_staging(&self) -> bool {
        self.staging.has_room()
    }

    /// Posts a send, or lets it wait for others; if the device takes none, its queue holds at most `depth` frames
    fn push_bulk_send(&mut self, id: WrId, sge: Sge, depth: usize) -> Result<(), rdma_core::Error> {
        let hardware = live(&self.hardware);
        let request = Post { id, sge, least: 1, depth: NonZeroU32::new(depth as u32) };
        let pushed = self.bulk_sends_posted.push(request, |id, sge| post_send::<D>(&hardware.bulk, id, sge));
        pushed.map(drop).map_err(|refused| hardware.note(refused))
    }

    /// Notes that the bytes of `message` have been sent; false if others were posted before
    pub(super) fn take_bulk_send(&mut self, message: u32) -> bool {
        let sent = self.bulk_sends.pop_front_if(|first| first.message == message);
        if sent.is_some_and(|sent| sent.is_staged) {
            self.staging.sent();
        }
        sent.is_some()
    }

    /// Sends a trailer on the bulk lane
    pub(super) fn send_trailer(&mut self, trailer: &[u8]) -> Result<(), rdma_core::Error> {
        // At most `MAX_SLOTS` trailers are under way: the send of the one that was here has completed.
        let place = MAX_SLOTS + self.trailer_count[1] % MAX_SLOTS;
        self.trailer_count[1] += 1;
        let at = place as usize * PLACE;
        let trailers = self.trailers.as_mut().expect("a path that has not stopped has places");
        trailers.write_at(at, trailer);
        let registrations = &live(&self.hardware).registrations;
        let sge = registrations[0].0.sge(trailers, at, trailer.len());
        self.push_bulk_send(Request::BulkTrailer.wr_id(self.key), sge, 0)?;
        self.trailer_sends += 1;
        Ok(())
    }

    /// Notes that a trailer has been sent; false if none was posted
    pub(super) fn take_trailer_send(&mut self) -> bool {
        let is_posted = self.trailer_sends > 0;
        self.trailer_sends -= u32::from(is_posted);
        is_posted
    }

    fn take_leases(&mut self) -> Vec<Lease> {
        self.receives.iter_mut().filter_map(Option::take).chain(self.trailers.take()).collect()
    }

    /// Ends the path: what the device has to give up for it, which may block, and what was posted until then
    pub(super) fn stop(mut self) -> (Option<Hardware<D>>, Posted) {
        let [staged, unused] = self.staging.take();
        let posted = Posted {
            leases: self.take_leases().into_iter().chain(staged).collect(),
            bulk_receives: std::mem::take(&mut self.bulk_receives),
            bulk_sends: std::mem::take(&mut self.bulk_sends),
            unused,
        };
        (self.hardware.take(), posted)
    }
}

/// Posts a send
#[inline]
fn post_send<D: Device>(qp: &Qp<D>, id: WrId, sge: Sge) -> Result<(), rdma_core::Error> {
    let request = SendRequest { id, op: SendOp::Send, sgl: &[sge], signaled: true };
    // SAFETY: the callers have `&mut Lanes`, which excludes other posts on the queue pair. The bytes are not written until the completion
    // of this request or `stop`: those of a packet are in a frame that is noted as posted on this path; those of a message stay in its
    // table, which counts the posts; the place of a trailer is written again only after the completion, and that of a payload in `Staging`, which asserts it.
    unsafe { qp.post_send(&request) }
}

/// Posts a receive
#[inline]
fn post_recv<D: Device>(qp: &Qp<D>, id: WrId, sge: Sge) -> Result<(), rdma_core::Error> {
    let request = RecvRequest { id, sgl: &[sge] };
    // SAFETY: the callers have `&mut Lanes`, which excludes other posts on the queue pair. The bytes belong to a lease in `receives`, which
    // hands out no bytes, until `take_receive` on its completion; to a buffer that its table keeps while receives are posted for it; or to
    // `trailers`; or until `stop` has quarantined them or proved the end.
    unsafe { qp.post_recv(&request) }
}

impl<D: Device> Drop for Lanes<D> {
    /// A path that was never handed to a peering has nothing posted but what it owns
    fn drop(&mut self) {
        let Some(hardware) = self.hardware.take() else { return };
        let (leases, calls) = (ManuallyDrop::new(self.take_leases()), Arc::clone(&self.calls));
        let (hardware, attempt) = (ManuallyDrop::new(hardware), self.attempt.upgrade());
        // A node counts as idle after that.
        drop(self.staging.take());
        self.calls.start(
            DeviceCall::Stop,
            move || {
                // Otherwise the device may still write there.
                if ManuallyDrop::into_inner(hardware).quiesce() {
                    drop(ManuallyDrop::into_inner(leases));
                }
            },
            move |outcome| {
                if outcome.is_err() {
                    calls.count_abandoned();
                }
                drop(attempt);
            },
        );
    }
}
