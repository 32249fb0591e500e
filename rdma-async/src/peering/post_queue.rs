//! The requests of one queue of a queue pair, of which some wait until the device has room for them
//!
//! A device may take less than it reports. A post that it refuses because the queue is full shows the true depth.

use std::collections::VecDeque;

use rdma_core::{Cause, Error, Sge, WrId};

/// Whether a queue is full, or too short for a request
pub(super) fn is_full(error: &Error) -> bool {
    matches!(error.cause, Cause::QueueFull | Cause::MessageTooLong { .. })
}

/// Requests that the device has, and behind them those that wait, oldest first
#[derive(Debug, Default)]
pub(super) struct PostQueue {
    /// How many the device has.
    posted: usize,
    waiting: VecDeque<(WrId, Sge)>,
}

impl PostQueue {
    /// Posts a request, or lets it wait behind others; whether the device has it
    ///
    /// # Errors
    ///
    /// That of the device. A request that finds no room waits only if the device has at least `least` others: they make room.
    #[inline]
    pub(super) fn push(
        &mut self,
        id: WrId,
        sge: Sge,
        least: usize,
        post: impl FnOnce(WrId, Sge) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        if self.waiting.is_empty() {
            match post(id, sge) {
                Ok(()) => {
                    self.posted += 1;
                    return Ok(true);
                }
                Err(error) if error.cause == Cause::QueueFull && self.posted >= least => (),
                Err(error) => return Err(error),
            }
        }
        self.waiting.push_back((id, sge));
        Ok(false)
    }

    /// A request has completed: posts those that wait, as far as there is room, and returns how many
    ///
    /// # Errors
    ///
    /// That of the device, unless the queue is full of other requests.
    #[inline]
    pub(super) fn completed(
        &mut self,
        post: impl FnMut(WrId, Sge) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        self.posted = self.posted.saturating_sub(1);
        if self.waiting.is_empty() { Ok(0) } else { self.post_waiting(post) }
    }

    #[cold]
    fn post_waiting(&mut self, mut post: impl FnMut(WrId, Sge) -> Result<(), Error>) -> Result<usize, Error> {
        let mut count = 0;
        while let Some(&(id, sge)) = self.waiting.front() {
            match post(id, sge) {
                Ok(()) => count += 1,
                Err(error) if error.cause == Cause::QueueFull && self.posted > 0 => break,
                Err(error) => return Err(error),
            }
            self.waiting.pop_front();
            self.posted += 1;
        }
        Ok(count)
    }

    /// Forgets the requests that wait
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    /// Whether requests wait
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::{Lkey, Verb};

    use super::*;

    const SGE: Sge = Sge { addr: 0, len: 1, lkey: Lkey(0) };
    const FULL: Error = Error { verb: Verb::PostSend, cause: Cause::QueueFull };

    /// Catches a request that overtakes one which waits, and one that waits for room which nothing will make.
    #[test]
    fn requests_wait_in_order_for_those_before_them() {
        let (mut queue, mut device) = (PostQueue::default(), Vec::new());
        let mut push = |queue: &mut PostQueue, id, room: usize| {
            queue.push(WrId(id), SGE, 1, |id, _| (device.len() < room).then(|| device.push(id.0)).ok_or(FULL))
        };
        assert_eq!(push(&mut queue, 0, 0), Err(FULL));
        assert_eq!([push(&mut queue, 1, 2), push(&mut queue, 2, 2)], [Ok(true); 2]);
        assert_eq!([push(&mut queue, 3, 2), push(&mut queue, 4, 9)], [Ok(false); 2]);
        assert!(queue.is_waiting());
        let mut posted = Vec::new();
        let mut complete = |queue: &mut PostQueue, room: usize| {
            queue.completed(|id, _| (posted.len() < room).then(|| posted.push(id.0)).ok_or(FULL))
        };
        assert_eq!([complete(&mut queue, 1), complete(&mut queue, 2)], [Ok(1); 2]);
        assert_eq!((queue.completed(|_, _| Err(FULL)), posted), (Ok(0), vec![3, 4]));
    }
}
