//! The steps of a queue pair, as the provider takes them

#![allow(unsafe_code, reason = "calls the provider")]

use std::ffi::c_int;
use std::ptr::NonNull;

use rdma_core::{AttrMask, Cause, Error, QpAddress, QpState, QpType, Transition, Verb};

use crate::device::Open;
use crate::verbs::cause;
use rdma_verbs_abi::{AhAttr, GlobalRoute, Qp, QpAttr, QpCap, QpInitAttr, RawGid, constants};

/// What reliable queue pairs want beside: responder resources and timers (`IBV_QP_MAX_DEST_RD_ATOMIC`, `MIN_RNR_TIMER`), and
/// for sending `TIMEOUT`, `RETRY_CNT`, `RNR_RETRY`, `MAX_QP_RD_ATOMIC`.
const RC_READY_TO_RECEIVE: u32 = 1 << 17 | 1 << 15;
const RC_READY_TO_SEND: u32 = 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13;

/// The depth that was granted: the device may give another than was asked for
pub(crate) fn granted(open: &Open, qp: NonNull<Qp>, asked: QpCap) -> QpCap {
    match query(open, qp, constants::QP_CAP) {
        Some((attr, init)) if init.cap.max_send_wr > 0 => {
            let _ = attr;
            init.cap
        }
        Some((attr, _)) if attr.cap.max_send_wr > 0 => attr.cap,
        _ => asked,
    }
}

pub(crate) fn state(open: &Open, qp: NonNull<Qp>) -> QpState {
    let state = match query(open, qp, constants::QP_STATE) {
        Some((attr, _)) => attr.qp_state,
        // SAFETY: the queue pair exists.
        None => unsafe { (*qp.as_ptr()).state },
    };
    match state {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::ReadyToReceive,
        3 => QpState::ReadyToSend,
        _ => QpState::Error,
    }
}

fn query(open: &Open, qp: NonNull<Qp>, mask: c_int) -> Option<(QpAttr, QpInitAttr)> {
    let query = open.provider.ibv_query_qp?;
    let none = std::ptr::null_mut();
    let mut attr = QpAttr::default();
    let mut init = QpInitAttr {
        qp_context: none,
        send_cq: std::ptr::null_mut(),
        recv_cq: std::ptr::null_mut(),
        srq: none,
        cap: QpCap::default(),
        qp_type: 0,
        sq_sig_all: 0,
    };
    // SAFETY: the queue pair exists and both structures are complete.
    let failed = unsafe { query(qp.as_ptr(), &raw mut attr, mask, &raw mut init) };
    (failed == 0).then_some((attr, init))
}

pub(crate) fn step(
    open: &Open,
    qp: NonNull<Qp>,
    to: Transition,
    own: &QpAddress,
    sgid_index: u8,
    path_mtu: u32,
    qp_type: QpType,
) -> Result<(), Error> {
    let fail = |cause| Err(Error::new(Verb::ModifyQp, cause));
    let is_reliable = qp_type == QpType::Rc;
    let mut attr = QpAttr::default();
    let mask = match to {
        Transition::Reset => AttrMask::STATE.0,
        Transition::Init => {
            attr.qp_state = 1;
            attr.port_num = 1;
            // Local and remote write, remote read, and atomics where there are any: what both Apple's device and others take.
            attr.qp_access_flags = if open.is_apple { 7 } else { 15 };
            AttrMask::INIT.0
        }
        Transition::ReadyToReceive { peer } => {
            attr.qp_state = 2;
            attr.path_mtu = if path_mtu > 1024 { constants::MTU_4096 } else { constants::MTU_1024 };
            attr.dest_qp_num = peer.qpn.0;
            attr.rq_psn = peer.psn.0;
            attr.max_dest_rd_atomic = 1;
            attr.min_rnr_timer = 12;
            attr.ah_attr = AhAttr {
                grh: GlobalRoute {
                    dgid: RawGid { raw: peer.gid.0 },
                    sgid_index,
                    hop_limit: 1,
                    ..GlobalRoute::default()
                },
                dlid: peer.lid.0,
                is_global: 1,
                port_num: 1,
                ..AhAttr::default()
            };
            AttrMask::READY_TO_RECEIVE.0 | if is_reliable { RC_READY_TO_RECEIVE } else { 0 }
        }
        Transition::ReadyToSend => {
            attr.qp_state = 3;
            attr.sq_psn = own.psn.0;
            attr.timeout = 14;
            attr.retry_cnt = 7;
            attr.rnr_retry = 7;
            attr.max_rd_atomic = 1;
            AttrMask::READY_TO_SEND.0 | if is_reliable { RC_READY_TO_SEND } else { 0 }
        }
        _ => {
            attr.qp_state = 6;
            AttrMask::STATE.0
        }
    };
    // SAFETY: the queue pair exists and the structure is complete.
    let failed = unsafe { (open.provider.ibv_modify_qp)(qp.as_ptr(), &raw mut attr, mask as c_int) };
    match (failed, to) {
        (0, _) => Ok(()),
        // What EINVAL means there: no entry of the table will do as the source.
        (22 | -22, Transition::ReadyToReceive { .. }) => {
            fail(if open.gids().is_empty() { Cause::GidTableEmpty } else { Cause::NoUsableGid })
        }
        (failed, _) => fail(cause(failed)),
    }
}
