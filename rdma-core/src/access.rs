use std::ops::BitOr;

/// Rights on a memory region or a queue pair, with the bits of `ibv_access_flags`
///
/// A remote right outlives every request: see the contract of [`Device::register`](crate::Device::register).
///
/// ```
/// use rdma_core::Access;
///
/// let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
/// assert_eq!(access.bits(), 5);
/// assert!(access.contains(Access::REMOTE_READ) && !access.contains(Access::REMOTE_WRITE));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Access(u32);

impl Access {
    /// The device may read from the region, and nothing else
    pub const NONE: Self = Self(0);
    /// The device may write into the region while a receive names it
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer that knows the key may write into the region at any time, without a request of this side
    pub const REMOTE_WRITE: Self = Self(2);
    /// A peer that knows the key may read from the region at any time, without a request of this side
    pub const REMOTE_READ: Self = Self(4);
    /// A peer that knows the key may change eight bytes of the region atomically, at any time
    pub const REMOTE_ATOMIC: Self = Self(8);

    /// The bits of `ibv_access_flags`
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether every right in `other` is granted
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights of both
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Access {
    type Output = Self;

    /// The rights of both, as [`union`](Self::union)
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}
