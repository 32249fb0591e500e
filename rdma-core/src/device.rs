use std::ptr::NonNull;
use std::task::{Context, Poll};

use crate::{
    Access, Caps, Completion, Error, Gid, Lkey, PortStatus, QpAddress, QpCapacity, QpInit, QpState,
    RecvRequest, Rkey, SendRequest, Transition,
};

/// An open RDMA device with its protection domain: one port, one cable, one neighbour
///
/// # Safety
///
/// The implementor promises:
///
/// * after [`QueuePair::destroy`] returned [`Teardown::Quiesced`], the device never again touches memory named by a
///   request that was posted on that queue pair;
/// * a request is completed at most once, and memory it names is not touched after its completion was polled;
/// * the device touches only memory that is registered and named by a posted request.
pub unsafe trait Device: Send + Sync + 'static {
    /// Its memory regions
    type Mr: MemoryRegion;
    /// Its completion queues
    type Cq: CompletionQueue;

    /// Name of the device, such as `rdma_en2`
    fn name(&self) -> &str;

    /// What the device can do
    fn caps(&self) -> &Caps;

    /// Whether the port can carry traffic, and how fast
    ///
    /// # Errors
    ///
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    fn port(&self) -> Result<PortStatus, Error>;

    /// The GID table of the port, without trailing unset entries
    ///
    /// # Errors
    ///
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished.
    fn gids(&self) -> Result<Vec<Gid>, Error>;

    /// A completion queue with space for `depth` entries
    ///
    /// # Errors
    ///
    /// [`Cause::Exhausted`](crate::Cause::Exhausted) beyond [`Caps::max_cq`];
    /// [`Cause::PortDown`](crate::Cause::PortDown) while nobody is at the other end.
    fn create_cq(&self, depth: u32) -> Result<Self::Cq, Error>;

    /// Makes `mem` known to the device
    ///
    /// The region is deregistered when the returned value is dropped.
    ///
    /// # Errors
    ///
    /// [`Cause::Exhausted`](crate::Cause::Exhausted) beyond [`Caps::max_mr`].
    ///
    /// # Safety
    ///
    /// `mem` stays valid for reads and writes until the returned region is dropped, and nothing but the device
    /// accesses the parts of it that are named by a posted request.
    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<Self::Mr, Error>;
}

/// Memory that the device may touch; dropping it deregisters
pub trait MemoryRegion: Send + Sync + 'static {
    /// The address that the device gives to the first byte of the region
    fn base(&self) -> u64;

    /// The key that requests name the region by
    fn lkey(&self) -> Lkey;

    /// The key that peers name the region by, if they can
    fn rkey(&self) -> Option<Rkey>;
}

/// Where finished requests are reported
pub trait CompletionQueue: Send + Sync + 'static {
    /// The queue pairs that report here
    type Qp: QueuePair;

    /// A queue pair whose sends and receives complete here, in [`QpState::Init`]
    ///
    /// # Errors
    ///
    /// [`Cause::Exhausted`](crate::Cause::Exhausted) beyond [`Caps::max_qp`];
    /// [`Cause::Unsupported`](crate::Cause::Unsupported) for a transport that the device lacks.
    fn create_qp(&self, init: &QpInit) -> Result<Self::Qp, Error>;

    /// Moves finished requests into `out`, oldest first, and tells how many
    ///
    /// # Errors
    ///
    /// [`Cause::DeviceGone`](crate::Cause::DeviceGone) if the device vanished; the queue overran, which is fatal.
    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error>;

    /// Moves finished requests into `out` as soon as there is one, and tells how many
    ///
    /// If that is fewer than fit, the queue was empty then, and the task of `cx` will be woken for the next one: there is
    /// no need to ask again before. Only the task of the latest call is woken.
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>>;
}

/// What is known when a queue pair has been destroyed
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Teardown {
    /// The device has stopped: memory of posted requests is the caller's again
    Quiesced,
    /// The device may still touch memory of posted requests: it must not be reused
    Unknown,
}

/// One end of a connection
///
/// Dropping a queue pair destroys it; call [`destroy`](Self::destroy) to learn whether its memory can be reused.
pub trait QueuePair: Send + Sync + 'static {
    /// What the peer needs to connect to this queue pair
    fn address(&self) -> QpAddress;

    /// The space that was granted, which may be more or less than was asked for
    fn capacity(&self) -> QpCapacity;

    /// Where in its state machine the queue pair is
    fn state(&self) -> QpState;

    /// Takes a step of the state machine
    ///
    /// # Errors
    ///
    /// What the device answers; see [`Cause`](crate::Cause). A queue pair whose step to ready-to-receive failed
    /// must be destroyed and created anew.
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

    /// Queues bytes for the peer
    ///
    /// # Errors
    ///
    /// [`Cause::QueueFull`](crate::Cause::QueueFull) or
    /// [`Cause::MessageTooLong`](crate::Cause::MessageTooLong) when the frames do not fit. **On error the device has not
    /// taken the request**: there will be no completion, and the memory is still the caller's.
    ///
    /// # Safety
    ///
    /// From this call until the completion of the request has been polled, or until [`destroy`](Self::destroy)
    /// returned [`Teardown::Quiesced`], the memory named by the request stays registered and is not written.
    #[track_caller]
    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error>;

    /// Offers memory for the next message of the peer
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// From this call until the completion of the request has been polled, or until [`destroy`](Self::destroy)
    /// returned [`Teardown::Quiesced`], the memory named by the request stays registered and is neither read nor
    /// written.
    #[track_caller]
    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error>;

    /// Stops the queue pair; later calls repeat the first answer
    fn destroy(&mut self) -> Teardown;
}
