//! Counts of the paths of a session

use rdma_async::PathSnapshot;

/// Number of times that paths were made again
pub(crate) fn reconnects(paths: &[PathSnapshot]) -> u32 {
    paths.iter().map(|path| path.counts.made.saturating_sub(1)).sum()
}

/// Bytes that this side sent again, or posted receives for again
pub(crate) fn retransmitted_bytes(paths: &[PathSnapshot]) -> u64 {
    paths.iter().map(|path| path.counts.retransmitted_bytes()).sum()
}
