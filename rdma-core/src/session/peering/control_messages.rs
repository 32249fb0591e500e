//! The messages about paths that wait for other paths, or for the caller

use std::collections::VecDeque;

use super::super::{ControlMessage, Side};

/// As many as wait at once; a correct peer never makes a side keep more than a few for each path.
pub(super) const MAX_WAITING: usize = 256;

/// The messages about paths of both directions
///
/// They go one at a time, the next when the peer has reported the one before: so they arrive in order, whichever path brings
/// them.
#[derive(Debug, Default)]
pub(super) struct ControlMessages {
    /// To be sent, or under way.
    unsent: VecDeque<ControlMessage>,
    /// Number of the first of them.
    number: u32,
    is_under_way: bool,
    /// Number after the latest that has arrived.
    next: u32,
    received: VecDeque<ControlMessage>,
}

impl ControlMessages {
    /// Queues a message; false if there are too many
    pub(super) fn push(&mut self, message: ControlMessage) -> bool {
        let has_room = self.unsent.len() < MAX_WAITING;
        if has_room {
            self.unsent.push_back(message);
        }
        has_room
    }

    /// Whether there are messages that the peer may not have
    pub(super) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether a message can be sent now
    pub(super) fn is_due(&self) -> bool {
        !self.is_under_way && !self.is_empty()
    }

    /// The message to send now, with its number
    pub(super) fn next_to_send(&mut self) -> Option<(u32, ControlMessage)> {
        let message = *self.unsent.front().filter(|_| self.is_due())?;
        self.is_under_way = true;
        Some((self.number, message))
    }

    /// Message `number` was lost, and is sent again unless it was given up
    pub(super) fn lost(&mut self, number: u32) {
        self.is_under_way &= number != self.number;
    }

    /// The peer has message `number`
    pub(super) fn delivered(&mut self, number: u32) {
        if self.is_under_way && number == self.number {
            self.give_up_first();
        }
    }

    /// Forgets what was not delivered
    pub(super) fn give_up(&mut self) {
        // The first may have arrived: its number is not used again.
        self.give_up_first();
        self.unsent.clear();
    }

    fn give_up_first(&mut self) {
        self.unsent.pop_front();
        self.number = self.number.wrapping_add(1);
        self.is_under_way = false;
    }

    /// Takes in a message that this `side` may receive; false if a correct peer does not send it
    pub(super) fn receive(&mut self, side: Side, number: u32, message: ControlMessage) -> bool {
        let is_possible = match message {
            ControlMessage::Offer(_) => side == Side::Accepting,
            ControlMessage::Answer { .. } => side == Side::Connecting,
            ControlMessage::Lost { .. } => true,
            ControlMessage::Confirm(_) | ControlMessage::Alive | ControlMessage::Bye(_) => false,
        };
        if !is_possible || self.received.len() >= MAX_WAITING {
            return false;
        }
        // One that was reported lost with its path may have arrived.
        if number.wrapping_sub(self.next) <= u32::MAX / 2 {
            self.next = number.wrapping_add(1);
            self.received.push_back(message);
        }
        true
    }

    pub(super) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    pub(super) fn pop_received(&mut self) -> Option<ControlMessage> {
        self.received.pop_front()
    }
}
