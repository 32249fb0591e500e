//! What the ports of a Mac share

use rdma_core::Time;

use super::event::Nanos;
use super::ids::LinkEnd;

/// Bounds what all ports of each host send together
pub(super) struct Buses {
    bytes_per_us: u64,
    /// The hosts at the ends of each cable
    hosts: Vec<[u32; 2]>,
    /// When the bytes that a host has sent so far have passed
    free: Vec<Time>,
}

impl Buses {
    /// `None` if there is no bound
    pub(super) fn new(bytes_per_us: u64, hosts: impl Iterator<Item = [u32; 2]>) -> Option<Self> {
        if bytes_per_us == 0 {
            return None;
        }
        let hosts: Vec<_> = hosts.collect();
        let count = hosts.iter().flatten().max().map_or(0, |last| *last as usize + 1);
        Some(Self { bytes_per_us, hosts, free: vec![Time::ZERO; count] })
    }

    /// Passes so many bytes from `start` on; returns when the last has passed
    pub(super) fn pass(&mut self, link: LinkEnd, start: Time, bytes: usize) -> Time {
        let host = self.hosts[link.cable as usize][usize::from(link.end)];
        let free = &mut self.free[host as usize];
        let ns = (bytes as u64).saturating_mul(1_000).div_ceil(self.bytes_per_us);
        *free = start.max(*free) + Nanos(ns);
        *free
    }
}
