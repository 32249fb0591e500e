//! The names by which the components of a fabric refer to each other's objects

use rdma_core::frames;
use slotmap::{Key as _, new_key_type};

new_key_type! {
    /// A completion queue
    pub(crate) struct CqKey;
    /// A queue pair
    pub(crate) struct QpKey;
    /// A memory region
    pub(crate) struct RegionKey;
}

/// Position of a device among all devices of the fabric
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DeviceIndex(pub(crate) u32);

impl DeviceIndex {
    pub(crate) fn position(self) -> usize {
        self.0 as usize
    }
}

/// An open device, which stays valid until its cable is pulled or its processes die
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRef {
    pub(crate) index: DeviceIndex,
    pub(crate) incarnation: u32,
    pub(crate) generation: u32,
}

/// One end of a cable, and with it the transmitter there
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LinkEnd {
    pub(crate) cable: u32,
    pub(crate) end: u8,
}

impl LinkEnd {
    pub(crate) fn opposite(self) -> Self {
        Self { end: 1 - self.end, ..self }
    }
}

/// A queue pair in one of its epochs: work of an earlier epoch has no effect any more
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpRef {
    pub(crate) key: QpKey,
    pub(crate) epoch: u16,
}

/// A range of registered memory
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) region: RegionKey,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Span {
    /// No memory
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { region: RegionKey::null(), offset: 0, len: 0 }
    }

    pub(crate) fn frames(&self) -> u32 {
        frames(self.len) as u32
    }

    /// The `len` bytes that begin `at` bytes further on
    pub(crate) fn part(self, at: usize, len: usize) -> Self {
        Self { offset: self.offset + at, len, ..self }
    }
}
