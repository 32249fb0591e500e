//! The state that all objects of a device and its I/O thread share

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use rdma_core::{Caps, Cause, Gid, Lid, Psn, QpAddress, Qpn, Resource, Transport};

use crate::completions::Completions;
use crate::endpoint::Endpoint;
use crate::mailbox::Mailbox;
use crate::options::TcpOptions;
use crate::regions::Regions;
use crate::sync::{lock, random, wake};

/// A device, for its objects and for the I/O thread
pub(crate) struct Shared {
    pub(crate) caps: Caps,
    pub(crate) gid: Gid,
    /// The interface of link-local addresses.
    pub(crate) scope: u32,
    /// The TCP port of the listener.
    pub(crate) port: u16,
    pub(crate) options: TcpOptions,
    pub(crate) regions: Arc<Regions>,
    pub(crate) mailbox: Mailbox,
    /// Whether the I/O thread has ended, though the device is open.
    pub(crate) is_gone: AtomicBool,
    /// To be woken when it has ended.
    port_watcher: Mutex<Option<Waker>>,
    completion_queues: Mutex<Vec<Arc<Completions>>>,
    endpoints: Mutex<HashMap<Qpn, Weak<Endpoint>>>,
}

/// The limits of the device, most of which are arbitrary
pub(crate) fn caps() -> Caps {
    let mut caps = Caps::roce();
    caps.max_message = caps.max_queue_frames * caps.frame;
    caps.max_pd = 1;
    caps.one_sided = false;
    caps.transport = Transport::Tcp;
    caps
}

impl Shared {
    pub(crate) fn new(gid: Gid, scope: u32, port: u16, options: TcpOptions, mailbox: Mailbox) -> Self {
        let caps = caps();
        Self {
            gid,
            scope,
            port,
            options,
            regions: Arc::new(Regions::new(caps.max_mr)),
            mailbox,
            completion_queues: Mutex::default(),
            is_gone: AtomicBool::new(false),
            port_watcher: Mutex::default(),
            endpoints: Mutex::default(),
            caps,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Cause> {
        if self.is_gone.load(Ordering::Acquire) { Err(Cause::DeviceGone) } else { Ok(()) }
    }

    /// Wakes `waker`, instead of that of the call before, when the I/O thread has ended
    pub(crate) fn watch_port(&self, waker: Waker) {
        let before = lock(&self.port_watcher).replace(waker);
        drop(before);
        if self.check().is_err() {
            self.take_port_watcher().into_iter().for_each(wake);
        }
    }

    pub(crate) fn take_port_watcher(&self) -> Option<Waker> {
        lock(&self.port_watcher).take()
    }

    /// Adds a completion queue
    pub(crate) fn add_completion_queue(&self, depth: u32) -> Result<Arc<Completions>, Cause> {
        let limit = self.caps.max_cq;
        let mut queues = lock(&self.completion_queues);
        if queues.len() >= limit as usize {
            return Err(Cause::Exhausted { resource: Resource::CompletionQueues, limit });
        }
        let queue = Arc::new(Completions::new(depth));
        queues.push(Arc::clone(&queue));
        Ok(queue)
    }

    pub(crate) fn remove_completion_queue(&self, queue: &Arc<Completions>) {
        lock(&self.completion_queues).retain(|other| !Arc::ptr_eq(other, queue));
    }

    pub(crate) fn completion_queues(&self) -> Vec<Arc<Completions>> {
        lock(&self.completion_queues).clone()
    }

    /// Adds the queue pair that `make` makes for an address
    pub(crate) fn add_endpoint(
        &self,
        make: impl FnOnce(QpAddress) -> Endpoint,
    ) -> Result<Arc<Endpoint>, Cause> {
        let limit = self.caps.max_qp;
        let mut endpoints = lock(&self.endpoints);
        if endpoints.len() >= limit as usize {
            return Err(Cause::Exhausted { resource: Resource::QueuePairs, limit });
        }
        let qpn = loop {
            let qpn = Qpn(random() as u32 & 0xff_ffff);
            if qpn.0 > 1 && !endpoints.contains_key(&qpn) {
                break qpn;
            }
        };
        // A stranger cannot guess the address: the number, the LID and the upper bits of the PSN are random.
        let random = random();
        let psn = Psn((random as u32 & 0xff) << 16 | u32::from(self.port));
        let address = QpAddress { gid: self.gid, lid: Lid((random >> 8) as u16), psn, qpn };
        let endpoint = Arc::new(make(address));
        endpoints.insert(qpn, Arc::downgrade(&endpoint));
        Ok(endpoint)
    }

    pub(crate) fn remove_endpoint(&self, qpn: Qpn) {
        lock(&self.endpoints).remove(&qpn);
    }

    /// The queue pair at `address`
    pub(crate) fn endpoint(&self, address: &QpAddress) -> Option<Arc<Endpoint>> {
        let found = lock(&self.endpoints).get(&address.qpn)?.upgrade()?;
        (found.address == *address).then_some(found)
    }

    pub(crate) fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        lock(&self.endpoints).values().filter_map(Weak::upgrade).collect()
    }
}
