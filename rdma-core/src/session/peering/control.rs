//! Messages about paths that go by other paths, when the bootstrap stream brings none

use super::super::{ControlMessage, Violation};
use super::Peering;

impl Peering {
    /// Sends a message about another path; false if there is no proven path, or too many messages wait
    ///
    /// It is given up if the last proven path is lost before the peer has it.
    pub fn send_control(&mut self, message: ControlMessage) -> bool {
        self.proven_paths() > 0 && self.control_messages.push(message)
    }

    /// Whether messages of the peer about paths have arrived on other paths
    pub fn has_control(&self) -> bool {
        self.control_messages.has_received()
    }

    /// The next message of the peer about a path that has arrived on another path
    pub fn poll_control(&mut self) -> Option<ControlMessage> {
        self.control_messages.pop_received()
    }

    /// Takes in the payload of a control packet
    pub(super) fn on_control_message(&mut self, number: u32, payload: &[u8]) -> Result<(), Violation> {
        let bytes = payload.try_into().map_err(|_| Violation::Payload(payload.len()))?;
        let message = ControlMessage::from_bytes(bytes).map_err(|_| Violation::Control)?;
        let is_possible = self.control_messages.receive(self.config.side, number, message);
        if is_possible { Ok(()) } else { Err(Violation::Control) }
    }
}
