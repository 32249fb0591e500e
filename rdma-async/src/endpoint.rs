use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::{Device, Runtime};

use crate::bootstrap::{self, Role};
use crate::bootstrap_stream::BootstrapStream;
use crate::connection::Connection;
use crate::endpoint_inner::{EndpointGuard, EndpointInner};
use crate::error::{AllocError, ConnectError, EndpointError};
use crate::options::EndpointOptions;
use crate::pool::{Alloc, Lease, Pool, PoolStats};
use crate::reactor::Reactor;
use crate::wait_queue::Waiter;

/// One device, ready for connections
///
/// Owns the device's one registration of memory and its completion queue, and a task that drives the connections. Cheap
/// to clone. When the endpoint, its connections and their leases are gone, the device is closed.
///
/// The task closes it, in the background, as soon as the runtime runs the task; no caller has to wait. It is the task's because
/// a dropped connection still sends its queued messages. A loop that makes endpoints without ever awaiting keeps the task from
/// running, and their devices open.
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::Endpoint;
///
/// let a = Endpoint::builder(net.open("a", "rdma_en2")?).runtime(net.runtime()).build()?;
/// let b = Endpoint::builder(net.open("b", "rdma_en2")?).runtime(net.runtime()).build()?;
/// // Any byte stream between the two processes: TCP, or here a pipe.
/// let (to_b, to_a) = tokio::io::duplex(256);
/// let (ab, ba) = futures::future::try_join(a.connect(to_b), b.accept(to_a)).await?;
/// ab.send_bytes(b"hello").await?;
/// assert_eq!(*ba.recv().await?.expect("a message"), *b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub struct Endpoint<D: Device> {
    guard: Arc<EndpointGuard<D>>,
}

/// Makes an [`Endpoint`]; from [`Endpoint::builder`]
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{Endpoint, EndpointOptions};
///
/// let endpoint = Endpoint::builder(net.open("a", "rdma_en2")?)
///     .runtime(net.runtime())
///     .options(EndpointOptions::new().max_connections(2))
///     .build()?;
/// assert!(endpoint.pool_stats().is_whole());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct EndpointBuilder<D: Device> {
    device: D,
    options: EndpointOptions,
    runtime: Option<Arc<dyn Runtime>>,
}

impl<D: Device> EndpointBuilder<D> {
    /// How the endpoint uses the device; the defaults suit a Thunderbolt 5 port
    pub fn options(self, options: EndpointOptions) -> Self {
        Self { options, ..self }
    }

    /// The clock and the tasks of the endpoint; with the `tokio` feature, those of the tokio runtime that
    /// [`build`](Self::build) is called in
    pub fn runtime(self, runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Registers memory, creates a completion queue, and starts the task that drives connections
    ///
    /// # Errors
    ///
    /// * [`EndpointError::NoRuntime`] if no runtime was given, and the caller does not run on tokio;
    /// * [`EndpointError::NoTimers`] if the tokio runtime was built without timers (the panic by which tokio says so is caught);
    /// * [`EndpointError::Options`] if the options contradict each other or the device;
    /// * [`EndpointError::Pool`] if the system has no memory, or the device does not register it;
    /// * [`EndpointError::Device`] if the device refuses a completion queue.
    pub fn build(self) -> Result<Endpoint<D>, EndpointError> {
        let runtime = self.runtime.or_else(default_runtime).ok_or(EndpointError::NoRuntime)?;
        let Self { device, options, .. } = self;
        options.check(&device)?;
        // Tokio tells in no other way that its timers are not enabled.
        let timer =
            catch_unwind(AssertUnwindSafe(|| runtime.timer())).map_err(|_| EndpointError::NoTimers)?;
        let cq = Arc::new(device.create_cq(device.caps().max_cqe)?);
        // The queue must outlive the registration: leases that the application still holds keep both.
        let pool = Pool::new(&device, options.zones(), Arc::clone(&cq) as _)?;
        let inner = Arc::new(EndpointInner::new(device, cq, pool, runtime, options));
        let guard = Arc::new(EndpointGuard::new(Arc::clone(&inner)));
        inner.runtime.spawn(Box::pin(Reactor::new(Arc::clone(&inner), timer)));
        Ok(Endpoint { guard })
    }
}

#[cfg(feature = "tokio")]
pub(crate) fn default_runtime() -> Option<Arc<dyn Runtime>> {
    crate::tokio_runtime::TokioRuntime::try_current().map(|runtime| Arc::new(runtime) as _)
}

#[cfg(not(feature = "tokio"))]
pub(crate) fn default_runtime() -> Option<Arc<dyn Runtime>> {
    None
}

impl<D: Device> Endpoint<D> {
    /// Makes an endpoint of `device`, with defaults for everything that is not said
    pub fn builder(device: D) -> EndpointBuilder<D> {
        EndpointBuilder { device, options: EndpointOptions::default(), runtime: None }
    }

    fn inner(&self) -> &Arc<EndpointInner<D>> {
        &self.guard.0
    }

    /// Connects to the endpoint that accepts at the other end of `stream`
    ///
    /// The stream is any reliable one to the peer's process, and is not needed afterwards.
    ///
    /// # Errors
    ///
    /// * [`ConnectError::Closed`] if this endpoint is closed, or is closed meanwhile;
    /// * [`ConnectError::Device`] if this endpoint's device refuses; a refusal at the peer ends the stream early, which is
    ///   [`ConnectError::Stream`];
    /// * [`ConnectError::Epoch`] if the peer is of another [group epoch](EndpointOptions::group_epoch);
    /// * [`ConnectError::Lost`] if the connection was lost before both sides were ready;
    /// * [`ConnectError::Memory`] if messages of earlier connections, which are still held, are in the memory that this one needs;
    /// * [`ConnectError::Peer`] if the peer speaks no compatible protocol;
    /// * [`ConnectError::Stream`] if the stream failed;
    /// * [`ConnectError::Timeout`] if the peer did not answer within the [connect
    ///   timeout](EndpointOptions::connect_timeout);
    /// * [`ConnectError::TooManyConnections`] if there are [as many](EndpointOptions::max_connections) as may be.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up: everything it took from the device is given back. The peer's attempt fails, or, if both
    /// sides had become ready, the peer has a connection that is lost after its timeout.
    pub async fn connect(&self, stream: impl BootstrapStream) -> Result<Connection<D>, ConnectError> {
        bootstrap::connect(self.inner(), stream, Role::Connecting).await
    }

    /// Accepts the endpoint that connects at the other end of `stream`
    ///
    /// Nothing is asked of the device before the peer has shown that it speaks the protocol.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn accept(&self, stream: impl BootstrapStream) -> Result<Connection<D>, ConnectError> {
        bootstrap::connect(self.inner(), stream, Role::Accepting).await
    }

    /// Leases memory for a message of up to `len` bytes; see [`Connection::alloc`]
    ///
    /// # Errors
    ///
    /// As [`Connection::alloc`].
    ///
    /// # Cancel safety
    ///
    /// As [`Connection::alloc`].
    pub fn alloc(&self, len: usize) -> Alloc {
        Alloc::new(&self.inner().pool, len)
    }

    /// Leases memory for a message of up to `len` bytes, without waiting; see [`Connection::try_alloc`]
    ///
    /// # Errors
    ///
    /// As [`Connection::try_alloc`].
    pub fn try_alloc(&self, len: usize) -> Result<Lease, AllocError> {
        self.inner().pool.try_alloc(len)
    }

    /// Closes the endpoint: refuses further connections, and closes those that there are in good order
    ///
    /// Attempts to [connect](Self::connect) or to [accept](Self::accept) that are under way end with [`ConnectError::Closed`].
    /// Returns at once; [`wait_idle`](Self::wait_idle) waits until all of them are over. Messages that arrived can still be read. The
    /// reactor closes the connections when it next runs: messages that are sent before that are still delivered.
    pub fn close(&self) {
        self.inner().close();
    }

    /// Waits until the endpoint has no connection, and none is being made
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn wait_idle(&self) -> WaitIdle<D> {
        WaitIdle { guard: Arc::clone(&self.guard), waiter: Waiter::default() }
    }

    /// How much memory there is, and how much of it is free
    pub fn pool_stats(&self) -> PoolStats {
        self.inner().pool.stats()
    }

    /// The device
    pub fn device(&self) -> &D {
        &self.inner().device
    }
}

impl<D: Device> Clone for Endpoint<D> {
    fn clone(&self) -> Self {
        Self { guard: Arc::clone(&self.guard) }
    }
}

impl<D: Device> fmt::Debug for Endpoint<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("device", &self.device().name()).finish_non_exhaustive()
    }
}

impl<D: Device> fmt::Debug for EndpointBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointBuilder")
            .field("device", &self.device.name())
            .field("options", &self.options)
            .field("runtime", &self.runtime)
            .finish()
    }
}

/// Future of [`Endpoint::wait_idle`]
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// connection.send_bytes(b"the last message").await?;
/// endpoint.close();
/// assert_eq!(*peer.recv().await?.expect("a message"), *b"the last message");
/// endpoint.wait_idle().await;
/// assert_eq!(connection.close_reason(), Some(Ok(())));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Dropping it changes nothing.
#[must_use = "futures do nothing unless polled"]
pub struct WaitIdle<D: Device> {
    guard: Arc<EndpointGuard<D>>,
    waiter: Waiter,
}

impl<D: Device> Future for WaitIdle<D> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { guard, waiter } = &mut *self;
        guard.0.poll_idle(waiter, cx)
    }
}

impl<D: Device> Drop for WaitIdle<D> {
    fn drop(&mut self) {
        self.guard.0.leave_idle(&mut self.waiter);
    }
}

impl<D: Device> fmt::Debug for WaitIdle<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitIdle").finish_non_exhaustive()
    }
}
