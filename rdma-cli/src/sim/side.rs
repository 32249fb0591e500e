//! One end of a link, with the session of its program

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::{Either, select};
use futures::lock::Mutex;
use rdma_async::time::{sleep, timeout};
use rdma_async::{AnyDevice, Node, NodeOptions, Session};
use rdma_core::Time;
use rdma_sim::{SimDevice, SimHost};
use tokio::io::DuplexStream;

use super::failure::Failure;
use super::log::Log;
use super::outcome::Outcome;
use super::port::Port;
use crate::mac;

/// One end of a link, for the program that runs there
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) host: SimHost,
    pub(crate) port: Port,
    /// Whether this side connects, and sends in workloads of one direction.
    pub(crate) is_first: bool,
    pub(crate) options: NodeOptions,
    pub(crate) link: Arc<Link>,
    pub(crate) log: Arc<Log>,
    pub(crate) reports: Reports,
}

/// The channel on which programs report their end
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) end: usize,
    pub(crate) to: UnboundedSender<Report>,
}

/// The number of an end, when its program ended, and how
pub(crate) type Report = (usize, Time, Result<(), Failure>);

/// State that both ends of a link share and that outlives their processes
#[derive(Debug)]
pub(crate) struct Link {
    calls: UnboundedSender<DuplexStream>,
    called: Mutex<UnboundedReceiver<DuplexStream>>,
}

impl Link {
    pub(crate) fn new() -> Self {
        let (calls, called) = unbounded();
        Self { calls, called: Mutex::new(called) }
    }
}

/// A side and its session; each workload is a method of this type
pub(crate) struct Connected {
    pub(crate) side: Side,
    pub(crate) session: Session<AnyDevice>,
    _node: Node<AnyDevice>,
}

/// Bytes that a byte stream holds, as buffers of TCP do.
const STREAM: usize = 64 << 10;
/// Time that the second side waits for the stream of the first.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

impl Side {
    pub(crate) fn now(&self) -> Time {
        self.host.net().now()
    }

    pub(crate) async fn rest(&self, time: Duration) {
        if !time.is_zero() {
            sleep(&*self.host.runtime(), time).await;
        }
    }

    /// Reports how the program ended; the first report counts
    pub(crate) fn report(&self, result: Result<(), Failure>) {
        // The receiver is dropped when the observation is over.
        let _ = self.reports.to.unbounded_send((self.reports.end, self.now(), result));
    }

    pub(crate) fn violation(&self, what: impl AsRef<str>) {
        self.log.violation(format!("{}: {}", self.port, what.as_ref()));
    }

    /// Records a violation, if `checked` is one
    pub(crate) fn check(&self, checked: Result<(), String>) {
        let _ = checked.inspect_err(|what| self.violation(what));
    }

    pub(crate) fn open(&self) -> Result<SimDevice, Failure> {
        Ok(self.host.net().open(&self.port.host, &self.port.device).map_err(rdma_core::Error::from)?)
    }

    /// A byte stream to the other side, over a network beside the cable
    pub(crate) async fn stream(&self) -> Result<DuplexStream, Failure> {
        if self.is_first {
            let (local, remote) = tokio::io::duplex(STREAM);
            // The link holds the receiver.
            let _ = self.link.calls.unbounded_send(remote);
            return Ok(local);
        }
        let call = async { self.link.called.lock().await.next().await };
        let stream = timeout(&*self.host.runtime(), CALL_TIMEOUT, call).await.flatten();
        stream.ok_or_else(|| {
            Failure::new(
                Outcome::ConnectFails,
                format!("the other side opened no stream within {CALL_TIMEOUT:?}"),
            )
        })
    }

    /// Opens a session with the other side
    pub(crate) async fn connect(&self) -> Result<Connected, Failure> {
        let node = Node::builder(mac::opener(self.host.net(), &self.port.host, &self.port.device))
            .runtime(self.host.runtime())
            .options(self.options.clone())
            .build()?;
        let stream = self.stream().await?;
        let session = if self.is_first { node.connect(stream).await? } else { accept(&node, stream).await? };
        Ok(Connected { side: self.clone(), session, _node: node })
    }
}

/// Waits until the peer at the other end of `stream` has opened a session
async fn accept(node: &Node<AnyDevice>, stream: DuplexStream) -> Result<Session<AnyDevice>, Failure> {
    node.serve(stream).await?;
    let (accept, wait_idle) = (pin!(node.accept()), pin!(node.wait_idle()));
    let session = match select(accept, wait_idle).await {
        Either::Left((session, _)) => session,
        Either::Right(_) => None,
    };
    session.ok_or_else(|| Failure::new(Outcome::ConnectFails, "the other side went away without a session"))
}
