//! What arrives on the bulk lane

use super::super::config::MAX_ROOM;
use super::super::incoming::Entry;
use super::super::{
    Address, BulkPart, BulkTrailer, Grant, IncomingId, PacketError, PacketKind, PacketTrailer, PathId,
    PathLoss, SessionId, StreamId, Violation,
};
use super::Peering;
use super::message::Progress;
use crate::Time;
use crate::probe::{self, ProtocolState};

impl Peering {
    /// Takes in the oldest receive of the bulk lane, which has completed, with the trailer behind it
    ///
    /// `payload` is empty for a receive that only keeps the lane alive. If anything but the granted bytes arrived, the path
    /// is given up.
    ///
    /// # Errors
    ///
    /// As [`on_packet`](Self::on_packet).
    pub fn on_bulk(
        &mut self,
        now: Time,
        id: PathId,
        payload: &[u8],
        trailer: &[u8],
    ) -> Result<(), Violation> {
        let Some(Some(path)) = self.paths.get_mut(id.0 as usize) else { return Ok(()) };
        let before = path.receiver.last_progress();
        let Some((number, slot)) = path.receiver.pop(now) else {
            self.counts[id.0 as usize].bulk.refused += 1;
            self.lose_path(id, PathLoss::BulkLost);
            return Ok(());
        };
        let grant = Grant { slot: number, len: slot.len, offset: slot.offset, address: slot.address };
        let epoch = path.epoch;
        let trailer = BulkTrailer::from_bytes(trailer, payload, self.config.integrity);
        let is_expected = |trailer: &BulkTrailer| {
            let is_long_enough = payload.len() == slot.len as usize;
            trailer.grant == grant && trailer.epoch == epoch && is_long_enough
        };
        let counts = &mut self.counts[id.0 as usize].bulk;
        let is_damaged = trailer == Err(PacketError::Checksum);
        let Some(trailer) = trailer.ok().filter(is_expected) else {
            if is_damaged {
                counts.damaged += 1;
            } else {
                counts.refused += 1;
            }
            // The next bytes of the lane may go here, too, until it has stopped.
            self.stopping.push((id, slot));
            self.lose_path(id, PathLoss::BulkLost);
            return Ok(());
        };
        self.is_active |= slot.len > 0;
        let is_void = trailer.part == BulkPart::Void;
        counts.received += 1;
        match slot.id {
            Some(message) if !is_void => {
                counts.bytes_received += u64::from(slot.len);
                // Others wait for the application of the peer.
                if !slot.is_expected {
                    path.receiver.note_arrival(now, &slot, before);
                    self.part_times[id.0 as usize].record(now - slot.since);
                }
                self.on_bulk_part(now, message, slot.len);
            }
            Some(message) if slot.is_expected => self.on_void(id, message, (slot.offset, slot.len)),
            _ => (),
        }
        // The message may not be announced otherwise, and may not be expected any more.
        if slot.is_expected && trailer.part == BulkPart::Last {
            let len = slot.offset + u64::from(slot.len);
            let kind = PacketKind::Announce;
            let announcement = PacketTrailer { kind, address: slot.address, ..PacketTrailer::default() };
            self.on_message(now, &len.to_le_bytes(), &announcement)?;
        }
        Ok(())
    }

    fn on_bulk_part(&mut self, now: Time, id: IncomingId, len: u32) {
        let Some(incoming) = self.incoming.get_mut(id.0 as usize) else { return };
        let Progress::Bulk(parts) = &mut incoming.progress else { return };
        parts.received += u64::from(len);
        self.complete_if_whole(now, id);
    }

    /// Notes that a message of the bulk lane has arrived, if it was announced and all of it is here
    pub(super) fn complete_if_whole(&mut self, now: Time, id: IncomingId) {
        let Some(incoming) = self.incoming.get(id.0 as usize) else { return };
        let Progress::Bulk(parts) = &incoming.progress else { return };
        if !parts.is_announced || parts.received < incoming.len {
            return;
        }
        let Address { session, stream, message } = incoming.address;
        self.arrivals.push_back((now, incoming.address));
        probe::reached(ProtocolState::BulkArrived);
        // Its number may be that of another message from now on.
        self.ungranted.retain(|other| *other != id);
        let (session, stream) = (SessionId(session), StreamId(stream));
        let found = self.stream(session, stream);
        if let Some(Ok(Some(entry))) = found.map(|found| found.incoming.entry(message, MAX_ROOM)) {
            *entry = Entry::Complete(id);
        }
        self.hand_on(session, stream);
    }
}
