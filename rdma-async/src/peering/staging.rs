//! Memory of a path for bytes on the heap, which are copied there to be sent

use crate::pool::Lease;

/// How many payloads of messages on the heap a path can have under way: while one is on the cable, the next is posted.
pub(crate) const STAGING: usize = 2;

/// Places for payloads, used in turn: they are sent in the order in which they are posted
#[derive(Debug)]
pub(super) struct Staging {
    places: Vec<Lease>,
    /// How many payloads were put there, and how many of them have been sent.
    counts: [usize; 2],
}

impl Staging {
    pub(super) fn new(places: Vec<Lease>) -> Self {
        Self { places, counts: [0; 2] }
    }

    /// Whether another payload can be put there
    pub(super) fn has_room(&self) -> bool {
        self.counts[0] - self.counts[1] < STAGING
    }

    /// Copies a payload into the next place; there is [room](Self::has_room)
    pub(super) fn put(&mut self, bytes: &[u8]) -> &Lease {
        assert!(self.has_room(), "the payload that was put into this place before was sent");
        let place = &mut self.places[self.counts[0] % STAGING];
        self.counts[0] += 1;
        place.write_at(0, bytes);
        place
    }

    /// The oldest payload was sent
    pub(super) fn sent(&mut self) {
        self.counts[1] += 1;
    }

    /// The memory in which payloads are that have not been sent, and the rest
    pub(super) fn take(&mut self) -> [Vec<Lease>; 2] {
        let [put, sent] = self.counts;
        let is_in_use = |place: usize| (sent..put).any(|payload| payload % STAGING == place);
        let places = std::mem::take(&mut self.places).into_iter().enumerate();
        let (used, unused): (Vec<_>, Vec<_>) = places.partition(|(place, _)| is_in_use(*place));
        [used, unused].map(|places| places.into_iter().map(|(_, lease)| lease).collect())
    }
}
