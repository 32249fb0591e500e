//! How many objects a device has room for: its limits apply to all processes of its host together

use rdma_core::{Cause, Resource};

use super::ids::DeviceIndex;
use crate::remote::SharedObjects;

/// Counts the objects of each device, also those of the other processes of its host if there may be some
#[derive(Default)]
pub(crate) struct ObjectCounts(Option<Box<dyn SharedObjects>>);

impl ObjectCounts {
    /// Counts objects for all processes of the host from now on
    pub(crate) fn share(&mut self, objects: Box<dyn SharedObjects>) {
        self.0 = Some(objects);
    }

    /// Counts one object more than the `own` ones of this process, beside `leaked` ones that no process has
    pub(super) fn add(
        &mut self,
        device: DeviceIndex,
        resource: Resource,
        [own, leaked]: [u32; 2],
        limit: u32,
    ) -> Result<(), Cause> {
        let room = limit.saturating_sub(leaked);
        let others = self.0.as_mut();
        if own < room && others.is_none_or(|objects| objects.add(device.0, resource, own, room)) {
            Ok(())
        } else {
            Err(Cause::Exhausted { resource, limit })
        }
    }

    /// Counts the `own` objects of this process after one was destroyed
    pub(super) fn set(&mut self, device: DeviceIndex, resource: Resource, own: u32) {
        if let Some(objects) = &mut self.0 {
            objects.set(device.0, resource, own);
        }
    }
}
