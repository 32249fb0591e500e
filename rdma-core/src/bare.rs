//! Queue pairs without a protocol on top
//!
//! For baselines, conformance tests and experiments: a [`BareQp`] is a queue pair with an arena of registered memory, whose
//! posts are safe because it remembers which parts of the arena are posted.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;

use crate::{
    Access, Arena, Cause, Completion, CompletionQueue, Device, Error, MemoryRegion, Opcode, QpCapacity,
    QpInit, QueuePair, RecvRequest, SendOp, SendRequest, Sge, Teardown, Verb, WrId,
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
    /// `None` when the device may touch it for ever.
    arena: Option<Arena>,
    device: D,
}

struct Posted {
    id: WrId,
    opcode: Opcode,
    range: Range<usize>,
}

impl<D: Device> BareQp<D> {
    /// A queue pair on `device`, not connected, with an arena of `len` bytes
    ///
    /// # Errors
    ///
    /// What the device says; [`Cause::Os`] if the system has no memory.
    pub fn new(device: D, init: &QpInit, len: usize) -> Result<Self, Error> {
        let arena = Arena::new(len)
            .map_err(|error| Error::new(Verb::RegMr, Cause::Os(error.raw_os_error().unwrap_or(12))))?;
        let cq = device.create_cq(device.caps().max_cqe)?;
        // SAFETY: the arena is unmapped after the region is gone, in `drop`; its memory is reached only through the
        // methods below, which keep away from posted ranges.
        let region = unsafe { device.register(arena.as_slice_ptr(), Access::LOCAL_WRITE) }?;
        let qp = cq.create_qp(init)?;
        Ok(Self { qp, cq, posted: Vec::new(), region: Some(region), arena: Some(arena), device })
    }

    /// Two queue pairs with the deepest queues and arenas of `len` bytes, connected to each other
    ///
    /// # Errors
    ///
    /// What the devices say.
    pub fn pair(a: D, b: D, len: usize) -> Result<[Self; 2], Error> {
        let init = |device: &D| {
            let frames = device.caps().max_queue_frames;
            QpInit { capacity: QpCapacity { recv_frames: frames, send_frames: frames }, ..QpInit::default() }
        };
        let (for_a, for_b) = (init(&a), init(&b));
        let (a, b) = (Self::new(a, &for_a, len)?, Self::new(b, &for_b, len)?);
        a.qp.connect(&b.qp.address())?;
        b.qp.connect(&a.qp.address())?;
        Ok([a, b])
    }

    /// The queue pair
    pub fn qp(&self) -> &Qp<D> {
        &self.qp
    }

    /// The device
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Sends a range of the arena
    ///
    /// # Errors
    ///
    /// What the device says.
    ///
    /// # Panics
    ///
    /// If the range is not inside the arena, or is posted for receiving.
    #[track_caller]
    pub fn send(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        let is_free = self.overlapping(&range).all(|posted| posted.opcode == Opcode::Send);
        assert!(is_free, "{range:?} is posted for receiving");
        let sgl = [self.sge(&range)];
        let request = SendRequest { id: WrId(id), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: the range is recorded as posted and is not written until its completion was taken.
        unsafe { self.qp.post_send(&request) }?;
        self.posted.push(Posted { id: WrId(id), opcode: Opcode::Send, range });
        Ok(())
    }

    /// Offers a range of the arena for the peer's next message
    ///
    /// # Errors
    ///
    /// What the device says.
    ///
    /// # Panics
    ///
    /// If the range is not inside the arena, or is posted already.
    #[track_caller]
    pub fn recv(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        assert!(self.overlapping(&range).next().is_none(), "{range:?} is posted");
        let sgl = [self.sge(&range)];
        // SAFETY: the range is recorded as posted and is not touched until its completion was taken.
        unsafe { self.qp.post_recv(&RecvRequest { id: WrId(id), sgl: &sgl }) }?;
        self.posted.push(Posted { id: WrId(id), opcode: Opcode::Recv, range });
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
        // SAFETY: the range is inside the arena and no device works on it; nobody holds references into it.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads from the arena
    ///
    /// # Panics
    ///
    /// If the range is not inside the arena, or is posted for receiving.
    pub fn read(&self, range: Range<usize>, into: &mut [u8]) {
        let is_free = self.overlapping(&range).all(|posted| posted.opcode == Opcode::Send);
        assert!(is_free, "{range:?} is posted for receiving");
        assert_eq!(range.len(), into.len());
        let from = self.pointer(&range);
        // SAFETY: the range is inside the arena and no device writes to it; nobody holds references into it.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from, into.len()) };
    }

    /// The oldest completion, if there is one
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn poll(&mut self) -> Result<Option<Completion>, Error> {
        let mut out = [Completion::default()];
        let n = self.cq.poll(&mut out)?;
        Ok(out[..n].first().map(|completion| self.take(completion)))
    }

    /// The oldest completion, as soon as there is one
    ///
    /// # Errors
    ///
    /// What the device says.
    ///
    /// # Cancel safety
    ///
    /// No completion is lost.
    pub async fn completion(&mut self) -> Result<Completion, Error> {
        let mut out = [Completion::default()];
        poll_fn(|cx| self.cq.poll_completions(cx, &mut out)).await?;
        Ok(self.take(&out[0]))
    }

    fn take(&mut self, completion: &Completion) -> Completion {
        let is_it = |posted: &Posted| posted.id == completion.id && posted.opcode == completion.opcode;
        if let Some(at) = self.posted.iter().position(is_it) {
            // The oldest of that name: completions come in the order of the posts.
            self.posted.remove(at);
        }
        *completion
    }

    /// The next completion of a receive; those of sends are passed over
    ///
    /// # Errors
    ///
    /// What the device says.
    pub async fn received(&mut self) -> Result<Completion, Error> {
        loop {
            let completion = self.completion().await?;
            if completion.opcode == Opcode::Recv {
                return Ok(completion);
            }
        }
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
        if self.qp.destroy() == Teardown::Unknown && !self.posted.is_empty() {
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
