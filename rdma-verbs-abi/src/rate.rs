//! The rate of a port, as `ibv_port_attr` encodes it

/// The lanes of a port, by [`PortAttr::active_width`](crate::PortAttr::active_width); `None` for a code that is not assigned
///
/// ```
/// assert_eq!(rdma_verbs_abi::lanes(4), Some(8));
/// assert_eq!(rdma_verbs_abi::lanes(3), None);
/// ```
pub const fn lanes(active_width: u8) -> Option<u8> {
    Some(match active_width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    })
}

/// The rate of a lane in Mbit/s, by [`PortAttr::active_speed`](crate::PortAttr::active_speed); `None` for a code that is not assigned
///
/// ```
/// assert_eq!(rdma_verbs_abi::megabits_per_lane(4), Some(10_000));
/// assert_eq!(rdma_verbs_abi::megabits_per_lane(0), None);
/// ```
pub const fn megabits_per_lane(active_speed: u8) -> Option<u32> {
    Some(match active_speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => return None,
    })
}
