//! Notices that messages of the bulk lane have arrived, which go with grants

use std::time::Duration;

use super::super::{Address, Inline, MAX_ARRIVALS, MAX_GRANTS, PacketKind, PacketTrailer, Payload, Transmit};
use super::Peering;
use super::path::Part;
use crate::Time;

/// How long the notice of an arrival waits for grants, to go with them, while this side sends parts of messages itself
///
/// Each packet takes 60 ns of the cable, which the parts need (the model of the simulator). The peer keeps the memory of the message until then.
const ARRIVAL_DELAY: Duration = Duration::from_micros(5);

impl Peering {
    /// When the notice of an arrival is sent by itself, if it still waits
    pub(super) fn arrival_due(&self) -> Time {
        let waiting = self.arrivals.front().filter(|_| !self.has_arrival_waited);
        let Some((arrival, _)) = waiting else { return Time::MAX };
        let is_sending = self.paths.iter().flatten().any(|path| path.sender.is_serving());
        if is_sending { *arrival + ARRIVAL_DELAY } else { *arrival }
    }

    /// Grants, which `payload` has, and what has arrived
    pub(super) fn bulk(
        &mut self,
        now: Time,
        index: usize,
        mut payload: Inline,
        slots: [u32; MAX_GRANTS],
        grants: u8,
    ) -> Transmit {
        let (mut addresses, mut arrivals) = ([Address::default(); MAX_ARRIVALS], 0);
        while arrivals < addresses.len()
            && let Some((_, address)) = self.arrivals.pop_front()
        {
            payload.push(address.to_bytes());
            addresses[arrivals] = address;
            arrivals += 1;
        }
        self.has_arrival_waited = false;
        // The packet carries the room of the first stream.
        let address = Address { message: 0, ..addresses[0] };
        let part = Part::Bulk { slots, grants, addresses, arrivals: arrivals as u8 };
        let kind = PacketKind::Bulk;
        let trailer = PacketTrailer { kind, fragment: grants, address, ..PacketTrailer::default() };
        self.packet(now, index, Payload::Inline(payload), trailer, part)
    }
}
