//! Messages of the two sides about paths

use rdma_core::session::{ControlMessage, LostReason, PathEnd, PathId, PortName, Side};
use rdma_core::{Device, Error};

use super::{Control, PathState};
use crate::error::SessionError;
use crate::port_refusal::PortRefusal;

impl<D: Device> Control<D> {
    /// Sends a message on the stream; by a path instead if the stream has ended, or brings nothing
    pub(super) fn send(&mut self, message: ControlMessage) {
        let is_heard = self.stream.takes_messages() && self.now() < self.heard + self.peer_timeout;
        if is_heard || !self.peering.with(|state, now, effects| state.send_control(message, now, effects)) {
            self.send_on_stream(message);
        }
    }

    pub(super) fn send_on_stream(&mut self, message: ControlMessage) {
        self.stream.push(message);
        self.alive_at = self.now() + self.peer_timeout / 4;
    }

    /// Whether the peer can be sent messages about a path
    pub(super) fn reaches_peer(&self) -> bool {
        self.stream.takes_messages() || self.peering.update(|state, _| state.paths_up() > 0)
    }

    pub(super) fn on_message(&mut self, message: ControlMessage) {
        match message {
            ControlMessage::Offer(offer) if self.side == Side::Accepting => {
                if !self.is_newer(&offer.end) {
                    // It comes late, by the stream or a path: another offer has overtaken it.
                    return;
                }
                if let Err(error) = self.on_offer(offer) {
                    self.note_failure(offer.end.path.0 as usize, error);
                }
            }
            ControlMessage::Answer { end, port } => {
                if let Err(error) = self.on_answer(end, port) {
                    self.note_failure(end.path.0 as usize, error);
                }
            }
            ControlMessage::Lost { path, epoch, reason, port } => self.on_lost(path, epoch, reason, port),
            ControlMessage::Bye(reason) => self.peering.fail(&SessionError::PeerGone(reason)),
            ControlMessage::Alive => (),
            ControlMessage::Confirm(_) | ControlMessage::Offer(_) => self.on_violation(),
        }
    }

    /// Whether an offer is not older than the latest one for its path
    fn is_newer(&self, end: &PathEnd) -> bool {
        let latest = self.epochs.get(end.path.0 as usize);
        latest.is_none_or(|latest| (end.epoch.wrapping_sub(*latest) as i16) > 0)
    }

    /// The peer has no such path
    fn on_lost(&mut self, path: PathId, epoch: u16, reason: LostReason, port: Option<PortName>) {
        let is_unreachable = reason == LostReason::Unreachable;
        match self.paths.get(path.0 as usize) {
            Some(PathState::Up { epoch: current, .. }) if *current == epoch => self.peering.lose_path(path),
            Some(PathState::Offered { prepared, .. }) if prepared.end().epoch == epoch => {
                self.note_refusal(path, reason, port, None);
                self.retry_later(path.0 as usize, is_unreachable);
            }
            Some(PathState::Connecting { theirs }) if theirs.epoch == epoch => {
                self.making[path.0 as usize] = None;
                self.retry_later(path.0 as usize, is_unreachable);
            }
            _ => (),
        }
    }

    /// Notes for the error of the attempt which two ports could not be joined
    pub(super) fn note_refusal(
        &mut self,
        path: PathId,
        reason: LostReason,
        peer_port: Option<PortName>,
        error: Option<Error>,
    ) {
        let index = path.0 as usize;
        let (Some(first), Some(pairing)) = (&mut self.first, self.pairings.get(index)) else { return };
        let port = self.node.ports[index].name(index);
        let peer_port =
            peer_port.map_or_else(|| format!("device {}", pairing.port()), |name| name.as_str().to_owned());
        first.note_refusal(PortRefusal { port, peer_port, reason, error });
    }
}
