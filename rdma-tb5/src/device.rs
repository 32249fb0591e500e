//! Devices behind the traits
#![allow(unsafe_code, reason = "implements an unsafe trait")]

use std::fmt;
use std::ptr::NonNull;

use rdma_core::{Access, Caps, Cause, Device, Error, Gid, PortState, PortStatus, Verb};
use rdma_verbs_abi::{constants, lanes, megabits_per_lane};

use crate::completion_events::CompletionEvents;
use crate::completion_queue::VerbsCompletionQueue;
use crate::context::OpenContext;
use crate::memory_region::VerbsMemoryRegion;
use crate::open_error::OpenError;
use crate::options::OpenOptions;
use crate::provider::Provider;
use crate::shared::DeviceShared;
use crate::sync::Arc;

/// An open device of a verbs provider with its protection domain: Apple's on macOS, any on Linux
///
/// Closed when it and all objects that were created on it are gone. On Apple's device, it and its protection domain stay open until the
/// process ends if the link was lost: deallocating it then has been reported to block for ever. Of eleven protection domains, each such
/// loss costs one. A loss shows in the state of the port, or later in its GID table, in which the IPv4 entry has moved; one that leaves no trace in
/// either goes unseen.
pub struct VerbsDevice {
    shared: Arc<DeviceShared>,
    name: String,
}

impl VerbsDevice {
    /// Opens the device called `name`
    ///
    /// # Errors
    ///
    /// [`OpenError::NoSuchDevice`] with the names that there are, [`OpenError::List`] if the provider lists no devices,
    /// [`OpenError::Load`] if its structures have another layout, and [`OpenError::Verbs`] if the port is down
    /// ([`Cause::PortDown`]), the protection domains are exhausted ([`Cause::Exhausted`]) or the device refuses.
    ///
    /// ```no_run
    /// use rdma_tb5::{OpenError, OpenOptions, Provider, VerbsDevice};
    ///
    /// let provider = Provider::load()?;
    /// let device = match VerbsDevice::open(&provider, "rdma_en3", OpenOptions::new()) {
    ///     Err(OpenError::NoSuchDevice { known, .. }) => VerbsDevice::open(&provider, &known[0], OpenOptions::new())?,
    ///     opened => opened?,
    /// };
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(provider: &Arc<Provider>, name: &str, options: OpenOptions) -> Result<Self, OpenError> {
        let mut found = None;
        provider.each_device(|device, listed| {
            if listed == name {
                // SAFETY: the device is of the provider's list, which is freed only after this call.
                found = Some(unsafe { OpenContext::new(provider, device) });
            }
            found.is_none()
        })?;
        let Some(context) = found else {
            return Err(OpenError::NoSuchDevice { name: name.to_owned(), known: provider.devices()? });
        };
        Ok(Self { shared: Arc::new(DeviceShared::new(context?, name, options)?), name: name.to_owned() })
    }

    /// The completion events of the device, if it was opened with [`OpenOptions::completion_channel`]
    pub fn completion_events(&self) -> Option<CompletionEvents> {
        CompletionEvents::of(&self.shared)
    }

    /// The number of entries of the GID table, set or not
    ///
    /// # Errors
    ///
    /// The [`Error`] of the provider.
    pub fn gid_table_len(&self) -> Result<u32, Error> {
        Ok(self.shared.context.port()?.gid_tbl_len.try_into().unwrap_or(0))
    }
}

// SAFETY: libibverbs and Apple's provider complete a request at most once, and the device touches only the memory of posted requests and
// that of regions which the peer may access; Apple's device has no one-sided operations. A queue pair reports `Quiesced` only if `destroy` proves it (`DeviceShared::trusts_destroy`).
unsafe impl Device for VerbsDevice {
    type Mr = VerbsMemoryRegion;
    type Cq = VerbsCompletionQueue;

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        let port = self.shared.port()?;
        if port.state != constants::PORT_ACTIVE {
            return Ok(PortStatus::new(PortState::Down, 0));
        }
        let lanes = u64::from(lanes(port.active_width).unwrap_or(1));
        let megabits = u64::from(megabits_per_lane(port.active_speed).unwrap_or(0));
        Ok(PortStatus::new(PortState::Active, lanes * megabits * 1_000_000))
    }

    fn blocked(&self) -> Option<Verb> {
        self.shared.call_watch.blocked()
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        Ok(self.shared.context.gids())
    }

    fn create_cq(&self, depth: u32) -> Result<VerbsCompletionQueue, Error> {
        if !self.shared.context.is_up()? {
            return Err(Error::new(Verb::CreateCq, Cause::PortDown));
        }
        VerbsCompletionQueue::new(Arc::clone(&self.shared), depth)
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<VerbsMemoryRegion, Error> {
        // SAFETY: the caller's.
        unsafe { VerbsMemoryRegion::new(Arc::clone(&self.shared), mem, access) }
    }
}

impl fmt::Debug for VerbsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsDevice").field("name", &self.name).finish_non_exhaustive()
    }
}
