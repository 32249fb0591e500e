//! Messages between two ranks that send and receive without calls of the others
//!
//! The messages go as those of neighbours whose cables are out: in parts, over the shortest way there is. A rank confirms a message when the
//! application has taken it, so no more than a window of them waits anywhere. The other rank sends again from time to time what is not
//! confirmed, and while it waits for more, it repeats what it has confirmed: a rank on the way that knows of no way any more then says so.

use rdma_async::Device;

use super::super::error::GroupError;
use super::super::wire::{End, PairMessage};
use super::numbered::{Part, Purpose, precedes};
use super::packet::{Endpoints, Packet};
use super::pairs::{Pair, Pairs};
use super::retry::Retry;
use super::task::{State, packets};

/// How many bytes of messages may be under way to a rank, or wait there
const WINDOW: usize = 1 << 20;

impl<D: Device> State<D> {
    /// Begins a call with another rank; returns its number among those with this rank
    pub(crate) fn begin_call(&mut self, rank: usize) -> u32 {
        self.pairs.active = Some(rank);
        let Pair { calls, .. } = self.pairs.pairs.entry(rank).or_default();
        let number = *calls;
        *calls = number.wrapping_add(1);
        number
    }

    /// The call is done
    pub(crate) fn end_call(&mut self) {
        self.pairs.active = None;
    }

    /// How many bytes a message to another rank has at most
    pub(crate) fn pair_bytes(&self) -> usize {
        self.packet - Packet::HEADER
    }

    /// Sends a message to another rank
    pub(crate) fn send_to(&mut self, to: usize, message: Box<[u8]>) {
        let Pair { messages, .. } = self.pairs.pairs.entry(to).or_default();
        let number = messages.take_number();
        let way = Endpoints { from: self.own, to };
        let packets = packets(&message, number, self.packet, way, Purpose::Pair);
        messages.keep(vec![(number, message)]);
        packets.into_iter().for_each(|packet| self.route(packet, to, number));
        self.wake();
    }

    /// Whether another message to a rank may be under way
    pub(crate) fn has_room_to(&self, rank: usize) -> bool {
        self.unconfirmed_to(rank) < WINDOW
    }

    /// The bytes of the messages that another rank may not have taken
    pub(crate) fn unconfirmed_to(&self, rank: usize) -> usize {
        self.pairs.pairs.get(&rank).map_or(0, |pair| pair.messages.unconfirmed_bytes())
    }

    /// Takes the next message of another rank
    pub(crate) fn take_from(&mut self, rank: usize) -> Option<Box<[u8]>> {
        let message = self.pairs.pairs.get_mut(&rank)?.messages.pop()?;
        self.confirm_pair(rank);
        Some(message)
    }

    /// Why no more messages come from another rank, or get there
    pub(crate) fn end_of(&self, rank: usize) -> Option<GroupError> {
        let front = self.pairs.pairs.get(&rank).and_then(|pair| pair.messages.front());
        match front.and_then(PairMessage::decode) {
            Some(PairMessage::End(end)) => Some(end.error),
            _ => self.routes.end_of(rank),
        }
    }

    /// The group is over here: nothing more is taken from other ranks, and those that wait for this one learn why
    pub(crate) fn end_pairs(&mut self, error: &GroupError) {
        if self.pairs.is_over() {
            return;
        }
        let end = End { error: error.clone(), sequence: 0 };
        self.pairs.over = Some(PairMessage::End(end).encode());
        let active = self.pairs.active.take();
        let waits = |(rank, pair): (&usize, &Pair)| {
            (active == Some(*rank) || pair.messages.front().is_some()).then_some(*rank)
        };
        let waiting: Vec<_> = self.pairs.pairs.iter().filter_map(waits).collect();
        waiting.into_iter().for_each(|rank| self.refuse(rank));
    }

    /// Drops the messages that have come from a rank, and sends it once the reason
    fn refuse(&mut self, rank: usize) {
        let (Some(pair), Some(over)) = (self.pairs.pairs.get_mut(&rank), &self.pairs.over) else { return };
        while pair.messages.pop().is_some() {}
        let was_refused = std::mem::replace(&mut pair.is_refused, true);
        let over = over.clone();
        self.confirm_pair(rank);
        if !was_refused {
            self.send_to(rank, over);
        }
    }

    pub(super) fn on_pair_part(&mut self, from: usize, part: Part<'_>) {
        let Pair { messages, .. } = self.pairs.pairs.entry(from).or_default();
        let is_taken = precedes(part.number, messages.taken());
        if is_taken {
            self.confirm_pair(from);
        } else if messages.receive(part) {
            match self.pairs.is_over() {
                true => self.refuse(from),
                false => self.wake_operation(),
            }
        }
    }

    pub(super) fn on_pair_confirmation(&mut self, from: usize, next: u32) {
        let Some(pair) = self.pairs.pairs.get_mut(&from) else { return };
        if pair.messages.confirm(next) {
            self.pairs.retry = Retry::NEW;
            self.wake_operation();
        }
    }

    fn confirm_pair(&mut self, to: usize) {
        let Some(pair) = self.pairs.pairs.get(&to) else { return };
        let (next, way) = (pair.messages.taken(), Endpoints { from: self.own, to });
        self.route(Packet::Confirmation { way, purpose: Purpose::Pair, next }.encode(), to, next);
        self.wake();
    }

    /// Repeats what the rank has taken of the one that it waits for
    pub(super) fn probe_pair(&mut self) {
        if let Some(rank) = self.pairs.active {
            self.confirm_pair(rank);
        }
    }

    /// Whether other ranks have what this one sent, and what it confirmed is on its way
    pub(super) fn are_pairs_done(&self) -> bool {
        let Pairs { pairs, .. } = &self.pairs;
        let is_done = |(rank, pair): (&usize, &Pair)| {
            pair.messages.unconfirmed_bytes() == 0
                || self.routes.has_left(*rank)
                || self.routes.end_of(*rank).is_some()
        };
        pairs.iter().all(is_done) && (pairs.is_empty() || self.peers.iter().all(|peer| peer.is_flushed()))
    }
}
