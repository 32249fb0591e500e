//! The requests of one queue of a queue pair, of which some wait until the device has room for them
//!
//! A device may take less than it reports. A post that it refuses because the queue is full shows the true depth.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use rdma_core::{Cause, Error, Sge, WrId};

/// A request, and when it may wait
#[derive(Clone, Copy, Debug)]
pub(super) struct Post {
    pub(super) id: WrId,
    pub(super) sge: Sge,
    /// It waits for room only if the device has so many others: they make room.
    pub(super) least: usize,
    /// The most frames that the queue can hold if the device refuses the request while it has fewer others than `least`; `None` if that shows
    /// another lack, such as one of memory
    pub(super) depth: Option<NonZeroU32>,
}

/// A request that the device takes neither now nor later
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: Error,
    /// The most frames that the queue holds, if it was full or too short
    pub(super) depth: Option<NonZeroU32>,
}

/// Requests that the device has, and behind them those that wait, oldest first
#[derive(Debug, Default)]
pub(super) struct PostQueue {
    /// How many the device has.
    posted: usize,
    waiting: VecDeque<Post>,
}

impl PostQueue {
    /// Posts a request, or lets it wait behind others; whether the device has it
    ///
    /// # Errors
    ///
    /// That of the device, unless the queue is full of others that make room.
    #[inline]
    pub(super) fn push(
        &mut self,
        request: Post,
        post: impl FnOnce(WrId, Sge) -> Result<(), Error>,
    ) -> Result<bool, Refused> {
        let has_gone = self.waiting.is_empty() && self.offer(&request, post)?;
        if !has_gone {
            self.waiting.push_back(request);
        }
        Ok(has_gone)
    }

    /// Whether the device takes a request now
    #[inline]
    fn offer(
        &mut self,
        request: &Post,
        post: impl FnOnce(WrId, Sge) -> Result<(), Error>,
    ) -> Result<bool, Refused> {
        match post(request.id, request.sge) {
            Ok(()) => {
                self.posted += 1;
                Ok(true)
            }
            Err(error) if error.cause == Cause::QueueFull && self.posted >= request.least => Ok(false),
            Err(error) => {
                let is_full = matches!(error.cause, Cause::QueueFull | Cause::MessageTooLong { .. });
                Err(Refused { error, depth: request.depth.filter(|_| is_full) })
            }
        }
    }

    /// A request has completed: posts those that wait, as far as there is room, and returns how many
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push)
    #[inline]
    pub(super) fn completed(
        &mut self,
        post: impl FnMut(WrId, Sge) -> Result<(), Error>,
    ) -> Result<usize, Refused> {
        self.posted = self.posted.saturating_sub(1);
        if self.waiting.is_empty() { Ok(0) } else { self.post_waiting(post) }
    }

    #[cold]
    fn post_waiting(
        &mut self,
        mut post: impl FnMut(WrId, Sge) -> Result<(), Error>,
    ) -> Result<usize, Refused> {
        let mut count = 0;
        while let Some(&request) = self.waiting.front() {
            if !self.offer(&request, &mut post)? {
                break;
            }
            self.waiting.pop_front();
            count += 1;
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

    fn request(id: u64, least: usize) -> Post {
        Post { id: WrId(id), sge: SGE, least, depth: NonZeroU32::new(7) }
    }

    /// What became of a request: whether the device has it, or how many frames the queue holds
    fn outcome<T>(pushed: Result<T, Refused>) -> Result<T, Option<u32>> {
        pushed.map_err(|refused| refused.depth.map(NonZeroU32::get))
    }

    /// Catches a request that overtakes one which waits, and one that waits for room which nothing will make.
    #[test]
    fn requests_wait_in_order_for_those_before_them() {
        let (mut queue, mut device) = (PostQueue::default(), Vec::new());
        let mut push = |queue: &mut PostQueue, id, room: usize| {
            let post = |id: WrId, _| (device.len() < room).then(|| device.push(id.0)).ok_or(FULL);
            outcome(queue.push(request(id, 1), post))
        };
        assert_eq!(push(&mut queue, 0, 0), Err(Some(7)));
        assert_eq!([push(&mut queue, 1, 2), push(&mut queue, 2, 2)], [Ok(true); 2]);
        assert_eq!([push(&mut queue, 3, 2), push(&mut queue, 4, 9)], [Ok(false); 2]);
        assert!(queue.is_waiting());
        let mut posted = Vec::new();
        let mut complete = |queue: &mut PostQueue, room: usize| {
            let post = |id: WrId, _| (posted.len() < room).then(|| posted.push(id.0)).ok_or(FULL);
            outcome(queue.completed(post))
        };
        assert_eq!([complete(&mut queue, 1), complete(&mut queue, 2)], [Ok(1); 2]);
        assert_eq!((outcome(queue.completed(|_, _| Err(FULL))), posted), (Ok(0), vec![3, 4]));
    }

    /// Regression: a trailer that had waited behind its own payload waited for that to complete, which it does only after the trailer is posted.
    #[test]
    fn a_request_that_waited_needs_as_many_others_as_one_that_has_not() {
        let mut queue = PostQueue::default();
        assert_eq!(outcome(queue.push(request(1, 1), |_, _| Ok(()))), Ok(true));
        assert_eq!(outcome(queue.push(request(2, 1), |_, _| Err(FULL))), Ok(false));
        assert_eq!(outcome(queue.push(request(3, 2), |_, _| Err(FULL))), Ok(false));
        let only_payload = |id: WrId, _| if id == WrId(2) { Ok(()) } else { Err(FULL) };
        assert_eq!(outcome(queue.completed(only_payload)), Err(Some(7)));
        let gone = Error { verb: Verb::PostSend, cause: Cause::DeviceGone };
        assert_eq!(outcome(queue.completed(|_, _| Err(gone))), Err(None));
    }
}
