//! What a device was asked for, and has not answered

use std::fmt;
use std::time::Duration;

/// What is asked of a device where the answer may never come
///
/// ```
/// use rdma_async::DeviceCall;
///
/// assert_eq!(DeviceCall::Stop.to_string(), "destroy_qp or dereg_mr");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DeviceCall {
    /// To connect the queue pairs of a path
    Connect,
    /// To close the device
    Close,
    /// To open the device, and to make the queue pairs of a path
    Prepare,
    /// To query the state of its port
    Query,
    /// To destroy the queue pairs of a path, and to deregister its memory
    Stop,
}

impl fmt::Display for DeviceCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "modify_qp",
            Self::Close => "destroy_cq, dealloc_pd or close_device",
            Self::Prepare => {
                "open_device, query_device, alloc_pd, create_cq, reg_mr, query_port, query_gid, create_qp or modify_qp"
            }
            Self::Query => "query_port",
            Self::Stop => "destroy_qp or dereg_mr",
        })
    }
}

/// A call of a device that has not returned in time
///
/// ```
/// use std::time::Duration;
/// use rdma_async::{BlockedCall, DeviceCall};
///
/// let blocked = BlockedCall { call: DeviceCall::Connect, waited: Duration::from_secs(3) };
/// assert!(blocked.to_string().starts_with("a device has not returned from modify_qp for 3s"));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a device has not returned from {call} for {waited:?}, and is left alone until it does; if it never does, unplug the cable or \
     restart the machine"
)]
pub struct BlockedCall {
    /// What was asked of it
    pub call: DeviceCall,
    /// How long it was waited for
    pub waited: Duration,
}
