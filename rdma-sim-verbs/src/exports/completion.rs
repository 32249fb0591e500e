//! Completion queues

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use rdma_core::{Completion, Device as _, Opcode};
use rdma_verbs_abi::{CompChannel, Context, Cq, Wc, constants};

use super::blocking::blocking;
use crate::completion_channel::CqNotifier;
use crate::engine::{Engine, MAX_JUMPS};
use crate::errno::{EINVAL, guarded, negative, null, same};
use crate::objects::{ChannelObject, ContextObject, CqObject};
use crate::slots::{hand_out, hold, object, release, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut CompChannel,
    _vector: c_int,
) -> *mut Cq {
    blocking(null, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ContextObject>(context) }?;
        // SAFETY: as above.
        let through =
            (!channel.is_null()).then(|| unsafe { object::<ChannelObject>(channel) }).transpose()?;
        let queue = found.device.create_cq(u32::try_from(cqe).unwrap_or(0))?;
        let abi = Cq { context, channel, cq_context, cqe, ..Cq::default() };
        let cq = hand_out(CqObject { abi, queue, notifier: OnceLock::new() });
        if let Some(through) = through {
            // SAFETY: as above.
            unsafe { hold::<ChannelObject>(channel) };
            let notifier = CqNotifier::new(Arc::clone(&through.channel), cq.expose_provenance());
            // SAFETY: the object was just handed out, and the program does not know of it yet.
            unsafe { object::<CqObject>(cq) }?.notifier.get_or_init(|| Arc::new(notifier));
        }
        Ok(cq)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut Cq) -> c_int {
    blocking(same, || {
        // SAFETY: the contract of all functions.
        let taken = unsafe { take_back::<CqObject>(cq) }?;
        // SAFETY: as above.
        unsafe { release::<ChannelObject>(taken.abi.channel) };
        if let Some(notifier) = taken.notifier.get() {
            notifier.end();
        }
        Ok(0)
    })
}

/// Completions that are moved at once.
const BATCH: usize = 32;

pub(super) unsafe extern "C" fn poll_cq(cq: *mut Cq, count: c_int, wc: *mut Wc) -> c_int {
    guarded(negative, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<CqObject>(cq) }?;
        let engine = Engine::get()?;
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        if wc.is_null() {
            return Err(EINVAL);
        }
        let mut completions = [Completion::default(); BATCH];
        let out = &mut completions[..count.min(BATCH)];
        let mut jumps = 0..if count > 0 { MAX_JUMPS } else { 0 };
        let n = engine.poll(|session| {
            loop {
                match session.poll(&found.queue, out) {
                    Ok(0) if jumps.next().is_some() && engine.jump(session) => (),
                    outcome => return outcome,
                }
            }
        })?;
        engine.count_poll(n > 0);
        for (number, completion) in out[..n].iter().enumerate() {
            // SAFETY: the caller has space for `count` completions.
            let place = unsafe { wc.add(number) };
            // SAFETY: as above.
            unsafe { place.write(work_completion(completion)) };
        }
        Ok(n as c_int)
    })
}

fn work_completion(completion: &Completion) -> Wc {
    Wc {
        wr_id: completion.id.0,
        status: completion.status.code(),
        opcode: match completion.opcode {
            Opcode::Recv => constants::WC_RECV,
            Opcode::Write => constants::WC_RDMA_WRITE,
            Opcode::Read => constants::WC_RDMA_READ,
            Opcode::Atomic => constants::WC_FETCH_ADD,
            _ => constants::WC_SEND,
        },
        byte_len: completion.byte_len,
        qp_num: completion.qpn.0,
        ..Wc::default()
    }
}
