//! How a device is used

use crate::backoff::PollPolicy;

/// How a [`VerbsDevice`](crate::VerbsDevice) is used
///
/// ```
/// use rdma_tb5::{OpenOptions, PollPolicy};
///
/// let options = OpenOptions::new().path_mtu(4096).poll(PollPolicy::SPIN).trust_destroy(true);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions {
    pub(crate) path_mtu: u32,
    pub(crate) poll: PollPolicy,
    pub(crate) trust_destroy: Option<bool>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { path_mtu: 1024, poll: PollPolicy::default(), trust_destroy: None }
    }
}

impl OpenOptions {
    /// The defaults
    pub fn new() -> Self {
        Self::default()
    }

    /// Path MTU in bytes: 4096, or 1024 for any value up to that; the default is 1024
    ///
    /// It changes nothing on the wire of Apple's device. With 4096, which Apple's example uses, connecting was reported to time out on some
    /// Macs; if it does with 1024, try 4096 on fresh queue pairs.
    pub fn path_mtu(self, bytes: u32) -> Self {
        Self { path_mtu: bytes, ..self }
    }

    /// How tasks wait for completions
    pub fn poll(self, poll: PollPolicy) -> Self {
        Self { poll, ..self }
    }

    /// Whether a destroyed queue pair proves that the device has stopped using its memory
    ///
    /// The default is yes on Linux, where the verbs promise it, and no on macOS, where it was not shown: there the memory of requests that
    /// had not completed is not used again.
    pub fn trust_destroy(self, trust: bool) -> Self {
        Self { trust_destroy: Some(trust), ..self }
    }
}
