//! The transitions of a queue pair, as the provider takes them
#![allow(unsafe_code, reason = "calls the functions of the provider")]

use std::ffi::c_int;
use std::ptr::NonNull;

use rdma_core::{AttrMask, Cause, Error, Gid, QpAddress, QpState, QpType, Transition, Verb};
use rdma_verbs_abi::{AhAttr, GlobalRoute, Qp, QpAttr, QpCap, QpInitAttr, RawGid, constants};

use crate::errno;
use crate::shared::DeviceShared;

/// What a reliable queue pair needs besides, to receive: responder resources and a timer (`IBV_QP_MAX_DEST_RD_ATOMIC`, `MIN_RNR_TIMER`).
const RC_READY_TO_RECEIVE: u32 = 1 << 17 | 1 << 15;
/// And to send: `TIMEOUT`, `RETRY_CNT`, `RNR_RETRY`, `MAX_QP_RD_ATOMIC`.
const RC_READY_TO_SEND: u32 = 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13;

/// The queue depths that the device granted, which may differ from those that were requested
pub(crate) fn granted(device: &DeviceShared, qp: NonNull<Qp>, requested: QpCap) -> QpCap {
    let answers = query(device, qp, constants::QP_CAP).map(|(attr, init)| [init.cap, attr.cap]);
    answers.into_iter().flatten().find(|cap| cap.max_send_wr > 0).unwrap_or(requested)
}

pub(crate) fn state(device: &DeviceShared, qp: NonNull<Qp>) -> QpState {
    let state = match query(device, qp, constants::QP_STATE) {
        Some((attr, _)) => attr.qp_state,
        // SAFETY: the caller's queue pair exists; the provider keeps its state in the structure.
        None => unsafe { (*qp.as_ptr()).state },
    };
    match state {
        constants::QPS_RESET => QpState::Reset,
        constants::QPS_INIT => QpState::Init,
        constants::QPS_RTR => QpState::ReadyToReceive,
        constants::QPS_RTS => QpState::ReadyToSend,
        _ => QpState::Error,
    }
}

fn query(device: &DeviceShared, qp: NonNull<Qp>, mask: c_int) -> Option<(QpAttr, QpInitAttr)> {
    let query = device.context.provider.ibv_query_qp?;
    let mut attr = QpAttr::default();
    let mut init = QpInitAttr::default();
    // SAFETY: the caller's queue pair exists, and both structures have the sizes that the function fills.
    let failed = unsafe { query(qp.as_ptr(), &raw mut attr, mask, &raw mut init) };
    (failed == 0).then_some((attr, init))
}

/// What a transition needs to know about its queue pair
pub(crate) struct Local<'a> {
    pub(crate) address: &'a QpAddress,
    pub(crate) qp_type: QpType,
}

/// Moves a queue pair to another state
pub(crate) fn apply(
    device: &DeviceShared,
    qp: NonNull<Qp>,
    to: Transition,
    local: &Local<'_>,
) -> Result<(), Error> {
    let (mut attr, mask) = attributes(device, to, local);
    // SAFETY: the caller's queue pair exists, and the structure is complete.
    let failed =
        unsafe { (device.context.provider.ibv_modify_qp)(qp.as_ptr(), &raw mut attr, mask as c_int) };
    let cause = match (failed, to) {
        (0, _) => return Ok(()),
        // EINVAL at this transition means that no entry of the table can be the source.
        (22 | -22, Transition::ReadyToReceive { .. }) if device.context.gids().is_empty() => {
            Cause::GidTableEmpty
        }
        (22 | -22, Transition::ReadyToReceive { .. }) => Cause::NoUsableGid,
        // EPERM: the look-up of the peer among the neighbours of the port failed.
        (1 | -1, Transition::ReadyToReceive { .. }) if device.is_apple => Cause::NoNeighbour,
        (failed, _) => errno::cause(failed),
    };
    Err(Error::new(Verb::ModifyQp, cause))
}

/// Where the GID table of the device has `gid` now: entries move while an interface gets its addresses anew
fn source_index(device: &DeviceShared, gid: &Gid) -> u8 {
    if let Some(index) = device.options.source_index {
        return index;
    }
    let index = device.context.gids().iter().position(|entry| entry == gid);
    index.map_or_else(|| device.source_gid().map_or(0, |(index, _)| index), |index| index as u8)
}

/// The attributes of a transition, and the mask that names them
fn attributes(device: &DeviceShared, to: Transition, local: &Local<'_>) -> (QpAttr, u32) {
    let reliable = |mask| if local.qp_type == QpType::Rc { mask } else { 0 };
    let none = QpAttr::default();
    match to {
        Transition::Reset => (QpAttr { qp_state: constants::QPS_RESET, ..none }, AttrMask::STATE.0),
        Transition::Init => {
            // Local and remote write, remote read, and atomics where there are any: both Apple's device and others accept this.
            let qp_access_flags = if device.is_apple { 7 } else { 15 };
            let attr = QpAttr { qp_state: constants::QPS_INIT, port_num: 1, qp_access_flags, ..none };
            (attr, AttrMask::INIT.0)
        }
        Transition::ReadyToReceive { peer } => {
            let grh = GlobalRoute {
                dgid: RawGid { raw: peer.gid.0 },
                sgid_index: source_index(device, &local.address.gid),
                hop_limit: 1,
                ..GlobalRoute::default()
            };
            let attr = QpAttr {
                qp_state: constants::QPS_RTR,
                path_mtu: if device.options.path_mtu > 1024 {
                    constants::MTU_4096
                } else {
                    constants::MTU_1024
                },
                dest_qp_num: peer.qpn.0,
                rq_psn: peer.psn.0,
                max_dest_rd_atomic: 1,
                min_rnr_timer: 12,
                ah_attr: AhAttr { grh, dlid: peer.lid.0, is_global: 1, port_num: 1, ..AhAttr::default() },
                ..none
            };
            (attr, AttrMask::READY_TO_RECEIVE.0 | reliable(RC_READY_TO_RECEIVE))
        }
        Transition::ReadyToSend => {
            let attr = QpAttr {
                qp_state: constants::QPS_RTS,
                sq_psn: local.address.psn.0,
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
                ..none
            };
            (attr, AttrMask::READY_TO_SEND.0 | reliable(RC_READY_TO_SEND))
        }
        _ => (QpAttr { qp_state: constants::QPS_ERR, ..none }, AttrMask::STATE.0),
    }
}
