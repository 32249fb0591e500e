//! How two endpoints become a connection, over any byte stream

use std::sync::Arc;

use rdma_core::protocol::{Hello, Params, Protocol, ProtocolConfig};
use rdma_core::{Device, Error, FRAME, Invalid, QpAddress, QpCapacity, QpInit, QpType, QueuePair, Verb};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connection::Connection;
use crate::error::{ConnectError, ConnectionError};
use crate::hub::Hub;
use crate::line::Line;
use crate::options::MAX_BULK_RECEIVES;
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
    let (theirs, queues) = match role {
        Role::Accepting => {
            let theirs = read_hello(&mut stream).await?;
            if let Err(error) = check_epoch(hub, &theirs) {
                // Lest the peer have to guess.
                let nobody = QpAddress::default();
                let Hello { params, .. } = theirs;
                let refusal = Hello { epoch: hub.options.group_epoch, params, eager: nobody, bulk: nobody };
                write_hello(&mut stream, &refusal).await?;
                return Err(error);
            }
            let queues = Prepared::new(hub)?;
            write_hello(&mut stream, &queues.hello()).await?;
            (theirs, queues)
        }
        Role::Connecting => {
            let queues = Prepared::new(hub)?;
            write_hello(&mut stream, &queues.hello()).await?;
            let theirs = read_hello(&mut stream).await?;
            check_epoch(hub, &theirs)?;
            (theirs, queues)
        }
    };
    let connection = queues.into_connection(&theirs)?;

    // From here on the peer may send: the connection is driven already. It is lost if this future goes away.
    stream.write_all(&[READY]).await?;
    stream.flush().await?;
    let mut ready = [0];
    stream.read_exact(&mut ready).await?;
    if ready != [READY] {
        return Err(ConnectError::Stream(std::io::ErrorKind::InvalidData));
    }
    if let Some(error) = connection.lost() {
        return Err(error.into());
    }
    connection.confirm();
    Ok(connection)
}

async fn read_hello(stream: &mut (impl AsyncRead + Unpin)) -> Result<Hello, ConnectError> {
    let mut bytes = [0; Hello::LEN];
    stream.read_exact(&mut bytes).await?;
    Ok(Hello::from_bytes(&bytes)?)
}

async fn write_hello(stream: &mut (impl AsyncWrite + Unpin), hello: &Hello) -> Result<(), ConnectError> {
    stream.write_all(&hello.to_bytes()).await?;
    stream.flush().await?;
    Ok(())
}

fn check_epoch<D: Device>(hub: &Hub<D>, theirs: &Hello) -> Result<(), ConnectError> {
    let ours = hub.options.group_epoch;
    if theirs.epoch == ours { Ok(()) } else { Err(ConnectError::Epoch { ours, theirs: theirs.epoch }) }
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
        let window = hub.options.recv_window;
        let max = hub.device.caps().max_queue_frames;
        let qp = |recv_frames: u32, send_frames: u32| QpInit {
            capacity: QpCapacity { recv_frames: recv_frames.min(max), send_frames: send_frames.min(max) },
            qp_type: QpType::Uc,
        };
        let control = hub.pool.try_lease(Zone::Eager, FRAME).ok_or(ConnectError::Memory)?;
        // The bulk queue pair gets all that the device has: its depth bounds the longest message.
        prepared.queues =
            Some(Queues::new(&*hub.cq, id, &qp(window, window), &qp(max, max), window, control)?);
        if !prepared.params().is_usable() {
            let recv_frames = prepared.queues().eager().capacity().recv_frames;
            return Err(Error::new(Verb::CreateQp, Invalid::ShortQueue { recv_frames }.into()).into());
        }
        Ok(prepared)
    }

    fn queues(&self) -> &Queues<D> {
        self.queues.as_ref().expect("the queues are there until they belong to a connection")
    }

    /// What this side can keep: the device may have granted less than was asked for
    fn params(&self) -> Params {
        let asked = self.hub.options.params();
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
        Hello { epoch: self.hub.options.group_epoch, params: self.params(), eager, bulk }
    }

    /// Connects both queue pairs, hands them to the reactor, and then posts the eager receives: before the queue pair is ready
    /// to send, Apple's device has been reported to refuse receives
    fn into_connection(mut self, theirs: &Hello) -> Result<Connection<D>, ConnectError> {
        let options = &self.hub.options;
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
            peer_timeout: options.peer_timeout,
        };
        let receive = |_| self.hub.pool.try_lease(Zone::Eager, FRAME).ok_or(ConnectError::Memory);
        let receives = (0..config.params.window).map(receive).collect::<Result<_, _>>()?;
        let protocol = Protocol::new(config, theirs.params, self.hub.runtime.now());
        let ops = Ops::new(options.max_in_flight_sends);
        let queues = self.queues.take().expect("the queues are there until they belong to a connection");
        let line = Arc::new(Line::new(self.id, Arc::clone(&self.hub), ops, protocol, queues));
        if let Err(line) = self.hub.join(Arc::clone(&line)) {
            line.abort(ConnectionError::RuntimeGone);
            return Err(ConnectionError::RuntimeGone.into());
        }
        self.is_joined = true;
        let connection = Connection::new(line);
        connection.open(receives)?;
        Ok(connection)
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
