//! A device chosen at run time
//!
//! The erased twins live in a private module: as public traits with blanket implementations they would make every
//! method call on a concrete device ambiguous.

#![allow(unsafe_code, reason = "forwards the unsafe methods of the traits")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{
    Access, Caps, Completion, CompletionQueue, Device, Error, Gid, Lkey, MemoryRegion, PortStatus, QpAddress,
    QpCapacity, QpInit, QpState, QueuePair, RecvRequest, Rkey, SendRequest, Teardown, Transition,
};

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
pub struct AnyDevice(Arc<dyn erased::Device>);

/// A completion queue of an [`AnyDevice`]
pub struct AnyCompletionQueue(Box<dyn erased::CompletionQueue>);

/// A memory region of an [`AnyDevice`]
pub struct AnyMemoryRegion(Box<dyn MemoryRegion>);

/// A queue pair of an [`AnyDevice`]
pub struct AnyQueuePair(Box<dyn QueuePair>);

impl AnyDevice {
    /// Erases the type of `device`
    pub fn new<D: Device>(device: D) -> Self {
        Self(Arc::new(device))
    }
}

// SAFETY: every promise is kept by the device inside, to which each call is forwarded unchanged.
unsafe impl Device for AnyDevice {
    type Mr = AnyMemoryRegion;
    type Cq = AnyCompletionQueue;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.0.port()
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        self.0.gids()
    }

    fn create_cq(&self, depth: u32) -> Result<AnyCompletionQueue, Error> {
        self.0.create_cq(depth).map(AnyCompletionQueue)
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<AnyMemoryRegion, Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.0.register(mem, access) }.map(AnyMemoryRegion)
    }
}

impl MemoryRegion for AnyMemoryRegion {
    fn base(&self) -> u64 {
        self.0.base()
    }

    fn lkey(&self) -> Lkey {
        self.0.lkey()
    }

    fn rkey(&self) -> Option<Rkey> {
        self.0.rkey()
    }
}

impl CompletionQueue for AnyCompletionQueue {
    type Qp = AnyQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<AnyQueuePair, Error> {
        self.0.create_qp(init).map(AnyQueuePair)
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.0.poll(out)
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        self.0.poll_completions(cx, out)
    }
}

impl QueuePair for AnyQueuePair {
    fn address(&self) -> QpAddress {
        self.0.address()
    }

    fn capacity(&self) -> QpCapacity {
        self.0.capacity()
    }

    fn state(&self) -> QpState {
        self.0.state()
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        self.0.modify(to)
    }

    fn connect(&self, peer: &QpAddress) -> Result<(), Error> {
        self.0.connect(peer)
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

mod erased {
    use std::ptr::NonNull;
    use std::task::{Context, Poll};

    use crate::{Access, Caps, Completion, Error, Gid, MemoryRegion, PortStatus, QpInit, QueuePair};

    pub(super) trait Device: Send + Sync + 'static {
        fn name(&self) -> &str;
        fn caps(&self) -> &Caps;
        fn port(&self) -> Result<PortStatus, Error>;
        fn gids(&self) -> Result<Vec<Gid>, Error>;
        fn create_cq(&self, depth: u32) -> Result<Box<dyn CompletionQueue>, Error>;
        /// # Safety
        ///
        /// As [`crate::Device::register`].
        unsafe fn register(&self, mem: NonNull<[u8]>, access: Access)
        -> Result<Box<dyn MemoryRegion>, Error>;
    }

    pub(super) trait CompletionQueue: Send + Sync + 'static {
        fn create_qp(&self, init: &QpInit) -> Result<Box<dyn QueuePair>, Error>;
        fn poll(&self, out: &mut [Completion]) -> Result<usize, Error>;
        fn poll_completions(
            &self,
            cx: &mut Context<'_>,
            out: &mut [Completion],
        ) -> Poll<Result<usize, Error>>;
    }

    impl<D: crate::Device> Device for D {
        fn name(&self) -> &str {
            crate::Device::name(self)
        }

        fn caps(&self) -> &Caps {
            crate::Device::caps(self)
        }

        fn port(&self) -> Result<PortStatus, Error> {
            crate::Device::port(self)
        }

        fn gids(&self) -> Result<Vec<Gid>, Error> {
            crate::Device::gids(self)
        }

        fn create_cq(&self, depth: u32) -> Result<Box<dyn CompletionQueue>, Error> {
            Ok(Box::new(crate::Device::create_cq(self, depth)?))
        }

        unsafe fn register(
            &self,
            mem: NonNull<[u8]>,
            access: Access,
        ) -> Result<Box<dyn MemoryRegion>, Error> {
            // SAFETY: the caller keeps the same contract.
            Ok(Box::new(unsafe { crate::Device::register(self, mem, access) }?))
        }
    }

    impl<C: crate::CompletionQueue> CompletionQueue for C {
        fn create_qp(&self, init: &QpInit) -> Result<Box<dyn QueuePair>, Error> {
            Ok(Box::new(crate::CompletionQueue::create_qp(self, init)?))
        }

        fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
            crate::CompletionQueue::poll(self, out)
        }

        fn poll_completions(
            &self,
            cx: &mut Context<'_>,
            out: &mut [Completion],
        ) -> Poll<Result<usize, Error>> {
            crate::CompletionQueue::poll_completions(self, cx, out)
        }
    }
}
