//! Which rules of the device decide whether a queue pair can connect

use rdma_core::{Gid, QpAttr};

use super::World;
use super::device::Device;
use crate::catalogue::rule;
use crate::fabric::ids::DeviceIndex;

impl World {
    /// Calls `exercise` with the number of each rule that decides about a transition to RTR, as
    /// [`resolve_peer`](Self::resolve_peer) will
    pub(in crate::fabric) fn rules_of_connecting(
        &self,
        device: DeviceIndex,
        attr: &QpAttr,
        has_failed: bool,
        mut exercise: impl FnMut(usize),
    ) {
        let Device { faults, gids, .. } = self.device(device);
        let is_worn = self.rules.failed_rtr_wedges.is_some_and(|limit| faults.failed_rtrs >= limit);
        let refusals = [
            (has_failed, rule!("half-connected")),
            (faults.is_busy, rule!("rtr-busy")),
            (faults.is_wedged, rule!("wedge")),
            (is_worn, rule!("failed-rtr-wedges")),
            (gids.iter().all(Gid::is_zero), rule!("rtr-no-gids")),
        ];
        if let Some((_, number)) = refusals.into_iter().find(|(applies, _)| *applies) {
            return exercise(number);
        }
        let source = gids.get(usize::from(attr.sgid_index)).filter(|gid| !gid.is_zero());
        let ipv4 = source.and_then(Gid::ipv4);
        if source.is_some() && ipv4.is_none() {
            exercise(rule!("source-gid"));
        }
        let (Some(source), Some(target)) = (source.filter(|gid| self.is_source(gid)), attr.dgid) else {
            return exercise(rule!("rtr-source"));
        };
        let is_at = |device: DeviceIndex| !target.is_zero() && self.gids(device).contains(&target);
        let is_up = |device: DeviceIndex| self.hosts[self.host_of(device) as usize].is_up();
        let is_neighbour = self.neighbour(device).is_some_and(|device| is_at(device) && is_up(device));
        let is_elsewhere = || (0..self.devices.len()).any(|other| is_at(DeviceIndex(other as u32)));
        let is_link_local = source.ipv4().is_some_and(|address| address.is_link_local());
        let rules = [
            (is_link_local, rule!("link-local-source")),
            (attr.path_mtu > 1024, rule!("large-mtu")),
            (is_at(device), rule!("no-loopback")),
            (!is_neighbour && !is_at(device) && is_elsewhere(), rule!("one-hop")),
            (!is_neighbour || self.is_unresolvable(device), rule!("rtr-neighbour")),
        ];
        rules.into_iter().filter(|(applies, _)| *applies).for_each(|(_, number)| exercise(number));
    }

    /// Whether the port allocates no protection domain because of a fault
    pub(in crate::fabric) fn has_no_pds(&self, device: DeviceIndex) -> bool {
        self.device(device).faults.no_pds
    }
}
