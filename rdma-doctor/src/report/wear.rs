//! The history of a host, since it started and before: processes, crashes, uptime, memory, messages of the kernel

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A process, by `ps`
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Process {
    /// Its number
    pub pid: u32,
    /// Its state, such as `UE`: `U` waits in the kernel and cannot be interrupted, `E` is ending
    pub state: String,
    /// Time since its start, as `ps` prints it
    pub elapsed: String,
    /// Its program, without the path
    pub program: String,
}

impl Process {
    /// Whether the process is ending and waits in the kernel: no signal ends it
    pub fn is_unkillable(&self) -> bool {
        self.state.starts_with('U') && self.state.contains('E')
    }
}

/// The processes that have the driver open at one port
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct PortOwners {
    /// The interface of the port, such as `en3`
    pub interface: String,
    /// Processes, such as `pid 412, python3`
    pub owners: Vec<String>,
}

/// A kernel panic or a crash whose backtrace names RDMA, Thunderbolt or the GPU memory of RDMA clusters
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Incident {
    /// Whether the kernel panicked; otherwise a program crashed
    pub is_panic: bool,
    /// The program that crashed
    pub program: Option<String>,
    /// When, as the report says it
    pub when: Option<String>,
    /// The drivers and functions that the backtrace names
    pub names: Vec<String>,
}

/// Uptime and memory
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Uptime {
    /// Seconds since the host started
    pub uptime_seconds: Option<u64>,
    /// Memory of the host
    pub memory_bytes: Option<u64>,
    /// Memory that cannot be paged out, as registered memory cannot
    pub wired_bytes: Option<u64>,
}

/// Messages of the kernel about RDMA and Thunderbolt in the last hour
///
/// The words are those that field notes quote; a message with other words is not counted.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct KernelLog {
    /// How often the link of each interface went down
    pub links_down: BTreeMap<String, u32>,
    /// `TX already started`: a queue pair was brought up twice
    pub tx_already_started: u32,
    /// `inet_arp_lookup failed`: the peer's address was not resolved
    pub arp_lookup_failed: u32,
    /// `InvalidSTE`: the device accessed memory that is not mapped
    pub invalid_dma: u32,
}
