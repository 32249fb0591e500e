//! The side that asks

use anyhow::{Context as _, Result, bail};
use rdma_async::{AnyDevice, Node, NodeOptions, Session};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::carriers::Carriers;
use super::sides::{PATIENCE, unless_interrupted};
use crate::args::{Carrier, Machines};
use crate::report::Output;
use crate::signals::Interrupt;

/// The machine that is asked
pub(crate) struct Peer<'a> {
    pub(crate) host: &'a str,
    pub(crate) machines: &'a Machines,
    /// The command that has to run there
    pub(crate) command: &'a str,
}

/// A session with a machine that serves
pub(crate) struct Meeting {
    pub(crate) node: Node<AnyDevice>,
    pub(crate) session: Session<AnyDevice>,
}

impl Meeting {
    /// Opens a session over what carries best, and says what that is
    pub(crate) async fn with(
        peer: Peer<'_>,
        options: NodeOptions,
        interrupt: &Interrupt,
        output: Output,
    ) -> Result<Self> {
        let carriers = Carriers::find(peer.machines.carrier.unwrap_or(Carrier::Auto))?;
        let stream = unless_interrupted(interrupt, peer.connect()).await?;
        let address = stream.peer_addr()?;
        let node = carriers.node(stream.local_addr()?, options)?;
        let connected = async { Ok(node.connect(stream).await?) };
        let session = unless_interrupted(interrupt, connected)
            .await
            .with_context(|| format!("{address} was reached, but no session could be made"))?;
        output.announce(&format!("carrier: {}", carriers.describe(&session).await))?;
        Ok(Self { node, session })
    }
}

impl Peer<'_> {
    async fn connect(&self) -> Result<TcpStream> {
        let (host, port) = (self.host, self.machines.port());
        let remedy = || format!("{host}, port {port}: run `{}` there first", self.command);
        match timeout(PATIENCE, TcpStream::connect((host, port))).await {
            Ok(connected) => connected.with_context(remedy),
            Err(_) => bail!("{}: nothing answered for {PATIENCE:?}", remedy()),
        }
    }
}
