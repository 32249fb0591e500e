//! Which packets of a lane arrived

use std::collections::VecDeque;

/// Packets that may be sent and not yet covered by a report of the peer
pub const MAX_UNREPORTED: u32 = 128;

/// The packets of a lane that its receiver has: everything that the sender must know about them
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Number of the next packet, one after the latest that arrived
    pub next: u32,
    /// Bit *i* is whether packet `next` − 1 − *i* arrived
    pub bitmap: u128,
}

impl Report {
    /// The fate of packet `number`, which comes before [`next`](Self::next)
    fn fate(self, number: u32) -> Fate {
        let age = self.next.wrapping_sub(number).wrapping_sub(1);
        match self.bitmap.checked_shr(age) {
            Some(bits) if bits & 1 == 1 => Fate::Received,
            _ => Fate::Lost,
        }
    }
}

/// What became of a packet
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    /// It arrived
    Received,
    /// A later packet of its lane arrived, and it did not
    Lost,
}

/// The packets of a lane as its receiver sees them
///
/// A queue pair delivers in order: a packet that was overtaken is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceivedPackets(Report);

impl ReceivedPackets {
    /// Notes that packet `number` arrived; false if it had arrived before, or was overtaken
    pub(super) fn insert(&mut self, number: u32) -> bool {
        let Report { next, bitmap } = &mut self.0;
        let skipped = number.wrapping_sub(*next);
        if skipped > u32::MAX / 2 {
            return false;
        }
        *bitmap = bitmap.checked_shl(skipped.saturating_add(1)).unwrap_or(0) | 1;
        *next = number.wrapping_add(1);
        true
    }

    pub(super) fn report(&self) -> Report {
        self.0
    }
}

/// The packets of a lane that its sender has sent and knows no fate of, with what they contain
#[derive(Clone, Debug)]
pub(super) struct SentPackets<T> {
    /// Number of the first packet without a fate.
    first: u32,
    contents: VecDeque<T>,
}

impl<T> SentPackets<T> {
    pub(super) fn new() -> Self {
        Self { first: 0, contents: VecDeque::with_capacity(MAX_UNREPORTED as usize) }
    }

    /// Number of the next packet
    pub(super) fn next(&self) -> u32 {
        self.first.wrapping_add(self.contents.len() as u32)
    }

    /// How many packets have no fate
    pub(super) fn len(&self) -> u32 {
        self.contents.len() as u32
    }

    /// Adds the next packet and returns its number
    pub(super) fn push(&mut self, content: T) -> u32 {
        let number = self.next();
        self.contents.push_back(content);
        number
    }

    /// Whether `report` can be about these packets: it names none that was not sent
    pub(super) fn is_possible(&self, report: Report) -> bool {
        // An old report, which a repeated packet brings, is behind the first packet.
        self.next().wrapping_sub(report.next) <= u32::MAX / 2
    }

    /// The oldest packet that `report` decides, with its fate; call until there is none
    pub(super) fn pop(&mut self, report: Report) -> Option<(T, Fate)> {
        let is_decided = (1..=self.len()).contains(&report.next.wrapping_sub(self.first));
        let content = if is_decided { self.contents.pop_front() } else { None }?;
        let fate = report.fate(self.first);
        self.first = self.first.wrapping_add(1);
        Some((content, fate))
    }

    /// The packets without a fate, oldest first; none of them is known afterwards
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.first = self.next();
        self.contents.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fates(sent: &mut SentPackets<u32>, report: Report) -> Vec<(u32, Fate)> {
        std::iter::from_fn(|| sent.pop(report)).collect()
    }

    #[test]
    fn a_packet_that_was_overtaken_is_lost() {
        let (mut sent, mut received) = (SentPackets::new(), ReceivedPackets::default());
        for content in 10..15 {
            sent.push(content);
        }
        for number in [0, 2, 3] {
            assert!(received.insert(number));
        }
        assert!(!received.insert(1), "it was overtaken");
        assert!(!received.insert(3), "it arrived before");
        let expected = [(10, Fate::Received), (11, Fate::Lost), (12, Fate::Received), (13, Fate::Received)];
        assert_eq!(fates(&mut sent, received.report()), expected);
        assert_eq!((sent.next(), sent.drain().collect::<Vec<_>>()), (5, vec![14]));
        assert_eq!(sent.next(), 5, "numbers are not used again");
    }

    /// Catches a shift by more bits than the bitmap has, which would keep what is too old.
    #[test]
    fn a_gap_of_the_length_of_the_bitmap_forgets_everything_before() {
        for (gap, kept) in [(MAX_UNREPORTED - 1, 1), (MAX_UNREPORTED, 0), (u32::MAX / 2, 0)] {
            let mut received = ReceivedPackets::default();
            assert!(received.insert(0));
            assert!(received.insert(gap));
            assert_eq!(received.report().bitmap.count_ones() - 1, kept, "{gap}");
        }
    }

    #[test]
    fn a_report_about_packets_that_were_not_sent_is_impossible() {
        let mut sent = SentPackets::new();
        sent.push(0);
        let report = |next| Report { next, bitmap: u128::MAX };
        assert!(sent.is_possible(report(1)) && sent.is_possible(report(0)));
        assert!(!sent.is_possible(report(2)));
        assert_eq!(fates(&mut sent, report(1)), [(0, Fate::Received)]);
        assert!(sent.is_possible(report(0)), "an old one");
        assert_eq!(fates(&mut sent, report(0)), []);
    }

    proptest! {
        /// Catches a bit off by one, and a wrong order of fates, wherever the numbers wrap.
        #[test]
        fn each_packet_gets_the_fate_that_it_had(
            arrived in prop::collection::vec(prop::bool::weighted(0.8), 1..400),
            reports in prop::collection::vec(1usize..MAX_UNREPORTED as usize, 1..400),
            first in prop_oneof![Just(0), u32::MAX - 200..=u32::MAX],
        ) {
            let mut sent = SentPackets { first, contents: VecDeque::new() };
            let mut received = ReceivedPackets(Report { next: first, bitmap: 0 });
            let mut decided = Vec::new();
            let mut pauses = reports.iter().cycle();
            let mut until_report = *pauses.next().unwrap();
            for (number, &has_arrived) in arrived.iter().enumerate() {
                sent.push(number);
                if has_arrived {
                    received.insert(first.wrapping_add(number as u32));
                }
                until_report -= 1;
                if until_report == 0 || sent.len() == MAX_UNREPORTED {
                    until_report = *pauses.next().unwrap();
                    while let Some(fate) = sent.pop(received.report()) {
                        decided.push(fate);
                    }
                }
            }
            let last = arrived.iter().rposition(|arrived| *arrived).map_or(0, |last| last + 1);
            while let Some(fate) = sent.pop(received.report()) {
                decided.push(fate);
            }
            prop_assert_eq!(decided.len(), last);
            for (number, (content, fate)) in decided.into_iter().enumerate() {
                prop_assert_eq!(content, number);
                prop_assert_eq!(fate == Fate::Received, arrived[number]);
            }
        }
    }
}
