//! An open context of a provider, and what its device reports
#![allow(unsafe_code, reason = "calls the functions of the provider")]

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_core::{Error, Gid, Verb};
use rdma_verbs_abi::{Context, Device, DeviceAttr, PortAttr, RawGid, constants};

use crate::errno;
use crate::provider::Provider;

/// A context of a provider; closed when dropped
pub(crate) struct OpenContext {
    pub(crate) provider: Arc<Provider>,
    context: NonNull<Context>,
    /// Whether it stays open for good.
    is_kept: bool,
}

// SAFETY: the verbs of a context may be called from any thread, and from several at once.
unsafe impl Send for OpenContext {}
// SAFETY: as above.
unsafe impl Sync for OpenContext {}

/// Entries of a GID table that are read: providers announce up to 1024, of which a few are set.
const GIDS: c_int = 32;

impl OpenContext {
    /// Opens a device
    ///
    /// # Safety
    ///
    /// `device` is an entry of a list of `provider` that is not freed yet.
    pub(crate) unsafe fn new(provider: &Arc<Provider>, device: *mut Device) -> Result<Self, Error> {
        errno::clear();
        // SAFETY: the caller's.
        let context = unsafe { (provider.ibv_open_device)(device) };
        match NonNull::new(context) {
            Some(context) => Ok(Self { provider: Arc::clone(provider), context, is_kept: false }),
            None => Err(Error::new(Verb::OpenDevice, errno::cause(errno::last()))),
        }
    }

    /// Keeps the context open when this is dropped
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    pub(crate) fn as_ptr(&self) -> *mut Context {
        self.context.as_ptr()
    }

    /// The result of `ibv_query_port` for port 1
    pub(crate) fn port(&self) -> Result<PortAttr, Error> {
        let mut port = PortAttr::default();
        // SAFETY: the context is open, and the structure is at least as long as what the exported function fills.
        let failed = unsafe { (self.provider.ibv_query_port)(self.as_ptr(), 1, &raw mut port) };
        if failed == 0 { Ok(port) } else { Err(Error::new(Verb::QueryPort, errno::cause(failed))) }
    }

    pub(crate) fn is_up(&self) -> Result<bool, Error> {
        self.port().map(|port| port.state == constants::PORT_ACTIVE)
    }

    /// The result of `ibv_query_device`; `None` if the provider has no such function or it fails
    pub(crate) fn attributes(&self) -> Option<DeviceAttr> {
        let query = self.provider.ibv_query_device?;
        let mut attr = DeviceAttr::default();
        // SAFETY: the context is open, and the structure has the size that the function fills.
        let failed = unsafe { query(self.as_ptr(), &raw mut attr) };
        (failed == 0).then_some(attr)
    }

    /// The GID table of port 1, without unset entries at its end
    pub(crate) fn gids(&self) -> Vec<Gid> {
        let entries = self.port().map_or(GIDS, |port| port.gid_tbl_len.clamp(0, GIDS));
        let entry = |index| {
            let mut gid = RawGid::default();
            // SAFETY: the context is open, and `gid` is a valid place for one entry.
            let failed = unsafe { (self.provider.ibv_query_gid)(self.as_ptr(), 1, index, &raw mut gid) };
            // Unset entries fail on some providers and are zero on others.
            if failed == 0 { Gid(gid.raw) } else { Gid::default() }
        };
        let mut gids: Vec<_> = (0..entries).map(entry).collect();
        gids.truncate(gids.iter().rposition(|gid| !gid.is_zero()).map_or(0, |last| last + 1));
        gids
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // SAFETY: the objects of the context keep it, and are gone; it is closed once.
        let failed = unsafe { (self.provider.ibv_close_device)(self.context.as_ptr()) };
        if failed != 0 {
            tracing::warn!(errno = failed, "a device could not be closed");
        }
    }
}
