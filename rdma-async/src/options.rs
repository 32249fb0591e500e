use std::time::Duration;

use rdma_core::channel::Params;
use rdma_core::{Device, FRAME};

use crate::error::EndpointError;
use crate::queues::MAX_BULK_RECEIVES;

/// How an endpoint uses its device; the defaults suit a Thunderbolt 5 port
#[derive(Clone, Debug)]
#[must_use]
pub struct EndpointOptions {
    pub(crate) announces: u32,
    pub(crate) connect_timeout: Duration,
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
    /// At least two and at most eight keep-alive intervals.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How many small messages a connection can take in before the application reads them; 128
    pub fn window(self, messages: u32) -> Self {
        Self { window: messages, ..self }
    }

    pub(crate) fn params(&self) -> Params {
        Params { announces: self.announces, max_message: self.max_message as u32, window: self.window }
    }

    /// Entries that a connection may need in the completion queue
    pub(crate) fn completions(&self) -> u32 {
        // Eager receives and sends, bulk sends, messages of the protocol, bulk receives.
        2 * self.window + 2 * self.send_queue + 64 + MAX_BULK_RECEIVES as u32
    }

    pub(crate) fn check(&self, device: &impl Device) -> Result<(), EndpointError> {
        let options = |why| Err(EndpointError::Options(why));
        if !self.params().is_usable() {
            return options("the window is too small, or too large, for the announcements");
        }
        if self.timeout < self.keepalive * 2 || self.timeout > self.keepalive * 8 || self.keepalive.is_zero()
        {
            return options("the timeout is not two to eight keep-alive intervals");
        }
        if self.send_queue == 0 || self.send_queue > 4096 {
            return options("the send queue holds no message, or more than 4096");
        }
        if self.max_message > device.caps().max_message as usize {
            return options("the device cannot carry messages that long");
        }
        if self.window as usize * FRAME + FRAME + self.max_message.next_multiple_of(FRAME)
            > self.receive_memory
        {
            return options("the receive memory does not hold a window and the longest message");
        }
        if self.send_memory < FRAME {
            return options("the send memory does not hold a message");
        }
        if self.completions() > device.caps().max_cqe {
            return options("the completion queue of the device does not hold the window and the queues");
        }
        Ok(())
    }
}
