//! Completion events: whether a device has them, for experiments

use std::fmt;

use rdma_core::Error;

use crate::shared::DeviceShared;
use crate::sync::Arc;

/// The completion events of a device that was opened with
/// [`OpenOptions::completion_channel`](crate::OpenOptions::completion_channel)
///
/// Each completion queue of the device asks for one event, at its first completion.
pub struct CompletionEvents(Arc<DeviceShared>);

impl CompletionEvents {
    pub(crate) fn of(device: &Arc<DeviceShared>) -> Option<Self> {
        device.channel.is_some().then(|| Self(Arc::clone(device)))
    }

    /// Takes the events that have come since the last call, and returns how many there were; it does not wait
    ///
    /// # Errors
    ///
    /// The [`Error`] of the provider, or [`Cause::Unsupported`](rdma_core::Cause::Unsupported) if it has channels without events.
    pub fn take(&self) -> Result<u32, Error> {
        let Some(channel) = &self.0.channel else { return Ok(0) };
        let mut count = 0;
        while channel.take()? {
            count += 1;
        }
        Ok(count)
    }
}

impl fmt::Debug for CompletionEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionEvents").finish_non_exhaustive()
    }
}
