//! Bare verbs over the simulator, as a baseline and for tests of the simulator itself

use std::future::poll_fn;

use rdma_core::{
    Access, Arena, Completion, CompletionQueue, Device, Error, FRAME, MemoryRegion, QpCapacity, QpInit, QpType,
    QueuePair, RecvRequest, SendOp, SendRequest, Sge, WrId,
};

type Qp<D> = <<D as Device>::Cq as CompletionQueue>::Qp;

/// One queue pair with an arena of registered memory, and no protocol at all
pub struct RawSide<D: Device> {
    /// The queue pair; dropped before the memory that is posted on it
    pub qp: Qp<D>,
    /// Its completion queue
    pub cq: D::Cq,
    mr: D::Mr,
    arena: Arena,
    /// The device
    pub device: D,
}

/// Two connected queue pairs
pub struct RawPair<D: Device> {
    /// One end
    pub a: RawSide<D>,
    /// The other
    pub b: RawSide<D>,
}

impl<D: Device> RawPair<D> {
    /// Connects queue pairs on two devices, each with an arena of `len` bytes
    ///
    /// # Errors
    ///
    /// What the devices say.
    pub fn connect(a: D, b: D, len: usize) -> Result<Self, Error> {
        let (a, b) = (RawSide::new(a, len)?, RawSide::new(b, len)?);
        a.qp.connect(&b.qp.address())?;
        b.qp.connect(&a.qp.address())?;
        Ok(Self { a, b })
    }
}

impl<D: Device> RawSide<D> {
    /// An unconnected queue pair and an arena of `len` bytes
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn new(device: D, len: usize) -> Result<Self, Error> {
        let arena = Arena::new(len).expect("the tests need memory");
        let cq = device.create_cq(4096)?;
        // SAFETY: the arena is dropped after the region, and only posted through the methods below.
        let mr = unsafe { device.register(arena.as_slice_ptr(), Access::LOCAL_WRITE) }?;
        let capacity = QpCapacity { recv_frames: 4095, send_frames: 4095 };
        let qp = cq.create_qp(&QpInit { capacity, qp_type: QpType::Uc })?;
        Ok(Self { qp, cq, mr, arena, device })
    }

    /// The range of the arena from `offset`, `len` bytes long
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        assert!(offset + len <= self.arena.len());
        Sge { addr: self.mr.base() + offset as u64, len: len as u32, lkey: self.mr.lkey() }
    }

    /// Sends a range of the arena
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn send(&self, id: u64, offset: usize, len: usize) -> Result<(), Error> {
        let sgl = [self.sge(offset, len)];
        let request = SendRequest { id: WrId(id), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: the arena outlives the queue pair; nobody holds references into it.
        unsafe { self.qp.post_send(&request) }
    }

    /// Offers a range of the arena
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn recv(&self, id: u64, offset: usize, len: usize) -> Result<(), Error> {
        let sgl = [self.sge(offset, len)];
        // SAFETY: the arena outlives the queue pair; nobody holds references into it.
        unsafe { self.qp.post_recv(&RecvRequest { id: WrId(id), sgl: &sgl }) }
    }

    /// Writes into the arena
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.arena.len());
        // SAFETY: the range is inside the arena.
        let to = unsafe { self.arena.as_ptr().add(offset) };
        // SAFETY: nobody holds references into the arena, and tests do not write where something is posted.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads from the arena
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.arena.len());
        let mut out = vec![0; len];
        // SAFETY: the range is inside the arena.
        let from = unsafe { self.arena.as_ptr().add(offset) };
        // SAFETY: nobody holds references into the arena, and tests do not read where something is posted.
        unsafe { out.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), len) };
        out
    }

    /// Completions, as soon as there is one
    ///
    /// # Errors
    ///
    /// What the device says.
    pub async fn completions<'a>(&self, out: &'a mut [Completion]) -> Result<&'a [Completion], Error> {
        poll_fn(|cx| self.cq.poll_ready(cx)).await;
        let n = self.cq.poll(out)?;
        Ok(&out[..n])
    }

    /// Waits for the completion called `id` and passes over others
    ///
    /// # Errors
    ///
    /// What the device says.
    pub async fn wait_for(&self, id: u64) -> Result<Completion, Error> {
        let mut one = [Completion::default()];
        loop {
            if let [completion] = *self.completions(&mut one).await?
                && completion.id == WrId(id)
            {
                return Ok(completion);
            }
        }
    }

    /// Bytes in a frame, for readability
    pub const FRAME: usize = FRAME;
}

impl<D: Device> std::fmt::Debug for RawSide<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawSide").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

impl<D: Device> std::fmt::Debug for RawPair<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawPair").field("a", &self.a).field("b", &self.b).finish()
    }
}
