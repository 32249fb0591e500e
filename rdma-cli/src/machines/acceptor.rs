//! The side that serves: connections become sessions that ask for something

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use rdma_async::{AnyDevice, ConnectError, Node, NodeOptions, Session};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::attempts::{Attempt, Attempts, Refused};
use super::carriers::Carriers;
use super::limits::PATIENCE;
use super::listen::canonical;
use super::reset_code::reset_code;

/// A session, and what it asks for
pub(crate) struct Accepted<T> {
    pub(crate) node: Node<AnyDevice>,
    pub(crate) session: Session<AnyDevice>,
    pub(crate) peer: SocketAddr,
    pub(crate) request: T,
}

/// Reads the first message of a session, and refuses what cannot be done
type ReadRequest<'a, T> = dyn Fn(&[u8]) -> Result<T> + 'a;

/// Where connections become sessions that ask for a `T`
pub(crate) struct Acceptor<'a, T> {
    carriers: &'a Carriers,
    options: NodeOptions,
    read_request: &'a ReadRequest<'a, T>,
    attempts: Attempts<'a, Accepted<T>>,
}

const NO_REQUEST: &str = "the peer has connected, and sent no request";

impl<'a, T: 'a> Acceptor<'a, T> {
    pub(crate) fn new(
        carriers: &'a Carriers,
        options: NodeOptions,
        read_request: &'a ReadRequest<'a, T>,
    ) -> Self {
        Self { carriers, options, read_request, attempts: Attempts::new() }
    }

    /// Waits for the next session with a request that can be met
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no connection.
    pub(crate) async fn accept(&mut self, listener: &TcpListener) -> Accepted<T> {
        let Self { carriers, options, read_request, attempts } = self;
        let admit = |stream: TcpStream, peer| {
            // On a node of its own: it takes nothing from others.
            let node = carriers.node(canonical(stream.local_addr()?), options.clone())?;
            Ok(Box::pin(admit(*read_request, node, stream, peer)) as Attempt<'_, _>)
        };
        attempts.accept(listener, admit).await
    }
}

/// Makes a connection a session with a request that can be met
async fn admit<T>(
    read_request: &ReadRequest<'_, T>,
    node: Node<AnyDevice>,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<Accepted<T>, Refused> {
    let served = node.serve(stream).await.map_err(|error| Refused { peer, error: error.into() });
    served?;
    let first_message = async {
        let session = node.accept().await.ok_or(ConnectError::Closed)?;
        let message = session.recv().await;
        anyhow::Ok((session, message))
    };
    let first_message = timeout(PATIENCE, first_message).await.context(NO_REQUEST).flatten();
    let accepted = first_message.and_then(|(session, message)| {
        let request = match message {
            Ok(message) => message.context(NO_REQUEST).and_then(|message| read_request(&message)),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = &request {
            session.reset(reset_code(error));
        }
        request.map(|request| (session, request))
    });
    match accepted {
        Ok((session, request)) => Ok(Accepted { node, session, peer, request }),
        Err(error) => {
            node.close();
            Err(Refused { peer, error })
        }
    }
}
