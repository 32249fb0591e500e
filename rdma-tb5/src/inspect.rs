//! What the devices of a provider report about themselves
#![allow(unsafe_code, reason = "opens devices of the provider")]

use std::sync::Arc;

use rdma_core::Gid;
use rdma_verbs_abi::{DeviceAttr, PortAttr};

use crate::context::OpenContext;
use crate::provider::{ListError, Provider};

/// What a device reports about itself when it is opened
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name, such as `rdma_en3`
    pub name: String,
    /// Limits; `None` if the device cannot be opened or does not report them
    pub attributes: Option<DeviceAttr>,
    /// Port 1; `None` if the device cannot be opened or does not report it
    pub port: Option<PortAttr>,
    /// The GID table of port 1, without unset entries at its end
    pub gids: Vec<Gid>,
}

impl Provider {
    /// Opens each device in turn, at most `max_devices`, and queries its limits, its port and its GID table
    ///
    /// No protection domain is allocated. Opening a device may hang or crash when its driver is wedged: a program that must not do so
    /// calls this in a process of its own.
    ///
    /// # Errors
    ///
    /// [`ListError`] if the provider returns no list of devices. A device that cannot be opened is listed with its name only.
    ///
    /// ```no_run
    /// for device in rdma_tb5::Provider::load()?.inspect(64)? {
    ///     println!("{}: {:?}", device.name, device.gids);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect(self: &Arc<Self>, max_devices: usize) -> Result<Vec<DeviceInfo>, ListError> {
        let mut found = Vec::new();
        self.each_device(|device, name| {
            // SAFETY: the device is of the provider's list, which is freed only after this call.
            let context = unsafe { OpenContext::new(self, device) }.ok();
            found.push(DeviceInfo {
                name: name.to_owned(),
                attributes: context.as_ref().and_then(OpenContext::attributes),
                port: context.as_ref().and_then(|context| context.port().ok()),
                gids: context.map_or_else(Vec::new, |context| context.gids()),
            });
            found.len() < max_devices
        })?;
        Ok(found)
    }
}
