use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use rdma_core::channel::Params;
use rdma_core::{Device, FRAME, Runtime};
use std::task::Waker;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bootstrap::{self, Role};
use crate::connection::Connection;
use crate::error::{ConnectError, EndpointError};
use crate::line::Line;
use crate::pool::{Pool, PoolStats};
use crate::queues::MAX_BULK_RECEIVES;
use crate::reactor::Reactor;
use crate::sync::Mutex;
use crate::{Alloc, Lease};

/// How an endpoint uses its device; the defaults suit a Thunderbolt 5 port
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointOptions {
    pub(crate) announces: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) epoch: u64,
    pub(crate) keepalive: Duration,
    pub(crate) max_message: usize,
    pub(crate) receive_memory: usize,
    pub(crate) send_memory: usize,
    pub(crate) send_queue: u32,
    pub(crate) timeout: Duration,
    pub(crate) window: u32,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            announces: 32,
            connect_timeout: Duration::from_secs(10),
            epoch: 0,
            keepalive: Duration::from_secs(1),
            max_message: 4 << 20,
            receive_memory: 16 << 20,
            send_memory: 16 << 20,
            send_queue: 64,
            timeout: Duration::from_secs(5),
            window: 128,
        }
    }
}

impl EndpointOptions {
    /// The defaults
    pub fn new() -> Self {
        Self::default()
    }

    /// How long connecting may take; 10 s
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Generation of the application's group, which peers must agree on; 0
    pub fn epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// How long a connection may rest before a message is sent to keep it alive; 1 s
    ///
    /// On Apple's device a queue pair that rests for about 23 minutes dies (field reports).
    pub fn keepalive(self, keepalive: Duration) -> Self {
        Self { keepalive, ..self }
    }

    /// The longest message that can be received, in bytes; 4 MiB
    pub fn max_message(self, bytes: usize) -> Self {
        Self { max_message: bytes, ..self }
    }

    /// The longest message that can be received as these options stand, in bytes
    pub fn max_message_bytes(&self) -> usize {
        self.max_message
    }

    /// Memory for messages that are being received or read, in bytes; 16 MiB
    pub fn receive_memory(self, bytes: usize) -> Self {
        Self { receive_memory: bytes, ..self }
    }

    /// Memory for messages that are being written or sent, in bytes; 16 MiB
    pub fn send_memory(self, bytes: usize) -> Self {
        Self { send_memory: bytes, ..self }
    }

    /// How many messages of a connection may be on their way at once; 64
    pub fn send_queue(self, messages: u32) -> Self {
        Self { send_queue: messages, ..self }
    }

    /// How long a peer may be silent before it counts as lost; 5 s
    ///
    /// At least two and at most eight keep-alive intervals.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How many small messages a connection can take in before the application reads them; 128
    pub fn window(self, messages: u32) -> Self {
        Self { window: messages, ..self }
    }

    pub(crate) fn params(&self) -> Params {
        Params { announces: self.announces, max_message: self.max_message as u32, window: self.window }
    }

    /// Entries that a connection may need in the completion queue
    fn completions(&self) -> u32 {
        // Eager receives and sends, bulk sends, messages of the protocol, bulk receives.
        2 * self.window + 2 * self.send_queue + 64 + MAX_BULK_RECEIVES as u32
    }

    fn check(&self, device: &impl Device) -> Result<(), EndpointError> {
        let options = |why| Err(EndpointError::Options(why));
        if !self.params().is_usable() {
            return options("the window is too small, or too large, for the announcements");
        }
        if self.timeout < self.keepalive * 2 || self.timeout > self.keepalive * 8 || self.keepalive.is_zero()
        {
            return options("the timeout is not two to eight keep-alive intervals");
        }
        if self.send_queue == 0 || self.send_queue > 4096 {
            return options("the send queue holds no message, or more than 4096");
        }
        if self.max_message > device.caps().max_message as usize {
            return options("the device cannot carry messages that long");
        }
        if self.window as usize * FRAME + FRAME + self.max_message.next_multiple_of(FRAME)
            > self.receive_memory
        {
            return options("the receive memory does not hold a window and the longest message");
        }
        if self.send_memory < FRAME {
            return options("the send memory does not hold a message");
        }
        if self.completions() > device.caps().max_cqe {
            return options("the completion queue of the device does not hold the window and the queues");
        }
        Ok(())
    }
}

/// One device, ready for connections
///
/// Owns the device's one registration of memory and its completion queue, and a task that drives the connections. Cheap
/// to clone. When the endpoint, its connections and their leases are gone, the device is closed.
#[derive(Clone)]
pub struct Endpoint<D: Device> {
    hub: Arc<Hub<D>>,
    _held: Arc<Held<D>>,
}

/// What an endpoint, its reactor and its connections share
pub(crate) struct Hub<D: Device> {
    /// Connections that the reactor does not know yet; `None` when there is no reactor any more.
    joining: Mutex<Option<Vec<Arc<Line<D>>>>>,
    has_joining: AtomicBool,
    handles: AtomicUsize,
    connections: AtomicU32,
    next_line: AtomicU32,
    pub(crate) pool: Pool,
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) device: D,
    /// Wakes the reactor.
    pub(crate) reactor: ReactorWaker,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) options: EndpointOptions,
}

/// How the reactor is woken for other reasons than completions: rarely, and by its one task's waker
#[derive(Debug, Default)]
pub(crate) struct ReactorWaker(Mutex<Option<Waker>>);

impl ReactorWaker {
    /// `waker` is the reactor's from now on
    pub(crate) fn set(&self, waker: Waker) {
        *self.0.lock() = Some(waker);
    }

    fn wake(&self) {
        if let Some(waker) = &*self.0.lock() {
            waker.wake_by_ref();
        }
    }
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
        let [send, receive] =
            [options.send_memory, options.receive_memory].map(|bytes| (bytes / FRAME) as u32);
        // The queue must outlive the registration: leases that the application still holds keep both.
        let pool = Pool::new(&device, send, receive, Arc::clone(&cq) as _)?;
        let hub = Arc::new(Hub {
            joining: Mutex::new(Some(Vec::new())),
            has_joining: AtomicBool::new(false),
            handles: AtomicUsize::new(1),
            connections: AtomicU32::new(0),
            next_line: AtomicU32::new(0),
            pool,
            cq,
            device,
            reactor: ReactorWaker::default(),
            runtime,
            options,
        });
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
    /// Dropping the future gives up: everything it took from the device is given back, and the peer's attempt fails.
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
        self.hub.pool.try_lease(crate::pool::Zone::Send, len)
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

impl<D: Device> Hub<D> {
    /// Counts one more connection in, unless the completion queue could not hold its requests
    pub(crate) fn reserve(&self) -> Result<(), ConnectError> {
        let limit = self.device.caps().max_cqe / self.options.completions();
        let counted = self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            if n < limit { Some(n + 1) } else { None }
        });
        counted.map(drop).map_err(|_| ConnectError::TooManyConnections)
    }

    /// A connection is over
    pub(crate) fn forget(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn next_line(&self) -> u32 {
        self.next_line.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a connection to the reactor; gives it back if there is none any more
    pub(crate) fn join(&self, line: Arc<Line<D>>) -> Result<(), Arc<Line<D>>> {
        match &mut *self.joining.lock() {
            Some(joining) => joining.push(line),
            None => return Err(line),
        }
        self.has_joining.store(true, Ordering::Release);
        self.wake_reactor();
        Ok(())
    }

    /// Moves new connections to the reactor's
    pub(crate) fn adopt(&self, lines: &mut Vec<Arc<Line<D>>>) {
        if self.has_joining.load(Ordering::Acquire) {
            self.has_joining.store(false, Ordering::Release);
            lines.extend(self.joining.lock().iter_mut().flat_map(|joining| joining.drain(..)));
        }
    }

    /// Moves new connections to the reactor's, and takes no more
    pub(crate) fn close(&self, lines: &mut Vec<Arc<Line<D>>>) {
        lines.extend(self.joining.lock().take().into_iter().flatten());
    }

    /// Whether an endpoint, or an attempt to connect, still exists
    pub(crate) fn is_held(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0 || self.has_joining.load(Ordering::Acquire)
    }

    /// Keeps the reactor going until [`release`](Self::release)
    pub(crate) fn hold(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn release(&self) {
        self.handles.fetch_sub(1, Ordering::AcqRel);
        self.wake_reactor();
    }

    pub(crate) fn wake_reactor(&self) {
        self.reactor.wake();
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
