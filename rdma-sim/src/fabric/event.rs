//! Scheduled events, and the unit of their times

use std::ops::Add;

use rdma_core::Time;
use twox_hash::XxHash3_64;

use super::ids::{DeviceIndex, LinkEnd, QpRef};

/// Something that happens at its scheduled time without being asked for by a program
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Event {
    /// A host has restarted
    Boot(u32),
    /// All faults end
    Calm,
    /// A posted receive becomes visible to this sender
    Credit(QpRef),
    /// The oldest filled receive of a queue pair completes
    Delivered(QpRef),
    /// A posted send reaches the transmitter
    Doorbell(QpRef),
    /// A fault of the plan fires
    Fault(u32),
    /// A transmitter is free again
    Free(LinkEnd),
    /// The oldest one-sided operation of a queue pair reaches the memory of the peer
    OneSided(QpRef),
    /// The cable in a port is plugged in again
    Replug(DeviceIndex),
    /// The retry timer of a reliable queue pair expires
    Retry(QpRef),
    /// The oldest transmitted send of a queue pair completes
    Sent(QpRef),
}

impl Event {
    /// A number that only equal events have
    pub(crate) fn id(&self) -> u64 {
        let text = format!("{self:?}");
        // Above all numbers of tasks.
        XxHash3_64::oneshot(text.as_bytes()) | 1 << 63
    }
}

/// Nanoseconds to add to a [`Time`], without the detour over a [`Duration`](std::time::Duration)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nanos(pub(crate) u64);

impl Add<Nanos> for Time {
    type Output = Self;

    fn add(self, Nanos(ns): Nanos) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(ns))
    }
}
