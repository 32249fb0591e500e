/// What all cables of a host carry together at most; its controllers, PCIe or memory may be slower than the sum of its cables
///
/// Both directions carry at once. `None` is no cap.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct HostCap {
    /// Bytes per second that the host sends
    pub send: Option<u64>,
    /// Bytes per second that the host receives
    pub receive: Option<u64>,
}

impl HostCap {
    /// The same cap for what the host sends and for what it receives, in bytes per second each
    #[must_use]
    pub fn new(rate: u64) -> Self {
        Self { send: Some(rate), receive: Some(rate) }
    }
}
