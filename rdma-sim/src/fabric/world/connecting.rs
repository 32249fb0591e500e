//! Whether a queue pair can connect, and which rules of the device decide it

use rdma_core::{Cause, Gid, QpAttr};

use super::World;
use super::device::Device;
use crate::catalogue::rule;
use crate::fabric::ids::DeviceIndex;
use crate::rules::{SourceGid, SpoiledRtr, Unresolved};

impl World {
    /// Whether a queue pair of `device` can begin to receive from the peer that `attr` names; a failure is counted
    ///
    /// The device does not retry a transition that has failed before. `exercise` gets the number of each rule that decides.
    pub(in crate::fabric) fn resolve_peer(
        &mut self,
        device: DeviceIndex,
        attr: &QpAttr,
        has_failed: bool,
        exercise: impl FnMut(usize),
    ) -> Result<(), Cause> {
        let resolved = self.check_peer(device, attr, has_failed, exercise);
        self.device_mut(device).faults.failed_rtrs += u32::from(resolved.is_err());
        resolved
    }

    fn check_peer(
        &self,
        device: DeviceIndex,
        attr: &QpAttr,
        has_failed: bool,
        mut exercise: impl FnMut(usize),
    ) -> Result<(), Cause> {
        let rules = &self.rules;
        let Device { faults, gids, .. } = self.device(device);
        let is_worn = rules.failed_rtr_wedges.is_some_and(|limit| faults.failed_rtrs >= limit);
        let spoiled = match rules.spoiled_rtr {
            SpoiledRtr::GidTableEmpty => Cause::GidTableEmpty,
            SpoiledRtr::NoUsableGid => Cause::NoUsableGid,
        };
        let refusals = [
            (has_failed, rule!("half-connected"), Cause::Busy),
            (faults.is_busy, rule!("rtr-busy"), Cause::Busy),
            (faults.is_wedged, rule!("wedge"), Cause::Busy),
            (is_worn, rule!("failed-rtr-wedges"), Cause::Busy),
            (faults.is_spoiled, rule!("idle-death-spoils"), spoiled),
            (gids.iter().all(Gid::is_zero), rule!("rtr-no-gids"), Cause::GidTableEmpty),
        ];
        if let Some((_, number, cause)) = refusals.into_iter().find(|(applies, ..)| *applies) {
            exercise(number);
            if number == rule!("idle-death-spoils") {
                exercise(rule!("spoiled-rtr"));
            }
            return Err(cause);
        }
        let source = gids.get(usize::from(attr.sgid_index)).filter(|gid| !gid.is_zero());
        if source.is_some_and(|gid| gid.ipv4().is_none()) {
            exercise(rule!("source-gid"));
        }
        let (Some(source), Some(target)) = (source.filter(|gid| self.is_source(gid)), attr.dgid) else {
            exercise(rule!("rtr-source"));
            return Err(Cause::NoUsableGid);
        };
        let is_at = |device: DeviceIndex| !target.is_zero() && self.gids(device).contains(&target);
        let is_up = |device: DeviceIndex| self.hosts[self.host_of(device) as usize].is_up();
        let is_neighbour = self.neighbour(device).is_some_and(|device| is_at(device) && is_up(device));
        let is_elsewhere = || (0..self.devices.len()).any(|other| is_at(DeviceIndex(other as u32)));
        let is_link_local = source.ipv4().is_some_and(|address| address.is_link_local());
        let decisions = [
            (is_link_local, rule!("link-local-source"), !rules.link_local_source),
            (attr.path_mtu > 1024, rule!("large-mtu"), !rules.large_mtu),
            (!is_neighbour && is_at(device), rule!("no-loopback"), true),
            (!is_neighbour && !is_at(device) && is_elsewhere(), rule!("one-hop"), true),
            (!is_neighbour || self.is_unresolvable(device), rule!("rtr-neighbour"), true),
        ];
        let mut resolved = Ok(());
        for (_, number, refuses) in decisions.into_iter().filter(|(applies, ..)| *applies) {
            exercise(number);
            if refuses {
                resolved = Err(Cause::PeerUnreachable);
                if number == rule!("rtr-neighbour") && rules.unresolved == Unresolved::NotPermitted {
                    exercise(rule!("rtr-unresolved"));
                    resolved = Err(Cause::NoNeighbour);
                }
            }
        }
        resolved
    }

    fn is_source(&self, gid: &Gid) -> bool {
        match self.rules.source_gid {
            SourceGid::Any => !gid.is_zero(),
            SourceGid::Ipv4 => gid.ipv4().is_some(),
        }
    }

    /// The first entry of a device's GID table that will do as the source
    pub(crate) fn source_index(&self, device: DeviceIndex) -> u8 {
        self.gids(device).iter().position(|gid| self.is_source(gid)).unwrap_or(0) as u8
    }

    /// The address under which peers reach a device
    pub(in crate::fabric) fn address(&self, device: DeviceIndex) -> Gid {
        let gids = self.gids(device);
        let ipv4 = gids.iter().find(|gid| gid.ipv4().is_some());
        ipv4.or_else(|| gids.iter().find(|gid| !gid.is_zero())).copied().unwrap_or_default()
    }
}
