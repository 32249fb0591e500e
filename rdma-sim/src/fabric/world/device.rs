//! Devices: a port of a host, its GID table, and what faults have done to it

use std::net::Ipv4Addr;

use rdma_core::{Gid, Time, Verb};

use crate::LineRate;
use crate::fabric::event::Nanos;
use crate::topology::readdressed;

/// One port of a Mac
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) host: u32,
    pub(super) gids: Vec<Gid>,
    /// The IPv4 address that was configured instead of one of 169.254.0.0/16.
    configured: Option<Ipv4Addr>,
    /// The rate of the port itself, whatever the cable carries.
    pub(super) rate: LineRate,
    /// Grows when a cut invalidates all objects.
    pub(super) incarnation: u32,
    /// Grows when all objects are taken away with their process.
    pub(super) generation: u32,
    pub(super) pds: u32,
    pub(super) leaked: Leaked,
    pub(super) faults: DeviceFaults,
}

/// Objects that still count against the limits of a device and that no process has
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leaked {
    pub(crate) cqs: u32,
    pub(crate) pds: u32,
    pub(crate) qps: u32,
    pub(crate) regions: u32,
}

/// What faults have done to a device
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceFaults {
    /// The next region lies across a 4 GiB boundary.
    pub(super) straddles: bool,
    /// No queue pair becomes ready to receive.
    pub(super) is_busy: bool,
    /// Completions come so much later.
    pub(super) delay_ns: u64,
    /// Transitions to RTR that failed.
    pub(super) failed_rtrs: u32,
    pub(super) is_wedged: bool,
    /// A queue pair was set to the error state: deregistered regions stay counted.
    pub(super) keeps_mappings: bool,
    pub(super) no_pds: bool,
    /// The receive ring accepts more than it holds.
    pub(super) overflows: bool,
    /// Completions are visible at whole seconds only.
    pub(super) slow_receive: bool,
    /// A queue pair died of idleness, after which no other connects.
    pub(super) is_spoiled: bool,
    /// Verbs that take so many nanoseconds longer; [`u64::MAX`] if they do not return.
    pub(super) slow_verbs: Vec<(Verb, u64)>,
}

impl Device {
    /// The device `name` of `host`, with this GID table, in which `configured` is the IPv4 address that was configured, if one was
    pub(super) fn new(
        name: String,
        (gids, configured): (Vec<Gid>, Option<Ipv4Addr>),
        rate: LineRate,
        host: u32,
    ) -> Self {
        Self {
            name,
            host,
            gids,
            configured,
            rate,
            incarnation: 1,
            generation: 1,
            pds: 0,
            leaked: Leaked::default(),
            faults: DeviceFaults::default(),
        }
    }

    /// The interface gets its addresses anew: they come to stand one entry further, or back where they were before the last time
    ///
    /// The entry of the old IPv4 address is still taken when the new one comes, and is free the next time.
    pub(super) fn move_gids(&mut self) {
        let Some(index) = self.gids.iter().position(|gid| gid.ipv4().is_some()) else { return };
        if index > 0 && self.gids[index - 1].is_zero() {
            self.gids.remove(index - 1);
        } else {
            self.gids.insert(index, Gid::default());
        }
    }

    /// The interface gets another IPv4 address, unless the topology sets the one that it has
    pub(super) fn readdress(&mut self) {
        let configured = self.configured;
        let is_own = |address: &Ipv4Addr| address.is_link_local() || configured == Some(*address);
        for gid in &mut self.gids {
            if let Some(address) = gid.ipv4().filter(is_own) {
                *gid = Gid::from_ipv4(readdressed(address));
            }
        }
        self.configured = configured.map(readdressed);
    }
}

impl DeviceFaults {
    /// From now on, `verb` takes so many nanoseconds longer
    pub(super) fn slow_down(&mut self, verb: Verb, ns: u64) {
        self.slow_verbs.retain(|(other, _)| *other != verb);
        if ns > 0 {
            self.slow_verbs.push((verb, ns));
        }
    }

    /// When a completion that is ready at `time` becomes visible
    pub(super) fn visible_at(&self, time: Time) -> Time {
        const SECOND: u64 = 1_000_000_000;
        if self.delay_ns == 0 && !self.slow_receive {
            return time;
        }
        let time = time + Nanos(self.delay_ns);
        if self.slow_receive { Time::from_nanos(time.as_nanos().next_multiple_of(SECOND)) } else { time }
    }
}
