//! How a device is used

use std::net::IpAddr;
use std::time::Duration;

/// How a [`TcpDevice`](crate::TcpDevice) is used
///
/// ```
/// use std::time::Duration;
/// use rdma_tcp::TcpOptions;
///
/// let options = TcpOptions::new()
///     .advertise([192, 0, 2, 7].into())
///     .bits_per_second(25_000_000_000)
///     .connect_timeout(Duration::from_secs(5))
///     .name("tcp_en0");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct TcpOptions {
    pub(crate) advertise: Option<IpAddr>,
    pub(crate) bits_per_second: u64,
    pub(crate) connect_timeout: Duration,
    pub(crate) name: String,
}

/// Added to the time of day: without a bound, the sum would overflow.
const LONGEST: Duration = Duration::from_hours(24);

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            advertise: None,
            bits_per_second: 10_000_000_000,
            connect_timeout: Duration::from_secs(10),
            name: "tcp0".to_owned(),
        }
    }
}

impl TcpOptions {
    /// The defaults
    pub fn new() -> Self {
        Self::default()
    }

    /// The address that peers connect to, which becomes the GID; that of the listener
    ///
    /// Needed when the listener is bound to an unspecified address (`0.0.0.0` or `::`), which no peer can connect to.
    pub fn advertise(self, address: IpAddr) -> Self {
        Self { advertise: Some(address), ..self }
    }

    /// The rate that the port reports, in bits per second; 10,000,000,000
    ///
    /// Nothing measures or enforces it. Sessions compare the rates of their paths when they distribute messages: state
    /// the rate of the network.
    pub fn bits_per_second(self, bits_per_second: u64) -> Self {
        Self { bits_per_second, ..self }
    }

    /// How long a queue pair waits for the connection to its peer before it enters the error state, at most a day; 10 s
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout: connect_timeout.min(LONGEST), ..self }
    }

    /// The name of the device and of its thread; `tcp0`
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }
}
