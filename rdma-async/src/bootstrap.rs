//! How two endpoints become a connection, over any byte stream

use std::sync::Arc;

use rdma_core::channel::{Channel, ChannelConfig, Hello};
use rdma_core::{Device, FRAME, QpCapacity, QpInit, QpType, QueuePair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connection::Connection;
use crate::error::{ConnectError, ConnectionError};
use crate::hub::Hub;
use crate::line::Line;
use crate::pool::Zone;
use crate::queues::{Ops, Queues};
use crate::time::timeout;

/// Who speaks first
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Accepting,
    Connecting,
}

/// Said when this side can receive.
const READY: u8 = 0x5a;

pub(crate) async fn connect<D: Device, S>(
    hub: &Arc<Hub<D>>,
    stream: S,
    role: Role,
) -> Result<Connection<D>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limit = hub.options.connect_timeout;
    let attempt = timeout(&*hub.runtime, limit, shake_hands(hub, stream, role)).await;
    let connected = attempt.unwrap_or(Err(ConnectError::Timeout(limit)));
    if let Err(error) = &connected {
        tracing::debug!(device = hub.device.name(), %error, "no connection");
    }
    connected
}

async fn shake_hands<D: Device, S>(
    hub: &Arc<Hub<D>>,
    mut stream: S,
    role: Role,
) -> Result<Connection<D>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (theirs, mut queues) = match role {
        Role::Accepting => {
            let theirs = read_hello(hub, &mut stream).await?;
            let queues = Prepared::new(hub)?;
            write_hello(hub, &mut stream, &queues).await?;
            (theirs, queues)
        }
        Role::Connecting => {
            let queues = Prepared::new(hub)?;
            write_hello(hub, &mut stream, &queues).await?;
            (read_hello(hub, &mut stream).await?, queues)
        }
    };
    queues.connect(&theirs)?;
    let connection = queues.into_connection(&theirs)?;

    // From here on the peer may send: the connection is driven already. It is lost if this future goes away.
    stream.write_all(&[READY]).await?;
    stream.flush().await?;
    let mut ready = [0];
    stream.read_exact(&mut ready).await?;
    if ready != [READY] {
        connection.abort();
        return Err(ConnectError::Stream(std::io::ErrorKind::InvalidData));
    }
    connection.confirm();
    Ok(connection)
}

async fn read_hello<D: Device>(
    hub: &Hub<D>,
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Hello, ConnectError> {
    let mut bytes = [0; Hello::LEN];
    stream.read_exact(&mut bytes).await?;
    let theirs = Hello::from_bytes(&bytes)?;
    let ours = hub.options.epoch;
    if theirs.epoch != ours {
        return Err(ConnectError::Epoch { ours, theirs: theirs.epoch });
    }
    Ok(theirs)
}

async fn write_hello<D: Device>(
    hub: &Hub<D>,
    stream: &mut (impl AsyncWrite + Unpin),
    prepared: &Prepared<D>,
) -> Result<(), ConnectError> {
    let (eager, bulk) = (prepared.queues().eager().address(), prepared.queues().bulk().address());
    let hello = Hello { epoch: hub.options.epoch, params: hub.options.params(), eager, bulk };
    stream.write_all(&hello.to_bytes()).await?;
    stream.flush().await?;
    Ok(())
}

/// Queue pairs that are not connected yet, and the connection's place among the others
struct Prepared<D: Device> {
    hub: Arc<Hub<D>>,
    id: u32,
    /// `None` once they belong to a connection.
    queues: Option<Queues<D>>,
    is_joined: bool,
}

impl<D: Device> Prepared<D> {
    fn new(hub: &Arc<Hub<D>>) -> Result<Self, ConnectError> {
        hub.reserve()?;
        hub.hold();
        let id = hub.next_line();
        let mut prepared = Self { hub: Arc::clone(hub), id, queues: None, is_joined: false };
        let window = hub.options.window;
        let max = hub.device.caps().max_queue_frames;
        let qp = |recv_frames: u32, send_frames: u32| QpInit {
            capacity: QpCapacity { recv_frames: recv_frames.min(max), send_frames: send_frames.min(max) },
            qp_type: QpType::Uc,
        };
        let control = hub.pool.try_lease(Zone::Receive, FRAME).ok_or(ConnectError::Memory)?;
        // The bulk queue pair gets all that the device has: its depth bounds the longest message.
        prepared.queues =
            Some(Queues::new(&*hub.cq, id, &qp(window, window), &qp(max, max), window, control)?);
        Ok(prepared)
    }

    fn queues(&self) -> &Queues<D> {
        self.queues.as_ref().expect("the queues are there until they belong to a connection")
    }

    /// Connects both queue pairs and posts the eager receives, in this order: before it is ready to send, Apple's device
    /// has been reported to refuse receives
    fn connect(&mut self, theirs: &Hello) -> Result<(), ConnectError> {
        let queues = self.queues.as_mut().expect("the queues are there until they belong to a connection");
        queues.eager().connect(&theirs.eager)?;
        queues.bulk().connect(&theirs.bulk)?;
        for _ in 0..self.hub.options.window {
            let lease = self.hub.pool.try_lease(Zone::Receive, FRAME).ok_or(ConnectError::Memory)?;
            queues.post_eager_recv(lease)?;
        }
        Ok(())
    }

    fn into_connection(mut self, theirs: &Hello) -> Result<Connection<D>, ConnectError> {
        let options = &self.hub.options;
        let queues = self.queues.take().expect("the queues are there until they belong to a connection");
        let config = ChannelConfig {
            bulk_send_frames: queues.bulk().capacity().send_frames,
            eager_send_frames: queues.eager().capacity().send_frames.min(options.window),
            keepalive: options.keepalive,
            params: options.params(),
            queue: options.send_queue,
            timeout: options.timeout,
        };
        let channel = Channel::new(config, theirs.params, self.hub.runtime.now());
        let ops = Ops::new(options.send_queue);
        let line = Arc::new(Line::new(self.id, Arc::clone(&self.hub), ops, channel, queues));
        match self.hub.join(Arc::clone(&line)) {
            Ok(()) => {
                self.is_joined = true;
                Ok(Connection::new(line))
            }
            Err(line) => {
                line.abort(ConnectionError::RuntimeGone);
                Err(ConnectError::Stream(std::io::ErrorKind::ConnectionAborted))
            }
        }
    }
}

impl<D: Device> Drop for Prepared<D> {
    fn drop(&mut self) {
        if !self.is_joined {
            self.hub.forget();
        }
        self.hub.release();
    }
}
