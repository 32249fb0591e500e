//! Completion queues

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rdma_core::{Completion, CompletionQueue, Device as _, Opcode};
use rdma_tb5::verbs::layout::{CompChannel, Context, Cq, Wc, number};

use super::memory::release_context;
use super::{EBUSY, EINVAL, guarded, null};
use crate::engine::Engine;
use crate::objects::{ContextObject, CqObject, Mark, hand_out, object, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut CompChannel,
    _vector: c_int,
) -> *mut Cq {
    guarded(null_mut(), || {
        // SAFETY: the contract of all functions.
        let Some(found) = (unsafe { object::<ContextObject>(context) }) else { return null(EINVAL) };
        match found.device.create_cq(u32::try_from(cqe).unwrap_or(0)) {
            Ok(queue) => {
                found.users.fetch_add(1, Ordering::AcqRel);
                // SAFETY: zeros are what the structure may hold.
                let mut abi: Cq = unsafe { std::mem::zeroed() };
                abi.context = context;
                abi.channel = channel;
                abi.cq_context = cq_context;
                abi.cqe = cqe;
                let (users, is_armed) = (AtomicUsize::new(0), AtomicBool::new(false));
                hand_out(CqObject { abi, mark: Mark::Cq, queue, users, is_armed })
            }
            Err(error) => null(error.errno()),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut Cq) -> c_int {
    guarded(EINVAL, || {
        // SAFETY: the contract of all functions.
        match unsafe { object::<CqObject>(cq) } {
            None => EINVAL,
            Some(found) if found.users.load(Ordering::Acquire) > 0 => EBUSY,
            Some(found) => {
                release_context(found.abi.context);
                // SAFETY: as above.
                drop(unsafe { take_back::<CqObject>(cq) });
                0
            }
        }
    })
}

/// Completions that are moved at once.
const BATCH: usize = 32;

pub(super) unsafe extern "C" fn poll_cq(cq: *mut Cq, count: c_int, wc: *mut Wc) -> c_int {
    guarded(-EINVAL, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<CqObject>(cq) };
        let (Some(found), Some(engine), Ok(count)) = (found, Engine::get(), usize::try_from(count)) else {
            return -EINVAL;
        };
        if wc.is_null() {
            return -EINVAL;
        }
        let mut completions = [Completion::default(); BATCH];
        let out = &mut completions[..count.min(BATCH)];
        engine.catch_up();
        let n = loop {
            match found.queue.poll(out) {
                Ok(0) if engine.jump() => (),
                Ok(n) => break n,
                Err(error) => return -error.errno(),
            }
        };
        for (number, completion) in out[..n].iter().enumerate() {
            // SAFETY: the caller has space for `count` completions.
            let place = unsafe { wc.add(number) };
            // SAFETY: as above.
            unsafe { place.write(work_completion(completion)) };
        }
        n as c_int
    })
}

fn work_completion(completion: &Completion) -> Wc {
    Wc {
        wr_id: completion.id.0,
        status: completion.status.code(),
        opcode: match completion.opcode {
            Opcode::Recv => number::WC_RECV,
            Opcode::Write => number::WC_RDMA_WRITE,
            Opcode::Read => number::WC_RDMA_READ,
            Opcode::Atomic => number::WC_FETCH_ADD,
            _ => number::WC_SEND,
        },
        byte_len: completion.byte_len,
        qp_num: completion.qpn.0,
        ..Wc::default()
    }
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, _solicited: c_int) -> c_int {
    // SAFETY: the contract of all functions.
    match unsafe { object::<CqObject>(cq) } {
        Some(found) => {
            found.is_armed.store(true, Ordering::Release);
            0
        }
        None => EINVAL,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    let text: &CStr = match status {
        0 => c"success",
        1 => c"local length error",
        4 => c"local protection error",
        5 => c"Work Request Flushed Error",
        7 => c"bad response error",
        10 => c"remote access error",
        12 => c"transport retry counter exceeded",
        _ => c"unknown",
    };
    text.as_ptr()
}
