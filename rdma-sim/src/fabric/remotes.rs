//! The processes that simulate the other hosts, and the way to them

use rdma_core::{Cause, FRAME, Resource};

use super::ids::{DeviceIndex, QpKey};
use crate::fault::{Fault, Trigger};
use crate::remote::{LinkMessage, ProcessName, SharedObjects, Transport};

/// The processes that simulate the other hosts; none, unless [`start`](Self::start) was called
#[derive(Default)]
pub(crate) struct Remotes {
    link: Option<Link>,
    /// The other processes of the host that is simulated here; none, unless [`share`](Self::share) was called
    siblings: Option<Box<dyn SharedObjects>>,
}

struct Link {
    transport: Box<dyn Transport>,
    /// Queue pairs that wait for room.
    blocked: Vec<QpKey>,
    /// Faults that waited for frames which have been sent: they take effect when all processes know of them.
    fired: Vec<Fault>,
}

impl Remotes {
    /// Reaches the processes of other hosts by `transport` from now on
    pub(crate) fn start(&mut self, transport: Box<dyn Transport>) {
        self.link = Some(Link { transport, blocked: Vec::new(), fired: Vec::new() });
    }

    /// Counts objects for all processes of the host from now on
    pub(crate) fn share(&mut self, objects: Box<dyn SharedObjects>) {
        self.siblings = Some(objects);
    }

    /// Counts one object more than the `own` ones on a device, of which this process may have as many as the model permits
    pub(super) fn add_object(
        &mut self,
        device: DeviceIndex,
        resource: Resource,
        [own, leaked]: [u32; 2],
        limit: u32,
    ) -> Result<(), Cause> {
        let Some(objects) = &mut self.siblings else { return Ok(()) };
        match objects.add(device.0, resource, own, limit.saturating_sub(leaked)) {
            true => Ok(()),
            false => Err(Cause::Exhausted { resource, limit }),
        }
    }

    /// Counts `own` objects on a device: one was destroyed, or not created after all
    pub(super) fn set_objects(&mut self, device: DeviceIndex, resource: Resource, own: u32) {
        if let Some(objects) = &mut self.siblings {
            objects.set(device.0, resource, own);
        }
    }

    /// How many frames can be sent to a process now
    pub(super) fn room(&mut self, to: ProcessName) -> u64 {
        self.link.as_mut().map_or(0, |link| link.transport.room(to) / FRAME) as u64
    }

    pub(super) fn send(&mut self, to: ProcessName, message: &LinkMessage<'_>) {
        if let Some(link) = &mut self.link {
            link.transport.send(to, message);
        }
    }

    /// Remembers that `key` waits for room
    pub(super) fn block(&mut self, key: QpKey) {
        self.link.iter_mut().for_each(|link| link.blocked.push(key));
    }

    /// Sends what did not fit before, and returns the queue pairs that wait for room
    pub(super) fn flush(&mut self) -> Vec<QpKey> {
        let Some(link) = &mut self.link else { return Vec::new() };
        link.transport.flush();
        std::mem::take(&mut link.blocked)
    }

    /// Holds back a fault that only this process has counted frames for, until all processes know of it; false if all do
    pub(super) fn hold(&mut self, fault: &Fault) -> bool {
        let Some(link) = &mut self.link else { return false };
        let is_counted_here = matches!(fault.trigger, Trigger::AfterFrames(_));
        if is_counted_here {
            link.fired.push(fault.clone());
        }
        is_counted_here
    }

    /// Faults that were held back
    pub(crate) fn take_fired(&mut self) -> Vec<Fault> {
        self.link.as_mut().map(|link| std::mem::take(&mut link.fired)).unwrap_or_default()
    }
}
