//! Hosts: whether their processes run, and whether they speak RDMA

use std::ops::Range;

use super::{DeviceIndex, Fabric};

/// A Mac
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    /// Its devices.
    pub(super) devices: Range<u32>,
    pub(super) process: Process,
    /// Starts of its processes, from 1.
    pub(super) generation: u32,
    /// Its processes have started anew and nobody was told.
    pub(super) is_starting: bool,
    pub(super) has_rdma: bool,
    pub(super) is_asleep: bool,
    pub(super) is_booting: bool,
}

/// What the processes of a host do
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
            is_starting: false,
            has_rdma: true,
            is_asleep: false,
            is_booting: false,
        }
    }

    /// Whether its ports answer
    pub(super) fn is_up(&self) -> bool {
        self.has_rdma && !self.is_asleep && !self.is_booting
    }
}

impl Fabric {
    pub(crate) fn find_host(&self, name: &str) -> Option<u32> {
        self.hosts.iter().position(|host| host.name == name).map(|index| index as u32)
    }

    /// What the processes of a host do, and how often they were started
    pub(crate) fn process(&self, host: u32) -> (Process, u32) {
        let host = &self.hosts[host as usize];
        (host.process, host.generation)
    }

    /// Whether the processes of a host have started anew since the last call
    pub(crate) fn take_start(&mut self, host: u32) -> bool {
        std::mem::take(&mut self.hosts[host as usize].is_starting)
    }

    pub(super) fn set_process(&mut self, host: u32, process: Process) {
        let host = &mut self.hosts[host as usize];
        if process == Process::Running && host.process == Process::Dead {
            host.generation += 1;
            host.is_starting = true;
        }
        host.process = process;
        self.has_host_news = true;
    }

    /// The processes die: what they had on their devices goes with them
    pub(super) fn kill(&mut self, host: u32) {
        self.set_process(host, Process::Dead);
        for device in self.hosts[host as usize].devices.clone() {
            self.reclaim(DeviceIndex(device));
        }
    }
}
