use std::fmt;
use std::sync::Arc;

use rdma_core::{Device, Runtime};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bootstrap::{self, Role};
use crate::connection::Alloc;
use crate::connection::Connection;
use crate::error::{ConnectError, EndpointError};
use crate::hub::Hub;
use crate::pool::{Pool, PoolStats, Zone};
use crate::reactor::Reactor;
use crate::{EndpointOptions, Lease};

/// One device, ready for connections
///
/// Owns the device's one registration of memory and its completion queue, and a task that drives the connections. Cheap
/// to clone. When the endpoint, its connections and their leases are gone, the device is closed.
#[derive(Clone)]
pub struct Endpoint<D: Device> {
    hub: Arc<Hub<D>>,
    _held: Arc<Held<D>>,
}

/// Keeps the reactor of an endpoint without connections alive.
struct Held<D: Device>(Arc<Hub<D>>);

impl<D: Device> Endpoint<D> {
    /// Prepares `device`: registers memory, creates a completion queue, and starts a task on `runtime`
    ///
    /// # Errors
    ///
    /// The options contradict each other, the system has no memory, or the device refuses.
    pub fn new(
        device: D,
        runtime: Arc<dyn Runtime>,
        options: EndpointOptions,
    ) -> Result<Self, EndpointError> {
        options.check(&device)?;
        let cq = Arc::new(device.create_cq(device.caps().max_cqe)?);
        // The queue must outlive the registration: leases that the application still holds keep both.
        let pool = Pool::new(&device, options.zones(), Arc::clone(&cq) as _)?;
        let hub = Arc::new(Hub::new(device, cq, pool, runtime, options));
        hub.runtime.spawn(Box::pin(Reactor::new(Arc::clone(&hub))));
        Ok(Self { _held: Arc::new(Held(Arc::clone(&hub))), hub })
    }

    /// Connects to the endpoint that accepts at the other end of `stream`
    ///
    /// The stream is any reliable one to the peer's process: TCP, a pipe. It is not needed afterwards.
    ///
    /// # Errors
    ///
    /// The peer is a stranger, does not answer in time, or one of the devices refuses.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up: everything it took from the device is given back. The peer's attempt fails, or, if both
    /// sides had become ready, the peer has a connection that is lost after its timeout.
    pub async fn connect<S>(&self, stream: S) -> Result<Connection<D>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        bootstrap::connect(&self.hub, stream, Role::Connecting).await
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
    pub async fn accept<S>(&self, stream: S) -> Result<Connection<D>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        bootstrap::connect(&self.hub, stream, Role::Accepting).await
    }

    /// Leases memory for a message of `len` bytes; see [`Connection::alloc`]
    pub fn alloc(&self, len: usize) -> Alloc {
        Alloc::new(self.hub.pool.clone(), len)
    }

    /// Leases memory for a message of `len` bytes, if it is free and nobody waits for memory
    pub fn try_alloc(&self, len: usize) -> Option<Lease> {
        self.hub.pool.try_lease(Zone::Send, len)
    }

    /// How much memory there is, and how much of it is free
    pub fn pool_stats(&self) -> PoolStats {
        self.hub.pool.stats()
    }

    /// The device
    pub fn device(&self) -> &D {
        &self.hub.device
    }
}

impl<D: Device> Drop for Held<D> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<D: Device> fmt::Debug for Endpoint<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("device", &self.hub.device.name()).finish_non_exhaustive()
    }
}
