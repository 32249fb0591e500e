use std::time::Duration;

use rdma_core::protocol::Params;
use rdma_core::{Device, FRAME};

use crate::error::EndpointError;
use crate::queues::MAX_BULK_RECEIVES;

/// How an endpoint uses its device; the defaults suit a Thunderbolt 5 port
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointOptions {
    pub(crate) announces: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: u32,
    pub(crate) epoch: u64,
    pub(crate) keepalive: Duration,
    pub(crate) max_message: usize,
    pub(crate) receive_memory: usize,
    pub(crate) send_memory: usize,
    pub(crate) send_queue: u32,
    pub(crate) timeout: Duration,
    pub(crate) window: u32,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            announces: 32,
            connect_timeout: Duration::from_secs(10),
            connections: 5,
            epoch: 0,
            keepalive: Duration::from_secs(1),
            max_message: 4 << 20,
            receive_memory: 16 << 20,
            send_memory: 16 << 20,
            send_queue: 64,
            timeout: Duration::from_secs(5),
            window: 128,
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

    /// How many connections the endpoint can have at once; 5, for which the queue pairs of a Thunderbolt 5 port suffice
    ///
    /// Each takes a [`window`](Self::window) of frames from the [`receive_memory`](Self::receive_memory) for good.
    pub fn connections(self, connections: u32) -> Self {
        Self { connections, ..self }
    }

    /// Generation of the application's group, which peers must agree on; 0
    pub fn epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// How long a connection may rest before a message is sent to keep it alive; 1 s
    ///
    /// On Apple's device a queue pair that rests for about 23 minutes dies (field reports).
    pub fn keepalive(self, keepalive: Duration) -> Self {
        Self { keepalive, ..self }
    }

    /// The longest message that can be received, in bytes; 4 MiB
    pub fn max_message(self, bytes: usize) -> Self {
        Self { max_message: bytes, ..self }
    }

    /// The longest message that can be received as these options stand, in bytes
    pub fn max_message_bytes(&self) -> usize {
        self.max_message
    }

    /// Memory for messages that are being received or read, in bytes; 16 MiB
    ///
    /// What the windows of all [`connections`](Self::connections) leave is for longer messages, and must hold the longest.
    pub fn receive_memory(self, bytes: usize) -> Self {
        Self { receive_memory: bytes, ..self }
    }

    /// Memory for messages that are being written or sent, in bytes; 16 MiB
    pub fn send_memory(self, bytes: usize) -> Self {
        Self { send_memory: bytes, ..self }
    }

    /// How many messages of a connection may be on their way at once; 64
    pub fn send_queue(self, messages: u32) -> Self {
        Self { send_queue: messages, ..self }
    }

    /// How long a peer may be silent before it counts as lost; 5 s
    ///
    /// At least two and at most eight keep-alive intervals. A connection that nobody holds any more, and whose peer does not
    /// take what is queued for it, is given up after the same time.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Frames that a connection keeps posted for small messages and its own; 128
    ///
    /// 47 of them are for the connection's own messages: 81 small messages can arrive before the application reads
    /// any. At least 64, at most 4095.
    pub fn window(self, messages: u32) -> Self {
        Self { window: messages, ..self }
    }

    /// Frames for sending, for the windows of the connections, and for longer messages that are received
    pub(crate) fn zones(&self) -> [u32; 3] {
        let frames = |bytes: usize| u32::try_from(bytes / FRAME).unwrap_or(u32::MAX);
        let eager = self.connections.saturating_mul(self.window.saturating_add(1));
        [frames(self.send_memory), eager, frames(self.receive_memory).saturating_sub(eager)]
    }

    pub(crate) fn params(&self) -> Params {
        Params { announces: self.announces, max_message: self.max_message as u32, window: self.window }
    }

    /// Entries that a connection may need in the completion queue
    fn completions(&self) -> u64 {
        // Eager receives and sends, bulk sends, messages of the protocol, bulk receives.
        2 * u64::from(self.window) + 2 * u64::from(self.send_queue) + 64 + u64::from(MAX_BULK_RECEIVES)
    }

    pub(crate) fn check(&self, device: &impl Device) -> Result<(), EndpointError> {
        let options = |why| Err(EndpointError::Options(why));
        if self.keepalive.is_zero() || self.keepalive > LONGEST || self.timeout > LONGEST {
            return options("the keep-alive interval is zero, or it or the timeout is longer than a day");
        }
        if self.timeout < self.keepalive * 2 || self.timeout > self.keepalive * 8 {
            return options("the timeout is not two to eight keep-alive intervals");
        }
        if !self.params().is_usable() {
            return options("the window is not 64 to 4095");
        }
        if self.send_queue == 0 || self.send_queue > 4096 {
            return options("the send queue holds no message, or more than 4096");
        }
        if self.connections == 0 || self.connections > 4096 {
            return options("the endpoint has no connections, or more than 4096");
        }
        if self.max_message > device.caps().max_message as usize {
            return options("the device cannot carry messages that long");
        }
        let [send, eager, bulk] = self.zones();
        if send == 0 {
            return options("the send memory does not hold a message");
        }
        if (bulk as usize) < rdma_core::frames(self.max_message) {
            return options(
                "the receive memory does not hold a window for each connection and the longest message",
            );
        }
        if u64::from(send) + u64::from(eager) + u64::from(bulk) >= u64::from(u32::MAX) / FRAME as u64 {
            return options("the memory for sending and receiving exceeds 4 GiB, which no registration may");
        }
        if self.completions() * u64::from(self.connections) > u64::from(device.caps().max_cqe) {
            return options(
                "the completion queue of the device does not hold the windows and queues of all connections",
            );
        }
        Ok(())
    }
}

/// The longest of the intervals.
const LONGEST: Duration = Duration::from_hours(24);
