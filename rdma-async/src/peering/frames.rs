//! The frames in which packets are sent, kept until the peer has them

use crate::pool::Lease;

/// Frames for packets, by number
///
/// A frame is free when neither the device nor the protocol needs it: the device until the send has completed, or the path
/// has stopped; the protocol until the peer has the message, because a packet that is lost is sent again from its frame.
#[derive(Debug)]
pub(super) struct TransmitFrames {
    frames: Vec<Frame>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Frame {
    lease: Lease,
    /// Key of the path on which the frame is posted; `None` if no device reads it.
    posted: Option<u32>,
    is_kept: bool,
    len: u16,
}

impl TransmitFrames {
    pub(super) fn new(leases: impl Iterator<Item = Lease>) -> Self {
        let frame = |lease| Frame { lease, posted: None, is_kept: false, len: 0 };
        let frames: Vec<_> = leases.map(frame).collect();
        let free = (0..frames.len() as u16).rev().collect();
        Self { frames, free }
    }

    /// How many frames are free
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a free frame and writes `payload` into it
    pub(super) fn take(&mut self, payload: &[u8], is_kept: bool) -> Option<u16> {
        let index = self.free.pop()?;
        let frame = &mut self.frames[index as usize];
        frame.lease.write_at(0, payload);
        frame.len = payload.len() as u16;
        frame.is_kept = is_kept;
        Some(index)
    }

    /// A frame with the same payload that no device works on: the same one, or a copy, after which the old one is not kept
    pub(super) fn writable(&mut self, index: u16) -> Option<u16> {
        if self.frames[index as usize].posted.is_none() {
            return Some(index);
        }
        let copy = self.free.pop()?;
        let [from, to] =
            self.frames.get_disjoint_mut([index as usize, copy as usize]).expect("they are two frames");
        to.lease.write_at(0, from.lease.part(0, from.len as usize));
        to.len = from.len;
        to.is_kept = std::mem::replace(&mut from.is_kept, false);
        Some(copy)
    }

    pub(super) fn payload(&self, index: u16) -> &[u8] {
        let frame = &self.frames[index as usize];
        frame.lease.part(0, frame.len as usize)
    }

    /// Writes `trailer` behind the payload, and notes that path `path` is about to post the frame; its lease and the length
    pub(super) fn post(&mut self, index: u16, trailer: &[u8], path: u32) -> (&Lease, usize) {
        let frame = &mut self.frames[index as usize];
        debug_assert!(frame.posted.is_none(), "a frame is written only while no device reads it");
        frame.lease.write_at(frame.len as usize, trailer);
        frame.posted = Some(path);
        (&frame.lease, frame.len as usize + trailer.len())
    }

    /// The send of a frame has completed on path `path`; false if it was not posted there
    pub(super) fn completed(&mut self, index: u16, path: u32) -> bool {
        let Some(frame) = self.frames.get_mut(index as usize) else { return false };
        let is_posted = frame.posted == Some(path);
        if is_posted {
            frame.posted = None;
            self.free_if_done(index);
        }
        is_posted
    }

    /// The peer has the message of a frame
    pub(super) fn release(&mut self, index: u16) {
        let Some(frame) = self.frames.get_mut(index as usize) else { return };
        frame.is_kept = false;
        self.free_if_done(index);
    }

    fn free_if_done(&mut self, index: u16) {
        let frame = &self.frames[index as usize];
        if frame.posted.is_none() && !frame.is_kept {
            self.free.push(index);
        }
    }

    /// The frames that no device works on, when the peering is over
    pub(super) fn take_free(&mut self) -> impl Iterator<Item = Lease> {
        self.free.clear();
        let (posted, free): (Vec<_>, _) =
            std::mem::take(&mut self.frames).into_iter().partition(|frame| frame.posted.is_some());
        self.frames = posted;
        free.into_iter().map(|frame| frame.lease)
    }

    /// Path `path` has stopped: no frame is posted there any more
    pub(super) fn stopped(&mut self, path: u32) {
        for index in 0..self.frames.len() as u16 {
            self.completed(index, path);
        }
    }
}

impl Drop for TransmitFrames {
    fn drop(&mut self) {
        for frame in self.frames.drain(..) {
            if frame.posted.is_some() {
                // The device may still read it: its path has not stopped.
                std::mem::forget(frame.lease);
            }
        }
    }
}
