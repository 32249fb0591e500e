//! The state machine of queue pairs: which steps there are, what they need, and how they fail

use rdma_core::{AttrMask, Cause, Error, Gid, Invalid, QpAttr, QpState, Transition, Verb};

use super::queue_pair::QueuePair;
use super::{DeviceIndex, Fabric, QpKey, nanos};
use crate::rules::SourceGid;
use crate::trace::RecordKind;

impl Fabric {
    /// Takes a step with everything that it needs, filled in as a careful program does
    pub(crate) fn step_qp(&mut self, key: QpKey, to: Transition) -> Result<(), Error> {
        let (attr, mask) = match to {
            Transition::Reset => QpAttr::plain(QpState::Reset),
            Transition::Init => QpAttr::init(),
            Transition::ReadyToReceive { peer } => {
                let device = self.qp_mut(key, Verb::ModifyQp)?.device;
                let usable = self.gids(device).iter().position(|gid| self.is_source(gid));
                QpAttr::ready_to_receive(&peer, usable.unwrap_or(0) as u8, 1024)
            }
            Transition::ReadyToSend => QpAttr::ready_to_send(self.qp_address(key).psn),
            _ => QpAttr::plain(QpState::Error),
        };
        self.modify_qp(key, &attr, mask)
    }

    pub(crate) fn modify_qp(&mut self, key: QpKey, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        let fail = |cause| Err(Error::new(Verb::ModifyQp, cause));
        let qp = self.qp_mut(key, Verb::ModifyQp)?;
        if qp.is_stale {
            return fail(Cause::DeviceGone);
        }
        let needed = match (qp.state, attr.state) {
            (_, QpState::Reset | QpState::Error) => AttrMask::STATE,
            (QpState::Reset | QpState::Init, QpState::Init) => AttrMask::INIT,
            (QpState::Init, QpState::ReadyToReceive) => AttrMask::READY_TO_RECEIVE,
            (QpState::ReadyToReceive, QpState::ReadyToSend) => AttrMask::READY_TO_SEND,
            (from, to) => return fail(Invalid::Transition { from, to }.into()),
        };
        if !mask.contains(needed) {
            return fail(Invalid::AttrMask { mask, needed }.into());
        }
        match attr.state {
            QpState::Init if attr.port != 1 || attr.pkey_index != 0 => {
                return fail(Invalid::Port { port: attr.port, pkey_index: attr.pkey_index }.into());
            }
            QpState::Init => qp.state = QpState::Init,
            QpState::ReadyToReceive => {
                let device = qp.device;
                let outcome = self.resolve_peer(key, device, attr);
                self.record(RecordKind::Connect, self.qps[key].name(), u64::from(outcome.is_ok()));
                if let Err(cause) = outcome {
                    self.qps[key].is_half_connected = true;
                    let trouble = &mut self.device_mut(device).trouble;
                    trouble.failed_rtrs += 1;
                    return fail(cause);
                }
                self.ready_to_receive(key, attr);
            }
            QpState::ReadyToSend => qp.state = QpState::ReadyToSend,
            QpState::Reset => {
                self.announce_end(key);
                let qp = &mut self.qps[key];
                qp.clear();
                qp.state = QpState::Reset;
                self.leave_round(key);
                self.forget_posts_of(key);
            }
            _ => self.fail_qp(key),
        }
        Ok(())
    }

    /// Whether the device can begin to receive from that peer
    fn resolve_peer(&self, key: QpKey, device: DeviceIndex, attr: &QpAttr) -> Result<(), Cause> {
        let rules = &self.model.rules;
        let found = self.device(device);
        let is_worn = rules.failed_rtr_wedges.is_some_and(|limit| found.trouble.failed_rtrs >= limit);
        if self.qps[key].is_half_connected || found.trouble.busy || found.trouble.is_wedged || is_worn {
            return Err(Cause::Busy);
        }
        if found.gids.iter().all(Gid::is_zero) {
            return Err(Cause::GidTableEmpty);
        }
        let source = found.gids.get(usize::from(attr.sgid_index)).filter(|gid| self.is_source(gid));
        let (Some(source), Some(target)) = (source, attr.dgid) else { return Err(Cause::NoUsableGid) };
        let is_link_local = |gid: &Gid| gid.ipv4().is_some_and(|address| address.is_link_local());
        let is_refused =
            !rules.link_local_source && is_link_local(source) || attr.path_mtu > 1024 && !rules.large_mtu;
        let is_known = self.neighbour(device).is_some_and(|far| {
            let host = &self.hosts[self.device(far).host as usize];
            host.is_up() && !target.is_zero() && self.gids(far).contains(&target)
        });
        if is_refused || !is_known || found.trouble.unresolvable {
            Err(Cause::PeerUnreachable)
        } else {
            Ok(())
        }
    }

    fn is_source(&self, gid: &Gid) -> bool {
        match self.model.rules.source_gid {
            SourceGid::Any => !gid.is_zero(),
            SourceGid::Ipv4 => gid.ipv4().is_some(),
        }
    }

    fn ready_to_receive(&mut self, key: QpKey, attr: &QpAttr) {
        self.clock_of_setup += 1;
        let (ready_at, now) = (self.clock_of_setup, self.now);
        let visible = now + nanos(self.model.timing.propagation_ns);
        let qp = &mut self.qps[key];
        qp.state = QpState::ReadyToReceive;
        qp.peer = attr.dest_qpn;
        qp.ready_at = ready_at;
        qp.last_active = now;
        // The sender learns only now of receives that were posted before.
        qp.receives.iter_mut().for_each(|receive| receive.visible = visible);
        if !qp.receives.is_empty()
            && let Some(sender) = self.connected_peer(key)
        {
            self.announce_credit(sender, visible);
        }
        self.announce(key);
    }

    /// Sets a queue pair to the error state
    pub(super) fn fail_qp(&mut self, key: QpKey) {
        let keeps_mappings = self.model.rules.error_keeps_mappings;
        self.announce_end(key);
        let Some(qp) = self.qps.get_mut(key) else { return };
        qp.state = QpState::Error;
        qp.freeze();
        let device = qp.device;
        self.leave_round(key);
        self.device_mut(device).trouble.keeps_mappings |= keeps_mappings;
        if self.model.caps.flush_on_error {
            self.flush(key);
        }
    }
}

impl QueuePair {
    pub(super) fn is_ready_to_send(&self) -> bool {
        self.state == QpState::ReadyToSend && self.is_alive()
    }
}
