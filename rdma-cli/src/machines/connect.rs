//! A TCP connection to the machine that serves

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::thread;
use std::vec;

use anyhow::{Context as _, Result, bail};
use futures::channel::oneshot;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::host::Host;
use super::limits::PATIENCE;
use crate::failure::Failure;

/// Fails if no machine can listen on `port`; `usual` is the port on which one does
pub(crate) fn require_port(port: u16, usual: u16) -> Result<(), Failure> {
    if port > 0 {
        return Ok(());
    }
    let why =
        format!("--port 0 is for the side that listens: write the port on which it does, such as {usual}");
    Err(Failure::Usage(why))
}

/// Connects to `port` of `host`; an error names both, and says the `remedy`
pub(crate) async fn connect(host: &Host, port: u16, remedy: &str) -> Result<TcpStream> {
    let name = host.name().to_owned();
    let connecting = async {
        let addresses = resolved(move || (name.as_str(), port).to_socket_addrs()).await?;
        TcpStream::connect(&addresses[..]).await
    };
    let remedy = || format!("{host}, port {port}: {remedy}");
    match timeout(PATIENCE, connecting).await {
        Err(_) => bail!("{}: nothing answered for {PATIENCE:?}", remedy()),
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => Err(error).with_context(remedy),
        Ok(connected) => connected.with_context(|| format!("{host}, port {port}: cannot be reached")),
    }
}

/// The addresses that `resolve` returns, which waits for a name server
///
/// It runs on a thread that the runtime does not know: a runtime ends only when all of its own threads have returned, and the program
/// would wait for the name server after Ctrl-C.
async fn resolved(
    resolve: impl FnOnce() -> io::Result<vec::IntoIter<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let (sender, addresses) = oneshot::channel();
    // The receiver is gone if the caller has stopped waiting.
    thread::Builder::new().name("resolver".to_owned()).spawn(move || drop(sender.send(resolve())))?;
    let addresses = addresses.await.unwrap_or_else(|_| Err(io::Error::other("the resolver has panicked")));
    Ok(addresses?.collect())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::machines::runtime;

    /// Catches a command that ends only when the name server has answered.
    #[test]
    fn a_runtime_ends_while_a_name_is_resolved() {
        let (release, released) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel();
        let waiting = move || {
            let resolve = move || Err(io::Error::other(released.recv().unwrap_err()));
            let runtime = runtime().unwrap();
            runtime.block_on(async { assert!(futures::poll!(pin!(resolved(resolve))).is_pending()) });
            drop(runtime);
            ended.send(()).unwrap();
        };
        thread::Builder::new().spawn(waiting).unwrap();
        let is_over = end.recv_timeout(Duration::from_secs(60));
        drop(release);
        is_over.expect("the runtime waits for the name server");
    }

    #[test]
    fn addresses_need_no_name_server() {
        let runtime = runtime().unwrap();
        let addresses = runtime.block_on(resolved(|| ("::1", 7465).to_socket_addrs())).unwrap();
        assert_eq!(addresses, ["[::1]:7465".parse::<SocketAddr>().unwrap()]);
    }
}
