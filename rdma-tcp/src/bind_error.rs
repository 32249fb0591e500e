//! Why a device cannot be opened

use std::io;
use std::net::SocketAddr;

/// A device that cannot be opened
///
/// ```
/// use rdma_tcp::{BindError, TcpDevice, TcpOptions};
///
/// let refused = TcpDevice::bind(([0, 0, 0, 0], 0).into(), TcpOptions::new()).unwrap_err();
/// assert!(matches!(refused, BindError::Unspecified { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The listener cannot be bound to its address
    #[error("cannot listen on {address}")]
    Listen {
        /// The address that was given
        address: SocketAddr,
        /// The error of the system
        source: io::Error,
    },
    /// The system has no event queue or no thread for the device
    #[error("cannot start the I/O thread")]
    Thread(#[source] io::Error),
    /// Peers cannot connect to an unspecified address
    #[error("peers cannot connect to {address}; state the address of this host with `TcpOptions::advertise`")]
    Unspecified {
        /// The address that peers were to connect to
        address: SocketAddr,
    },
}
