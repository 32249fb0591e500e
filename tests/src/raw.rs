#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::future::poll_fn;
use std::ops::Range;
use std::time::Duration;

use rdma_arena::Arena;
use rdma_core::session::{Features, Hello, Integrity, Limits};
use rdma_core::{
    Access, Completion, CompletionQueue, Device, Error, MemoryRegion, QpInit, QueuePair, RecvRequest, SendOp,
    SendRequest, Sge, WrId,
};
use rdma_sim::{Net, SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};

use crate::DEVICE;

/// The hello of a process that speaks the bootstrap itself
pub fn hello(limits: Limits) -> Hello {
    Hello {
        incarnation: 666,
        nonce: [6; Hello::NONCE_LEN],
        group_epoch: 0,
        limits,
        bulk_fragment: 256 << 10,
        integrity: Integrity::Crc32,
        peer_timeout: Duration::from_secs(2),
        ports: 1,
        features: Features::default(),
    }
}

/// A queue pair and registered memory, for what the checks of [`BareQp`](rdma_bare::BareQp) forbid
///
/// The fields are dropped in this order: the memory outlives all objects that could access it.
#[derive(Debug)]
pub struct Raw {
    /// The queue pair
    pub qp: SimQueuePair,
    /// The completion queue of the queue pair
    pub cq: SimCompletionQueue,
    /// `None` when a test has deregistered it
    pub region: Option<SimMemoryRegion>,
    /// The device
    pub device: SimDevice,
    arena: Arena,
}

impl Raw {
    /// A queue pair on `device` with `len` bytes that are registered for `access`
    pub fn new(device: SimDevice, init: &QpInit, access: Access, len: usize) -> Self {
        let arena = Arena::new(len).unwrap();
        let cq = device.create_cq(1024).unwrap();
        let region = Some(register(&device, &arena, access).unwrap());
        let qp = cq.create_qp(init).unwrap();
        Self { qp, cq, region, device, arena }
    }

    /// Two that are connected, on both Macs of the pair
    pub fn pair(net: &Net, init: &QpInit, access: Access, len: usize) -> [Self; 2] {
        let [a, b] = ["a", "b"].map(|host| Self::new(net.open(host, DEVICE).unwrap(), init, access, len));
        a.connect(&b);
        [a, b]
    }

    /// Connects both ends
    pub fn connect(&self, other: &Self) {
        self.connect_to(other);
        other.connect_to(self);
    }

    /// Connects this end
    pub fn connect_to(&self, other: &Self) {
        self.qp.connect(&other.qp.address()).unwrap();
    }

    /// Registers the memory once more, for `access`
    pub fn register_again(&self, access: Access) -> Result<SimMemoryRegion, Error> {
        register(&self.device, &self.arena, access)
    }

    /// The region
    pub fn region(&self) -> &SimMemoryRegion {
        self.region.as_ref().expect("the region is registered")
    }

    /// A scatter-gather element for a range of the memory
    pub fn sge(&self, range: Range<usize>) -> Sge {
        let region = self.region();
        Sge { addr: region.base() + range.start as u64, len: range.len() as u32, lkey: region.lkey() }
    }

    /// Posts a signaled request
    #[track_caller]
    pub fn post(&self, id: u64, op: SendOp, sgl: &[Sge]) -> Result<(), Error> {
        self.post_request(&SendRequest { id: WrId(id), op, sgl, signaled: true })
    }

    /// Posts a request
    #[track_caller]
    pub fn post_request(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        // SAFETY: the memory outlives the queue pair, and only pointers lead to it; tests that write into it on purpose
        // run on the thread of the device.
        unsafe { self.qp.post_send(request) }
    }

    /// Posts a receive
    #[track_caller]
    pub fn recv(&self, id: u64, sgl: &[Sge]) -> Result<(), Error> {
        // SAFETY: as in `post_request`.
        unsafe { self.qp.post_recv(&RecvRequest { id: WrId(id), sgl }) }
    }

    /// Writes into the memory, whether it is posted or not
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.arena.len());
        // SAFETY: the range was just found to be inside the arena.
        let to = unsafe { self.arena.as_ptr().add(at) };
        // SAFETY: the range is inside the arena, and there are no references into it.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads from the memory, whether it is posted or not
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.arena.len());
        let mut bytes = vec![0; range.len()];
        // SAFETY: the range was just found to be inside the arena.
        let from = unsafe { self.arena.as_ptr().add(range.start) };
        // SAFETY: the range is inside the arena, and there are no references into it.
        unsafe { from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    /// The oldest completion, if there is one
    pub fn poll(&self) -> Option<Completion> {
        let mut out = [Completion::default()];
        let n = self.cq.poll(&mut out).unwrap();
        (n == 1).then_some(out[0])
    }

    /// Waits for the next completion
    pub async fn completion(&self) -> Completion {
        let mut out = [Completion::default()];
        poll_fn(|cx| self.cq.poll_completions(cx, &mut out)).await.unwrap();
        out[0]
    }
}

fn register(device: &SimDevice, arena: &Arena, access: Access) -> Result<SimMemoryRegion, Error> {
    // SAFETY: the caller keeps the arena until the region is gone.
    unsafe { device.register(arena.as_slice_ptr(), access) }
}
