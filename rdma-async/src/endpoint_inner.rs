//! What an endpoint, its reactor and its attempts to connect share

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use rdma_core::{Device, Runtime};

use crate::connection::shared::ConnectionShared;
use crate::error::{ConnectError, ConnectionError};
use crate::joining::Joining;
use crate::options::EndpointOptions;
use crate::pool::Pool;
use crate::reactor_waker::ReactorWaker;
use crate::wait_queue::{SharedWaitQueue, Waiter};

/// The device, its memory and its completion queue, and the account of connections
pub(crate) struct EndpointInner<D: Device> {
    pub(crate) joining: Joining<Arc<ConnectionShared<D>>>,
    /// Why the reactor takes no more connections, if its completion queue has failed.
    pub(crate) failure: OnceLock<rdma_core::Error>,
    /// Endpoints and attempts to connect: while there are any, the reactor goes on.
    handles: AtomicUsize,
    is_closed: AtomicBool,
    /// Where attempts to connect wait for the endpoint to be closed.
    closing: SharedWaitQueue<()>,
    /// How many connections there are, or are being made.
    connections: SharedWaitQueue<u32>,
    next_id: AtomicU32,
    pub(crate) pool: Pool,
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) device: D,
    pub(crate) reactor: Arc<ReactorWaker>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) options: EndpointOptions,
}

impl<D: Device> EndpointInner<D> {
    pub(crate) fn new(
        device: D,
        cq: Arc<D::Cq>,
        pool: Pool,
        runtime: Arc<dyn Runtime>,
        options: EndpointOptions,
    ) -> Self {
        Self {
            joining: Joining::new(),
            failure: OnceLock::new(),
            handles: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            closing: SharedWaitQueue::for_all("the peer to take part in the bootstrap", (), 4),
            connections: SharedWaitQueue::for_all("the connections of its endpoint to end", 0, 4),
            next_id: AtomicU32::new(0),
            pool,
            cq,
            device,
            reactor: Arc::new(ReactorWaker::new()),
            runtime,
            options,
        }
    }

    /// Counts one more connection in, if it is not one too many for the memory and the completion queue
    pub(crate) fn reserve(&self) -> Result<(), ConnectError> {
        if self.is_closed() {
            return Err(ConnectError::Closed);
        }
        let max = self.options.max_connections;
        self.connections.update(|connections| {
            if *connections >= max {
                return Err(ConnectError::TooManyConnections { max });
            }
            *connections += 1;
            Ok(())
        })
    }

    /// Counts a connection out that is over, or was not made
    pub(crate) fn forget(&self) {
        self.connections.update(|connections| *connections -= 1);
    }

    /// Ready when there is no connection
    pub(crate) fn poll_idle(&self, waiter: &mut Waiter, cx: &Context<'_>) -> Poll<()> {
        self.connections.poll_take_alone(waiter, cx, |connections| (*connections == 0).then_some(()))
    }

    /// Gives up waiting in [`poll_idle`](Self::poll_idle)
    pub(crate) fn leave_idle(&self, waiter: &mut Waiter) {
        self.connections.leave_alone(waiter);
    }

    /// Refuses further connections and ends the attempts; the reactor closes those connections that there are
    pub(crate) fn close(&self) {
        self.closing.update(|()| self.is_closed.store(true, Ordering::Release));
        self.reactor.wake_by_ref();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until the endpoint is closed
    pub(crate) fn closing(&self) -> Closing<'_, D> {
        Closing { endpoint: self, waiter: Waiter::default() }
    }

    /// A number that no other connection of the endpoint has or had
    pub(crate) fn next_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a connection to the reactor, or aborts it if the reactor takes no more
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Device`] if the completion queue has failed, or [`ConnectionError::RuntimeGone`].
    pub(crate) fn join(&self, connection: Arc<ConnectionShared<D>>) -> Result<(), ConnectionError> {
        let Err(refused) = self.joining.push(connection) else {
            self.reactor.wake_by_ref();
            return Ok(());
        };
        let reason = self.failure.get().map_or(ConnectionError::RuntimeGone, |error| (*error).into());
        refused.abort(reason.clone());
        Err(reason)
    }

    /// Whether an endpoint, or an attempt to connect, still exists
    pub(crate) fn is_held(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0 || self.joining.has_some()
    }

    /// What wakes the reactor
    pub(crate) fn reactor_waker(&self) -> Waker {
        Arc::clone(&self.reactor).into()
    }
}

/// Keeps the reactor of an endpoint without connections going
pub(crate) struct EndpointGuard<D: Device>(pub(crate) Arc<EndpointInner<D>>);

impl<D: Device> EndpointGuard<D> {
    pub(crate) fn new(endpoint: Arc<EndpointInner<D>>) -> Self {
        endpoint.handles.fetch_add(1, Ordering::AcqRel);
        Self(endpoint)
    }
}

impl<D: Device> Drop for EndpointGuard<D> {
    fn drop(&mut self) {
        self.0.handles.fetch_sub(1, Ordering::AcqRel);
        self.0.reactor.wake_by_ref();
    }
}

/// Waits until an endpoint is closed; dropping it gives the place in line up
pub(crate) struct Closing<'a, D: Device> {
    endpoint: &'a EndpointInner<D>,
    waiter: Waiter,
}

impl<D: Device> Closing<'_, D> {
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let Self { endpoint, waiter } = self;
        endpoint.closing.poll_take_alone(waiter, cx, |()| endpoint.is_closed().then_some(()))
    }
}

impl<D: Device> Drop for Closing<'_, D> {
    fn drop(&mut self) {
        self.endpoint.closing.leave_alone(&mut self.waiter);
    }
}
