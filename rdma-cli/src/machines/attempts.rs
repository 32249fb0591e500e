//! Connections that have not shown yet what they are

use std::net::SocketAddr;
use std::pin::Pin;

use anyhow::Result;
use futures::future::select_all;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::limits::CHECK_INTERVAL;
use super::listen::canonical;
use crate::report::{note, with_sources};

/// For a further connection, the oldest is dropped.
const MAX_ATTEMPTS: usize = 16;

/// A connection that may become a `T`
pub(crate) type Attempt<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refused>> + 'a>>;

/// A connection that did not become what was wanted
pub(crate) struct Refused {
    pub(crate) peer: SocketAddr,
    pub(crate) error: anyhow::Error,
}

/// Connections of which each may become a `T`
pub(crate) struct Attempts<'a, T>(Vec<Attempt<'a, T>>);

impl<'a, T> Attempts<'a, T> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Waits for the next connection that becomes a `T` by `admit`; says of the others why they do not
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no connection.
    pub(crate) async fn accept(
        &mut self,
        listener: &TcpListener,
        admit: impl Fn(TcpStream, SocketAddr) -> Result<Attempt<'a, T>>,
    ) -> T {
        loop {
            tokio::select! {
                arrived = listener.accept() => {
                    match arrived.map_err(Into::into).and_then(|(stream, peer)| admit(stream, canonical(peer))) {
                        Ok(attempt) => {
                            if self.0.len() == MAX_ATTEMPTS {
                                // The oldest one has had the most time.
                                drop(self.0.remove(0));
                            }
                            self.0.push(attempt);
                        }
                        // The connection is gone already, or too many files are open.
                        Err(error) => {
                            note(&with_sources(&error));
                            sleep(CHECK_INTERVAL).await;
                        }
                    }
                }
                (admitted, index) = next_of(&mut self.0) => {
                    drop(self.0.remove(index));
                    match admitted {
                        Ok(accepted) => return accepted,
                        Err(Refused { peer, error }) => note(&format!("{peer}: {}", with_sources(&error))),
                    }
                }
            }
        }
    }
}

/// Result and index of the first attempt that is over
async fn next_of<T>(attempts: &mut [Attempt<'_, T>]) -> (Result<T, Refused>, usize) {
    if attempts.is_empty() {
        return std::future::pending().await;
    }
    let (admitted, index, _) = select_all(attempts).await;
    (admitted, index)
}
