//! Queue pairs

use std::ffi::c_int;

use rdma_core::{
    AttrMask, Device as _, Lid, Psn, QpAttr as Attr, QpCapacity, QpInit, QpState, QpType, Qpn, QueuePair,
};
use rdma_verbs_abi::{Pd, Qp, QpAttr, QpCap, QpInitAttr, constants};

use super::blocking::blocking;
use crate::engine::Engine;
use crate::errno::{EINVAL, guarded, null, same, same_and_set};
use crate::objects::{CqObject, PdObject, QpObject};
use crate::slots::{hand_out, hold, object, release, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut Pd, attr: *mut QpInitAttr) -> *mut Qp {
    blocking(null, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<PdObject>(pd) }?;
        // SAFETY: as above.
        let attr = unsafe { attr.as_mut() }.ok_or(EINVAL)?;
        // SAFETY: as above.
        let send_cq = unsafe { object::<CqObject>(attr.send_cq) }?;
        // SAFETY: as above.
        let recv_cq = unsafe { object::<CqObject>(attr.recv_cq) }?;
        let qp_type = match attr.qp_type {
            constants::QPT_UC => QpType::Uc,
            constants::QPT_RC => QpType::Rc,
            _ => QpType::Ud,
        };
        let max_sge = found.device.caps().max_sge;
        if attr.cap.max_send_sge > max_sge || attr.cap.max_recv_sge > max_sge || !attr.srq.is_null() {
            return Err(EINVAL);
        }
        let capacity = QpCapacity { recv_frames: attr.cap.max_recv_wr, send_frames: attr.cap.max_send_wr };
        let init = QpInit { capacity, qp_type };
        let pair = found.device.create_qp_between(&send_cq.queue, &recv_cq.queue, &init)?;
        attr.cap = cap(pair.capacity());
        // SAFETY: as above.
        unsafe { hold::<PdObject>(pd) };
        for cq in [attr.send_cq, attr.recv_cq] {
            // SAFETY: as above.
            unsafe { hold::<CqObject>(cq) };
        }
        let QpInitAttr { qp_context, send_cq, recv_cq, qp_type, .. } = *attr;
        let (context, qp_num) = (found.abi.context, pair.address().qpn.0);
        let abi = Qp { context, qp_context, pd, send_cq, recv_cq, qp_num, qp_type, ..Qp::default() };
        Ok(hand_out(QpObject { abi, pair, signals_all: attr.sq_sig_all != 0 }))
    })
}

fn cap(capacity: QpCapacity) -> QpCap {
    QpCap {
        max_send_wr: capacity.send_frames,
        max_recv_wr: capacity.recv_frames,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut Qp, attr: *mut QpAttr, mask: c_int) -> c_int {
    blocking(same_and_set, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<QpObject>(qp) }?;
        // SAFETY: as above.
        let attr = unsafe { attr.as_ref() }.ok_or(EINVAL)?;
        let state = match attr.qp_state {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::ReadyToReceive,
            3 => QpState::ReadyToSend,
            6 => QpState::Error,
            _ => return Err(EINVAL),
        };
        let (mut step, _) = Attr::plain(state);
        step.pkey_index = attr.pkey_index;
        step.port = attr.port_num;
        step.path_mtu = 128 << attr.path_mtu.min(5);
        step.dest_qpn = Qpn(attr.dest_qp_num);
        step.dgid = (attr.ah_attr.is_global != 0).then_some(rdma_core::Gid(attr.ah_attr.grh.dgid.raw));
        step.dlid = Lid(attr.ah_attr.dlid);
        step.sgid_index = attr.ah_attr.grh.sgid_index;
        step.rq_psn = Psn(attr.rq_psn);
        step.sq_psn = Psn(attr.sq_psn);
        let outcome = found.pair.modify_attr(&step, AttrMask(mask as u32));
        let engine = Engine::get()?;
        engine.spend_blocked();
        // Messages that waited for this queue pair may leave now.
        engine.catch_up();
        let now = state_number(found.pair.state());
        // SAFETY: the field is the provider's to write; a program that modifies a queue pair does nothing else with it
        // meanwhile, as the manual page says.
        unsafe { (*qp).state = now };
        Ok(outcome.map(|()| 0)?)
    })
}

fn state_number(state: QpState) -> u32 {
    match state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::ReadyToReceive => 2,
        QpState::ReadyToSend => 3,
        _ => 6,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut Qp,
    attr: *mut QpAttr,
    _mask: c_int,
    init: *mut QpInitAttr,
) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<QpObject>(qp) }?;
        // SAFETY: as above.
        let attr = unsafe { attr.as_mut() }.ok_or(EINVAL)?;
        // SAFETY: as above.
        let init = unsafe { init.as_mut() }.ok_or(EINVAL)?;
        attr.qp_state = state_number(found.pair.state());
        attr.cap = cap(found.pair.capacity());
        init.cap = attr.cap;
        init.qp_type = found.abi.qp_type;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut Qp) -> c_int {
    blocking(same, || {
        // SAFETY: the contract of all functions.
        let Qp { pd, send_cq, recv_cq, .. } = unsafe { take_back::<QpObject>(qp) }?.abi;
        // SAFETY: it is not deallocated while a queue pair hangs on it.
        unsafe { release::<PdObject>(pd) };
        for cq in [send_cq, recv_cq] {
            // SAFETY: as above.
            unsafe { release::<CqObject>(cq) };
        }
        Ok(0)
    })
}
