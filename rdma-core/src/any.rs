//! A device chosen at run time

#![allow(unsafe_code, reason = "forwards the unsafe methods of the traits")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::{
    Access, Caps, Completion, CompletionQueue, Device, Error, Gid, Lkey, MemoryRegion, PortStatus, QpAddress,
    QpCapacity, QpInit, QpState, QueuePair, RecvRequest, Rkey, SendRequest, Teardown, Transition, Verb,
};

/// Methods that do what those of the value inside do
macro_rules! forward {
    ($(fn $method:ident(&self $(, $argument:ident: $type:ty)*) -> $output:ty;)+) => {$(
        fn $method(&self $(, $argument: $type)*) -> $output {
            self.0.$method($($argument),*)
        }
    )+};
}

/// A device whose backend is chosen at run time
///
/// Itself a [`Device`], so that code above the traits needs no second form. Each verb costs one virtual call.
///
/// ```
/// use rdma_core::{AnyDevice, Device as _};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let device = AnyDevice::new(net.open("a", "rdma_en2")?);
///     assert_eq!(device.name(), "rdma_en2");
///     let cq: rdma_core::AnyCompletionQueue = device.create_cq(16)?;
///     # drop(cq);
///     Ok::<_, rdma_core::Error>(())
/// })
/// .value
/// .unwrap();
/// ```
#[derive(Clone)]
pub struct AnyDevice(Arc<dyn Device<Mr = AnyMemoryRegion, Cq = AnyCompletionQueue>>);

/// A completion queue of an [`AnyDevice`]
pub struct AnyCompletionQueue(Box<dyn CompletionQueue<Qp = AnyQueuePair>>);

/// A memory region of an [`AnyDevice`]
pub struct AnyMemoryRegion(Box<dyn MemoryRegion>);

/// A queue pair of an [`AnyDevice`]
pub struct AnyQueuePair(Box<dyn QueuePair>);

impl AnyDevice {
    /// Erases the type of `device`
    pub fn new<D: Device>(device: D) -> Self {
        Self(Arc::new(Erased(device)))
    }
}

// SAFETY: every promise is kept by the device inside, to which each call is forwarded unchanged.
unsafe impl Device for AnyDevice {
    type Mr = AnyMemoryRegion;
    type Cq = AnyCompletionQueue;

    forward! {
        fn name(&self) -> &str;
        fn caps(&self) -> &Caps;
        fn port(&self) -> Result<PortStatus, Error>;
        fn watch_port(&self, waker: Waker) -> bool;
        fn blocked(&self) -> Option<Verb>;
        fn gids(&self) -> Result<Vec<Gid>, Error>;
        fn create_cq(&self, depth: u32) -> Result<AnyCompletionQueue, Error>;
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<AnyMemoryRegion, Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.0.register(mem, access) }
    }
}

impl MemoryRegion for AnyMemoryRegion {
    forward! {
        fn base(&self) -> u64;
        fn lkey(&self) -> Lkey;
        fn rkey(&self) -> Option<Rkey>;
    }

    fn deregister(&mut self) -> Teardown {
        self.0.deregister()
    }
}

impl CompletionQueue for AnyCompletionQueue {
    type Qp = AnyQueuePair;

    fn rest(&self) {
        self.0.rest();
    }

    forward! {
        fn create_qp(&self, init: &QpInit) -> Result<AnyQueuePair, Error>;
        fn poll(&self, out: &mut [Completion]) -> Result<usize, Error>;
        fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>>;
    }
}

impl QueuePair for AnyQueuePair {
    forward! {
        fn address(&self) -> QpAddress;
        fn capacity(&self) -> QpCapacity;
        fn state(&self) -> QpState;
        fn modify(&self, to: Transition) -> Result<(), Error>;
        fn connect(&self, peer: &QpAddress) -> Result<(), Error>;
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.0.post_send(request) }
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.0.post_recv(request) }
    }

    fn destroy(&mut self) -> Teardown {
        self.0.destroy()
    }
}

/// Wraps a device or a completion queue, and boxes the objects that it creates
struct Erased<T>(T);

// SAFETY: every promise is kept by the device inside, to which each call is forwarded unchanged.
unsafe impl<D: Device> Device for Erased<D> {
    type Mr = AnyMemoryRegion;
    type Cq = AnyCompletionQueue;

    forward! {
        fn name(&self) -> &str;
        fn caps(&self) -> &Caps;
        fn port(&self) -> Result<PortStatus, Error>;
        fn watch_port(&self, waker: Waker) -> bool;
        fn blocked(&self) -> Option<Verb>;
        fn gids(&self) -> Result<Vec<Gid>, Error>;
    }

    fn create_cq(&self, depth: u32) -> Result<AnyCompletionQueue, Error> {
        Ok(AnyCompletionQueue(Box::new(Erased(self.0.create_cq(depth)?))))
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<AnyMemoryRegion, Error> {
        // SAFETY: the caller keeps the same contract.
        Ok(AnyMemoryRegion(Box::new(unsafe { self.0.register(mem, access) }?)))
    }
}

impl<C: CompletionQueue> CompletionQueue for Erased<C> {
    type Qp = AnyQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<AnyQueuePair, Error> {
        Ok(AnyQueuePair(Box::new(self.0.create_qp(init)?)))
    }

    fn rest(&self) {
        self.0.rest();
    }

    forward! {
        fn poll(&self, out: &mut [Completion]) -> Result<usize, Error>;
        fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>>;
    }
}
