use rdma_async::Priority;

/// How a group divides vectors; the defaults suit Thunderbolt 5
///
/// All ranks have to use the same options.
///
/// ```
/// use rdma_collectives::GroupOptions;
///
/// let options = GroupOptions::new().block_bytes(128 << 10);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub struct GroupOptions {
    pub(super) block_bytes: usize,
    pub(super) receive_bytes: usize,
    pub(super) priority: Priority,
    pub(super) keeps_plan: bool,
}

/// No shorter blocks are worth their cost.
pub(super) const MIN_BLOCK: usize = 4096;
/// The most blocks of a channel that are under way, or held by the receiver.
const MAX_WINDOW: usize = 16;

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            block_bytes: 256 << 10,
            receive_bytes: 12 << 20,
            priority: Priority::Normal,
            keeps_plan: false,
        }
    }
}

impl GroupOptions {
    /// The defaults
    pub fn new() -> Self {
        Self::default()
    }

    /// The longest message, in bytes; 256 KiB
    ///
    /// Multiples of 4 KiB fill their frames, and from 4 KiB on count. For each neighbour a group leases
    /// eight times as much of the send memory of the node, 8 KiB, and as much as a block, but no more than 68 KiB, for what it passes on
    /// for others; that has to be free when it joins.
    pub fn block_bytes(self, bytes: usize) -> Self {
        Self { block_bytes: bytes.max(MIN_BLOCK), ..self }
    }

    /// How many bytes of blocks may be under way to a rank, or wait there for others with which they are combined; 12 MiB
    ///
    /// At least two blocks for each tree and neighbour are, also if they are more than that. Of the receive memory of its node
    /// a group holds a quarter of [`max_message`](rdma_async::NodeOptions::max_message) while blocks wait, at most; the others wait on the heap.
    /// Beside that, memory that nothing else needs is granted ahead to each neighbour for up to four messages, also those of an operation
    /// that is likely to follow.
    pub fn receive_bytes(self, bytes: usize) -> Self {
        Self { receive_bytes: bytes, ..self }
    }

    /// Which of several groups over the same sessions goes first, and whether before other streams of them; [`Priority::Normal`]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Does not plan anew when cables are out or back: what goes over a cable that is out takes another way then, and operations take longer
    ///
    /// Sums of floating-point numbers have the same bits then, whichever cables are out: they depend on the order that a plan has.
    pub fn keep_plan(self) -> Self {
        Self { keeps_plan: true, ..self }
    }

    /// How many blocks of so many bytes of each of so many channels into a rank may be under way
    pub(super) fn window(&self, channels: usize, block: usize) -> u32 {
        (self.receive_bytes / block.max(1) / channels.max(1)).clamp(2, MAX_WINDOW) as u32
    }
}
