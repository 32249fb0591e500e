/// Whether a port can carry traffic
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum PortState {
    /// A Mac with RDMA enabled is at the other end of the cable
    Active,
    /// There is no cable, or no Mac with RDMA enabled at its other end
    Down,
}

/// State and speed of a port, as `ibv_query_port` reports them
///
/// ```
/// use rdma_core::{PortState, PortStatus};
///
/// let status = PortStatus::new(PortState::Active, 80_000_000_000);
/// assert_eq!((status.state, status.bits_per_second / 8), (PortState::Active, 10_000_000_000));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PortStatus {
    /// Raw line rate of the link in bits per second, each way
    pub bits_per_second: u64,
    /// Whether the port can carry traffic
    pub state: PortState,
}

impl PortStatus {
    /// A port in `state` on a link of `bits_per_second`
    pub const fn new(state: PortState, bits_per_second: u64) -> Self {
        Self { bits_per_second, state }
    }
}
