//! What the devices of a provider report about themselves

#![allow(unsafe_code, reason = "calls the provider")]

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_core::Gid;
use rdma_verbs_abi::{DeviceAttr, PortAttr};

use crate::device::{Closed, query_device, query_gids, query_port};
use crate::verbs::{ListError, Provider};

/// What a device reports about itself when it is opened
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name, such as `rdma_en3`
    pub name: String,
    /// Limits; `None` if the device cannot be opened or does not tell
    pub attributes: Option<DeviceAttr>,
    /// Port 1; `None` if the device cannot be opened or does not tell
    pub port: Option<PortAttr>,
    /// The GID table of port 1, without unset entries at its end
    pub gids: Vec<Gid>,
}

impl Provider {
    /// Opens each device in turn, at most `max_devices`, and asks it for its limits, its port and its GID table
    ///
    /// No protection domain is allocated. Opening a device may hang or crash when its driver is wedged: a program that must not do so
    /// calls this in a process of its own.
    ///
    /// # Errors
    ///
    /// [`ListError`] if the provider returns no list of devices.
    pub fn inspect(self: &Arc<Self>, max_devices: usize) -> Result<Vec<DeviceInfo>, ListError> {
        let mut found = Vec::new();
        self.each_device(|device, name| {
            let mut info =
                DeviceInfo { name: name.to_owned(), attributes: None, port: None, gids: Vec::new() };
            // SAFETY: the device is of the provider's list, which is freed only after this call.
            if let Some(context) = NonNull::new(unsafe { (self.ibv_open_device)(device) }) {
                let _closed = Closed { provider: self, context };
                info.attributes = query_device(self, context);
                info.port = query_port(self, context).ok();
                info.gids = query_gids(self, context);
            }
            found.push(info);
            found.len() < max_devices
        })?;
        Ok(found)
    }
}
