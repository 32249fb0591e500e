//! Hosts: whether their processes run, and whether they speak RDMA

use std::ops::Range;

/// A Mac
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    /// The positions of its devices.
    pub(super) devices: Range<u32>,
    pub(super) process: Process,
    /// Starts of its processes, from 1.
    pub(super) generation: u32,
    /// How often it has restarted.
    pub(super) boots: u32,
    /// Its processes have started anew and the executor has not asked since.
    pub(super) is_starting: bool,
    pub(super) has_rdma: bool,
    pub(super) is_asleep: bool,
    pub(super) is_booting: bool,
}

/// The state of the processes of a host
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Process {
    /// They were killed
    Dead,
    /// They run
    Running,
    /// They are paused, or asleep
    Stopped,
}

impl Host {
    pub(super) fn new(name: String, devices: Range<u32>) -> Self {
        Self {
            name,
            devices,
            process: Process::Running,
            generation: 1,
            boots: 0,
            is_starting: false,
            has_rdma: true,
            is_asleep: false,
            is_booting: false,
        }
    }

    /// Whether its ports are active as far as the host is concerned
    pub(super) fn is_up(&self) -> bool {
        self.has_rdma && !self.is_asleep && !self.is_booting
    }
}
