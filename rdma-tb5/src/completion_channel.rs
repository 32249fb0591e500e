//! A completion channel, for experiments
#![allow(unsafe_code, reason = "calls the functions of the provider")]

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use rdma_core::{Cause, Error, Verb};
use rdma_verbs_abi::{CompChannel, Cq};

use crate::context::OpenContext;
use crate::errno;
use crate::provider::Provider;
use crate::sync::Arc;

/// A completion channel; destroyed when this is dropped, after the queues that report to it
pub(crate) struct Channel {
    provider: Arc<Provider>,
    channel: NonNull<CompChannel>,
}

// SAFETY: verbs may be called on a channel from any thread, and from several at once.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub(crate) fn new(context: &OpenContext) -> Result<Self, Error> {
        let provider = Arc::clone(&context.provider);
        let create = provider.ibv_create_comp_channel.ok_or(UNSUPPORTED)?;
        errno::clear();
        // SAFETY: the context is open.
        let channel = NonNull::new(unsafe { create(context.as_ptr()) });
        let channel = channel.ok_or_else(|| Error::new(Verb::CreateCq, errno::cause(errno::last())))?;
        Ok(Self { provider, channel })
    }

    pub(crate) fn as_ptr(&self) -> *mut CompChannel {
        self.channel.as_ptr()
    }

    /// Asks for an event at the next completion of `cq`
    pub(crate) fn arm(&self, context: &OpenContext, cq: NonNull<Cq>) -> Result<(), Error> {
        // SAFETY: the context is open, and its functions do not change.
        let arm = unsafe { (*context.as_ptr()).ops.req_notify_cq }.ok_or(UNSUPPORTED)?;
        // SAFETY: the queue exists, and has this channel.
        let failed = unsafe { arm(cq.as_ptr(), 0) };
        if failed == 0 { Ok(()) } else { Err(Error::new(Verb::CreateCq, errno::cause(failed))) }
    }

    /// Takes an event, if there is one
    pub(crate) fn take(&self) -> Result<bool, Error> {
        let (get, acknowledge) =
            self.provider.ibv_get_cq_event.zip(self.provider.ibv_ack_cq_events).ok_or(UNSUPPORTED)?;
        // SAFETY: the channel exists.
        let fd = unsafe { (*self.as_ptr()).fd };
        let mut ready = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: `ready` is one entry, and nothing waits.
        match unsafe { libc::poll(&raw mut ready, 1, 0) } {
            0 => return Ok(false),
            // A signal came first: the next look finds the event.
            ..0 if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {
                return Ok(false);
            }
            ..0 => return Err(Error::new(Verb::PollCq, errno::cause(errno::last()))),
            _ if ready.revents & libc::POLLIN == 0 => {
                return Err(Error::new(Verb::PollCq, Cause::DeviceGone));
            }
            _ => (),
        }
        let (mut cq, mut cq_context) = (null_mut(), null_mut());
        // SAFETY: the channel exists, and both places are valid.
        let failed: c_int = unsafe { get(self.as_ptr(), &raw mut cq, &raw mut cq_context) };
        if failed != 0 {
            return Err(Error::new(Verb::PollCq, errno::cause(errno::last())));
        }
        // SAFETY: a queue is destroyed only when its events are acknowledged; each one is, once.
        unsafe { acknowledge(cq, 1) };
        Ok(true)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some(destroy) = self.provider.ibv_destroy_comp_channel else { return };
        // SAFETY: its queues are gone, and it is destroyed once.
        let failed = unsafe { destroy(self.as_ptr()) };
        if failed != 0 {
            tracing::warn!(errno = failed, "a completion channel could not be destroyed");
        }
    }
}

/// The provider has no completion channels
const UNSUPPORTED: Error = Error::new(Verb::CreateCq, Cause::Unsupported);
