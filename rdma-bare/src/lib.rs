//! Queue pairs without a protocol on top
//!
//! For baselines, conformance tests and experiments: a [`BareQp`] is a queue pair with an arena of registered memory. Its
//! posts are safe because it remembers which ranges of the arena are posted.
//!
//! # What it is not
//!
//! There is no flow control and no reassembly: a send that finds no receive waits or is lost, as the device has it.
//! Applications use `rdma-async`.
//!
//! ```
//! use rdma_bare::BareQp;
//! use rdma_sim::Sim;
//!
//! Sim::new().run(async |net| {
//!     let [mut a, mut b] =
//!         BareQp::pair(net.open("a", "rdma_en2")?, net.open("b", "rdma_en2")?, 1 << 16)?;
//!     b.recv(1, 0..5)?;
//!     a.write(0, b"hello");
//!     a.send(2, 0..5)?;
//!     assert_eq!(b.received().await?.byte_len, 5);
//!     assert_eq!(b.read(0..5), b"hello");
//!     Ok::<_, rdma_core::Error>(())
//! })
//! .value
//! .unwrap();
//! ```

#![allow(unsafe_code, reason = "posting needs a promise about the memory")]

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use rdma_arena::Arena;
use rdma_core::{
    Cause, Completion, CompletionQueue, Device, Error, MemoryRegion, Opcode, QpInit, QueuePair, RecvRequest,
    SendOp, SendRequest, Sge, Status, Teardown, Verb, WrId,
};

type Qp<D> = <<D as Device>::Cq as CompletionQueue>::Qp;

/// A queue pair with its completion queue and an arena of registered memory
///
/// Ranges of the arena that are posted can be neither read nor written until their completion has been taken by
/// [`poll`](Self::poll) or [`completion`](Self::completion).
pub struct BareQp<D: Device> {
    qp: Qp<D>,
    cq: D::Cq,
    posted: Vec<Posted>,
    region: Option<D::Mr>,
    /// `None` once the device may touch it for ever, so that it is never unmapped.
    arena: Option<Arena>,
    device: D,
}

struct Posted {
    id: WrId,
    /// The name on the device.
    device_id: WrId,
    opcode: Opcode,
    range: Range<usize>,
}

impl<D: Device> BareQp<D> {
    /// A queue pair on `device`, not connected, with an arena of `len` bytes
    ///
    /// # Errors
    ///
    /// The causes of [`Device::create_cq`], [`Device::register`] and [`CompletionQueue::create_qp`]; [`Cause::Os`] if the
    /// system cannot map `len` bytes.
    pub fn new(device: D, init: &QpInit, len: usize) -> Result<Self, Error> {
        let arena = Arena::new(len)
            .map_err(|error| Error::new(Verb::RegMr, Cause::Os(error.raw_os_error().unwrap_or(22))))?;
        let cq = device.create_cq(device.caps().max_cqe)?;
        // SAFETY: the arena is unmapped after the region is gone: by `drop`, and here on an error, where the region is
        // declared later. Its memory is reached only through the methods below, which keep away from posted ranges.
        let region = unsafe { device.register_local(arena.as_slice_ptr()) }?;
        let qp = cq.create_qp(init)?;
        Ok(Self { qp, cq, posted: Vec::new(), region: Some(region), arena: Some(arena), device })
    }

    /// Two queue pairs with the deepest queues that both devices have and arenas of `len` bytes, connected to each other
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`QueuePair::connect`].
    pub fn pair(a: D, b: D, len: usize) -> Result<[Self; 2], Error> {
        let frames = a.caps().max_queue_frames.min(b.caps().max_queue_frames);
        Self::pair_of(a, b, &QpInit::with_frames(frames), len)
    }

    /// As [`pair`](Self::pair), with queues as `init` asks for
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new) and [`QueuePair::connect`].
    pub fn pair_of(a: D, b: D, init: &QpInit, len: usize) -> Result<[Self; 2], Error> {
        let [a, b] = [Self::new(a, init, len)?, Self::new(b, init, len)?];
        a.connect(&b)?;
        Ok([a, b])
    }

    /// Connects both to each other
    ///
    /// # Errors
    ///
    /// As [`QueuePair::connect`].
    pub fn connect(&self, other: &Self) -> Result<(), Error> {
        self.qp.connect(&other.qp.address())?;
        other.qp.connect(&self.qp.address())
    }

    /// The queue pair
    pub fn qp(&self) -> &Qp<D> {
        &self.qp
    }

    /// The device
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Each request whose completion has not been taken, as its opcode and its range of the arena, in the order of the posts
    pub fn posted(&self) -> impl Iterator<Item = (Opcode, Range<usize>)> {
        self.posted.iter().map(|posted| (posted.opcode, posted.range.clone()))
    }

    /// Sends a range of the arena
    ///
    /// Traces of the device show `id`, or another number while a receive of that `id` is posted.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::post_send`].
    ///
    /// # Panics
    ///
    /// If the range is not inside the arena, or is posted for receiving.
    #[track_caller]
    pub fn send(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        let is_free = self.overlapping(&range).all(|posted| posted.opcode == Opcode::Send);
        assert!(is_free, "{range:?} is posted for receiving");
        let sgl = [self.sge(&range)];
        let (id, device_id) = (WrId(id), self.free_device_id(id, Opcode::Send));
        let request = SendRequest { id: device_id, op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: the range is inside the registered arena. It is recorded as posted, so that `write` and `recv` refuse it
        // until its completion was taken; `drop` leaks the arena if the device may still read it.
        unsafe { self.qp.post_send(&request) }?;
        self.posted.push(Posted { id, device_id, opcode: Opcode::Send, range });
        Ok(())
    }

    /// Offers a range of the arena for the peer's next message
    ///
    /// Traces of the device show `id`, or another number while a send of that `id` is posted.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::post_recv`].
    ///
    /// # Panics
    ///
    /// If the range is not inside the arena, or is posted already.
    #[track_caller]
    pub fn recv(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        assert!(self.overlapping(&range).next().is_none(), "{range:?} is posted");
        let sgl = [self.sge(&range)];
        let (id, device_id) = (WrId(id), self.free_device_id(id, Opcode::Recv));
        // SAFETY: the range is inside the registered arena. It is recorded as posted, so that every other method refuses
        // it until its completion was taken; `drop` leaks the arena if the device may still write it.
        unsafe { self.qp.post_recv(&RecvRequest { id: device_id, sgl: &sgl }) }?;
        self.posted.push(Posted { id, device_id, opcode: Opcode::Recv, range });
        Ok(())
    }

    /// Writes into the arena
    ///
    /// # Panics
    ///
    /// If the range is not inside the arena, or is posted.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        assert!(self.overlapping(&range).next().is_none(), "{range:?} is posted");
        let to = self.pointer(&range);
        // SAFETY: the range is inside the arena and not posted, so that the device does not touch it; no reference into the
        // arena exists, hence `bytes` is elsewhere.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads from the arena
    ///
    /// # Panics
    ///
    /// If the range is not inside the arena, or is posted for receiving.
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        let is_free = self.overlapping(&range).all(|posted| posted.opcode == Opcode::Send);
        assert!(is_free, "{range:?} is posted for receiving");
        let mut into = vec![0; range.len()];
        let from = self.pointer(&range);
        // SAFETY: the range is inside the arena and not posted for receiving, so that the device does not write it; no
        // reference into the arena exists, hence `into` is elsewhere.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from, into.len()) };
        into
    }

    /// The oldest completion, if there is one
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    pub fn poll(&mut self) -> Result<Option<Completion>, Error> {
        let mut out = [Completion::default()];
        if self.cq.poll(&mut out)? == 0 {
            return Ok(None);
        }
        self.take(&mut out[0]);
        Ok(Some(out[0]))
    }

    /// The oldest completion, as soon as there is one
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a completion that the dropped future did not return stays in the queue.
    pub async fn completion(&mut self) -> Result<Completion, Error> {
        poll_fn(|cx| self.poll_completion(cx)).await
    }

    fn poll_completion(&mut self, cx: &mut Context<'_>) -> Poll<Result<Completion, Error>> {
        let mut out = [Completion::default()];
        ready!(self.cq.poll_completions(cx, &mut out))?;
        self.take(&mut out[0]);
        Poll::Ready(Ok(out[0]))
    }

    /// A name for a request on the device: another one than `id` while that is the name of a request of the other kind
    ///
    /// Of a completion with an error, the verbs promise the name and not the kind.
    #[inline]
    fn free_device_id(&self, id: u64, opcode: Opcode) -> WrId {
        if self.is_taken(WrId(id), opcode) { self.other_device_id(id, opcode) } else { WrId(id) }
    }

    #[cold]
    fn other_device_id(&self, id: u64, opcode: Opcode) -> WrId {
        // Names differ from `id` in their highest bits first: those of other requests, which callers count, are near it.
        let mut names = (1..).map(|number: u64| WrId(id ^ number.reverse_bits()));
        names
            .find(|name| !self.is_taken(*name, opcode))
            .expect("fewer requests are posted than there are names")
    }

    /// Whether `name` is that of a request of the other kind
    #[inline(always)]
    fn is_taken(&self, name: WrId, opcode: Opcode) -> bool {
        for posted in &self.posted {
            if posted.opcode != opcode && posted.device_id == name {
                return true;
            }
        }
        false
    }

    /// Notes that a request has completed, and gives its completion the name and the kind of the request
    #[inline]
    fn take(&mut self, completion: &mut Completion) {
        let is_named = |posted: &Posted| {
            let is_its_kind = completion.status != Status::Success || posted.opcode == completion.opcode;
            posted.device_id == completion.id && is_its_kind
        };
        // The oldest of that name: requests of a kind, which alone share a name, complete in the order of their posts.
        let Some(at) = self.posted.iter().position(is_named) else { return };
        let Posted { id, opcode, .. } = self.posted[at];
        // The last one has no others to move.
        if at + 1 == self.posted.len() {
            self.posted.pop();
        } else {
            self.posted.remove(at);
        }
        // Rarely: a completion that is copied right after a part of it was written is slow.
        if id != completion.id || opcode != completion.opcode {
            (completion.id, completion.opcode) = (id, opcode);
        }
    }

    /// The next completion of a receive; completions of sends are discarded
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe for receives; a completion of a send that was taken before the drop is discarded, as always here.
    pub async fn received(&mut self) -> Result<Completion, Error> {
        poll_fn(|cx| {
            let mut out = [Completion::default()];
            loop {
                ready!(self.cq.poll_completions(cx, &mut out))?;
                self.take(&mut out[0]);
                if out[0].opcode == Opcode::Recv {
                    return Poll::Ready(Ok(out[0]));
                }
            }
        })
        .await
    }

    fn overlapping(&self, range: &Range<usize>) -> impl Iterator<Item = &Posted> {
        self.posted.iter().filter(|posted| posted.range.start < range.end && range.start < posted.range.end)
    }

    fn sge(&self, range: &Range<usize>) -> Sge {
        let region = self.region.as_ref().expect("the region is there until the queue pair is dropped");
        let _ = self.pointer(range);
        Sge { addr: region.base() + range.start as u64, len: range.len() as u32, lkey: region.lkey() }
    }

    fn pointer(&self, range: &Range<usize>) -> *mut u8 {
        let arena = self.arena.as_ref().expect("the arena is there until the queue pair is dropped");
        assert!(range.start <= range.end && range.end <= arena.len(), "{range:?} is not inside the arena");
        // SAFETY: the offset was just found to be inside the arena.
        unsafe { arena.as_ptr().add(range.start) }.as_ptr()
    }
}

impl<D: Device> Drop for BareQp<D> {
    fn drop(&mut self) {
        let is_proven = self.qp.destroy() == Teardown::Quiesced || self.posted.is_empty();
        // Else the region proves that the device has stopped, if it can be deregistered.
        let is_over = |region: &mut D::Mr| is_proven || region.deregister() == Teardown::Quiesced;
        if !self.region.as_mut().is_none_or(is_over) {
            std::mem::forget((self.region.take(), self.arena.take()));
        }
        drop(self.region.take());
    }
}

impl<D: Device> fmt::Debug for BareQp<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BareQp").field("posted", &self.posted.len()).finish_non_exhaustive()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
