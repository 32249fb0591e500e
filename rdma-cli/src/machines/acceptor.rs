//! The side that serves: connections become sessions that ask for something

use std::net::SocketAddr;
use std::pin::Pin;

use anyhow::{Context as _, Result};
use futures::future::select_all;
use rdma_async::{AnyDevice, ConnectError, Node, NodeOptions, Session};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::carriers::Carriers;
use super::limits::{CHECK_INTERVAL, PATIENCE};
use super::listen::canonical;
use super::reset_code::reset_code;
use crate::report::{note, with_sources};

/// Connections that have not become a session; for a further one, the oldest is dropped.
const MAX_ATTEMPTS: usize = 16;

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
    attempts: Vec<Attempt<'a, T>>,
}

const NO_REQUEST: &str = "the peer has connected, and sent no request";

/// A connection that may become a session
type Attempt<'a, T> = Pin<Box<dyn Future<Output = Result<Accepted<T>, Refused>> + 'a>>;

/// A connection that did not become a session
struct Refused {
    peer: SocketAddr,
    error: anyhow::Error,
}

impl<'a, T: 'a> Acceptor<'a, T> {
    pub(crate) fn new(
        carriers: &'a Carriers,
        options: NodeOptions,
        read_request: &'a ReadRequest<'a, T>,
    ) -> Self {
        Self { carriers, options, read_request, attempts: Vec::new() }
    }

    /// Waits for the next session with a request that can be met
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no connection.
    pub(crate) async fn accept(&mut self, listener: &TcpListener) -> Accepted<T> {
        loop {
            tokio::select! {
                arrived = listener.accept() => {
                    match arrived.map_err(Into::into).and_then(|(stream, peer)| self.admit(stream, canonical(peer))) {
                        Ok(attempt) => {
                            if self.attempts.len() == MAX_ATTEMPTS {
                                // The oldest one has had the most time.
                                drop(self.attempts.remove(0));
                            }
                            self.attempts.push(attempt);
                        }
                        // The connection is gone already, or too many files are open.
                        Err(error) => {
                            note(&with_sources(&error));
                            sleep(CHECK_INTERVAL).await;
                        }
                    }
                }
                (admitted, index) = next_of(&mut self.attempts) => {
                    drop(self.attempts.remove(index));
                    match admitted {
                        Ok(accepted) => return accepted,
                        Err(Refused { peer, error }) => note(&format!("{peer}: {}", with_sources(&error))),
                    }
                }
            }
        }
    }

    /// Begins to make a connection a session, on a node of its own: it takes nothing from others
    fn admit(&self, stream: TcpStream, peer: SocketAddr) -> Result<Attempt<'a, T>> {
        let node = self.carriers.node(canonical(stream.local_addr()?), self.options.clone())?;
        Ok(Box::pin(admit(self.read_request, node, stream, peer)))
    }
}

/// Result and index of the first attempt that is over
async fn next_of<T>(attempts: &mut [Attempt<'_, T>]) -> (Result<Accepted<T>, Refused>, usize) {
    if attempts.is_empty() {
        return std::future::pending().await;
    }
    let (admitted, index, _) = select_all(attempts).await;
    (admitted, index)
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
