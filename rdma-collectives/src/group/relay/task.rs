//! The task of a rank for messages that go over other ranks

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_async::{Device, MAX_EAGER, Timer};

use super::numbered::{Part, Purpose};
use super::packet::{Endpoints, Packet};
use super::peer::Peer;
use super::routes::Routes;
use crate::Cabling;

/// After so long without a confirmation, what neighbours may not have is sent again, and later after twice as long each time: a rank on the way may
/// have dropped it, because it did not know of a way then.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// A poll takes no more packets of each neighbour.
const MAX_ROUNDS: usize = 16;

/// A rank and its neighbours
pub(crate) struct State<D: Device> {
    own: usize,
    routes: Routes,
    /// Empty once the rank relays no more
    peers: Vec<Peer<D>>,
    /// The most bytes of a packet
    packet: usize,
    /// The most bytes of a message
    longest: usize,
    leaving: Option<Leaving>,
    retry: Option<Pin<Box<dyn Timer>>>,
    retry_after: Duration,
    task: Option<Waker>,
    operation: Option<Waker>,
}

/// The end of the relaying of a rank, which has dropped its group
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// Whether it relays for others until they have left as well
    needs_others: bool,
}

impl<D: Device> State<D> {
    pub(super) fn new(own: usize, cabling: &Cabling, longest: usize) -> Self {
        Self {
            own,
            routes: Routes::new(own, cabling),
            peers: Vec::new(),
            packet: packet_bytes(longest),
            longest,
            leaving: None,
            retry: None,
            retry_after: FIRST_RETRY,
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

    /// Whether messages to a neighbour go over others that reach it
    pub(crate) fn goes_around(&self, rank: usize) -> bool {
        let is_detoured = self.peers.iter().any(|peer| peer.rank == rank && peer.is_detoured());
        is_detoured && !self.routes.next_hops(rank).is_empty()
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
            if self.leaving.is_some() {
                self.peers.iter_mut().for_each(Peer::end_streams);
            }
            if self.may_end() {
                self.close();
            }
            if self.peers.is_empty() {
                return Poll::Ready(());
            }
            let is_late = self.poll_retry(cx);
            if is_late {
                self.send_again();
            }
            if !has_received && !is_late {
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
    pub(super) fn leave(&mut self, is_over: bool) {
        let needs_others = !is_over && self.routes.has_outage();
        self.leaving = Some(Leaving { needs_others });
        self.operation = None;
        if self.may_end() {
            return self.close();
        }
        self.routes.leave();
        self.announce_reach();
        self.wake();
    }

    fn may_end(&self) -> bool {
        let Some(Leaving { needs_others }) = self.leaving else { return false };
        (!needs_others || self.routes.have_all_left()) && !self.peers.iter().any(|peer| self.is_awaited(peer))
    }

    /// Whether a neighbour that is reached over others may not have all messages
    fn is_awaited(&self, peer: &Peer<D>) -> bool {
        peer.unconfirmed_bytes() > 0 && !self.routes.next_hops(peer.rank).is_empty()
    }

    fn wake(&mut self) {
        self.task.take().into_iter().for_each(Waker::wake);
    }

    fn wake_operation(&mut self) {
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

    /// Tells all neighbours which ones this rank reaches
    fn announce_reach(&mut self) {
        let packet = Packet::Reach { rank: self.own, reach: self.routes.reach() }.encode();
        self.peers.iter_mut().for_each(|peer| peer.push(packet.clone()));
    }

    /// Begins and ends detours, and sends on new ways what is under way on old ones
    fn find_ways(&mut self) {
        for at in 0..self.peers.len() {
            let peer = &self.peers[at];
            if !peer.is_detoured() && peer.is_cut() && !self.routes.next_hops(peer.rank).is_empty() {
                self.peers[at].begin_detour();
            }
            self.peers[at].end_detour();
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
            for purpose in Purpose::ALL {
                for (number, message) in peer.numbered[purpose as usize].unconfirmed() {
                    let packets = packets(message, number, self.packet, way, purpose);
                    all.extend(packets.into_iter().map(|packet| (packet, way.to, number)));
                }
            }
        }
        all.into_iter().for_each(|(packet, to, number)| self.route(packet, to, number));
    }

    /// Queues a packet of message `number` for the next rank on its way; drops it if there is none, and its sender sends it again later
    ///
    /// Messages take turns on ways of the same length, and all packets of a message take one.
    fn route(&mut self, packet: Box<[u8]>, to: usize, number: u32) {
        let hops = self.routes.next_hops(to);
        if let Some(hop) = hops.get(number as usize % hops.len().max(1))
            && let Some(peer) = self.peer(*hop)
        {
            peer.push(packet);
        }
    }

    /// Takes what a neighbour has sent; returns whether there was something
    fn receive(&mut self, at: usize, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(message) = self.peers[at].poll_message(cx) else { return false };
        let Some(message) = message else {
            if self.peers[at].has_closed {
                self.routes.close(self.peers[at].rank);
            }
            // While all cables work, no rank needs to know which ones have left.
            if self.routes.has_outage() {
                self.announce_reach();
            }
            self.find_ways();
            return true;
        };
        let packet = Packet::decode(&message).filter(|packet| packet.is_among(self.routes.ranks()));
        match packet {
            Some(Packet::Reach { rank, reach }) if self.routes.update(rank, reach) => {
                let others = self.peers.iter_mut().enumerate().filter(|(other, _)| *other != at);
                others.for_each(|(_, peer)| peer.push(Box::from(&*message)));
                self.find_ways();
            }
            Some(
                Packet::Part { way, part: Part { number, .. }, .. }
                | Packet::Confirmation { way, next: number, .. },
            ) if way.to != self.own => {
                let mut packet = Box::from(&*message);
                // Ranks that know different cables may pass a packet on in a circle.
                if usize::from(Packet::count_hop(&mut packet)) <= self.routes.ranks() {
                    self.route(packet, way.to, number);
                }
            }
            Some(Packet::Part { way, purpose, part }) => self.on_part(way.from, purpose, part),
            Some(Packet::Confirmation { way, purpose, next }) => {
                self.on_confirmation(way.from, purpose, next)
            }
            Some(Packet::Reach { .. }) | None => (),
        }
        true
    }

    fn on_part(&mut self, from: usize, purpose: Purpose, part: Part<'_>) {
        if part.total > self.longest {
            return;
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
        let Some(peer) = self.peer(from) else { return };
        if peer.messages(purpose).confirm(next) {
            peer.end_detour();
            (self.retry, self.retry_after) = (None, FIRST_RETRY);
            self.wake_operation();
        }
    }

    /// Whether nothing was confirmed for too long
    fn poll_retry(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(peer) = self.peers.iter().find(|peer| self.is_awaited(peer)) else {
            self.retry = None;
            return false;
        };
        let (runtime, after) = (peer.runtime(), self.retry_after);
        let timer = self.retry.get_or_insert_with(|| {
            let mut timer = runtime.timer();
            timer.as_mut().reset(runtime.now() + after);
            timer
        });
        let is_late = timer.as_mut().poll_expired(cx).is_ready();
        if is_late {
            (self.retry, self.retry_after) = (None, (2 * after).min(LAST_RETRY));
        }
        is_late
    }
}

/// The length of the longest packet of a group with messages of up to `longest` bytes
pub(crate) fn packet_bytes(longest: usize) -> usize {
    longest.min(MAX_EAGER)
}

/// A message in parts
fn packets(message: &[u8], number: u32, most: usize, way: Endpoints, purpose: Purpose) -> Vec<Box<[u8]>> {
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
