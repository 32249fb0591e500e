//! Completion queues, and which of them have something for their waiter

use rdma_core::{Caps, Cause, Completion, Error, Invalid, Resource, Verb};
use slotmap::SlotMap;

use super::fifo::Fifo;
use super::ids::{CqKey, DeviceIndex};
use super::object_counts::ObjectCounts;

/// The completion queues of all devices
pub(crate) struct CompletionQueues {
    queues: SlotMap<CqKey, Queue>,
    /// Queues whose waiter should poll.
    woken: Vec<CqKey>,
}

struct Queue {
    device: DeviceIndex,
    entries: Fifo<Completion>,
    depth: usize,
    is_overrun: bool,
    is_awaited: bool,
}

/// What a completion did to its queue
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    /// The depth of the queue, if it was full.
    pub(super) overrun: Option<u32>,
    /// A waiter should poll.
    pub(super) wakes: bool,
}

impl CompletionQueues {
    pub(super) fn new() -> Self {
        Self { queues: SlotMap::with_key(), woken: Vec::with_capacity(16) }
    }

    pub(super) fn create(
        &mut self,
        device: DeviceIndex,
        depth: u32,
        leaked: u32,
        caps: &Caps,
        objects: &mut ObjectCounts,
    ) -> Result<CqKey, Error> {
        let Caps { max_cq, max_cqe, .. } = *caps;
        if depth == 0 || depth > max_cqe {
            return Err(Error::new(Verb::CreateCq, Invalid::CqDepth { depth, max: max_cqe }.into()));
        }
        let own = self.count(device);
        objects
            .add(device, Resource::CompletionQueues, [own, leaked], max_cq)
            .map_err(|cause| Error::new(Verb::CreateCq, cause))?;
        Ok(self.queues.insert(Queue {
            device,
            entries: Fifo::new(),
            depth: depth as usize,
            is_overrun: false,
            is_awaited: false,
        }))
    }

    pub(crate) fn destroy(&mut self, key: CqKey, objects: &mut ObjectCounts) {
        if let Some(Queue { device, .. }) = self.queues.remove(key) {
            objects.set(device, Resource::CompletionQueues, self.count(device));
        }
    }

    /// How many there are on a device
    fn count(&self, device: DeviceIndex) -> u32 {
        self.queues.values().filter(|queue| queue.device == device).count() as u32
    }

    pub(super) fn destroy_all(&mut self, device: DeviceIndex) {
        self.queues.retain(|_, queue| queue.device != device);
    }

    pub(super) fn contains(&self, key: CqKey) -> bool {
        self.queues.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Completions that no program has polled
    pub(crate) fn unpolled(&self) -> usize {
        self.queues.values().map(|queue| queue.entries.len()).sum()
    }

    pub(crate) fn poll(&mut self, key: CqKey, out: &mut [Completion]) -> Result<usize, Error> {
        let queue = self.queues.get_mut(key).ok_or(Error::new(Verb::PollCq, Cause::DeviceGone))?;
        if queue.is_overrun {
            return Err(Error::new(Verb::PollCq, Cause::QueueFull));
        }
        let mut filled = 0;
        for out in out {
            if queue.entries.take_front(|completion| *out = *completion).is_none() {
                break;
            }
            filled += 1;
        }
        Ok(filled)
    }

    /// Lists the queue as [woken](Self::pop_woken) when the next completion comes
    pub(crate) fn request_notification(&mut self, key: CqKey) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.is_awaited = true;
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, key: CqKey, completion: Completion) -> Pushed {
        let mut pushed = Pushed { overrun: None, wakes: false };
        let Some(queue) = self.queues.get_mut(key) else { return pushed };
        if queue.entries.len() == queue.depth {
            queue.is_overrun = true;
            pushed.overrun = Some(queue.depth as u32);
        } else {
            queue.entries.push_back(completion);
        }
        if std::mem::take(&mut queue.is_awaited) {
            self.woken.push(key);
            pushed.wakes = true;
        }
        pushed
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// A queue whose waiter should poll
    pub(crate) fn pop_woken(&mut self) -> Option<CqKey> {
        self.woken.pop()
    }
}
