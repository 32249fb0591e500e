use std::ops::RangeInclusive;
use std::time::Duration;

use rdma_core::protocol::Params;
use rdma_core::{Device, FRAME, frames};

use crate::error::InvalidOptions;

/// How an endpoint uses its device; the defaults suit a Thunderbolt 5 port
///
/// Checked when the endpoint is made: contradictions are an [`InvalidOptions`].
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use std::time::Duration;
/// use rdma_async::{Endpoint, EndpointError, EndpointOptions, InvalidOptions};
///
/// let options = EndpointOptions::new().peer_timeout(Duration::from_millis(1));
/// let refused = Endpoint::builder(net.open("a", "rdma_en2")?)
///     .runtime(net.runtime())
///     .options(options)
///     .build()
///     .unwrap_err();
/// assert!(matches!(refused, EndpointError::Options(InvalidOptions::PeerTimeout { .. })));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointOptions {
    pub(crate) connect_timeout: Duration,
    pub(crate) group_epoch: u64,
    pub(crate) keep_alive_interval: Duration,
    pub(crate) max_connections: u32,
    pub(crate) max_in_flight_sends: u32,
    pub(crate) max_message: usize,
    pub(crate) peer_timeout: Duration,
    pub(crate) receive_memory: usize,
    pub(crate) recv_window: u32,
    pub(crate) send_memory: usize,
}

/// The longest peer timeout; the longest keep-alive interval is half of it.
const LONGEST: Duration = Duration::from_hours(24);
/// Messages that the peer may announce before their receives are posted.
const ANNOUNCES: u32 = 32;
/// Windows with which data can flow, given [`ANNOUNCES`].
const WINDOWS: RangeInclusive<u32> = 63..=4095;
/// The most connections of an endpoint, and the most messages of a connection in flight.
const MOST: u32 = 4096;
/// The longest registration, in bytes: the device names memory by 32 bits.
const LONGEST_REGISTRATION: u64 = u32::MAX as u64;
/// Bulk receives that are posted at most at once.
pub(crate) const MAX_BULK_RECEIVES: u32 = 64;

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            group_epoch: 0,
            keep_alive_interval: Duration::from_secs(1),
            max_connections: 5,
            max_in_flight_sends: 64,
            max_message: 4 << 20,
            peer_timeout: Duration::from_secs(5),
            receive_memory: 16 << 20,
            recv_window: 128,
            send_memory: 16 << 20,
        }
    }
}

impl EndpointOptions {
    /// The defaults
    pub fn new() -> Self {
        Self::default()
    }

    /// How long connecting may take; 10 s
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Generation of the application's group, on which both peers must agree; 0
    pub fn group_epoch(self, group_epoch: u64) -> Self {
        Self { group_epoch, ..self }
    }

    /// How long a connection may be silent before it sends a message that keeps it alive; 1 s
    ///
    /// At most half a day, and at most half of the shorter [`peer_timeout`](Self::peer_timeout) of both sides: a longer interval than
    /// that is cut to it when the connection is made. On Apple's device a queue pair that rests for about 23 minutes dies (field reports).
    pub fn keep_alive_interval(self, keep_alive_interval: Duration) -> Self {
        Self { keep_alive_interval, ..self }
    }

    /// How many connections the endpoint can have at once; 5, for which the queue pairs of a Thunderbolt 5 port suffice
    ///
    /// Each takes [`recv_window`](Self::recv_window) + 1 frames of the [`receive_memory`](Self::receive_memory) for good.
    pub fn max_connections(self, max_connections: u32) -> Self {
        Self { max_connections, ..self }
    }

    /// How many messages of a connection may be in flight at once; 64
    pub fn max_in_flight_sends(self, max_in_flight_sends: u32) -> Self {
        Self { max_in_flight_sends, ..self }
    }

    /// The longest message that can be received, in bytes; 4 MiB
    ///
    /// The peer learns it when it connects, and refuses to send longer ones.
    pub fn max_message(self, bytes: usize) -> Self {
        Self { max_message: bytes, ..self }
    }

    /// The longest message that can be received as these options stand, in bytes
    pub fn max_message_bytes(&self) -> usize {
        self.max_message
    }

    /// How long a peer may be silent before it counts as lost; 5 s
    ///
    /// The shorter one of both sides is that of their connection: the peers exchange it when they connect. At most a day, and two to
    /// eight [keep-alive intervals](Self::keep_alive_interval). When the application has dropped the last handle of a connection and
    /// the peer takes none of the queued messages, the connection is given up after the same time.
    pub fn peer_timeout(self, peer_timeout: Duration) -> Self {
        Self { peer_timeout, ..self }
    }

    /// Memory for messages that are being received or read, in bytes; 16 MiB
    ///
    /// The windows of all [connections](Self::max_connections) come out of it. The rest is for longer messages, and must hold the
    /// longest.
    pub fn receive_memory(self, bytes: usize) -> Self {
        Self { receive_memory: bytes, ..self }
    }

    /// Frames that a connection keeps posted for small messages and for the protocol; 128
    ///
    /// 47 of them are for the protocol: with the default, 81 small messages can arrive before the application reads any. At
    /// least 63, at most 4095.
    pub fn recv_window(self, frames: u32) -> Self {
        Self { recv_window: frames, ..self }
    }

    /// Memory for messages that are being written or sent, in bytes; 16 MiB
    ///
    /// In whole frames of 4096 bytes: what is left over is not used.
    pub fn send_memory(self, bytes: usize) -> Self {
        Self { send_memory: bytes, ..self }
    }

    /// Frames for sending, for the windows of the connections, and for longer messages that are received
    pub(crate) fn zones(&self) -> [u32; 3] {
        let frames = |bytes: usize| u32::try_from(bytes / FRAME).unwrap_or(u32::MAX);
        let eager = self.max_connections.saturating_mul(self.recv_window.saturating_add(1));
        [frames(self.send_memory), eager, frames(self.receive_memory).saturating_sub(eager)]
    }

    pub(crate) fn params(&self) -> Params {
        let max_message = u32::try_from(self.max_message).unwrap_or(u32::MAX);
        Params {
            announces: ANNOUNCES,
            max_message,
            peer_timeout: self.peer_timeout,
            window: self.recv_window,
        }
    }

    /// Entries that all connections together may need in the completion queue
    fn completions(&self) -> u64 {
        // Eager receives and sends, bulk sends, messages of the protocol, bulk receives.
        let sends = 2 * u64::from(self.max_in_flight_sends);
        let each = 2 * u64::from(self.recv_window) + sends + 64 + u64::from(MAX_BULK_RECEIVES);
        each * u64::from(self.max_connections)
    }

    pub(crate) fn check(&self, device: &impl Device) -> Result<(), InvalidOptions> {
        let interval = self.keep_alive_interval;
        let max = LONGEST / 2;
        if interval.is_zero() || interval > max {
            return Err(InvalidOptions::KeepAliveInterval { found: interval, max });
        }
        let (min, max) = (interval * 2, (interval * 8).min(LONGEST));
        if !(min..=max).contains(&self.peer_timeout) {
            return Err(InvalidOptions::PeerTimeout { found: self.peer_timeout, min, max });
        }
        if !WINDOWS.contains(&self.recv_window) {
            let (found, min, max) = (self.recv_window, *WINDOWS.start(), *WINDOWS.end());
            return Err(InvalidOptions::RecvWindow { found, min, max });
        }
        if !(1..=MOST).contains(&self.max_in_flight_sends) {
            return Err(InvalidOptions::MaxInFlightSends { found: self.max_in_flight_sends, max: MOST });
        }
        if !(1..=MOST).contains(&self.max_connections) {
            return Err(InvalidOptions::MaxConnections { found: self.max_connections, max: MOST });
        }
        let max = device.caps().max_message as usize;
        if self.max_message > max {
            return Err(InvalidOptions::MaxMessage { found: self.max_message, max });
        }
        let [send, eager, bulk] = self.zones();
        if send == 0 {
            return Err(InvalidOptions::SendMemory { found: self.send_memory, min: FRAME });
        }
        if (bulk as usize) < frames(self.max_message) {
            let min = (eager as usize + frames(self.max_message)) * FRAME;
            return Err(InvalidOptions::ReceiveMemory { found: self.receive_memory, min });
        }
        let found = (u64::from(send) + u64::from(eager) + u64::from(bulk)) * FRAME as u64;
        if found >= LONGEST_REGISTRATION {
            return Err(InvalidOptions::Memory { found, max: LONGEST_REGISTRATION });
        }
        let max = u64::from(device.caps().max_cqe);
        if self.completions() > max {
            return Err(InvalidOptions::CompletionQueue { found: self.completions(), max });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches bounds that are not those of the protocol.
    #[test]
    fn windows_are_accepted_exactly_where_data_can_flow() {
        for window in [0, *WINDOWS.start() - 1, *WINDOWS.start(), 128, *WINDOWS.end(), *WINDOWS.end() + 1] {
            let params = EndpointOptions::new().recv_window(window).params();
            assert_eq!(params.is_usable(), WINDOWS.contains(&window), "{window}");
        }
    }
}
