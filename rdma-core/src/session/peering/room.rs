//! How many packets of messages a stream may still bring, in both directions

use super::super::MAX_FRAGMENTS;
use super::super::config::MAX_ROOM;

/// Totals of packets of messages, each from the beginning of the stream on, modulo 2^32
#[derive(Debug)]
pub(super) struct Room {
    /// What the peer takes.
    peer: u32,
    /// What was sent, all of a message once it has begun.
    sent: u32,
    /// What this side takes.
    own: u32,
    /// What has arrived, all of a message once it has begun.
    arrived: u32,
    /// What the peer knows of, unless that packet is lost.
    reported: u32,
    /// Whether it is in line to be sent.
    pub(super) is_queued: bool,
}

impl Room {
    pub(super) fn new(share: u32, peer_share: u32) -> Self {
        Self { peer: peer_share, sent: 0, own: share, arrived: 0, reported: share, is_queued: false }
    }

    /// New packets that the peer takes
    pub(super) fn left(&self) -> u32 {
        let left = self.peer.wrapping_sub(self.sent);
        if left > u32::MAX / 2 { 0 } else { left }
    }

    /// Notes that a message of `packets` packets has begun, zero for a packet that follows
    pub(super) fn spend(&mut self, packets: u32) {
        self.sent = self.sent.wrapping_add(packets);
    }

    /// Takes in what the peer takes; whether that is more than before
    pub(super) fn learn(&mut self, peer: u32) -> bool {
        let grown = peer.wrapping_sub(self.peer);
        let is_more = grown > 0 && grown <= u32::MAX / 2;
        if is_more {
            self.peer = peer;
        }
        is_more
    }

    /// Counts new packets in, all of a message at once; false if this side does not take so many
    #[must_use]
    pub(super) fn charge(&mut self, packets: u32) -> bool {
        let is_there = self.own.wrapping_sub(self.arrived) >= packets;
        if is_there {
            self.arrived = self.arrived.wrapping_add(packets);
        }
        is_there
    }

    /// Takes `packets` more from now on, at most [`MAX_ROOM`] at a time
    pub(super) fn give(&mut self, packets: u32) {
        let open = self.own.wrapping_sub(self.arrived);
        self.own = self.own.wrapping_add(packets.min(MAX_ROOM.saturating_sub(open)));
    }

    /// Whether the peer should learn of the room now: it has used half of what it knows of
    pub(super) fn is_due(&self) -> bool {
        let unreported = self.own.wrapping_sub(self.reported);
        let left = self.reported.wrapping_sub(self.arrived);
        // With less than for the longest message, the peer may wait.
        unreported > 0 && (unreported >= left || left < MAX_FRAGMENTS as u32)
    }

    /// The total to report to the peer, and whether that is news
    pub(super) fn report(&mut self) -> (u32, bool) {
        (self.own, std::mem::replace(&mut self.reported, self.own) != self.own)
    }
}
