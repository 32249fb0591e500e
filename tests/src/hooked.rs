//! A simulated device of which a test changes single answers
#![allow(unsafe_code, reason = "a device is an unsafe trait")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use rdma_core::{
    Access, Caps, Cause, Completion, CompletionQueue, Device, Error, Gid, Lkey, MemoryRegion, PortStatus,
    QpAddress, QpCapacity, QpInit, QpState, QueuePair, RecvRequest, Rkey, SendRequest, Sge, Teardown,
    Transition, Verb,
};
use rdma_sim::{SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair};

/// What a test changes, by default nothing; queue pairs are numbered from 0 in the order of their creation
pub trait Hooks: Send + Sync + 'static {
    /// Called before each verb of connecting and teardown, on the thread that calls it
    fn call(&self, _verb: Verb) {}

    /// Refuses a poll
    fn poll(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Changes what a poll has found
    fn polled(&self, _completions: &mut [Completion]) {}

    /// Told that what has completed was upkeep
    fn rest(&self) {}

    /// Whether the device reports changes of its port
    fn is_port_watched(&self) -> bool {
        true
    }

    /// Changes what a device states
    ///
    /// It refuses messages that are longer than what it states.
    fn caps(&self, _device: &str, _caps: &mut Caps) {}

    /// Told what the device answers to a transition of a queue pair
    fn modified(&self, _outcome: &Result<(), Error>) {}

    /// Refuses a receive
    fn post_recv(&self, _qp: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Called before a queue pair is destroyed; replaces what the device answers
    fn destroy(&self, _qp: u32) -> Option<Teardown> {
        None
    }

    /// Replaces what the device answers when memory is deregistered
    fn deregister(&self) -> Option<Teardown> {
        None
    }
}

/// A device with [`Hooks`]
pub struct Hooked<H> {
    device: SimDevice,
    caps: Caps,
    hooks: Arc<H>,
}

/// A completion queue of a [`Hooked`] device
pub struct HookedCompletionQueue<H> {
    cq: SimCompletionQueue,
    max_message: u32,
    created: AtomicU32,
    hooks: Arc<H>,
}

/// Memory of a [`Hooked`] device
pub struct HookedMemoryRegion<H> {
    mr: SimMemoryRegion,
    teardown: Option<Teardown>,
    hooks: Arc<H>,
}

/// A queue pair of a [`Hooked`] device
pub struct HookedQueuePair<H> {
    qp: SimQueuePair,
    max_message: u32,
    number: u32,
    teardown: Option<Teardown>,
    hooks: Arc<H>,
}

impl<H: Hooks> Hooked<H> {
    /// The device under `hooks`
    pub fn new(device: SimDevice, hooks: &Arc<H>) -> Self {
        let mut caps = device.caps().clone();
        hooks.caps(device.name(), &mut caps);
        Self { device, caps, hooks: Arc::clone(hooks) }
    }
}

// SAFETY: the simulated device keeps every promise about memory; only answers are changed, and a queue pair that is said to go on
// has stopped, as memory that is said to be in use is not used.
unsafe impl<H: Hooks> Device for Hooked<H> {
    type Mr = HookedMemoryRegion<H>;
    type Cq = HookedCompletionQueue<H>;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.hooks.call(Verb::QueryPort);
        self.device.port()
    }

    fn watch_port(&self, waker: Waker) -> bool {
        self.hooks.is_port_watched() && self.device.watch_port(waker)
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        self.device.gids()
    }

    fn create_cq(&self, depth: u32) -> Result<Self::Cq, Error> {
        self.hooks.call(Verb::CreateCq);
        let (cq, created) = (self.device.create_cq(depth)?, AtomicU32::new(0));
        let (max_message, hooks) = (self.caps.max_message, Arc::clone(&self.hooks));
        Ok(HookedCompletionQueue { cq, max_message, created, hooks })
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<Self::Mr, Error> {
        self.hooks.call(Verb::RegMr);
        // SAFETY: the caller keeps the same contract.
        let mr = unsafe { self.device.register(mem, access) }?;
        Ok(HookedMemoryRegion { mr, teardown: None, hooks: Arc::clone(&self.hooks) })
    }
}

impl<H: Hooks> MemoryRegion for HookedMemoryRegion<H> {
    fn base(&self) -> u64 {
        self.mr.base()
    }

    fn lkey(&self) -> Lkey {
        self.mr.lkey()
    }

    fn rkey(&self) -> Option<Rkey> {
        self.mr.rkey()
    }

    fn deregister(&mut self) -> Teardown {
        *self.teardown.get_or_insert_with(|| {
            self.hooks.call(Verb::DeregMr);
            let outcome = self.mr.deregister();
            self.hooks.deregister().unwrap_or(outcome)
        })
    }
}

impl<H: Hooks> CompletionQueue for HookedCompletionQueue<H> {
    type Qp = HookedQueuePair<H>;

    fn create_qp(&self, init: &QpInit) -> Result<Self::Qp, Error> {
        self.hooks.call(Verb::CreateQp);
        let (qp, hooks) = (self.cq.create_qp(init)?, Arc::clone(&self.hooks));
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        Ok(HookedQueuePair { qp, max_message: self.max_message, number, teardown: None, hooks })
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.hooks.poll()?;
        let n = self.cq.poll(out)?;
        self.hooks.polled(&mut out[..n]);
        Ok(n)
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        self.hooks.poll()?;
        self.cq.poll_completions(cx, out).map_ok(|n| {
            self.hooks.polled(&mut out[..n]);
            n
        })
    }

    fn rest(&self) {
        self.hooks.rest();
        self.cq.rest();
    }
}

impl<H> HookedQueuePair<H> {
    /// Refuses a message that is longer than the device states
    fn check_len(&self, verb: Verb, sgl: &[Sge]) -> Result<(), Error> {
        let (len, max) = (sgl.iter().map(|sge| u64::from(sge.len)).sum(), self.max_message.into());
        if len > max {
            return Err(Error::new(verb, Cause::MessageTooLong { len, max }));
        }
        Ok(())
    }
}

impl<H: Hooks> QueuePair for HookedQueuePair<H> {
    fn address(&self) -> QpAddress {
        self.qp.address()
    }

    fn capacity(&self) -> QpCapacity {
        self.qp.capacity()
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        self.hooks.call(Verb::ModifyQp);
        let outcome = self.qp.modify(to);
        self.hooks.modified(&outcome);
        outcome
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        self.check_len(Verb::PostSend, request.sgl)?;
        // SAFETY: the caller keeps the same contract.
        unsafe { self.qp.post_send(request) }
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        self.check_len(Verb::PostRecv, request.sgl)?;
        self.hooks.post_recv(self.number)?;
        // SAFETY: the caller keeps the same contract.
        unsafe { self.qp.post_recv(request) }
    }

    fn destroy(&mut self) -> Teardown {
        *self.teardown.get_or_insert_with(|| {
            self.hooks.call(Verb::DestroyQp);
            let answer = self.hooks.destroy(self.number);
            let outcome = self.qp.destroy();
            answer.unwrap_or(outcome)
        })
    }
}
