//! What a node, its reactor and its control tasks share

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Wake as _, Waker};

use rdma_core::session::{PathId, SessionId};
use rdma_core::{Device, FRAME, Runtime};

use super::half_open::HalfOpen;
use super::options::{BULK_FRAGMENT, NodeOptions};
use super::port::{OpenPort, Port};
use super::port_watch::PortWatch;
use crate::error::ConnectError;
use crate::id_map::IdMap;
use crate::joining::Joining;
use crate::peering::shared::PeeringShared;
use crate::pool::{AdoptedMemory, Pool};
use crate::reactor_waker::ReactorWaker;
use crate::sync::Mutex;
use crate::wait_queue::SharedWaitQueue;

/// A session that a peer has opened
pub(super) type Opened<D> = (Arc<PeeringShared<D>>, SessionId);

/// A peering, one of its paths, and the port that it is on
pub(super) struct Route<D: Device> {
    pub(super) peering: Arc<PeeringShared<D>>,
    pub(super) path: PathId,
    pub(super) port: usize,
}

impl<D: Device> Clone for Route<D> {
    fn clone(&self) -> Self {
        Self { peering: Arc::clone(&self.peering), ..*self }
    }
}

/// The devices, the memory, and the account of peerings
pub(super) struct NodeInner<D: Device> {
    pub(super) joining: Joining<Arc<PeeringShared<D>>>,
    /// The peering and the path that completions are dispatched to, by key of the path.
    routes: Mutex<IdMap<u32, Route<D>>>,
    next_key: AtomicU32,
    /// Nodes and control tasks: while there are any, the reactor goes on.
    handles: AtomicUsize,
    /// Whether the node is closed, which ends attempts to connect that are under way.
    is_closed: SharedWaitQueue<bool>,
    /// Peers that introduce themselves to this side.
    pub(super) half_open: HalfOpen,
    /// Peers that have introduced themselves to this side and offered no path yet: they have no memory.
    pub(super) introduced: HalfOpen,
    /// Peerings that there are, or that are being made.
    pub(super) peerings: SharedWaitQueue<usize>,
    /// Sessions that no task has accepted; `None` once the node is closed.
    pub(super) opened: SharedWaitQueue<Option<VecDeque<Opened<D>>>>,
    pub(super) incarnation: u64,
    pub(super) pool: Pool,
    /// Memory of the application, and whether it has given it up.
    pub(super) adopted: Mutex<Vec<(AdoptedMemory, bool)>>,
    pub(super) ports: Box<[Port<D>]>,
    pub(super) port_watch: Arc<PortWatch>,
    pub(super) reactor: Arc<ReactorWaker>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) options: NodeOptions,
}

impl<D: Device> NodeInner<D> {
    /// The longest part of a long message that all devices carry which were ever open, in whole frames
    ///
    /// On macOS 26.2 a message of the device has one frame at most. Any device carries one frame, also one that was never open.
    pub(super) fn bulk_fragment(&self) -> u32 {
        let longest = self.ports.iter().filter_map(Port::max_message).min();
        let frames = longest.map_or(1, |longest| longest.min(BULK_FRAGMENT) / FRAME as u32);
        frames.max(1) * FRAME as u32
    }

    pub(super) fn new(
        ports: Box<[Port<D>]>,
        port_watch: Arc<PortWatch>,
        pool: Pool,
        runtime: Arc<dyn Runtime>,
        options: NodeOptions,
    ) -> Self {
        Self {
            joining: Joining::new(),
            routes: Mutex::new(IdMap::default()),
            next_key: AtomicU32::new(0),
            handles: AtomicUsize::new(0),
            is_closed: SharedWaitQueue::for_all("the peer to take part in the handshake", false, 4),
            half_open: HalfOpen::new(options.max_half_open),
            introduced: HalfOpen::new(options.max_half_open),
            peerings: SharedWaitQueue::for_all("its node to be idle", 0, 2),
            opened: SharedWaitQueue::new("a session that a peer opens", Some(VecDeque::new()), 8),
            incarnation: runtime.random(),
            pool,
            adopted: Mutex::new(Vec::new()),
            ports,
            port_watch,
            reactor: Arc::new(ReactorWaker::new()),
            runtime,
            options,
        }
    }

    /// The device of a port, opened if it is not; may block
    ///
    /// Options that suited the devices that were there first may not suit one that comes late.
    pub(super) fn open_port(&self, port: usize) -> Result<Arc<OpenPort<D>>, ConnectError> {
        let open = self.ports[port].open(&self.port_watch)?;
        self.options.check_device(open.device()).map_err(ConnectError::Options)?;
        Ok(open)
    }

    /// A key for a new path
    pub(super) fn next_key(&self) -> u32 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets completions with `key` go to a path
    pub(super) fn add_route(&self, key: u32, route: Route<D>) {
        self.routes.lock().insert(key, route);
    }

    pub(super) fn remove_route(&self, key: u32) {
        let route = self.routes.lock().remove(&key);
        drop(route);
    }

    /// The paths that there are
    pub(super) fn routes(&self) -> Vec<Route<D>> {
        self.routes.lock().values().cloned().collect()
    }

    pub(super) fn route(&self, key: u32) -> Option<Route<D>> {
        self.routes.lock().get(&key).cloned()
    }

    pub(super) fn close(&self) {
        self.is_closed.update(|is_closed| *is_closed = true);
        let rest = self.opened.end(Option::take);
        for (peering, id) in rest.into_iter().flatten() {
            peering.with(|state, now, effects| state.refuse(id, now, effects));
        }
        self.port_watch.changed();
        self.wake_reactor();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.inspect(|is_closed| *is_closed)
    }

    /// Waits until the node is closed
    pub(super) fn closed(&self) -> impl Future<Output = ()> {
        self.is_closed.take_when(|is_closed| is_closed.then_some(()))
    }

    /// Whether there are several peers, or attempts to connect with them
    pub(super) fn has_other_peers(&self) -> bool {
        self.peerings.inspect(|count| *count > 1)
    }

    /// Whether a node or a control task needs the reactor
    pub(super) fn is_held(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0 || self.joining.has_some()
    }

    pub(super) fn wake_reactor(&self) {
        self.reactor.wake_by_ref();
    }

    pub(super) fn reactor_waker(&self) -> Waker {
        Arc::clone(&self.reactor).into()
    }
}

/// A peering that is being made, or that there is, or of which devices have not given up everything
pub(super) struct Attempt<D: Device>(Arc<NodeInner<D>>);

impl<D: Device> Attempt<D> {
    pub(super) fn new(node: &Arc<NodeInner<D>>) -> Self {
        node.peerings.update(|count| *count += 1);
        Self(Arc::clone(node))
    }

    pub(super) fn node(&self) -> &Arc<NodeInner<D>> {
        &self.0
    }
}

impl<D: Device> Drop for Attempt<D> {
    fn drop(&mut self) {
        self.0.peerings.update(|count| *count -= 1);
    }
}

/// Keeps the reactor of a node going
pub(super) struct NodeGuard<D: Device>(pub(super) Arc<NodeInner<D>>);

impl<D: Device> NodeGuard<D> {
    pub(super) fn new(node: Arc<NodeInner<D>>) -> Self {
        node.handles.fetch_add(1, Ordering::AcqRel);
        Self(node)
    }
}

impl<D: Device> Drop for NodeGuard<D> {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.reactor.wake_by_ref();
        }
    }
}
