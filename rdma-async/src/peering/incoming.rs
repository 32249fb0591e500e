//! Memory of messages that arrive

use rdma_core::session::IncomingId;
use rdma_core::{FRAME, frames};
use slab::Slab;

use super::body::Body;
use crate::pool::{Lease, Pool};

/// The buffers of messages that are not complete, by key, and which message has which
///
/// A key outlives the message's number while a device may write to the buffer.
#[derive(Debug, Default)]
pub(super) struct IncomingBuffers {
    buffers: Slab<Buffer>,
    /// By number of the message.
    keys: Vec<Option<u32>>,
    /// Frames of the node's memory for messages that the peer has announced, and that are not given up.
    announced_frames: u32,
    /// The same of messages that this side expects.
    expected_frames: u32,
}

#[derive(Debug)]
struct Buffer {
    body: Body,
    /// Receives that are posted for it.
    posted: u32,
    /// The message is given up: the buffer goes when nothing is posted for it.
    is_orphan: bool,
    /// Its frames, if the peer has announced the message.
    announced_frames: u32,
    /// Its frames, if this side expects the message.
    expected_frames: u32,
}

impl IncomingBuffers {
    /// Gives message `id`, which the peer has announced, a buffer of the node's memory
    pub(super) fn insert_announced(&mut self, id: IncomingId, lease: Lease) {
        let frames = frames(lease.capacity()) as u32;
        self.announced_frames += frames;
        self.add(id, Body::Lease(lease), [frames, 0]);
    }

    /// Gives message `id`, which this side expects, a buffer of the node's memory
    pub(super) fn insert_expected(&mut self, id: IncomingId, lease: Lease) {
        let frames = frames(lease.capacity()) as u32;
        self.expected_frames += frames;
        self.add(id, Body::Lease(lease), [0, frames]);
    }

    /// Gives message `id` a buffer that does not count: its first packet is here, or the application has offered the memory
    pub(super) fn insert(&mut self, id: IncomingId, body: Body) {
        self.add(id, body, [0; 2]);
    }

    /// Frames of messages that the peer has announced, and that have not arrived
    pub(super) fn announced_frames(&self) -> u32 {
        self.announced_frames
    }

    /// Frames of messages that this side expects, announced or not, and that have not arrived
    pub(super) fn expected_frames(&self) -> u32 {
        self.expected_frames
    }

    fn add(&mut self, id: IncomingId, body: Body, [announced_frames, expected_frames]: [u32; 2]) {
        let index = id.0 as usize;
        if index >= self.keys.len() {
            self.keys.resize(index + 1, None);
        }
        let key = self.buffers.insert(Buffer {
            body,
            posted: 0,
            is_orphan: false,
            announced_frames,
            expected_frames,
        });
        debug_assert!(self.keys[index].is_none(), "the number is free");
        self.keys[index] = Some(key as u32);
    }

    /// A buffer for a message of several packets, which are copied there
    pub(super) fn assembly(pool: &Pool, len: usize) -> Body {
        match pool.try_lease_short(len.div_ceil(FRAME) as u32) {
            Some(mut lease) => {
                lease.set_received(len);
                Body::Lease(lease)
            }
            None => Body::Heap(vec![0; len].into_boxed_slice().into()),
        }
    }

    /// Copies a packet into the buffer of message `id`
    pub(super) fn write(&mut self, id: IncomingId, offset: usize, payload: &[u8]) {
        let Some(buffer) = self.get(id) else { return };
        match &mut buffer.body {
            Body::Lease(lease) => lease.write_at(offset, payload),
            Body::Heap(message) => message.bytes[offset..][..payload.len()].copy_from_slice(payload),
            Body::Copy(_) => unreachable!("messages are not received into copies"),
        }
    }

    /// Takes the buffer of message `id`, which is complete; and whether the message was expected
    pub(super) fn take(&mut self, id: IncomingId) -> Option<(Body, bool)> {
        let key = self.keys.get_mut(id.0 as usize)?.take()?;
        let buffer = self.buffers.remove(key as usize);
        self.announced_frames -= buffer.announced_frames;
        self.expected_frames -= buffer.expected_frames;
        Some((buffer.body, buffer.expected_frames > 0))
    }

    /// Gives message `id` up; returns its buffer unless a device may write there
    #[must_use = "it is dropped after unlocking"]
    pub(super) fn withdraw(&mut self, id: IncomingId) -> Option<Body> {
        let key = self.keys.get_mut(id.0 as usize)?.take()?;
        let buffer = &mut self.buffers[key as usize];
        buffer.is_orphan = true;
        self.announced_frames -= buffer.announced_frames;
        self.expected_frames -= buffer.expected_frames;
        self.remove_orphan(key)
    }

    fn remove_orphan(&mut self, key: u32) -> Option<Body> {
        let buffer = self.buffers.get(key as usize)?;
        let is_free = buffer.is_orphan && buffer.posted == 0;
        is_free.then(|| self.buffers.remove(key as usize).body)
    }

    /// The key and the memory of message `id`, for a receive that is about to be posted
    pub(super) fn post(&mut self, id: IncomingId) -> Option<(u32, &Lease)> {
        let key = (*self.keys.get(id.0 as usize)?)?;
        let buffer = &mut self.buffers[key as usize];
        buffer.posted += 1;
        match &buffer.body {
            Body::Lease(lease) => Some((key, lease)),
            _ => unreachable!("messages of the bulk lane are received into leases"),
        }
    }

    /// A receive for the buffer with key `key` has ended; returns the buffer if it is an orphan
    #[must_use = "it is dropped after unlocking"]
    pub(super) fn completed(&mut self, key: u32) -> Option<Body> {
        self.buffers.get_mut(key as usize)?.posted -= 1;
        self.remove_orphan(key)
    }

    /// Bytes that were received
    pub(super) fn part(&self, key: u32, offset: usize, len: usize) -> &[u8] {
        match self.buffers.get(key as usize).map(|buffer| &buffer.body) {
            Some(Body::Lease(lease)) => lease.part(offset, len),
            _ => &[],
        }
    }

    fn get(&mut self, id: IncomingId) -> Option<&mut Buffer> {
        let key = (*self.keys.get(id.0 as usize)?)?;
        self.buffers.get_mut(key as usize)
    }

    /// The buffers that no device writes to, when the peering is over
    pub(super) fn take_free(&mut self) -> Vec<Body> {
        self.keys.clear();
        let keys = self.buffers.iter().filter(|(_, buffer)| buffer.posted == 0).map(|(key, _)| key);
        let keys = keys.collect::<Vec<_>>();
        keys.into_iter().map(|key| self.buffers.remove(key).body).collect()
    }

    /// Keeps the buffers that a device may still write to from ever being used again
    pub(super) fn forget_posted(&mut self) {
        for (_, buffer) in std::mem::take(&mut self.buffers) {
            if buffer.posted > 0 {
                std::mem::forget(buffer.body);
            }
        }
    }
}
