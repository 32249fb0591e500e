//! The frames in flight on both queues of a queue pair

use std::sync::atomic::{AtomicU32, Ordering};

use rdma_core::QpCapacity;

/// One of the two queues of a queue pair
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Queue {
    Recv,
    Send,
}

/// Frames of requests that are posted and whose completion was not polled
///
/// Counted until the poll: a completion queue as deep as the queues that complete there never overruns.
#[derive(Debug)]
pub(crate) struct FrameCounts {
    capacity: QpCapacity,
    recv: AtomicU32,
    send: AtomicU32,
    /// Frames of unsignaled sends, which the next completion of a send frees.
    unsignaled: AtomicU32,
}

/// A request for which a queue has no space
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoSpace {
    /// Until others complete
    Now,
    /// At any time: the queue holds this many frames
    Ever { capacity: u32 },
}

impl FrameCounts {
    pub(crate) fn new(capacity: QpCapacity) -> Self {
        Self { capacity, recv: AtomicU32::new(0), send: AtomicU32::new(0), unsignaled: AtomicU32::new(0) }
    }

    pub(crate) fn capacity(&self) -> QpCapacity {
        self.capacity
    }

    fn of(&self, queue: Queue) -> (&AtomicU32, u32) {
        match queue {
            Queue::Recv => (&self.recv, self.capacity.recv_frames),
            Queue::Send => (&self.send, self.capacity.send_frames),
        }
    }

    /// Takes `frames` of a queue; called by one thread at a time, as posts are
    pub(crate) fn take(&self, queue: Queue, frames: u32) -> Result<(), NoSpace> {
        let (used, capacity) = self.of(queue);
        if frames > capacity {
            return Err(NoSpace::Ever { capacity });
        }
        if used.load(Ordering::Relaxed) > capacity - frames {
            return Err(NoSpace::Now);
        }
        used.fetch_add(frames, Ordering::Relaxed);
        Ok(())
    }

    /// Gives frames back
    pub(crate) fn free(&self, queue: Queue, frames: u32) {
        self.of(queue).0.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Leaves the frames of a send without a completion to the next one that has one
    pub(crate) fn defer(&self, frames: u32) {
        self.unsignaled.fetch_add(frames, Ordering::Relaxed);
    }

    /// The frames of sends without a completion, for the completion that frees them
    pub(crate) fn take_deferred(&self) -> u32 {
        self.unsignaled.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_full_until_frames_are_freed() {
        let counts = FrameCounts::new(QpCapacity { recv_frames: 3, send_frames: 2 });
        assert_eq!(counts.take(Queue::Recv, 4), Err(NoSpace::Ever { capacity: 3 }));
        assert_eq!(counts.take(Queue::Recv, 2), Ok(()));
        assert_eq!(counts.take(Queue::Recv, 2), Err(NoSpace::Now));
        assert_eq!(counts.take(Queue::Send, 2), Ok(()), "the queues are independent");
        counts.free(Queue::Recv, 1);
        assert_eq!(counts.take(Queue::Recv, 2), Ok(()));
    }

    #[test]
    fn frames_of_unsignaled_sends_are_freed_once() {
        let counts = FrameCounts::new(QpCapacity { recv_frames: 3, send_frames: 2 });
        counts.defer(1);
        counts.defer(1);
        assert_eq!([counts.take_deferred(), counts.take_deferred()], [2, 0]);
    }
}
