//! The machine that serves, as the side that asks sees it

use anyhow::{Context as _, Result};
use rdma_async::{AnyDevice, Node, NodeOptions, Session};

use super::carriers::{Carried, Carriers};
use super::connect::{connect, require_port};
use super::host::Host;
use super::reset_code::explain;
use super::sides::{end_session, in_session, key_options, runtime, unless_interrupted, with_memory_for};
use crate::args::{Carrier, Machines};
use crate::failure::OwnFile;
use crate::signals::{Interrupt, Interrupted};

/// The machine that serves
#[derive(Clone, Copy)]
pub(crate) struct Peer<'a> {
    pub(crate) host: &'a Host,
    pub(crate) machines: &'a Machines,
    /// The command that has to run there
    pub(crate) command: &'a str,
    pub(crate) interrupt: &'a Interrupt,
}

impl Peer<'_> {
    /// Opens a session over what carries best, passes that to `on_carrier`, and runs `work`; the node has memory for `count` messages
    /// of `longest` bytes
    pub(crate) fn in_session<T>(
        self,
        longest: usize,
        count: usize,
        on_carrier: impl FnOnce(&str) -> Result<()>,
        work: impl AsyncFnOnce(&Session<AnyDevice>) -> Result<T>,
    ) -> Result<(T, Carried)> {
        require_port(self.machines.port(), Machines::PORT)?;
        let options = with_memory_for(key_options(self.machines.key.as_deref())?, longest, count);
        runtime()?.block_on(async {
            let (node, session, carrier) = self.open_session(options).await?;
            on_carrier(&carrier)?;
            let (done, carried) = in_session(&session, self.host, self.interrupt, work(&session)).await;
            end_session(node, session, &done).await;
            let done = done.map_err(explain).map_err(|error| match error {
                own if own.is::<Interrupted>() || own.is::<OwnFile>() => own,
                error => error.context(self.host.clone()),
            });
            Ok((done?, carried))
        })
    }

    /// Opens a session, and finds out what carries it
    async fn open_session(
        self,
        options: NodeOptions,
    ) -> Result<(Node<AnyDevice>, Session<AnyDevice>, String)> {
        let carriers = Carriers::find(self.machines.carrier.unwrap_or(Carrier::Auto))?;
        let remedy = format!("run `{}` there first", self.command);
        let connecting = connect(self.host, self.machines.port(), &remedy);
        let stream = unless_interrupted(self.interrupt, connecting).await?;
        let address = stream.peer_addr()?;
        let node = carriers.node(stream.local_addr()?, options)?;
        let connected = async { Ok(node.connect(stream).await?) };
        let session = unless_interrupted(self.interrupt, connected)
            .await
            .with_context(|| format!("{address} was reached, but no session could be made"))?;
        let carrier = carriers.describe(&session).await;
        Ok((node, session, carrier))
    }
}
