/// Bytes in a frame, the unit in which the device cuts messages and counts queue space
///
/// Source: Apple TN3205 ("queues are sized in 4 KiB frames").
pub const FRAME: usize = 4096;

/// How many frames a message of `len` bytes spans on the wire and in the queues
///
/// An empty message still travels as one frame.
///
/// ```
/// use rdma_core::{FRAME, frames};
///
/// assert_eq!([frames(0), frames(1), frames(FRAME), frames(FRAME + 1)], [1, 1, 1, 2]);
/// ```
pub const fn frames(len: usize) -> usize {
    len.saturating_sub(1) / FRAME + 1
}
