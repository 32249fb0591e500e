//! How a device is used

use std::time::Duration;

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
    pub(crate) call_timeout: Duration,
    pub(crate) poll: PollPolicy,
    pub(crate) trust_destroy: Option<bool>,
    pub(crate) source_index: Option<u8>,
    pub(crate) is_unguarded: bool,
    pub(crate) has_channel: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            path_mtu: 1024,
            call_timeout: Duration::from_secs(10),
            poll: PollPolicy::default(),
            trust_destroy: None,
            source_index: None,
            is_unguarded: false,
            has_channel: false,
        }
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

    /// The entry of the GID table to connect from; by default the one that maps an IPv4 address
    ///
    /// For experiments: some Macs were reported to refuse other entries.
    pub fn source_index(self, index: u8) -> Self {
        Self { source_index: Some(index), ..self }
    }

    /// Leaves it to the provider to refuse what does not fit its queues, requests of two elements, and memory with too few rights or across a
    /// 4 GiB boundary
    ///
    /// For experiments that find out what the provider refuses: some were reported to accept more than they hold and to damage data.
    pub fn unguarded(self) -> Self {
        Self { is_unguarded: true, ..self }
    }

    /// Creates a completion channel, to which the completion queues of the device report
    ///
    /// For experiments, with [`VerbsDevice::completion_events`](crate::VerbsDevice::completion_events): Apple's provider exports the
    /// functions, and no source reports that an event arrived. Tasks do not wait for events; they poll.
    pub fn completion_channel(self) -> Self {
        Self { has_channel: true, ..self }
    }

    /// How long a post or a poll may take before it is reported, by an event of `tracing` and [`Device::blocked`](rdma_core::Device::blocked);
    /// the default is 10 s, and [`Duration::MAX`] reports none
    ///
    /// On Apple's device they make no system call (Apple TN3205), except to query the port before some posts, and no source reports one that
    /// blocks. A call that blocks keeps the caller's thread. A thread for each device looks four times within this time, so that a report
    /// comes up to a quarter of it late.
    pub fn call_timeout(self, limit: Duration) -> Self {
        Self { call_timeout: limit, ..self }
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
