//! The simulated device behind the verbs traits

#![allow(unsafe_code, reason = "implements the unsafe trait and methods")]

use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use rdma_core::{
    Access, AttrMask, Caps, Cause, Completion, CompletionQueue, Device, Error, Gid, Invalid, Lkey,
    MemoryRegion, PortStatus, QpAddress, QpAttr, QpCapacity, QpInit, QpState, QueuePair, RecvRequest, Rkey,
    SendRequest, Teardown, Transition, Verb, probe,
};

use crate::cpu;
use crate::fabric::{Change, CqKey, DeviceIndex, DeviceRef, Fabric, QpKey, Registered};
use crate::shared::Shared;

/// An open device of a simulated Mac, with its protection domain
///
/// ```
/// use rdma_core::{CompletionQueue as _, Device as _, QpInit, QpState, QueuePair as _};
/// use rdma_sim::Sim;
///
/// Sim::new().run(|net| async move {
///     let device = net.open("a", "rdma_en2").expect("a cable is in the port");
///     let cq = device.create_cq(16).expect("the device is fresh");
///     let qp = cq.create_qp(&QpInit::default()).expect("the device is fresh");
///     assert_eq!(qp.state(), QpState::Init);
/// });
/// ```
#[derive(Debug)]
pub struct SimDevice {
    context: Arc<DeviceContext>,
    name: String,
    caps: Caps,
}

/// Closes the device when the last of its objects is gone.
#[derive(Debug)]
struct DeviceContext {
    net: Arc<Shared>,
    device: DeviceRef,
    /// Whether a protection domain is part of it.
    has_pd: bool,
    /// Whether the device is closed with it, rather than with the context that it was made of.
    closes: bool,
    /// The number of its waker for changes of the port
    port_watch: OnceLock<u64>,
    /// Other attributes of transitions to RTR than a careful program chooses: the source index, the path MTU.
    path: Option<(Option<u8>, u32)>,
}

impl DeviceContext {
    /// Calls a verb of the device that may take time
    fn verb<T>(&self, verb: Verb, call: impl FnOnce(&mut Fabric) -> Result<T, Error>) -> Result<T, Error> {
        self.net.verb(self.device, verb, call)
    }
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        if self.has_pd && self.net.begin(self.device, Verb::DeallocPd) {
            let Fabric { world, objects, .. } = &mut self.net.lock().fabric;
            world.dealloc_pd(self.device, objects);
        }
        if self.closes {
            self.net.begin(self.device, Verb::CloseDevice);
        }
        if let Some(watch) = self.port_watch.get() {
            // Dropping a waker may run any code: not under the lock.
            let waker = self.net.lock().ports.leave(*watch);
            drop(waker);
        }
    }
}

impl SimDevice {
    pub(crate) fn open(net: &Arc<Shared>, device: DeviceIndex) -> Result<Self, Error> {
        Self::context(net, device, false).pd_of(true)
    }

    pub(crate) fn open_context(net: &Arc<Shared>, device: DeviceIndex) -> Self {
        Self::context(net, device, true)
    }

    fn context(net: &Arc<Shared>, device: DeviceIndex, closes: bool) -> Self {
        let state = net.lock();
        let Fabric { world, model, .. } = &state.fabric;
        let (name, caps) = (world.device_name(device).to_owned(), model.caps.clone());
        let device = world.current(device);
        drop(state);
        net.begin(device, Verb::OpenDevice);
        let port_watch = OnceLock::new();
        let context =
            DeviceContext { net: Arc::clone(net), device, has_pd: false, closes, port_watch, path: None };
        Self { context: Arc::new(context), name, caps }
    }

    /// The device with these attributes in transitions to RTR: the index of the source GID, by default that of a usable entry, and the
    /// path MTU in bytes
    ///
    /// # Panics
    ///
    /// If an object of the device exists.
    #[must_use]
    pub fn with_path(mut self, source_index: Option<u8>, path_mtu: u32) -> Self {
        let context = Arc::get_mut(&mut self.context).expect("the device has no objects yet");
        context.path = Some((source_index, path_mtu));
        self
    }

    /// Another handle of the device, with a protection domain of its own
    ///
    /// # Errors
    ///
    /// [`Cause::PortDown`] if no host is up at the other end; [`Cause::Exhausted`] beyond the device's limit;
    /// [`Cause::DeviceGone`] if the cable was pulled since the device was opened.
    pub fn alloc_pd(&self) -> Result<Self, Error> {
        self.pd_of(false)
    }

    /// As [`alloc_pd`](Self::alloc_pd); with `closes`, the device is closed with the protection domain
    fn pd_of(&self, closes: bool) -> Result<Self, Error> {
        let DeviceContext { net, device, .. } = &*self.context;
        net.verb(*device, Verb::AllocPd, |fabric| fabric.world.alloc_pd(*device, &mut fabric.objects))?;
        let port_watch = OnceLock::new();
        let net = Arc::clone(net);
        let context = DeviceContext { net, device: *device, has_pd: true, closes, port_watch, path: None };
        Ok(Self { context: Arc::new(context), name: self.name.clone(), caps: self.caps.clone() })
    }

    /// A queue pair in [`QpState::Reset`], whose sends complete in one queue and whose receives in another
    ///
    /// # Errors
    ///
    /// As [`create_qp`](CompletionQueue::create_qp).
    pub fn create_qp_between(
        &self,
        send_cq: &SimCompletionQueue,
        recv_cq: &SimCompletionQueue,
        init: &QpInit,
    ) -> Result<SimQueuePair, Error> {
        Self::create_qp_on(&self.context, [send_cq.key, recv_cq.key], init)
    }

    fn create_qp_on(
        context: &Arc<DeviceContext>,
        cqs: [CqKey; 2],
        init: &QpInit,
    ) -> Result<SimQueuePair, Error> {
        let (key, address, capacity) =
            context.verb(Verb::CreateQp, |fabric| fabric.create_qp(context.device, cqs, init))?;
        Ok(SimQueuePair { context: Arc::clone(context), key, address, capacity, teardown: None })
    }
}

// SAFETY: the fabric touches memory only under its lock and only in registered regions: that of requests which are posted on
// a queue pair that exists, and that of regions with a remote right. A completed request leaves its queue before its completion
// can be polled; destroying a queue pair removes its requests. Faults and rules that model a broken device break this on purpose.
unsafe impl Device for SimDevice {
    type Mr = SimMemoryRegion;
    type Cq = SimCompletionQueue;

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.context.verb(Verb::QueryPort, |fabric| Ok(fabric.world.port(self.context.device.index)))
    }

    fn watch_port(&self, waker: Waker) -> bool {
        let mut state = self.context.net.lock();
        let watch = self.context.port_watch.get_or_init(|| state.ports.number());
        let before = state.ports.watch(*watch, waker);
        // Dropping a waker may run any code: not under the lock.
        drop(state);
        drop(before);
        true
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        self.context.verb(Verb::QueryGid, |fabric| Ok(fabric.world.gids(self.context.device.index).to_vec()))
    }

    fn create_cq(&self, depth: u32) -> Result<SimCompletionQueue, Error> {
        let key = self.context.verb(Verb::CreateCq, |fabric| fabric.create_cq(self.context.device, depth))?;
        Ok(SimCompletionQueue { context: Arc::clone(&self.context), key })
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<SimMemoryRegion, Error> {
        let register = |fabric: &mut Fabric| fabric.register(self.context.device, mem, access);
        let registered = self.context.verb(Verb::RegMr, register)?;
        Ok(SimMemoryRegion { context: Arc::clone(&self.context), registered, teardown: None })
    }
}

/// Memory registered with a [`SimDevice`]
#[derive(Debug)]
pub struct SimMemoryRegion {
    context: Arc<DeviceContext>,
    registered: Registered,
    /// What the device answered when it was deregistered
    teardown: Option<Teardown>,
}

impl MemoryRegion for SimMemoryRegion {
    fn base(&self) -> u64 {
        self.registered.base
    }

    fn lkey(&self) -> Lkey {
        self.registered.lkey
    }

    fn rkey(&self) -> Option<Rkey> {
        self.registered.rkey
    }

    fn deregister(&mut self) -> Teardown {
        let Self { context, registered, teardown } = self;
        *teardown.get_or_insert_with(|| {
            if !context.net.begin(context.device, Verb::DeregMr) {
                return Teardown::Unknown;
            }
            context.net.lock().fabric.deregister(registered.key);
            Teardown::Quiesced
        })
    }
}

impl Drop for SimMemoryRegion {
    fn drop(&mut self) {
        let _quiesced = self.deregister();
    }
}

/// A completion queue of a [`SimDevice`]
#[derive(Debug)]
pub struct SimCompletionQueue {
    context: Arc<DeviceContext>,
    key: CqKey,
}

impl SimCompletionQueue {
    /// Calls `waker` once when the next completion comes, as `ibv_req_notify_cq` does
    pub fn notify(&self, waker: &Waker) {
        let mut state = self.context.net.lock();
        state.fabric.cqs.request_notification(self.key);
        let replaced = state.set_waker(self.key, waker);
        drop(state);
        drop(replaced);
    }

    pub(crate) fn device(&self) -> DeviceRef {
        self.context.device
    }

    /// The key of the queue in the simulation `shared`, which has to be its own
    pub(crate) fn key_in(&self, shared: &Shared) -> CqKey {
        assert!(
            std::ptr::eq(shared, &raw const *self.context.net),
            "the completion queue is of another simulation"
        );
        self.key
    }
}

impl CompletionQueue for SimCompletionQueue {
    type Qp = SimQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<SimQueuePair, Error> {
        // The queue pair is destroyed when it is dropped, should the transition fail.
        let qp = SimDevice::create_qp_on(&self.context, [self.key; 2], init)?;
        qp.modify(Transition::Init)?;
        Ok(qp)
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let (result, mut state) = self.context.net.poll(self.context.device, self.key, out);
        let Fabric { coverage, world, model, .. } = &mut state.fabric;
        result.inspect_err(|error| coverage.refused(error, self.context.device, world, model))
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let (result, mut state) = self.context.net.poll(self.context.device, self.key, out);
        let n = result?;
        if n < out.len() {
            state.fabric.cqs.request_notification(self.key);
            let replaced = state.set_waker(self.key, cx.waker());
            drop(state);
            drop(replaced);
        }
        if n > 0 {
            return Poll::Ready(Ok(n));
        }
        cpu::note_polling();
        probe::waits_for(format_args!("a completion at {}", PortName(&self.context)));
        Poll::Pending
    }
}

/// The host and the name of a device, looked up when it is written
struct PortName<'a>(&'a DeviceContext);

impl fmt::Display for PortName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = &self.0.net.lock().fabric.world;
        let device = self.0.device.index;
        write!(f, "{}:{}", world.host_name(world.host_of(device)), world.device_name(device))
    }
}

impl Drop for SimCompletionQueue {
    fn drop(&mut self) {
        if self.context.net.begin(self.context.device, Verb::DestroyCq) {
            let removed = self.context.net.lock().destroy_cq(self.key);
            drop(removed);
        }
    }
}

/// A queue pair of a [`SimDevice`]
#[derive(Debug)]
pub struct SimQueuePair {
    context: Arc<DeviceContext>,
    key: QpKey,
    address: QpAddress,
    capacity: QpCapacity,
    /// What the device answered when it was destroyed
    teardown: Option<Teardown>,
}

impl SimQueuePair {
    /// Takes a transition with exactly these attributes, as `ibv_modify_qp` does
    ///
    /// # Errors
    ///
    /// [`Cause::Invalid`] if the transition does not exist, or if the mask lacks an attribute that it needs; what
    /// [`modify`](QueuePair::modify) answers.
    pub fn modify_attr(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        self.require_alive(Verb::ModifyQp)?;
        self.change(Change::Attributes(attr, mask))
    }

    fn change(&self, change: Change<'_>) -> Result<(), Error> {
        self.context.verb(Verb::ModifyQp, |fabric| fabric.modify_qp(self.key, change))
    }

    pub(crate) fn device(&self) -> DeviceRef {
        self.context.device
    }

    /// The key of the queue pair in the simulation `shared`, which has to be its own
    pub(crate) fn key_in(&self, shared: &Shared, verb: Verb) -> Result<QpKey, Error> {
        assert!(
            std::ptr::eq(shared, &raw const *self.context.net),
            "the queue pair is of another simulation"
        );
        self.require_alive(verb).map(|()| self.key)
    }

    fn require_alive(&self, verb: Verb) -> Result<(), Error> {
        if self.teardown.is_some() {
            return Err(Error::new(verb, Cause::Invalid(Invalid::Destroyed)));
        }
        Ok(())
    }
}

impl QueuePair for SimQueuePair {
    fn address(&self) -> QpAddress {
        self.address
    }

    fn capacity(&self) -> QpCapacity {
        self.capacity
    }

    fn state(&self) -> QpState {
        self.context.net.lock().fabric.qps.get(self.key).map_or(QpState::Error, |qp| qp.state)
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        self.require_alive(Verb::ModifyQp)?;
        if let (Transition::ReadyToReceive { peer }, Some((source, path_mtu))) = (to, self.context.path) {
            let world_index = || {
                let world = &self.context.net.lock().fabric.world;
                world.source_index(self.context.device.index)
            };
            let source = source.unwrap_or_else(world_index);
            let (attr, mask) = QpAttr::ready_to_receive(&peer, source, path_mtu);
            return self.change(Change::Attributes(&attr, mask));
        }
        self.change(Change::To(to))
    }

    #[track_caller]
    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        self.require_alive(Verb::PostSend)?;
        let site = Location::caller();
        let post = |fabric: &mut Fabric| fabric.post_send(self.key, request, site);
        self.context.net.post(self.context.device, Verb::PostSend, post)
    }

    #[track_caller]
    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        self.require_alive(Verb::PostRecv)?;
        let site = Location::caller();
        let post = |fabric: &mut Fabric| fabric.post_recv(self.key, request, site);
        self.context.net.post(self.context.device, Verb::PostRecv, post)
    }

    fn destroy(&mut self) -> Teardown {
        let Self { context, key, teardown, .. } = self;
        *teardown.get_or_insert_with(|| {
            if !context.net.begin(context.device, Verb::DestroyQp) {
                return Teardown::Unknown;
            }
            context.net.lock().fabric.destroy_qp(*key);
            Teardown::Quiesced
        })
    }
}

impl Drop for SimQueuePair {
    fn drop(&mut self) {
        let _ = self.destroy();
    }
}
