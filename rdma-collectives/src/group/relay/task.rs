//! The task of a rank for messages that go over other ranks

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_async::{Device, MAX_EAGER, Runtime, Time, Timer};

use super::super::error::GroupError;
use super::super::ranks::Ranks;
use super::numbered::{Part, Purpose};
use super::packet::{Endpoints, Packet};
use super::pairs::Pairs;
use super::peer::Peer;
use super::retry::{LAST_RETRY, Retry};
use super::routes::Routes;

/// After so long a rank that leaves looks whether its neighbours have all messages, and later after twice as long each time.
const FIRST_LOOK: Duration = Duration::from_micros(50);
/// A neighbour whose session is over counts as lost once no other rank has reached that neighbour for so long. Shorter gaps are cables of the way
/// around that were out for a moment.
const PATIENCE: Duration = Duration::from_millis(10);
/// A poll takes no more packets of each neighbour.
const MAX_ROUNDS: usize = 16;

/// A rank and its neighbours
pub(crate) struct State<D: Device> {
    pub(super) own: usize,
    pub(super) routes: Routes,
    /// Empty once the rank relays no more
    pub(super) peers: Vec<Peer<D>>,
    pub(super) pairs: Pairs,
    /// The most bytes of a packet
    pub(super) packet: usize,
    /// The most bytes of a message
    longest: usize,
    leaving: Option<Leaving>,
    /// The version of what this rank has said of itself last
    announced: u32,
    /// Of what neighbours may not have
    retry: Retry,
    /// Wakes the task, and when
    timer: Option<(Time, Pin<Box<dyn Timer>>)>,
    task: Option<Waker>,
    operation: Option<Waker>,
}

/// The end of the relaying of a rank, which has dropped its group
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// Whether it relays for others until they have left as well
    needs_others: bool,
    /// When to look next whether neighbours have all messages
    look_at: Time,
    /// How long after that to look again
    look_after: Duration,
}

impl<D: Device> State<D> {
    pub(super) fn new(own: usize, cabled: Arc<[Ranks]>, longest: usize) -> Self {
        Self {
            own,
            packet: packet_bytes(longest, &cabled),
            routes: Routes::new(own, cabled),
            peers: Vec::new(),
            pairs: Pairs::default(),
            longest,
            leaving: None,
            announced: 0,
            retry: Retry::NEW,
            timer: None,
            task: None,
            operation: None,
        }
    }

    /// Adds a neighbour
    pub(crate) fn add(&mut self, peer: Peer<D>) {
        self.peers.push(peer);
    }

    /// The neighbour of this rank, unless the rank relays no more
    pub(crate) fn peer(&mut self, rank: usize) -> Option<&mut Peer<D>> {
        self.peers.iter_mut().find(|peer| peer.rank == rank)
    }

    /// Whether messages to a neighbour go over others that reach it, or have just now
    pub(crate) fn goes_around(&self, rank: usize) -> bool {
        let mut detoured = self.peers.iter().filter(|peer| peer.rank == rank && peer.is_detoured());
        detoured.any(|peer| peer.no_way_since.is_none_or(|since| peer.runtime().now() < since + PATIENCE))
    }

    pub(super) fn register(&mut self, cx: &Context<'_>) {
        keep_waker(&mut self.operation, cx);
    }

    /// Sends a message to a neighbour over other ranks
    pub(crate) fn send(&mut self, rank: usize, purpose: Purpose, number: u32, message: Box<[u8]>) {
        let packets = packets(&message, number, self.packet, Endpoints { from: self.own, to: rank }, purpose);
        let Some(peer) = self.peer(rank) else { return };
        if !peer.is_detoured() {
            peer.begin_detour();
        }
        peer.messages(purpose).keep(vec![(number, message)]);
        packets.into_iter().for_each(|packet| self.route(packet, rank, number));
        self.wake();
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        keep_waker(&mut self.task, cx);
        for _ in 0..MAX_ROUNDS {
            self.watch(cx);
            let mut has_received = false;
            for peer in 0..self.peers.len() {
                has_received |= self.receive(peer, cx);
            }
            self.peers.iter_mut().for_each(|peer| peer.transmit(cx));
            if self.may_end() {
                self.close();
            }
            let Some(peer) = self.peers.first() else { return Poll::Ready(()) };
            let runtime = Arc::clone(peer.runtime());
            if self.is_late(runtime.now()) {
                self.send_again();
                continue;
            }
            if !self.poll_timer(&*runtime, cx) && !has_received {
                return Poll::Pending;
            }
        }
        // Other tasks run meanwhile.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Relays no more
    fn close(&mut self) {
        self.peers.clear();
        self.wake();
    }

    /// The rank has dropped its group: it goes on until neighbours have what it sent, and if a cable is out and the group not over, until all others
    /// have left, too
    ///
    /// A cable may also be pulled just then.
    pub(super) fn leave(&mut self) {
        let needs_others = !self.pairs.is_over() && self.routes.has_outage();
        self.end_pairs(&GroupError::Left { rank: self.own });
        self.leaving = Some(Leaving { needs_others, look_at: Time::ZERO, look_after: FIRST_LOOK });
        self.operation = None;
        if self.may_end() {
            return self.close();
        }
        self.routes.leave();
        self.announce_leave();
        self.wake();
    }

    /// Whether the rank relays no more; ends the streams to neighbours that have all messages
    fn may_end(&mut self) -> bool {
        let Some(Leaving { needs_others, .. }) = self.leaving else { return false };
        self.peers.iter_mut().for_each(Peer::end_streams);
        (!needs_others || self.routes.have_all_left())
            && self.peers.iter().all(|peer| self.is_done(peer))
            && self.are_pairs_done()
    }

    /// Whether a neighbour has all messages, or will not get any more, or needs none
    fn is_done(&self, peer: &Peer<D>) -> bool {
        let is_unreachable = peer.is_over() && peer.no_way_since.is_some();
        self.routes.has_left(peer.rank) || is_unreachable || peer.has_ended()
    }

    pub(super) fn wake(&mut self) {
        self.task.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn wake_operation(&mut self) {
        self.operation.take().into_iter().for_each(Waker::wake);
    }

    /// Notes which neighbours are reached
    fn watch(&mut self, cx: &mut Context<'_>) {
        let mut is_news = false;
        for peer in &mut self.peers {
            is_news |= peer.watch(cx);
        }
        // Also at first: a cable may have been pulled since the neighbours have greeted each other.
        self.update_reach();
        if is_news {
            self.wake_operation();
        }
    }

    /// Notes which neighbours are reached, and finds other ways
    fn update_reach(&mut self) {
        let mut is_news = false;
        for peer in self.peers.iter().filter(|peer| !peer.has_closed) {
            is_news |= self.routes.set_reached(peer.rank, peer.is_reached());
        }
        if is_news {
            self.announce_reach();
            self.find_ways();
        }
    }

    /// Announces to all neighbours which ones this rank reaches
    fn announce_reach(&mut self) {
        let packet = Packet::Reach { rank: self.own, reach: self.routes.reach().clone() }.encode();
        self.peers.iter_mut().for_each(|peer| peer.push(packet.clone()));
        self.announced = self.routes.reach().version;
    }

    /// Announces what was not announced before because no rank needed to know
    fn announce_rest(&mut self) {
        if self.announced != self.routes.reach().version {
            self.announce_reach();
        }
    }

    /// Announces that this rank or a neighbour has left; while all cables work, no rank needs to know
    fn announce_leave(&mut self) {
        if self.routes.has_outage() {
            self.announce_reach();
        }
    }

    /// Begins and ends detours, and sends on new ways what is under way on old ones
    fn find_ways(&mut self) {
        for at in 0..self.peers.len() {
            let has_way = !self.routes.next_hops(self.peers[at].rank).is_empty();
            let peer = &mut self.peers[at];
            if !peer.is_detoured() && peer.is_cut() && has_way {
                peer.begin_detour();
            }
            peer.end_detour();
            let now = peer.runtime().now();
            peer.no_way_since = (!has_way).then(|| peer.no_way_since.unwrap_or(now));
        }
        self.send_again();
        self.wake_operation();
    }

    /// Sends everything again that neighbours may not have
    fn send_again(&mut self) {
        let own = self.own;
        for peer in &mut self.peers {
            let is_own = |packet: &[u8]| matches!(Packet::decode(packet), Some(Packet::Part { way, .. }) if way.from == own);
            peer.queue.retain(|packet| !is_own(packet));
        }
        let mut all = Vec::new();
        for peer in &self.peers {
            let way = Endpoints { from: own, to: peer.rank };
            for purpose in Purpose::OF_LINK {
                for (number, message) in peer.numbered[purpose as usize].unconfirmed() {
                    let packets = packets(message, number, self.packet, way, purpose);
                    all.extend(packets.into_iter().map(|packet| (packet, way.to, number)));
                }
            }
        }
        for (to, number, message) in self.pairs.unconfirmed() {
            let packets = packets(message, number, self.packet, Endpoints { from: own, to }, Purpose::Pair);
            all.extend(packets.into_iter().map(|packet| (packet, to, number)));
        }
        all.into_iter().for_each(|(packet, to, number)| self.route(packet, to, number));
        self.probe_pair();
    }

    /// Queues a packet of message `number` for the next rank on its way; drops it if there is none, and its sender sends it again later
    ///
    /// Messages take turns on ways of the same length, and all packets of a message take one.
    pub(super) fn route(&mut self, packet: Box<[u8]>, to: usize, number: u32) {
        let hops = self.routes.next_hops(to);
        if let Some(&hop) = hops.get(number as usize % hops.len().max(1))
            && let Some(peer) = self.peer(hop)
        {
            peer.push(packet);
        }
    }

    /// Takes what a neighbour has sent; returns whether there was something
    fn receive(&mut self, at: usize, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(message) = self.peers[at].poll_message(cx) else { return false };
        let Some(message) = message else {
            let Peer { rank, has_closed, has_left, .. } = self.peers[at];
            if has_closed {
                self.routes.close(rank);
            }
            self.routes.note_over(rank, has_left);
            match has_left {
                true => self.announce_leave(),
                false => self.announce_reach(),
            }
            self.find_ways();
            return true;
        };
        // A longer one cannot be passed on.
        let packet = Some(&message).filter(|message| message.len() <= self.packet);
        let packet = packet.and_then(|message| Packet::decode(message));
        let packet = packet.filter(|packet| packet.is_among(self.routes.ranks()));
        match packet {
            Some(Packet::Reach { rank, reach }) => {
                if !self.routes.update(rank, reach) {
                    return true;
                }
                let others = self.peers.iter_mut().enumerate().filter(|(other, _)| *other != at);
                others.for_each(|(_, peer)| peer.push(Box::from(&*message)));
                if self.routes.has_outage() {
                    // During an outage, ranks need to know which ones had left before.
                    self.announce_rest();
                }
                self.find_ways();
            }
            Some(
                Packet::Part { way, purpose, part: Part { number, .. } }
                | Packet::Confirmation { way, purpose, next: number },
            ) if way.to != self.own => {
                if purpose == Purpose::Pair && self.routes.end_of(way.to).is_some() {
                    self.announce_rest();
                }
                let mut packet = Box::from(&*message);
                // Ranks that know different cables may pass a packet on in a cycle.
                if usize::from(Packet::count_hop(&mut packet)) <= self.routes.ranks() {
                    self.route(packet, way.to, number);
                }
            }
            Some(Packet::Part { way, purpose, part }) => self.on_part(way.from, purpose, part),
            Some(Packet::Confirmation { way, purpose, next }) => {
                self.on_confirmation(way.from, purpose, next)
            }
            None => (),
        }
        true
    }

    fn on_part(&mut self, from: usize, purpose: Purpose, part: Part<'_>) {
        if part.total > self.longest {
            return;
        }
        if purpose == Purpose::Pair {
            return self.on_pair_part(from, part);
        }
        let way = Endpoints { from: self.own, to: from };
        let Some(peer) = self.peer(from) else { return };
        let messages = peer.messages(purpose);
        if messages.receive(part) {
            let next = messages.next_in();
            self.route(Packet::Confirmation { way, purpose, next }.encode(), from, next);
            self.wake_operation();
        }
    }

    fn on_confirmation(&mut self, from: usize, purpose: Purpose, next: u32) {
        if purpose == Purpose::Pair {
            return self.on_pair_confirmation(from, next);
        }
        let Some(peer) = self.peer(from) else { return };
        if peer.messages(purpose).confirm(next) {
            peer.end_detour();
            self.retry = Retry::NEW;
            self.wake_operation();
        }
    }

    /// Whether neighbours that are reached over others may not have all messages, and nothing was confirmed for too long
    fn is_late(&mut self, now: Time) -> bool {
        let is_awaited =
            self.peers.iter().any(|peer| peer.unconfirmed_bytes() > 0 && peer.no_way_since.is_none());
        let is_pair_awaited = self.pairs.is_awaited();
        let is_pair_late = self.pairs.retry.is_late(is_pair_awaited, now);
        self.retry.is_late(is_awaited, now) || is_pair_late
    }

    /// Wakes the task when time changes something; returns whether it has
    fn poll_timer(&mut self, runtime: &dyn Runtime, cx: &mut Context<'_>) -> bool {
        let now = runtime.now();
        let has_expired =
            self.timer.take_if(|(_, timer)| timer.as_mut().poll_expired(cx).is_ready()).is_some();
        if has_expired {
            self.wake_operation();
        }
        let missed = self.peers.iter().filter(|peer| peer.is_detoured());
        let missed = missed.filter_map(|peer| Some(peer.no_way_since? + PATIENCE)).filter(|at| *at > now);
        let look_at = self.leaving.as_mut().map(|leaving| leaving.look_at(now));
        let retries = self.retry.at.into_iter().chain(self.pairs.retry.at);
        let Some(next) = missed.chain(retries).chain(look_at).min() else {
            self.timer = None;
            return has_expired;
        };
        let (at, timer) = self.timer.get_or_insert_with(|| (Time::ZERO, runtime.timer()));
        if *at != next {
            *at = next;
            timer.as_mut().reset(next);
        }
        has_expired || timer.as_mut().poll_expired(cx).is_ready()
    }
}

impl Leaving {
    /// When to look next, because no event says when neighbours have all messages
    fn look_at(&mut self, now: Time) -> Time {
        if self.look_at <= now {
            (self.look_at, self.look_after) = (now + self.look_after, (2 * self.look_after).min(LAST_RETRY));
        }
        self.look_at
    }
}

/// The length of the longest packet of a group with messages of up to `longest` bytes, whose ranks have these neighbours
pub(crate) fn packet_bytes(longest: usize, cabled: &[Ranks]) -> usize {
    longest.min(MAX_EAGER).max(Packet::max_reach_len(cabled))
}

/// A message in parts
pub(super) fn packets(
    message: &[u8],
    number: u32,
    most: usize,
    way: Endpoints,
    purpose: Purpose,
) -> Vec<Box<[u8]>> {
    let len = most - Packet::HEADER;
    let parts = message.chunks(len).enumerate();
    let part = |(at, bytes)| Part { number, offset: at * len, total: message.len(), bytes };
    parts.map(|at| Packet::Part { way, purpose, part: part(at) }.encode()).collect()
}

fn keep_waker(place: &mut Option<Waker>, cx: &Context<'_>) {
    if place.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
}
