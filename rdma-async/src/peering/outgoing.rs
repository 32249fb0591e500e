//! Messages that are sent, by token

use rdma_core::Time;
use rdma_core::session::MAX_FRAGMENTS;

use super::frames::TransmitFrames;
use super::stream_state::StreamKey;
use crate::error::SendError;

/// A message that the peer may not have yet
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    pub(super) stream: StreamKey,
    pub(super) queued_at: Time,
    /// The op slot with its bytes, until the operation has ended.
    pub(super) slot: Option<u32>,
    /// Whether the operation ends when the peer has the message, and not when its memory is free.
    pub(super) awaits_delivery: bool,
    /// On the eager lane, packets that were not copied into a frame yet; on the bulk lane, posts that have not completed.
    pub(super) unfinished: u32,
    /// Whether it goes by the eager lane.
    pub(super) is_eager: bool,
    /// Whether the peer has the message, once that is decided.
    pub(super) outcome: Option<Result<(), SendError>>,
    /// The frames of its packets that were sent.
    frames: [u16; MAX_FRAGMENTS],
}

const NO_FRAME: u16 = u16::MAX;

impl OutgoingMessage {
    pub(super) fn new(
        stream: StreamKey,
        slot: u32,
        awaits_delivery: bool,
        packets: u32,
        queued_at: Time,
    ) -> Self {
        Self {
            stream,
            queued_at,
            slot: Some(slot),
            awaits_delivery,
            unfinished: packets,
            is_eager: packets > 0,
            outcome: None,
            frames: [NO_FRAME; MAX_FRAGMENTS],
        }
    }

    /// The frame of a packet that was sent before
    pub(super) fn frame(&self, fragment: usize) -> Option<u16> {
        self.frames.get(fragment).copied().filter(|frame| *frame != NO_FRAME)
    }

    /// The frames of all packets that were sent, in the order of the bytes
    pub(super) fn frames(&self) -> impl Iterator<Item = u16> {
        self.frames.iter().copied().filter(|frame| *frame != NO_FRAME)
    }

    pub(super) fn set_frame(&mut self, fragment: usize, frame: u16) {
        self.frames[fragment] = frame;
    }

    /// Lets go of the frames, when no packet will be sent again
    pub(super) fn release(&mut self, frames: &mut TransmitFrames) {
        for frame in &mut self.frames {
            if *frame != NO_FRAME {
                frames.release(std::mem::replace(frame, NO_FRAME));
            }
        }
    }
}
