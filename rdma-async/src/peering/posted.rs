//! What is posted on a path

use std::collections::VecDeque;

use crate::pool::Lease;

/// A receive of the bulk lane
#[derive(Clone, Copy, Debug)]
pub(super) enum BulkReceive {
    /// Bytes of a message that arrives: the key of its buffer, where and how many
    Payload { buffer: u32, offset: u64, len: u32 },
    /// In a place for trailers
    Trailer { place: u32 },
}

/// A payload that is posted for sending on the bulk lane
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkSend {
    /// The number of its message
    pub(super) message: u32,
    /// Whether its bytes are in the staging memory of the path
    pub(super) is_staged: bool,
}

/// What was posted on a path that has ended, and may not be used again before the device has stopped
#[derive(Debug)]
pub(super) struct Posted {
    /// Frames
    pub(super) leases: Vec<Lease>,
    pub(super) bulk_receives: VecDeque<BulkReceive>,
    pub(super) bulk_sends: VecDeque<BulkSend>,
    /// Staging memory in which nothing is under way
    pub(super) unused: Vec<Lease>,
}
