//! Which requests a queue pair accepts

use rdma_core::{Cause, Error, FRAME, Invalid, QpState, SendOp, Status, Time, Verb, WrId};

use super::queue_pair::QueuePair;
use super::work::{Receive, Send};
use crate::fabric::ids::{CqKey, Span};
use crate::rules::{EarlyReceives, QueueUnit};

/// What becomes of a request
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// It completes at once, because the queue pair has failed
    Flushed,
    /// It joins its queue
    Queued,
}

impl QueuePair {
    pub(crate) fn admit_send(&self, flushes: bool) -> Result<Admission, Cause> {
        match self.state {
            _ if self.is_stale => Err(Cause::DeviceGone),
            QpState::ReadyToSend => Ok(Admission::Queued),
            QpState::Error if flushes => Ok(Admission::Flushed),
            state => Err(Invalid::State { state }.into()),
        }
    }

    pub(crate) fn admit_receive(&self, early: EarlyReceives, flushes: bool) -> Result<Admission, Cause> {
        let is_ready = match self.state {
            _ if self.is_stale => return Err(Cause::DeviceGone),
            QpState::Error if flushes => return Ok(Admission::Flushed),
            QpState::Init => early == EarlyReceives::FromInit,
            QpState::ReadyToReceive => early != EarlyReceives::FromReadyToSend,
            QpState::ReadyToSend => true,
            _ => false,
        };
        match is_ready {
            true => Ok(Admission::Queued),
            false => Err(Invalid::State { state: self.state }.into()),
        }
    }

    /// Whether a request is posted and has not completed
    pub(crate) fn has_requests(&self) -> bool {
        !self.sends.is_empty() || !self.receives.is_empty()
    }

    /// Whether more receives are posted than the queue holds
    pub(crate) fn has_overflowed(&self) -> bool {
        self.recv_frames > self.capacity.recv_frames
    }

    /// Whether it completes to one of these queues
    pub(crate) fn completes_to(&self, cqs: [CqKey; 2]) -> bool {
        cqs.contains(&self.send_cq) || cqs.contains(&self.recv_cq)
    }

    /// What a request for `span` takes of a queue
    pub(super) fn taken_by(&self, span: Span) -> u32 {
        match self.unit {
            QueueUnit::Frames => span.frames(),
            QueueUnit::Requests => 1,
        }
    }

    /// What a send of `span` takes of the send queue, if it fits an empty one
    pub(crate) fn send_size(&self, span: Span) -> Result<u32, Error> {
        check_length(self.taken_by(span), self.capacity.send_frames, Verb::PostSend)
    }

    pub(crate) fn reserve_sends(&mut self, wanted: u32) -> Result<(), Error> {
        if self.send_frames + wanted > self.capacity.send_frames {
            return Err(Error::new(Verb::PostSend, Cause::QueueFull));
        }
        self.send_frames += wanted;
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn push_send(&mut self, id: WrId, op: &SendOp, span: Span, is_signaled: bool) {
        match op {
            SendOp::Send => {
                // Its parts are written where they stay: a part that is copied right after it was written is slow.
                self.sends.push_back(Send::new(WrId(0), SendOp::Send, Span::empty(), false));
                if let Some(send) = self.sends.last_mut() {
                    send.id = id;
                    send.span.region = span.region;
                    send.span.offset = span.offset;
                    send.span.len = span.len;
                    send.is_signaled = is_signaled;
                }
            }
            op => self.push_one_sided(id, *op, span, is_signaled),
        }
    }

    // Apart, because the parts of the operation are copied from where they were just written.
    #[cold]
    fn push_one_sided(&mut self, id: WrId, op: SendOp, span: Span, is_signaled: bool) {
        self.sends.push_back(Send::new(id, op, span, is_signaled));
    }

    /// Posts a receive, and returns whether it is the next to be filled; with `overflows`, beyond the end of the ring if need be
    #[inline(always)]
    pub(crate) fn push_receive(
        &mut self,
        id: WrId,
        span: Span,
        visible: Time,
        status: Status,
        overflows: bool,
    ) -> Result<bool, Error> {
        let capacity = self.capacity.recv_frames;
        let wanted = check_length(self.taken_by(span), capacity, Verb::PostRecv)?;
        if self.recv_frames + wanted > capacity && !overflows {
            return Err(Error::new(Verb::PostRecv, Cause::QueueFull));
        }
        self.recv_frames += wanted;
        let is_beyond = self.recv_frames > capacity;
        let is_next = self.receives.len() == self.filled;
        self.receives.push_back(Receive::new(id, span, visible, is_beyond, status));
        Ok(is_next)
    }

    /// Adds a receive to the shadow of a queue pair in another process, and returns whether it is the next one to be filled
    pub(super) fn push_announced(&mut self, span: Span, visible: Time) -> bool {
        self.receives.push_back(Receive::new(WrId(0), span, visible, false, Status::Success));
        self.receives.len() == 1
    }

    /// The lengths of the receives that are not filled
    pub(crate) fn open_receives(&self) -> impl Iterator<Item = u32> + '_ {
        self.receives.iter().skip(self.filled).map(|receive| receive.span.len as u32)
    }
}

/// `wanted`, if a queue of `capacity` can hold a message that takes so much
fn check_length(wanted: u32, capacity: u32, verb: Verb) -> Result<u32, Error> {
    let bytes = |frames: u32| u64::from(frames) * FRAME as u64;
    if wanted <= capacity {
        return Ok(wanted);
    }
    Err(Error::new(verb, Cause::MessageTooLong { len: bytes(wanted), max: bytes(capacity) }))
}
