//! What a peering posts

use rdma_core::session::{
    BulkTrailer, FRAGMENT, Grant, IncomingId, PacketTrailer, PathId, PathLoss, Payload, Token, Transmit,
};
use rdma_core::{Device, Time};

use super::body::{Body, Effects};
use super::copies::CopiedMessage;
use super::request::SCRATCH;
use super::state::{State, find_stream};

/// Frames that are kept free for packets of the protocol.
const PROTOCOL_FRAMES: usize = 16;

impl<D: Device> State<D> {
    /// Posts everything that the protocol wants, and wakes the reactor if time changes something sooner than it knows
    pub(super) fn pump(&mut self, now: Time, effects: &mut Effects) {
        if self.transmit(now, effects) < self.armed {
            self.armed = Time::ZERO;
            effects.wake_reactor();
        }
    }

    /// Posts everything that the protocol wants; returns when time changes something
    pub(super) fn transmit(&mut self, now: Time, effects: &mut Effects) -> Time {
        let had_frames = self.frames.free() > 0;
        let mut rests_until = None;
        // Without a frame, nothing is polled: a packet that is not sent would still take its number.
        while self.frames.free() > 0 && self.end.is_none() {
            rests_until = self.core.rests_until(now);
            if rests_until.is_some() {
                break;
            }
            let memory = self.frames.free().saturating_sub(PROTOCOL_FRAMES) as u32;
            // In its place: most of a packet's bytes are room for what the protocol itself sends.
            let (path, posted) = match &self.core.poll_transmit(now, memory) {
                None => break,
                Some(Transmit::Packet { path, payload, trailer }) => {
                    (*path, self.post_packet(*path, payload, trailer, effects))
                }
                Some(Transmit::BulkReceive { path, id, offset, len }) => {
                    (*path, self.post_bulk_receive(*path, *id, *offset, *len))
                }
                Some(Transmit::BulkSend { path, token, trailer }) => {
                    (*path, self.post_bulk(*path, *token, trailer))
                }
            };
            if posted.is_err() {
                self.lose_path(path, PathLoss::Device, now, effects);
            }
        }
        if self.handle_events(now, effects) {
            rests_until = None;
        }
        if !had_frames && self.frames.free() > 0 && self.end.is_none() {
            return self.transmit(now, effects);
        }
        rests_until.unwrap_or_else(|| self.next_timeout())
    }

    /// When time changes something: without a frame, nothing that could be sent
    fn next_timeout(&self) -> Time {
        if self.frames.free() > 0 { self.core.next_timeout() } else { self.core.next_loss() }
    }

    fn post_packet(
        &mut self,
        path: PathId,
        payload: &Payload,
        trailer: &PacketTrailer,
        effects: &mut Effects,
    ) -> Result<(), rdma_core::Error> {
        let lanes = self.lanes.get(path.0 as usize).and_then(Option::as_ref);
        if lanes.is_none() {
            return Ok(());
        }
        let frame = match *payload {
            Payload::Inline(ref inline) => self.frames.take(inline.as_slice(), false),
            Payload::Fragment { token, offset, len } => {
                self.fragment_frame(token.0, offset as usize, len as usize, effects)
            }
        };
        let lanes = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut);
        let (Some(frame), Some(lanes)) = (frame, lanes) else {
            // A packet that finds no frame is lost before it is sent: the next report will say so.
            self.core.packet_sent(path);
            return Ok(());
        };
        let trailer = trailer.to_bytes(self.frames.payload(frame), self.integrity);
        let (lease, len) = self.frames.post(frame, &trailer, lanes.key());
        let posted = lanes.send_packet(frame, lease, len);
        if posted.is_err() {
            self.frames.completed(frame, lanes.key());
        }
        posted
    }

    /// The frame of a fragment, which holds its payload
    fn fragment_frame(
        &mut self,
        token: u32,
        offset: usize,
        len: usize,
        effects: &mut Effects,
    ) -> Option<u16> {
        let number = offset / FRAGMENT;
        let message = self.outgoing.get_mut(token as usize)?;
        if let Some(frame) = message.frame(number) {
            let writable = self.frames.writable(frame)?;
            message.set_frame(number, writable);
            return Some(writable);
        }
        let session = self.sessions.get_mut(&message.stream.session)?;
        let stream = session.stream(message.stream.stream)?;
        let slot = message.slot.expect("a message that was not sent whole has its bytes");
        let body = stream.ops.buffer(slot).expect("a message that was queued is in its slot");
        let frame = self.frames.take(&body[offset..][..len], true)?;
        message.set_frame(number, frame);
        message.unfinished -= 1;
        if message.unfinished == 0 && !message.awaits_delivery {
            message.slot = None;
            stream.complete(slot, Ok(()), effects);
        }
        session.counts.progress += 1;
        Some(frame)
    }

    fn post_bulk_receive(
        &mut self,
        path: PathId,
        id: Option<IncomingId>,
        offset: u64,
        len: u32,
    ) -> Result<(), rdma_core::Error> {
        let Some(lanes) = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut) else { return Ok(()) };
        if let Some(id) = id.filter(|_| len > 0) {
            let (key, lease) =
                self.incoming.post(id).expect("parts are granted of messages that have memory");
            let posted = lanes.post_bulk_receive(key, lease, offset, len);
            if posted.is_err() {
                // The message is not complete: it is no orphan.
                let _none = self.incoming.completed(key);
                return posted;
            }
        }
        let posted = lanes.post_trailer_receive();
        if lanes.has_waiting_receives() {
            self.core.bulk_receive_waits(path);
        }
        posted
    }

    fn post_bulk(
        &mut self,
        path: PathId,
        token: Option<Token>,
        trailer: &BulkTrailer,
    ) -> Result<(), rdma_core::Error> {
        let Some(lanes) = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut) else { return Ok(()) };
        let Grant { offset, len, .. } = trailer.grant;
        let (offset, len) = (offset as usize, len as usize);
        let message = token.and_then(|token| self.outgoing.get_mut(token.0 as usize).zip(Some(token.0)));
        let bytes = match message {
            Some((message, token)) => {
                let stream =
                    find_stream(&mut self.sessions, message.stream).expect("it has messages under way");
                let slot = message.slot.expect("a message of the bulk lane keeps its bytes");
                let body = stream.ops.buffer(slot).expect("a message that was queued is in its slot");
                let bytes = match body {
                    Body::Lease(lease) | Body::Copy(CopiedMessage::Lease(lease)) => {
                        lanes.send_bulk(token, lease, offset, len)?;
                        lease.part(offset, len)
                    }
                    Body::Heap(_) => unreachable!("what is sent from the heap is a copy"),
                    Body::Copy(CopiedMessage::Heap(bytes, _)) => {
                        let part = &bytes[offset..][..len];
                        lanes.send_staged(token, part)?;
                        if !lanes.has_staging() {
                            self.core.pause_answers(path);
                        }
                        part
                    }
                };
                message.unfinished += 1;
                bytes
            }
            None => match &self.scratch {
                Some(scratch) if len > 0 => {
                    lanes.send_bulk(SCRATCH, scratch, 0, len)?;
                    scratch.part(0, len)
                }
                _ => &[],
            },
        };
        lanes.send_trailer(&trailer.to_bytes(bytes, self.integrity))
    }
}
