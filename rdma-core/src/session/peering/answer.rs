//! How grants are answered

use super::super::outgoing::Granted;
use super::super::{BulkTrailer, Grant, PathId, SessionId, StreamId, Transmit};
use super::Peering;
use crate::Time;
use crate::probe::{self, ProtocolState};

/// The part of a path's timeout for which a grant waits for its message: well before its receiver takes the lane for stalled
const PATIENCE: u32 = 4;

impl Peering {
    /// The next part that the peer has posted a receive for
    pub(super) fn next_answer(&mut self, now: Time) -> Option<Transmit> {
        for index in 0..self.paths.len() {
            let Some(path) = &self.paths[index] else { continue };
            let Some(grant) = path.sender.front(now) else { continue };
            let granted = self.granted(&grant);
            // Grants are answered in order, so one that can be answered does not wait for one that cannot be yet.
            let is_pressed = || path.sender.behind().any(|grant| self.granted(grant) != Granted::NotYet);
            if granted == Granted::NotYet && !path.sender.has_waited(now) && !is_pressed() {
                let until = now + path.timeout / PATIENCE;
                self.paths[index].as_mut()?.sender.wait(until);
                continue;
            }
            let path = self.paths[index].as_mut()?;
            path.sender.pop();
            let token = if let Granted::Message(token) = granted { Some(token) } else { None };
            let is_void = token.is_none() && grant.len > 0;
            if is_void {
                probe::reached(ProtocolState::BulkVoid);
            }
            let trailer = BulkTrailer { grant, epoch: path.epoch, is_void };
            return Some(Transmit::BulkSend { path: PathId(index as u32), token, trailer });
        }
        None
    }

    /// What can be sent for a grant
    fn granted(&self, Grant { address, offset, len, .. }: &Grant) -> Granted {
        let session = self.sessions[address.session as usize & 1].peek(SessionId(address.session));
        let stream = session.and_then(|session| session.streams.get(&StreamId(address.stream)));
        match (stream, offset.checked_add(u64::from(*len))) {
            (Some(stream), Some(end)) if *len > 0 => stream.outgoing.granted(address.message, end),
            _ => Granted::Nothing,
        }
    }
}
