//! How two endpoints become a connection, over any byte stream

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use rdma_core::probe::{self, ConnectionState};
use rdma_core::protocol::{Hello, Params, Protocol, ProtocolConfig};
use rdma_core::{Device, Error, FRAME, Invalid, QpAddress, QpCapacity, QpInit, QpType, QueuePair, Verb};

use crate::bootstrap_stream::{BootstrapStream, read_exact, write_all};
use crate::connection::shared::ConnectionShared;
use crate::connection::state::State;
use crate::connection::{Connection, Peer};
use crate::endpoint_inner::{EndpointGuard, EndpointInner};
use crate::error::ConnectError;
use crate::options::MAX_BULK_RECEIVES;
use crate::pool::Zone;
use crate::queue_pairs::{Ops, QueuePairs};
use crate::time::timeout;

/// Which side speaks first
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Introduces itself when the peer has
    Accepting,
    /// Introduces itself first
    Connecting,
}

/// Sent when this side can receive.
const READY: u8 = 0x5a;

pub(crate) async fn connect<D: Device>(
    endpoint: &Arc<EndpointInner<D>>,
    stream: impl BootstrapStream,
    role: Role,
) -> Result<Connection<D>, ConnectError> {
    probe::reached(ConnectionState::Connecting);
    let limit = endpoint.options.connect_timeout;
    let attempt = unless_closed(endpoint, handshake(endpoint, stream, role));
    let attempt = timeout(&*endpoint.runtime, limit, attempt).await;
    let connected = attempt.unwrap_or(Err(ConnectError::Timeout(limit)));
    probe::reached(if connected.is_ok() { ConnectionState::Open } else { ConnectionState::Failed });
    if let Err(error) = &connected {
        tracing::debug!(device = endpoint.device.name(), %error, "no connection");
    }
    connected
}

/// Ends `attempt` when the endpoint is closed
async fn unless_closed<D: Device, T>(
    endpoint: &EndpointInner<D>,
    attempt: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let (mut closing, mut attempt) = (endpoint.closing(), pin!(attempt));
    poll_fn(|cx| match closing.poll(cx) {
        Poll::Ready(()) => Poll::Ready(Err(ConnectError::Closed)),
        Poll::Pending => attempt.as_mut().poll(cx),
    })
    .await
}

async fn handshake<D: Device>(
    endpoint: &Arc<EndpointInner<D>>,
    mut stream: impl BootstrapStream,
    role: Role,
) -> Result<Connection<D>, ConnectError> {
    let stream = &mut stream;
    let (theirs, prepared) = match role {
        Role::Accepting => {
            let theirs = read_hello(stream).await?;
            if let Err(error) = check_epoch(endpoint, &theirs) {
                // The peer learns the reason from the epoch of this side.
                let none = QpAddress::default();
                let epoch = endpoint.options.group_epoch;
                let refusal = Hello { epoch, params: theirs.params, eager: none, bulk: none };
                write_all(stream, &refusal.to_bytes()).await?;
                return Err(error);
            }
            let prepared = Prepared::new(endpoint)?;
            write_all(stream, &prepared.hello().to_bytes()).await?;
            (theirs, prepared)
        }
        Role::Connecting => {
            let prepared = Prepared::new(endpoint)?;
            write_all(stream, &prepared.hello().to_bytes()).await?;
            let theirs = read_hello(stream).await?;
            check_epoch(endpoint, &theirs)?;
            (theirs, prepared)
        }
    };
    let connection = prepared.into_connection(&theirs)?;

    // From here on the peer may send: the connection is driven already. It is lost if this future is dropped.
    write_all(stream, &[READY]).await?;
    let mut ready = [0];
    read_exact(stream, &mut ready).await?;
    if ready != [READY] {
        return Err(ConnectError::Stream(io::ErrorKind::InvalidData));
    }
    if let Some(error) = connection.handle().error() {
        return Err(error.into());
    }
    connection.handle().confirm();
    Ok(connection)
}

async fn read_hello(stream: &mut impl BootstrapStream) -> Result<Hello, ConnectError> {
    let mut bytes = [0; Hello::LEN];
    // A peer of another version may send a shorter hello and wait: its head is checked before the rest is read.
    let (head, rest) = bytes.split_at_mut(Hello::HEAD_LEN);
    read_exact(stream, head).await?;
    Hello::check_head(head.try_into().expect("the slice has this length"))?;
    read_exact(stream, rest).await?;
    Ok(Hello::from_bytes(&bytes)?)
}

fn check_epoch<D: Device>(endpoint: &EndpointInner<D>, theirs: &Hello) -> Result<(), ConnectError> {
    let ours = endpoint.options.group_epoch;
    if theirs.epoch == ours { Ok(()) } else { Err(ConnectError::Epoch { ours, theirs: theirs.epoch }) }
}

/// Queue pairs that are not connected yet, and the connection's place in the account
struct Prepared<D: Device> {
    guard: EndpointGuard<D>,
    id: u32,
    /// `None` once they belong to a connection.
    queues: Option<QueuePairs<D>>,
    is_joined: bool,
}

impl<D: Device> Prepared<D> {
    fn new(endpoint: &Arc<EndpointInner<D>>) -> Result<Self, ConnectError> {
        endpoint.reserve()?;
        let (guard, id) = (EndpointGuard::new(Arc::clone(endpoint)), endpoint.next_id());
        let mut prepared = Self { guard, id, queues: None, is_joined: false };
        let window = endpoint.options.recv_window;
        let max = endpoint.device.caps().max_queue_frames;
        let qp = |recv_frames: u32, send_frames: u32| QpInit {
            capacity: QpCapacity { recv_frames: recv_frames.min(max), send_frames: send_frames.min(max) },
            qp_type: QpType::Uc,
        };
        let control = endpoint.pool.try_lease(Zone::Eager, 1).ok_or(ConnectError::Memory)?;
        // The bulk queue pair gets all that the device has: its depth bounds the longest message.
        prepared.queues =
            Some(QueuePairs::new(&*endpoint.cq, id, &qp(window, window), &qp(max, max), window, control)?);
        if !prepared.params().is_usable() {
            let recv_frames = prepared.queues().eager().capacity().recv_frames;
            return Err(Error::new(Verb::CreateQp, Invalid::ShortQueue { recv_frames }.into()).into());
        }
        Ok(prepared)
    }

    fn endpoint(&self) -> &EndpointInner<D> {
        &self.guard.0
    }

    fn queues(&self) -> &QueuePairs<D> {
        self.queues.as_ref().expect("the queue pairs are there until they belong to a connection")
    }

    /// What this side can keep: the device may have granted less than was asked for
    fn params(&self) -> Params {
        let asked = self.endpoint().options.params();
        let queues = self.queues();
        let bulk = queues.bulk().capacity().recv_frames as usize * FRAME;
        Params {
            max_message: asked.max_message.min(u32::try_from(bulk).unwrap_or(u32::MAX)),
            window: asked.window.min(queues.eager().capacity().recv_frames),
            ..asked
        }
    }

    fn hello(&self) -> Hello {
        let (eager, bulk) = (self.queues().eager().address(), self.queues().bulk().address());
        Hello { epoch: self.endpoint().options.group_epoch, params: self.params(), eager, bulk }
    }

    /// Connects both queue pairs, hands them to the reactor, and then posts the eager receives: before the queue pair is ready
    /// to send, Apple's device has been reported to refuse receives
    fn into_connection(mut self, theirs: &Hello) -> Result<Connection<D>, ConnectError> {
        let endpoint = Arc::clone(&self.guard.0);
        let options = &endpoint.options;
        let queues = self.queues();
        queues.eager().connect(&theirs.eager)?;
        queues.bulk().connect(&theirs.bulk)?;
        let config = ProtocolConfig {
            bulk_receives: MAX_BULK_RECEIVES,
            bulk_send_frames: queues.bulk().capacity().send_frames,
            eager_send_frames: queues.eager().capacity().send_frames.min(options.recv_window),
            keep_alive_interval: options.keep_alive_interval,
            params: self.params(),
            max_queued: options.max_in_flight_sends,
        };
        let receive = |_| endpoint.pool.try_lease(Zone::Eager, 1).ok_or(ConnectError::Memory);
        let receives = (0..config.params.window).map(receive).collect::<Result<_, _>>()?;
        let protocol = Protocol::new(config, theirs.params, endpoint.runtime.now());
        let ops = Ops::new(options.max_in_flight_sends);
        let queues = self.queues.take().expect("the queue pairs are there until they belong to a connection");
        let pool = endpoint.pool.clone();
        let state = State::new(self.id, pool.clone(), protocol, queues, ops);
        let (reactor, runtime) = (endpoint.reactor_waker(), Arc::clone(&endpoint.runtime));
        let shared = ConnectionShared::new(self.id, Peer::new(theirs), pool, reactor, runtime, state);
        let shared = Arc::new(shared);
        endpoint.join(Arc::clone(&shared))?;
        self.is_joined = true;
        let connection = Connection::new(Arc::clone(&shared));
        shared.open(receives)?;
        Ok(connection)
    }
}

impl<D: Device> Drop for Prepared<D> {
    fn drop(&mut self) {
        if !self.is_joined {
            self.endpoint().forget();
        }
    }
}
