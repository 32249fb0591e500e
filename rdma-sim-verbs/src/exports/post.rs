//! Posting

use std::ffi::c_int;
use std::sync::PoisonError;

use rdma_core::{Error, Lkey, QueuePair, RecvRequest, Rkey, SendOp, SendRequest, Sge as Element, WrId};
use rdma_verbs_abi::{Qp, RecvWr, SendWr, Sge, constants};

use super::{EINVAL, ENOTSUP, guarded};
use crate::engine::Engine;
use crate::objects::{QpObject, object};

/// The elements of a request
unsafe fn elements(list: *mut Sge, count: c_int) -> Option<Vec<Element>> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 64)?;
    if count > 0 && list.is_null() {
        return None;
    }
    let element = |index| {
        // SAFETY: the caller's list has so many elements.
        let place = unsafe { list.add(index) };
        // SAFETY: as above.
        let sge = unsafe { *place };
        Element { addr: sge.addr, len: sge.length, lkey: Lkey(sge.lkey) }
    };
    Some((0..count).map(element).collect())
}

/// What a failed post returns; Apple's provider says −12 when the ring is full, and leaves `bad_wr` alone
fn post_error(error: &Error, is_roce: bool) -> c_int {
    match error.errno() {
        12 if !is_roce => -12,
        errno => errno,
    }
}

pub(super) unsafe extern "C" fn post_send(qp: *mut Qp, wr: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    guarded(EINVAL, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<QpObject>(qp) };
        let (Some(found), Some(engine)) = (found, Engine::get()) else { return EINVAL };
        engine.catch_up_to_send();
        let pair = found.pair.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = wr;
        // SAFETY: the list is the caller's and ends with NULL.
        while let Some(request) = unsafe { next.as_ref() } {
            let rkey = |at: usize| Rkey(request.wr[at] as u32);
            let op = match request.opcode {
                constants::WR_SEND => Some(SendOp::Send),
                constants::WR_RDMA_WRITE => Some(SendOp::Write { remote_addr: request.wr[0], rkey: rkey(1) }),
                constants::WR_RDMA_READ => Some(SendOp::Read { remote_addr: request.wr[0], rkey: rkey(1) }),
                constants::WR_ATOMIC_FETCH_AND_ADD => {
                    Some(SendOp::FetchAdd { remote_addr: request.wr[0], add: request.wr[1], rkey: rkey(3) })
                }
                constants::WR_ATOMIC_CMP_AND_SWP => Some(SendOp::CompareSwap {
                    remote_addr: request.wr[0],
                    compare: request.wr[1],
                    swap: request.wr[2],
                    rkey: rkey(3),
                }),
                _ => None,
            };
            // SAFETY: as above.
            let sgl = unsafe { elements(request.sg_list, request.num_sge) };
            let signaled = found.signals_all || request.send_flags & constants::SEND_SIGNALED != 0;
            let outcome = match (op, sgl) {
                (Some(op), Some(sgl)) => {
                    let request = SendRequest { id: WrId(request.wr_id), op, sgl: &sgl, signaled };
                    // SAFETY: the program leaves the memory alone, as the manual page says.
                    unsafe { pair.post_send(&request) }.map_err(|error| post_error(&error, engine.is_roce))
                }
                (None, _) => Err(ENOTSUP),
                (_, None) => Err(EINVAL),
            };
            if let Err(errno) = outcome {
                if errno > 0 && !bad.is_null() {
                    // SAFETY: the caller's place for a pointer.
                    unsafe { *bad = next };
                }
                return errno;
            }
            next = request.next;
        }
        drop(pair);
        engine.kick();
        0
    })
}

pub(super) unsafe extern "C" fn post_recv(qp: *mut Qp, wr: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    guarded(EINVAL, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<QpObject>(qp) };
        let (Some(found), Some(engine)) = (found, Engine::get()) else { return EINVAL };
        engine.catch_up();
        let pair = found.pair.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = wr;
        // SAFETY: the list is the caller's and ends with NULL.
        while let Some(request) = unsafe { next.as_ref() } {
            // SAFETY: as above.
            let outcome = match unsafe { elements(request.sg_list, request.num_sge) } {
                Some(sgl) => {
                    let request = RecvRequest { id: WrId(request.wr_id), sgl: &sgl };
                    // SAFETY: the program leaves the memory alone, as the manual page says.
                    unsafe { pair.post_recv(&request) }.map_err(|error| post_error(&error, engine.is_roce))
                }
                None => Err(EINVAL),
            };
            if let Err(errno) = outcome {
                if errno > 0 && !bad.is_null() {
                    // SAFETY: the caller's place for a pointer.
                    unsafe { *bad = next };
                }
                return errno;
            }
            next = request.next;
        }
        drop(pair);
        engine.kick();
        0
    })
}
