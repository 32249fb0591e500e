//! A device of which each verb is noted while it is called, for a thread that watches whether one hangs
#![allow(unsafe_code, reason = "forwards the unsafe methods of the traits")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rdma_core::{
    Access, AnyCompletionQueue, AnyDevice, AnyMemoryRegion, AnyQueuePair, Caps, Completion, CompletionQueue,
    Device, Error, Gid, Lkey, MemoryRegion, PortStatus, QpAddress, QpCapacity, QpInit, QpState, QueuePair,
    RecvRequest, Rkey, SendRequest, Teardown, Transition, Verb,
};

use crate::calls::{Call, Calls};

/// Opens a device by `open`, and notes that verb and each one of the device in `calls`
pub(crate) fn open_watched(
    calls: &Arc<Calls>,
    open: impl FnOnce() -> Result<AnyDevice, Error>,
) -> Result<AnyDevice, Error> {
    calls.during(Call::Open, open).map(|device| watch(device, calls))
}

/// Notes each verb of an open device in `calls`
pub(crate) fn watch(device: AnyDevice, calls: &Arc<Calls>) -> AnyDevice {
    AnyDevice::new(Watched::new(device, Call::DeallocPd, calls))
}

/// A device or one of its objects
struct Watched<T> {
    /// `None` once it is being dropped.
    inner: Option<T>,
    /// The verb of the drop
    ends_by: Call,
    calls: Arc<Calls>,
}

impl<T> Watched<T> {
    fn new(inner: T, ends_by: Call, calls: &Arc<Calls>) -> Self {
        Self { inner: Some(inner), ends_by, calls: Arc::clone(calls) }
    }

    fn inner(&self) -> &T {
        self.inner.as_ref().expect("it is there until it is dropped")
    }

    fn inner_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        let inner = self.inner.take();
        self.calls.during(self.ends_by, || drop(inner));
    }
}

/// Methods that call those of the object inside, noted as a verb
macro_rules! forward {
    ($($verb:ident: fn $method:ident(&self $(, $argument:ident: $type:ty)*) -> $output:ty;)+) => {$(
        fn $method(&self $(, $argument: $type)*) -> $output {
            self.calls.during(Call::$verb, || self.inner().$method($($argument),*))
        }
    )+};
}

// SAFETY: every promise is kept by the device inside, to which each call is forwarded unchanged.
unsafe impl Device for Watched<AnyDevice> {
    type Mr = Watched<AnyMemoryRegion>;
    type Cq = Watched<AnyCompletionQueue>;

    forward! {
        QueryPort: fn port(&self) -> Result<PortStatus, Error>;
        QueryGid: fn gids(&self) -> Result<Vec<Gid>, Error>;
    }

    fn name(&self) -> &str {
        self.inner().name()
    }

    fn caps(&self) -> &Caps {
        self.inner().caps()
    }

    fn watch_port(&self, waker: Waker) -> bool {
        self.inner().watch_port(waker)
    }

    fn blocked(&self) -> Option<Verb> {
        self.inner().blocked()
    }

    fn create_cq(&self, depth: u32) -> Result<Watched<AnyCompletionQueue>, Error> {
        let created = self.calls.during(Call::CreateCq, || self.inner().create_cq(depth))?;
        Ok(Watched::new(created, Call::DestroyCq, &self.calls))
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<Watched<AnyMemoryRegion>, Error> {
        // SAFETY: the caller keeps the same contract.
        let registered = self.calls.during(Call::RegMr, || unsafe { self.inner().register(mem, access) })?;
        Ok(Watched::new(registered, Call::DeregMr, &self.calls))
    }
}

impl MemoryRegion for Watched<AnyMemoryRegion> {
    fn base(&self) -> u64 {
        self.inner().base()
    }

    fn lkey(&self) -> Lkey {
        self.inner().lkey()
    }

    fn rkey(&self) -> Option<Rkey> {
        self.inner().rkey()
    }

    fn deregister(&mut self) -> Teardown {
        let calls = Arc::clone(&self.calls);
        calls.during(Call::DeregMr, || self.inner_mut().deregister())
    }
}

impl CompletionQueue for Watched<AnyCompletionQueue> {
    type Qp = Watched<AnyQueuePair>;

    forward! {
        PollCq: fn poll(&self, out: &mut [Completion]) -> Result<usize, Error>;
        PollCq: fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>>;
    }

    fn rest(&self) {
        self.inner().rest();
    }

    fn create_qp(&self, init: &QpInit) -> Result<Watched<AnyQueuePair>, Error> {
        let created = self.calls.during(Call::CreateQp, || self.inner().create_qp(init))?;
        Ok(Watched::new(created, Call::DestroyQp, &self.calls))
    }
}

impl QueuePair for Watched<AnyQueuePair> {
    forward! {
        QueryQp: fn state(&self) -> QpState;
        ModifyQp: fn modify(&self, to: Transition) -> Result<(), Error>;
        ModifyQp: fn connect(&self, peer: &QpAddress) -> Result<(), Error>;
    }

    fn address(&self) -> QpAddress {
        self.inner().address()
    }

    fn capacity(&self) -> QpCapacity {
        self.inner().capacity()
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        // SAFETY: the caller keeps the same contract.
        self.calls.during(Call::PostSend, || unsafe { self.inner().post_send(request) })
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        // SAFETY: the caller keeps the same contract.
        self.calls.during(Call::PostRecv, || unsafe { self.inner().post_recv(request) })
    }

    fn destroy(&mut self) -> Teardown {
        let calls = Arc::clone(&self.calls);
        calls.during(Call::DestroyQp, || self.inner_mut().destroy())
    }
}
