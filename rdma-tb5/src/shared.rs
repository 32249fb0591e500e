//! What all objects of a device share: its context, its protection domain, its settings
#![allow(unsafe_code, reason = "calls the functions of the provider")]

use std::ptr::NonNull;

use rdma_core::{Caps, Cause, Error, Gid, Resource, Verb};
use rdma_verbs_abi::{Pd, PollCq, PortAttr, PostRecv, PostSend, constants};

use crate::call_watch::CallWatch;
use crate::completion_channel::Channel;
use crate::context::OpenContext;
use crate::errno;
use crate::open_error::OpenError;
use crate::options::OpenOptions;
use crate::port_query::{self, PortQuery};
use crate::port_watch::PortWatch;
use crate::sync::Arc;

/// An open device with its protection domain; closed when the last object of the device is gone
pub(crate) struct DeviceShared {
    pub(crate) post_send: PostSend,
    pub(crate) post_recv: PostRecv,
    pub(crate) poll_cq: PollCq,
    pub(crate) port_watch: PortWatch,
    port_query: PortQuery,
    pub(crate) call_watch: CallWatch,
    pub(crate) pd: NonNull<Pd>,
    pub(crate) is_apple: bool,
    pub(crate) caps: Caps,
    pub(crate) options: OpenOptions,
    /// The GID table when the device was opened; none but on Apple's device.
    gids: Vec<Gid>,
    /// Of a device for experiments; destroyed before the context is closed.
    pub(crate) channel: Option<Channel>,
    /// Closed after the protection domain is deallocated.
    pub(crate) context: OpenContext,
}

// SAFETY: verbs may be called on a protection domain from any thread, and from several at once.
unsafe impl Send for DeviceShared {}
// SAFETY: as above.
unsafe impl Sync for DeviceShared {}

impl DeviceShared {
    /// Allocates a protection domain, and reads the limits of the device
    pub(crate) fn new(context: OpenContext, name: &str, options: OpenOptions) -> Result<Self, OpenError> {
        // SAFETY: the context is open, and its functions do not change.
        let ops = unsafe { &(*context.as_ptr()).ops };
        let (Some(post_send), Some(post_recv), Some(poll_cq)) = (ops.post_send, ops.post_recv, ops.poll_cq)
        else {
            let why = "its contexts have no functions where they are expected";
            return Err(context.provider.wrong_abi(why).into());
        };
        // On a port that is down, the protection domain is NULL, and programs that used it have crashed.
        let port = context.port()?;
        if port.state != constants::PORT_ACTIVE {
            return Err(Error::new(Verb::AllocPd, Cause::PortDown).into());
        }
        let is_apple = cfg!(target_os = "macos") || name.starts_with("rdma_en");
        let caps = query_caps(&context, &port, is_apple);
        let channel = options.has_channel.then(|| Channel::new(&context)).transpose()?;
        errno::clear();
        // SAFETY: the context is open.
        let pd = unsafe { (context.provider.ibv_alloc_pd)(context.as_ptr()) };
        let Some(pd) = NonNull::new(pd) else {
            let cause = errno::creation_cause(errno::last(), Resource::ProtectionDomains, caps.max_pd);
            return Err(Error::new(Verb::AllocPd, cause).into());
        };
        let port_watch = PortWatch::new(is_apple);
        let port_query = PortQuery::new(name, port_query::LIMIT);
        let call_watch = CallWatch::start(name, options.call_timeout);
        let gids = if is_apple { context.gids() } else { Vec::new() };
        Ok(Self {
            post_send,
            post_recv,
            poll_cq,
            port_watch,
            port_query,
            call_watch,
            pd,
            is_apple,
            caps,
            options,
            gids,
            channel,
            context,
        })
    }

    /// The entry of the GID table to connect from: the first that maps an IPv4 address, or else the first that is set
    pub(crate) fn source_gid(&self) -> Option<(u8, Gid)> {
        let gids = self.context.gids();
        let ipv4 = gids.iter().position(|gid| gid.ipv4().is_some());
        let index = ipv4.or_else(|| gids.iter().position(|gid| !gid.is_zero()))?;
        Some((index as u8, gids[index]))
    }

    /// Whether the port is up as far as is known, before a post
    ///
    /// # Errors
    ///
    /// Those of [`PortWatch::check`].
    #[inline]
    pub(crate) fn check_port(self: &Arc<Self>, verb: Verb) -> Result<(), Error> {
        self.port_watch.check(verb, || {
            let device = Arc::clone(self);
            // An answer that comes too late is noted, too.
            self.port_query.run(move || Ok(device.port()?.state == constants::PORT_ACTIVE))
        })
    }

    /// Queries the port, and notes if it is down
    pub(crate) fn port(&self) -> Result<PortAttr, Error> {
        let port = self.context.port()?;
        if port.state != constants::PORT_ACTIVE {
            self.port_watch.down();
        }
        Ok(port)
    }

    /// Whether the link was lost since the device was opened, as far as this shows
    ///
    /// A link that is lost and back between two queries of the port is still known by its GID table: the IPv4 entry moves, and leaves a hole.
    fn has_lost_link(&self) -> bool {
        self.port_watch.is_gone()
            || !self.context.is_up().unwrap_or(false)
            || self.context.gids() != self.gids
    }

    /// Whether a destroyed queue pair proves that the device has stopped using its memory
    pub(crate) fn trusts_destroy(&self) -> bool {
        self.options.trust_destroy.unwrap_or(!self.is_apple)
    }
}

/// What the device can do: what it reports, where that is less than Apple documents, or than other devices have
fn query_caps(context: &OpenContext, port: &PortAttr, is_apple: bool) -> Caps {
    let mut caps = if is_apple { Caps::tb5() } else { Caps::roce() };
    let at_most = |cap: &mut u32, limit: u32| {
        // Nothing is reported as zero.
        if limit > 0 {
            *cap = (*cap).min(limit);
        }
    };
    at_most(&mut caps.max_message, port.max_msg_sz);
    let Some(attr) = context.attributes() else { return caps };
    // Apple's device reports one queue pair more than it gives.
    for (cap, limit) in [
        (&mut caps.max_cq, attr.max_cq),
        (&mut caps.max_cqe, attr.max_cqe),
        (&mut caps.max_mr, attr.max_mr),
        (&mut caps.max_pd, attr.max_pd),
        (&mut caps.max_qp, attr.max_qp),
        (&mut caps.max_queue_frames, attr.max_qp_wr.min(4095)),
    ] {
        at_most(cap, u32::try_from(limit).unwrap_or(0));
    }
    caps
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        // After a link was lost, `ibv_dealloc_pd` of Apple's provider has been reported to deadlock in the kernel with the end of the
        // device, unkillable until the machine restarts.
        if self.is_apple && self.has_lost_link() {
            tracing::warn!("a protection domain stays allocated, because the link was lost");
            std::mem::forget(self.channel.take());
            return self.context.keep();
        }
        // SAFETY: queue pairs, completion queues and regions keep this, and are gone; the context is still open.
        let failed = unsafe { (self.context.provider.ibv_dealloc_pd)(self.pd.as_ptr()) };
        if failed != 0 {
            tracing::warn!(errno = failed, "a protection domain could not be deallocated");
        }
    }
}
