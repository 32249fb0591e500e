//! How grants are answered

use super::super::outgoing::Granted;
use super::super::{BulkPart, BulkTrailer, Grant, PathId, SessionId, StreamId, Transmit};
use super::Peering;
use crate::Time;
use crate::probe::{self, ProtocolState};

impl Peering {
    /// The next part that the peer has posted a receive for
    pub(super) fn next_answer(&mut self, now: Time) -> Option<Transmit> {
        for index in 0..self.paths.len() {
            let Some(path) = &self.paths[index] else { continue };
            let Some(grant) = path.sender.front(now) else { continue };
            let granted = self.granted(&grant);
            // Grants are answered in order, so one that can be answered does not wait for one that cannot be yet.
            let is_in_the_way = || path.sender.behind().any(|grant| self.granted(grant) != Granted::NotYet);
            if granted == Granted::NotYet && !path.sender.has_waited(now) && !is_in_the_way() {
                self.paths[index].as_mut()?.sender.wait();
                continue;
            }
            let path = self.paths[index].as_mut()?;
            let (token, part) = match granted {
                Granted::Message { token, is_last: true } => (Some(token), BulkPart::Last),
                Granted::Message { token, is_last: false } => (Some(token), BulkPart::Inner),
                Granted::Nothing | Granted::NotYet if grant.len > 0 => (None, BulkPart::Void),
                Granted::Nothing | Granted::NotYet => (None, BulkPart::Inner),
            };
            path.sender.pop(now, part == BulkPart::Void);
            let counts = &mut self.counts[index].bulk;
            counts.sent += 1;
            if token.is_some() {
                counts.bytes_sent += u64::from(grant.len);
            }
            if part == BulkPart::Void {
                probe::reached(ProtocolState::BulkVoid);
            }
            let trailer = BulkTrailer { grant, epoch: path.epoch, part };
            return Some(Transmit::BulkSend { path: PathId(index as u32), token, trailer });
        }
        None
    }

    /// Lets the grants of a path wait, because this side can send nothing more on its bulk lane before something has been sent there
    pub fn pause_answers(&mut self, path: PathId) {
        self.set_paused(path, true);
    }

    /// Answers grants again that had [to wait](Self::pause_answers)
    pub fn resume_answers(&mut self, path: PathId) {
        self.set_paused(path, false);
    }

    fn set_paused(&mut self, path: PathId, is_paused: bool) {
        if let Some(Some(path)) = self.paths.get_mut(path.0 as usize) {
            path.sender.set_paused(is_paused);
        }
    }

    /// What can be sent for a grant
    fn granted(&self, Grant { address, offset, len, .. }: &Grant) -> Granted {
        let Some(end) = offset.checked_add(u64::from(*len)).filter(|_| *len > 0) else {
            return Granted::Nothing;
        };
        let (id, stream) = (SessionId(address.session), StreamId(address.stream));
        let (table, peer_bit) = (&self.sessions[id.0 as usize & 1], 1 - self.config.side.bit());
        let is_opened_by_peer = id.0 & 1 == peer_bit;
        // The grant may arrive before the packet that opens its stream.
        match table.peek(id).map(|session| (session, session.streams.get(&stream))) {
            Some((_, Some(stream))) => stream.outgoing.granted(address.message, end),
            Some((session, None)) if session.may_be_opened(stream, peer_bit) => Granted::NotYet,
            None if is_opened_by_peer && table.may_be_opened(id) => Granted::NotYet,
            Some(_) | None => Granted::Nothing,
        }
    }
}
