//! This process with its devices

mod adopted;
mod control;
mod first_failures;
mod goodbye;
mod half_open;
mod inner;
mod introduction;
mod link_trust;
mod options;
mod pairing;
mod path;
mod port;
mod port_monitor;
mod port_watch;
mod reactor;
#[cfg(feature = "shared-key")]
mod sealed;
mod wire;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rdma_core::session::{LinkId, Side};
use rdma_core::{Device, Runtime};

use self::inner::{NodeGuard, NodeInner};
pub use self::options::NodeOptions;
use self::port::{Opener, Port, PortSource};
use self::port_watch::PortWatch;
use self::reactor::Reactor;
use crate::bootstrap_stream::BootstrapStream;
use crate::device_calls::{DeviceCalls, DeviceStats};
use crate::error::{AllocError, ConnectError, NodeError};
use crate::node_id::NodeId;
use crate::pool::{Alloc, Lease, Pool, PoolStats};
use crate::session::Session;

/// This process with its devices, ready for sessions
///
/// Owns the memory of all sessions, and a task that drives them. Cheap to clone; dropping the last clone [closes](Self::close) the node, and its sessions go on. When the node, its sessions and their leases are
/// gone, the devices are closed.
pub struct Node<D: Device> {
    guard: Arc<NodeHandle<D>>,
}

/// Closes a node when the last clone is dropped
struct NodeHandle<D: Device>(NodeGuard<D>);

impl<D: Device> Drop for NodeHandle<D> {
    fn drop(&mut self) {
        self.0.0.close();
    }
}

/// Makes a [`Node`]; from [`Node::builder`]
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{Node, NodeOptions};
///
/// let node = Node::builder(net.opener("a", "rdma_en2"))
///     .device(net.opener("a", "rdma_en3"))
///     .options(NodeOptions::new().max_peers(2))
///     .runtime(net.runtime())
///     .build()?;
/// assert!(node.pool_stats().is_whole());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct NodeBuilder<D: Device> {
    ports: Vec<PortSource<D>>,
    options: NodeOptions,
    runtime: Option<Arc<dyn Runtime>>,
}

impl<D: Device> NodeBuilder<D> {
    /// Adds another device, which `open` opens
    ///
    /// Which device a cable joins to which of the peer is found by trial, in the order of the devices first, unless cables are
    /// [named](Self::link). On Apple's device each attempt that fails may take a second, and several of them may wedge the port until the Mac
    /// restarts (field reports): name the cables where ports lead to different peers.
    pub fn device<E>(mut self, open: impl Fn() -> Result<D, E> + std::marker::Send + Sync + 'static) -> Self
    where
        E: Into<Box<dyn Error + std::marker::Send + Sync>>,
    {
        let open: Opener<D> = Box::new(move || open().map_err(Into::into));
        self.ports.push(PortSource { open, link_of: None });
        self
    }

    /// Names the cable of the device that was added last, so that nothing has to be tried
    ///
    /// `link` is asked whenever a path is made. It returns the same name at both ends of a cable, and `None` if it does not know.
    pub fn link(mut self, link: impl Fn() -> Option<LinkId> + std::marker::Send + Sync + 'static) -> Self {
        if let Some(port) = self.ports.last_mut() {
            port.link_of = Some(Box::new(link));
        }
        self
    }

    /// How the node uses its devices; the defaults suit Thunderbolt 5
    pub fn options(self, options: NodeOptions) -> Self {
        Self { options, ..self }
    }

    /// The clock and the tasks of the node; with the `tokio` feature, those of the tokio runtime that
    /// [`build`](Self::build) is called in
    pub fn runtime(self, runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Maps memory, creates completion queues, and starts the task that drives sessions
    ///
    /// # Errors
    ///
    /// * [`NodeError::NoRuntime`] if no runtime was given, and the caller does not run on tokio;
    /// * [`NodeError::NoTimers`] if the tokio runtime was built without timers;
    /// * [`NodeError::Options`] if the options contradict each other or a device;
    /// * [`NodeError::Pool`] if the system has no memory.
    ///
    /// A device that cannot be opened now is opened when it is needed. Devices are opened on the calling thread here, and nowhere else:
    /// one that blocks for ever keeps it.
    pub fn build(self) -> Result<Node<D>, NodeError> {
        let runtime = self.runtime.or_else(default_runtime).ok_or(NodeError::NoRuntime)?;
        let Self { ports, options, .. } = self;
        // Tokio reports in no other way that its timers are not enabled.
        let timer = catch_unwind(AssertUnwindSafe(|| runtime.timer())).map_err(|_| NodeError::NoTimers)?;
        options.check(ports.len())?;
        let calls = || DeviceCalls::new(&runtime, options.device_timeout);
        let ports = ports.into_iter().map(|source| Port::new(source, calls())).collect::<Box<[_]>>();
        let port_watch = Arc::new(PortWatch::new());
        for port in &ports {
            // A port that is down now is opened later.
            if let Ok(port) = port.open(&port_watch) {
                options.check_device(port.device())?;
            }
        }
        let pool = Pool::new(options.zones(ports.len()), options.windows(ports.len()), options.transit())?;
        let inner = Arc::new(NodeInner::new(ports, port_watch, pool, runtime, options));
        let guard = Arc::new(NodeHandle(NodeGuard::new(Arc::clone(&inner))));
        inner.runtime.spawn(Box::pin(Reactor::new(Arc::clone(&inner), timer)));
        Ok(Node { guard })
    }
}

impl<D: Device> Node<D> {
    /// A builder for a node with the device that `open` opens and default options
    ///
    /// The device is opened again when it is gone: after a cable was plugged in again, handles from before are dead.
    pub fn builder<E>(open: impl Fn() -> Result<D, E> + std::marker::Send + Sync + 'static) -> NodeBuilder<D>
    where
        E: Into<Box<dyn Error + std::marker::Send + Sync>>,
    {
        NodeBuilder { ports: Vec::new(), options: NodeOptions::default(), runtime: None }.device(open)
    }

    fn inner(&self) -> &Arc<NodeInner<D>> {
        &self.guard.0.0
    }

    /// Connects to the process that [serves](Self::serve) the other end of `stream`, and opens a session
    ///
    /// The stream is any reliable one. It is kept, and carries what is needed to make paths again that were lost. If it ends before
    /// the sessions, or is silent for the peer timeout, the paths that are left carry that. Without a path and a stream, sessions end the peer
    /// timeout after the last word of the peer. The stream is closed when the last session with the peer is over and dropped.
    ///
    /// Succeeds when packets have passed in both directions on one path; those over other cables join the session as they are made. Fails if no device accepts a path to the peer at this
    /// moment, or if the last cable is pulled meanwhile: connect again, over a new stream.
    ///
    /// # Errors
    ///
    /// * [`ConnectError::Closed`] if the node is closed, or its runtime is gone;
    /// * [`ConnectError::Stream`], [`ConnectError::Peer`] or [`ConnectError::Timeout`] if the handshake fails, the last one with the stage
    ///   that it did not pass;
    /// * [`ConnectError::Open`], [`ConnectError::Device`], [`ConnectError::Pool`], [`ConnectError::Memory`] or
    ///   [`ConnectError::NoPath`] if no path can be made;
    /// * [`ConnectError::Options`] or [`ConnectError::ShortMessages`] if a device does not suit that could not be opened before;
    /// * [`ConnectError::TooManySessions`] if the peer takes no session;
    /// * [`ConnectError::Unproven`] if paths were made, and no packet passes on any of them;
    /// * [`ConnectError::Lost`] if the peer is lost meanwhile, or refuses: [`SessionError::PeerGone`](crate::SessionError::PeerGone) says why.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up: everything it took from the devices is given back.
    pub async fn connect(
        &self,
        stream: impl BootstrapStream + Send + 'static,
    ) -> Result<Session<D>, ConnectError> {
        let peering = introduction::establish(self.inner(), stream, Side::Connecting).await?;
        match peering.with(|state, now, effects| state.try_open(now, effects)) {
            Ok(id) => Ok(Session::new(peering, id)),
            Err(_) if self.inner().is_closed() => Err(ConnectError::Closed),
            Err(error) => Err(error),
        }
    }

    /// Lets the process that [connects](Self::connect) at the other end of `stream` open sessions, which [`accept`](Self::accept) returns
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and [`ConnectError::Crowded`] if too many peers introduce themselves at once, or have offered no path.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn serve(&self, stream: impl BootstrapStream + Send + 'static) -> Result<(), ConnectError> {
        introduction::establish(self.inner(), stream, Side::Accepting).await.map(drop)
    }

    /// The next session that a peer opens; `None` when the node is closed, or its runtime is gone
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no session.
    pub async fn accept(&self) -> Option<Session<D>> {
        let inner = self.inner();
        let take = |opened: &mut Option<VecDeque<_>>| match opened {
            Some(opened) => opened.pop_front().map(Some),
            None => Some(None),
        };
        let opened = inner.opened.take_when(take).await;
        opened.map(|(peering, id)| {
            peering.update(|state, _| state.accepted());
            Session::new(peering, id)
        })
    }

    /// Refuses further peers, and sessions that peers open, also those that no task has accepted yet; other sessions continue
    ///
    /// Attempts to [connect](Self::connect) or to [serve](Self::serve) that are under way end with [`ConnectError::Closed`].
    pub fn close(&self) {
        self.inner().close();
    }

    /// Waits until the node has no peer, and connects to none
    ///
    /// A peer counts until all sessions with it are over, and their handles and [`closed`](Session::closed) futures are dropped; then, and if an
    /// attempt to connect has failed, until the devices have given up what they had for it, or are reported because they do not return
    /// within [`device_timeout`](NodeOptions::device_timeout). If all cables to a peer are out, the node waits for one as long as messages of
    /// this side are undelivered, and else at most for the [peer timeout](NodeOptions::peer_timeout). Completions of requests that were under
    /// way then may still be in the queue of an open device.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait_idle(&self) {
        self.inner().peerings.take_when(|count| (*count == 0).then_some(())).await;
    }

    /// The number by which peers know this node
    pub fn id(&self) -> NodeId {
        NodeId(self.inner().incarnation)
    }

    /// Leases memory for a message of up to `len` bytes; see [`Session::alloc`]
    ///
    /// # Errors
    ///
    /// As [`Session::alloc`].
    ///
    /// # Cancel safety
    ///
    /// As [`Session::alloc`].
    pub fn alloc(&self, len: usize) -> Alloc {
        Alloc::new(&self.inner().pool, len)
    }

    /// Leases memory for a message of up to `len` bytes, without waiting; see [`Session::try_alloc`]
    ///
    /// # Errors
    ///
    /// As [`Session::try_alloc`].
    pub fn try_alloc(&self, len: usize) -> Result<Lease, AllocError> {
        self.inner().pool.try_alloc(len)
    }

    /// What devices have not returned from, and what they were never asked to give up because of that
    pub fn device_stats(&self) -> DeviceStats {
        self.inner().ports.iter().fold(DeviceStats::default(), |stats, port| DeviceStats {
            blocked_calls: stats.blocked_calls + port.calls.blocked_count(),
            blocked_devices: stats.blocked_devices + usize::from(port.is_blocked_in_traffic()),
            abandoned: stats.abandoned + port.calls.abandoned(),
        })
    }

    /// How much memory there is, and how much of it is free
    pub fn pool_stats(&self) -> PoolStats {
        self.inner().pool.stats()
    }
}

impl<D: Device> Clone for Node<D> {
    fn clone(&self) -> Self {
        Self { guard: Arc::clone(&self.guard) }
    }
}

impl<D: Device> fmt::Debug for Node<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("ports", &self.inner().ports.len()).finish_non_exhaustive()
    }
}

impl<D: Device> fmt::Debug for NodeBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(feature = "tokio")]
fn default_runtime() -> Option<Arc<dyn Runtime>> {
    crate::tokio_runtime::TokioRuntime::try_current().map(|runtime| Arc::new(runtime) as _)
}

#[cfg(not(feature = "tokio"))]
fn default_runtime() -> Option<Arc<dyn Runtime>> {
    None
}
