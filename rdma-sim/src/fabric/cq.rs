//! Completion queues

use std::collections::VecDeque;

use rdma_core::{Caps, Cause, Completion, Error, Invalid, Resource, Verb};

use super::sanitizer::FindingKind;
use super::{CqKey, DeviceIndex, DeviceRef, Fabric};

#[derive(Debug)]
pub(super) struct CompletionQueue {
    device: DeviceIndex,
    entries: VecDeque<Completion>,
    depth: usize,
    is_overrun: bool,
    is_awaited: bool,
}

impl Fabric {
    pub(crate) fn create_cq(&mut self, device: DeviceRef, depth: u32) -> Result<CqKey, Error> {
        self.require_usable(device, Verb::CreateCq)?;
        let Caps { max_cq: limit, max_cqe, .. } = self.model.caps;
        let owner = self.device(device.index);
        if owner.cqs.saturating_add(owner.lost_cqs) >= limit {
            let resource = Resource::CompletionQueues;
            return Err(Error::new(Verb::CreateCq, Cause::Exhausted { resource, limit }));
        }
        if depth == 0 || depth > max_cqe {
            return Err(Error::new(Verb::CreateCq, Invalid::CqDepth { depth, max: max_cqe }.into()));
        }
        self.device_mut(device.index).cqs += 1;
        Ok(self.cqs.insert(CompletionQueue {
            device: device.index,
            entries: VecDeque::with_capacity((depth as usize).min(512)),
            depth: depth as usize,
            is_overrun: false,
            is_awaited: false,
        }))
    }

    pub(crate) fn destroy_cq(&mut self, key: CqKey) {
        if let Some(cq) = self.cqs.remove(key) {
            self.device_mut(cq.device).cqs -= 1;
        }
    }

    pub(super) fn destroy_cqs_of(&mut self, device: DeviceIndex) {
        self.cqs.retain(|_, cq| cq.device != device);
    }

    pub(crate) fn poll_cq(&mut self, key: CqKey, out: &mut [Completion]) -> Result<usize, Error> {
        let cq = self.cqs.get_mut(key).ok_or(Error::new(Verb::PollCq, Cause::DeviceGone))?;
        if cq.is_overrun {
            return Err(Error::new(Verb::PollCq, Cause::QueueFull));
        }
        let n = out.len().min(cq.entries.len());
        for (slot, completion) in out.iter_mut().zip(cq.entries.drain(..n)) {
            *slot = completion;
        }
        Ok(n)
    }

    /// Has the queue [woken](Self::pop_woken) when it is not empty any more
    pub(crate) fn await_cq(&mut self, key: CqKey) {
        if let Some(cq) = self.cqs.get_mut(key) {
            cq.is_awaited = true;
        }
    }

    pub(super) fn complete(&mut self, key: CqKey, completion: Completion) {
        let Some(cq) = self.cqs.get_mut(key) else { return };
        if cq.entries.len() == cq.depth {
            cq.is_overrun = true;
            if let Some(sanitizer) = &mut self.sanitizer {
                sanitizer.find(self.now, FindingKind::CqOverflow { depth: cq.depth as u32 }, None);
            }
        } else {
            cq.entries.push_back(completion);
        }
        if cq.is_awaited {
            cq.is_awaited = false;
            self.woken.push(key);
            self.limit = self.now;
        }
    }

    /// Completions that nobody has polled
    pub(crate) fn unpolled(&self) -> usize {
        self.cqs.values().map(|cq| cq.entries.len()).sum()
    }
}
