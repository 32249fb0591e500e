#![allow(unsafe_code, reason = "declares the unsafe trait and methods")]

use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use crate::{
    Access, Caps, Cause, Completion, Error, Gid, Lkey, PortStatus, QpAddress, QpCapacity, QpInit, QpState,
    RecvRequest, Rkey, SendRequest, Transition, Verb,
};

/// An open RDMA device with its protection domain: one port, one cable, one neighbour
///
/// # Threads
///
/// Every method of these traits may be called from any thread, also at the same time, with one exception: **one queue pair is
/// not posted to from two threads at once**. The caller ensures it; see [`QueuePair::post_send`].
///
/// # Safety
///
/// The implementor promises:
///
/// * after [`QueuePair::destroy`] returned [`Teardown::Quiesced`], the device never again touches memory because of a
///   request that was posted on that queue pair;
/// * a request completes at most once, under its own [`WrId`](crate::WrId), and the device does not touch its memory after its
///   completion was polled;
/// * the receives of a queue pair complete in the order of their posts;
/// * the device touches registered memory only, and only while a posted request of this side names it, or because a peer uses a
///   remote right of [`Access`] that the region was registered with;
/// * after a region was dropped, the device does not touch its memory, unless a queue pair that was destroyed with
///   [`Teardown::Unknown`] has requests that name it; after [`MemoryRegion::deregister`] returned [`Teardown::Quiesced`], it does not
///   even then.
///
/// ```
/// use rdma_core::{Device as _, PortState};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let device = net.open("a", "rdma_en2")?;
///     assert_eq!(device.name(), "rdma_en2");
///     assert_eq!(device.port()?.state, PortState::Active);
///     assert_eq!(device.caps().max_qp, 10);
///     assert!(device.gids()?.iter().any(|gid| gid.ipv4().is_some()));
///     Ok::<_, rdma_core::Error>(())
/// })
/// .value
/// .unwrap();
/// ```
pub unsafe trait Device: Send + Sync + 'static {
    /// Memory regions of the device
    type Mr: MemoryRegion;
    /// Completion queues of the device
    type Cq: CompletionQueue;

    /// Name of the device, such as `rdma_en2`
    fn name(&self) -> &str;

    /// Abilities and limits of the device
    fn caps(&self) -> &Caps;

    /// Queries whether the port can carry traffic, and how fast
    ///
    /// # Errors
    ///
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    fn port(&self) -> Result<PortStatus, Error>;

    /// Wakes `waker` from now on, instead of that of the call before, whenever the state of the port may have changed; false if the device
    /// cannot report it, which is the default: then the port has to be [queried](Self::port) from time to time
    ///
    /// The waker is dropped with the last object of the device.
    fn watch_port(&self, waker: Waker) -> bool {
        drop(waker);
        false
    }

    /// A post or a poll that has not returned in the time that the device gives it, and still has not
    ///
    /// `None` if there is none, and from a device that does not watch its calls, which is the default. A blocked call keeps its thread: only
    /// another one can ask.
    fn blocked(&self) -> Option<Verb> {
        None
    }

    /// Reads the GID table of the port, without trailing unset entries
    ///
    /// # Errors
    ///
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    fn gids(&self) -> Result<Vec<Gid>, Error>;

    /// Creates a completion queue with space for `depth` entries
    ///
    /// # Errors
    ///
    /// [`Invalid::CqDepth`](crate::Invalid::CqDepth) for a depth of zero or above [`Caps::max_cqe`];
    /// [`Cause::Exhausted`](crate::Cause::Exhausted) beyond [`Caps::max_cq`];
    /// [`Cause::PortDown`](crate::Cause::PortDown) while no active port is at the other end of the cable;
    /// [`Cause::Busy`](crate::Cause::Busy) if the driver is wedged;
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    fn create_cq(&self, depth: u32) -> Result<Self::Cq, Error>;

    /// Registers `mem` with the device, until the returned region is dropped
    ///
    /// # Errors
    ///
    /// [`Cause::Exhausted`](crate::Cause::Exhausted) beyond [`Caps::max_mr`];
    /// [`Invalid::EmptyRegion`](crate::Invalid::EmptyRegion), [`Invalid::Misaligned`](crate::Invalid::Misaligned),
    /// [`Invalid::CrossesBoundary`](crate::Invalid::CrossesBoundary) or
    /// [`Invalid::LocalWriteOnly`](crate::Invalid::LocalWriteOnly) for memory or rights that the device refuses;
    /// [`Cause::LockedMemory`](crate::Cause::LockedMemory) beyond the limit of the system;
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    ///
    /// # Safety
    ///
    /// The caller ensures, until the returned region is dropped:
    ///
    /// * `mem` stays valid for reads and writes;
    /// * while a posted request names a part of `mem`, that part is accessed as [`QueuePair::post_send`] and
    ///   [`QueuePair::post_recv`] permit;
    /// * with [`Access::REMOTE_WRITE`] or [`Access::REMOTE_ATOMIC`], **a peer may change every byte of `mem` at any time**, with
    ///   no request and no completion on this side. No reference to it exists, neither `&[u8]` nor `&mut [u8]`: it is
    ///   read and written through raw pointers, by volatile or atomic accesses, and two reads of one byte may differ;
    /// * with [`Access::REMOTE_READ`], a peer may read every byte of `mem` at any time: no `&mut [u8]` to it exists, it is
    ///   written by volatile or atomic accesses, and it holds nothing that the peer must not learn.
    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<Self::Mr, Error>;

    /// [Registers](Self::register) `mem` for requests of this side alone
    ///
    /// With [`Access::LOCAL_WRITE`]; a device without one-sided operations that refuses that as invalid is asked again with remote
    /// rights, which no peer can use there. Reports disagree on whether Apple's device refuses it.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register).
    ///
    /// # Safety
    ///
    /// As [`register`](Self::register) with [`Access::LOCAL_WRITE`].
    unsafe fn register_local(&self, mem: NonNull<[u8]>) -> Result<Self::Mr, Error> {
        // SAFETY: the caller keeps the contract for local rights.
        let registered = unsafe { self.register(mem, Access::LOCAL_WRITE) };
        match registered {
            Err(Error { cause: Cause::Invalid(_), .. }) if !self.caps().one_sided => {
                let all = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);
                // SAFETY: without one-sided operations, the remote rights mean nothing.
                unsafe { self.register(mem, all) }
            }
            registered => registered,
        }
    }
}

/// Registered memory of a [`Device`]; dropping it deregisters
pub trait MemoryRegion: Send + Sync + 'static {
    /// The address that the device gives to the first byte of the region
    fn base(&self) -> u64;

    /// The key by which requests name the region
    fn lkey(&self) -> Lkey;

    /// The key by which peers name the region, if the device is capable of one-sided operations
    fn rkey(&self) -> Option<Rkey>;

    /// Deregisters the region, which is of no use afterwards; later calls repeat the first answer
    ///
    /// [`Teardown::Quiesced`] proves that the device does not touch the memory any more, whatever queue pairs there were. On a device
    /// whose destroyed queue pairs prove nothing, as Apple's (field reports), it is the only proof. Destroy the queue pairs before.
    fn deregister(&mut self) -> Teardown;
}

/// A queue of finished requests
///
/// May be polled from any thread. Each completion goes to one of the callers.
///
/// ```
/// use rdma_core::{Completion, CompletionQueue as _, Device as _};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let cq = net.open("a", "rdma_en2")?.create_cq(16)?;
///     let mut out = [Completion::default(); 8];
///     assert_eq!(cq.poll(&mut out)?, 0, "no request was posted");
///     Ok::<_, rdma_core::Error>(())
/// })
/// .value
/// .unwrap();
/// ```
pub trait CompletionQueue: Send + Sync + 'static {
    /// Queue pairs that complete here
    type Qp: QueuePair;

    /// Creates a queue pair in [`QpState::Init`] whose sends and receives complete here
    ///
    /// # Errors
    ///
    /// [`Cause::Exhausted`](crate::Cause::Exhausted) beyond [`Caps::max_qp`];
    /// [`Cause::Unsupported`](crate::Cause::Unsupported) for a transport that the device lacks;
    /// [`Invalid::QueueFrames`](crate::Invalid::QueueFrames) beyond [`Caps::max_queue_frames`];
    /// [`Cause::Busy`](crate::Cause::Busy) if the driver is wedged; [`Cause::PortDown`](crate::Cause::PortDown) while the port is
    /// down;
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    fn create_qp(&self, init: &QpInit) -> Result<Self::Qp, Error>;

    /// Moves finished requests into `out`, oldest first, and returns how many
    ///
    /// # Errors
    ///
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished; [`Cause::QueueFull`](crate::Cause::QueueFull) if
    /// the queue overran, after which it reports nothing more.
    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error>;

    /// Waits for finished requests, moves them into `out`, oldest first, and returns how many
    ///
    /// A result shorter than `out` means that the queue was empty then, and that the task of `cx` will be woken for the next
    /// completion: the caller need not poll again before. Only the task of the latest call is woken.
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>>;

    /// Ends the frequent polls after completions that were upkeep, such as heartbeats: no task waits for the next completion
    ///
    /// A queue without events, whose task sleeps between polls, polls often after each completion, because more may follow; after this
    /// call it sleeps on, unless another thread than the polling one has posted meanwhile. It does not change what a poll finds.
    fn rest(&self) {}
}

/// Whether memory of posted requests may be reused after [`QueuePair::destroy`] or [`MemoryRegion::deregister`]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[must_use]
pub enum Teardown {
    /// The device has stopped: memory of posted requests is the caller's again
    Quiesced,
    /// The device may still touch memory of posted requests: it must never be reused nor unmapped
    Unknown,
}

/// One end of a connection
///
/// Dropping a queue pair destroys it; call [`destroy`](Self::destroy) to learn whether its memory can be reused.
///
/// ```
/// use rdma_core::{CompletionQueue as _, Device as _, QpInit, QpState, QueuePair as _, Teardown};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let create = |host| net.open(host, "rdma_en2")?.create_cq(16)?.create_qp(&QpInit::default());
///     let (mut a, b) = (create("a")?, create("b")?);
///     a.connect(&b.address())?;
///     assert_eq!(a.state(), QpState::ReadyToSend);
///     assert_eq!(a.destroy(), Teardown::Quiesced);
///     Ok::<_, rdma_core::Error>(())
/// })
/// .value
/// .unwrap();
/// ```
pub trait QueuePair: Send + Sync + 'static {
    /// The address that the peer needs to connect to this queue pair
    fn address(&self) -> QpAddress;

    /// The space that was granted: at most what the device reports
    ///
    /// It may be more or less than was asked for. Devices have been reported to accept less than they report: a program that
    /// keeps to the lesser of the two is right on every device.
    fn capacity(&self) -> QpCapacity;

    /// The state of the queue pair
    fn state(&self) -> QpState;

    /// Makes a transition of the state machine
    ///
    /// # Errors
    ///
    /// [`Invalid::Transition`](crate::Invalid::Transition) from a state that does not permit it, and
    /// [`Invalid::Destroyed`](crate::Invalid::Destroyed) after [`destroy`](Self::destroy);
    /// [`Invalid::AttrMask`](crate::Invalid::AttrMask) or [`Invalid::Port`](crate::Invalid::Port) for attributes of another device;
    /// [`Cause::PeerUnreachable`](crate::Cause::PeerUnreachable), [`Cause::NoNeighbour`](crate::Cause::NoNeighbour), [`Cause::NoRoute`](crate::Cause::NoRoute),
    /// [`Cause::NoUsableGid`](crate::Cause::NoUsableGid), [`Cause::GidTableEmpty`](crate::Cause::GidTableEmpty) or
    /// [`Cause::Busy`](crate::Cause::Busy) if the transition to ready-to-receive fails: destroy the queue pair then, the
    /// device does not retry; [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    fn modify(&self, to: Transition) -> Result<(), Error>;

    /// Connects to `peer`, from [`QpState::Init`] to [`QpState::ReadyToSend`]
    ///
    /// # Errors
    ///
    /// As [`modify`](Self::modify).
    fn connect(&self, peer: &QpAddress) -> Result<(), Error> {
        self.modify(Transition::ReadyToReceive { peer: *peer })?;
        self.modify(Transition::ReadyToSend)
    }

    /// Posts a request to the send queue
    ///
    /// # Errors
    ///
    /// [`Cause::QueueFull`](crate::Cause::QueueFull) while the frames do not fit beside those in flight;
    /// [`Cause::MessageTooLong`](crate::Cause::MessageTooLong) if they never fit;
    /// [`Cause::Unsupported`](crate::Cause::Unsupported) for an operation that the device lacks;
    /// [`Invalid::Lkey`](crate::Invalid::Lkey), [`Invalid::OutsideRegion`](crate::Invalid::OutsideRegion) or
    /// [`Invalid::SgeCount`](crate::Invalid::SgeCount) for memory that the request may not name;
    /// [`Invalid::State`](crate::Invalid::State) or [`Invalid::Destroyed`](crate::Invalid::Destroyed) for a queue pair that takes no
    /// request; [`Cause::PortDown`](crate::Cause::PortDown) while the port is down;
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished. **On error the device has not taken the
    /// request**: there will be no completion, and the memory is still the caller's.
    ///
    /// # Safety
    ///
    /// The caller ensures:
    ///
    /// * no other call of `post_send` or [`post_recv`](Self::post_recv) on the same queue pair runs at the same time, on any
    ///   thread: the queue pair has one owner, or a lock. Calls on different queue pairs may overlap, and so may all
    ///   other methods;
    /// * from this call until the completion of the request was polled, or until [`destroy`](Self::destroy) returned
    ///   [`Teardown::Quiesced`], the memory named by the request stays registered and valid, and is not written.
    ///   [`SendOp::Read`](crate::SendOp::Read), [`SendOp::FetchAdd`](crate::SendOp::FetchAdd) and
    ///   [`SendOp::CompareSwap`](crate::SendOp::CompareSwap) write it: it is then not read either.
    #[track_caller]
    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error>;

    /// Posts memory for the next message of the peer
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// The caller ensures:
    ///
    /// * no other call of [`post_send`](Self::post_send) or `post_recv` on the same queue pair runs at the same time, on any
    ///   thread;
    /// * from this call until the completion of the request was polled, or until [`destroy`](Self::destroy) returned
    ///   [`Teardown::Quiesced`], the memory named by the request stays registered and valid, and is neither read nor
    ///   written.
    #[track_caller]
    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error>;

    /// Stops the queue pair; later calls repeat the first answer
    fn destroy(&mut self) -> Teardown;
}
