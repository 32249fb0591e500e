//! Where the side that serves listens

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result};
use rustix::net::sockopt::set_ipv6_v6only;
use serde::Serialize;
use tokio::net::{TcpListener, TcpSocket};

use crate::report::Output;

/// Connections that wait to be accepted, as for other listeners
const BACKLOG: u32 = 1024;

/// The first object of a command that listens
#[derive(Debug, Serialize)]
struct Listening {
    listening: SocketAddr,
}

/// Listens on one address, or on all of this machine, and prints where
///
/// With `--quiet`, too, if the system chooses the port: no peer can connect without it.
pub(crate) async fn listen(address: Option<IpAddr>, port: u16, output: Output) -> Result<TcpListener> {
    let listener = bind(address, port).await?;
    let listening = listener.local_addr()?;
    let text = format!("listening on {listening}");
    match output {
        Output::Text if port > 0 => output.announce(&text)?,
        _ => output.print(&Listening { listening }, || text)?,
    }
    Ok(listener)
}

/// A listener on one address, or on all of this machine, by IPv6 and IPv4 where the system has both
async fn bind(address: Option<IpAddr>, port: u16) -> Result<TcpListener> {
    if address.is_none() {
        match listen_on_both(port) {
            Err(error) if lacks_ipv6(&error) => (),
            listening => return listening.with_context(|| format!("cannot listen on port {port}")),
        }
    }
    let address = SocketAddr::new(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port);
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// A listener for IPv6 and IPv4; fails where the system lacks IPv6
fn listen_on_both(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    set_ipv6_v6only(&socket, false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))?;
    socket.listen(BACKLOG)
}

/// Whether the system has no IPv6, or has it switched off
fn lacks_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL | libc::ENOPROTOOPT))
}

/// The address of a socket as its host knows it: a listener for both versions of IP has IPv4 addresses in the form of IPv6
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: if another program had the port for IPv6, the tool listened for IPv4 alone, and peers reached the other program.
    #[tokio::test]
    async fn a_port_that_is_taken_for_ipv6_is_refused() {
        let other = || {
            let socket = TcpSocket::new_v6()?;
            set_ipv6_v6only(&socket, true)?;
            socket.bind(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0))?;
            socket.listen(1)
        };
        let other = match other() {
            // Where the system has no IPv6, IPv4 is enough.
            Err(error) => {
                assert!(lacks_ipv6(&error), "{error}");
                let listener = bind(None, 0).await.unwrap();
                return assert!(listener.local_addr().unwrap().is_ipv4());
            }
            Ok(other) => other,
        };
        let port = other.local_addr().unwrap().port();
        let error = bind(None, port).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with(&format!("cannot listen on port {port}: Address already in use")),
            "{error}"
        );
    }
}
