//! Completion channels

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use rdma_verbs_abi::{CompChannel, Context, Cq};

use super::{EBUSY, EINVAL, guarded, null, set_errno};
use crate::channel::Channel;
use crate::engine::{Engine, MOST_JUMPS};
use crate::objects::{ChannelObject, ContextObject, CqObject, hand_out, object, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut Context) -> *mut CompChannel {
    guarded(null_mut(), || {
        // SAFETY: the contract of all functions.
        if unsafe { object::<ContextObject>(context) }.is_none() {
            return null(EINVAL);
        }
        match Channel::new() {
            Ok(channel) => {
                let abi = CompChannel { context, fd: channel.descriptor(), refcnt: 0 };
                hand_out(ChannelObject { abi, channel: Arc::new(channel), users: AtomicUsize::new(0) })
            }
            Err(error) => null(error.raw_os_error().unwrap_or(EINVAL)),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    guarded(EINVAL, || {
        // SAFETY: the contract of all functions.
        match unsafe { object::<ChannelObject>(channel) } {
            None => EINVAL,
            Some(found) if found.users.load(Ordering::Acquire) > 0 => EBUSY,
            Some(_) => {
                // SAFETY: as above.
                drop(unsafe { take_back::<ChannelObject>(channel) });
                0
            }
        }
    })
}

/// Waits for a completion that was asked for; −1 with `errno` if there is none and the descriptor is nonblocking
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut CompChannel,
    cq: *mut *mut Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    guarded(-1, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ChannelObject>(channel) };
        let (Some(found), Some(engine), false) = (found, Engine::get(), cq.is_null()) else {
            set_errno(EINVAL);
            return -1;
        };
        engine.catch_up();
        // Whoever may block, may for ever.
        let may_block = found.channel.is_blocking().unwrap_or(false);
        let mut jumps = 0..if may_block { usize::MAX } else { MOST_JUMPS };
        while !found.channel.has_event() && jumps.next().is_some() && engine.jump() {}
        // The channel stays while its program waits, whoever destroys it.
        let waiting = Arc::clone(&found.channel);
        loop {
            let event = match waiting.take() {
                Ok(event) => std::ptr::with_exposed_provenance_mut::<Cq>(event),
                Err(error) => {
                    set_errno(error.raw_os_error().unwrap_or(EINVAL));
                    return -1;
                }
            };
            // SAFETY: the contract of all functions.
            let Some(told) = (unsafe { object::<CqObject>(event) }) else { continue };
            // SAFETY: the caller's place for a pointer.
            unsafe { *cq = event };
            if !cq_context.is_null() {
                // SAFETY: the caller's place for a pointer.
                unsafe { *cq_context = told.abi.cq_context };
            }
            return 0;
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut Cq, count: c_uint) {
    // SAFETY: the contract of all functions.
    if unsafe { object::<CqObject>(cq) }.is_some() {
        // SAFETY: programs leave the field alone, and acknowledge from one thread at a time.
        let completed = unsafe { &mut (*cq).comp_events_completed };
        *completed = completed.wrapping_add(count);
    }
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, _solicited: c_int) -> c_int {
    guarded(EINVAL, || {
        // SAFETY: the contract of all functions.
        let (Some(found), Some(engine)) = (unsafe { object::<CqObject>(cq) }, Engine::get()) else {
            return EINVAL;
        };
        let Some(alarm) = found.alarm.get() else { return EINVAL };
        found.queue.notify(&Waker::from(Arc::clone(alarm)));
        engine.work_beside();
        0
    })
}
