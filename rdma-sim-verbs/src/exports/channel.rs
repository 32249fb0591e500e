//! Completion channels

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::task::Waker;

use rdma_verbs_abi::{CompChannel, Context, Cq};

use crate::completion_channel::Channel;
use crate::engine::{Engine, MAX_JUMPS};
use crate::errno::{EINVAL, guarded, minus_one, null, same};
use crate::objects::{ChannelObject, ContextObject, CqObject};
use crate::slots::{hand_out, object, take_back};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut Context) -> *mut CompChannel {
    guarded(null, || {
        // SAFETY: the contract of all functions.
        unsafe { object::<ContextObject>(context) }?;
        let channel = Channel::new()?;
        let abi = CompChannel { context, fd: channel.descriptor(), refcnt: 0 };
        Ok(hand_out(ChannelObject { abi, channel: Arc::new(channel) }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        drop(unsafe { take_back::<ChannelObject>(channel) }?);
        Ok(0)
    })
}

/// Waits for a completion event; −1 with `errno` if there is none and the descriptor is nonblocking
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut CompChannel,
    cq: *mut *mut Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    guarded(minus_one, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<ChannelObject>(channel) }?;
        let engine = Engine::get()?;
        if cq.is_null() {
            return Err(EINVAL);
        }
        engine.catch_up();
        // A program that may block may wait for ever.
        let may_block = found.channel.is_blocking().unwrap_or(false);
        let mut jumps = 0..if may_block { usize::MAX } else { MAX_JUMPS };
        while !found.channel.has_event()
            && jumps.next().is_some()
            && engine.poll(|session| engine.jump(session))
        {}
        // The channel stays while the program waits, even if another thread destroys it.
        let waiting = Arc::clone(&found.channel);
        loop {
            let event = std::ptr::with_exposed_provenance_mut::<Cq>(waiting.take()?);
            // SAFETY: the contract of all functions.
            let Ok(found) = (unsafe { object::<CqObject>(event) }) else { continue };
            // SAFETY: the caller's place for a pointer.
            unsafe { *cq = event };
            if !cq_context.is_null() {
                // SAFETY: the caller's place for a pointer.
                unsafe { *cq_context = found.abi.cq_context };
            }
            return Ok(0);
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut Cq, count: c_uint) {
    // SAFETY: the contract of all functions.
    if unsafe { object::<CqObject>(cq) }.is_ok() {
        // SAFETY: programs leave the field alone, and acknowledge from one thread at a time.
        let completed = unsafe { &mut (*cq).comp_events_completed };
        *completed = completed.wrapping_add(count);
    }
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, _solicited: c_int) -> c_int {
    guarded(same, || {
        // SAFETY: the contract of all functions.
        let found = unsafe { object::<CqObject>(cq) }?;
        let notifier = found.notifier.get().ok_or(EINVAL)?;
        let engine = Engine::get()?;
        if engine.rules.completion_events {
            found.queue.notify(&Waker::from(Arc::clone(notifier)));
        }
        engine.start_progress();
        Ok(0)
    })
}
