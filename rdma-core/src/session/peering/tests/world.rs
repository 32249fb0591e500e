//! Two peerings, joined by paths that lose, damage and repeat what they carry

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::super::super::*;
use crate::Time;

/// Frequencies of faults, in parts of a thousand packets
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lose: u32,
    pub(super) damage: u32,
    pub(super) repeat: u32,
    pub(super) lose_bulk: u32,
    pub(super) damage_bulk: u32,
    /// Ends the path on one side only.
    pub(super) cut: u32,
    /// Leaves no memory for new packets until the next step.
    pub(super) no_memory: u32,
    /// Expects a message, in parts of a thousand steps.
    pub(super) expect: u32,
}

pub(super) const LANE: LaneConfig = LaneConfig {
    window: 32,
    peer_window: 32,
    bulk_slots: MAX_SLOTS,
    report_delay: Duration::from_micros(25),
    heartbeat: Duration::from_millis(10),
    timeout: Duration::from_millis(50),
    proof_timeout: Duration::from_millis(50),
};
pub(super) const SHARE: u32 = 24;
const LATENCY: Duration = Duration::from_micros(5);
/// Time in which a path that failed is made again.
const REPAIR: Duration = Duration::from_millis(2);

pub(super) struct World {
    pub(super) now: Time,
    pub(super) nodes: [Node; 2],
    /// For each path, what is under way to each node.
    wires: Vec<[Wire; 2]>,
    repairs: Vec<Option<Time>>,
    epoch: u16,
    pub(super) faults: Faults,
    random: u64,
    pub(super) packets: u64,
    /// How long the device takes for a send of the bulk lane.
    pub(super) sends_take: Duration,
    /// Sends of bulk lanes that have not completed: when, by which node, and on which path.
    sends: VecDeque<(Time, usize, PathId)>,
    /// What the lanes were given to carry, by path, by the node that sends, and by lane: eager, then bulk.
    pub(super) sent: Vec<[[u64; 2]; 2]>,
    /// Packets that were lost, damaged and repeated.
    pub(super) spoiled: [u64; 3],
    /// Packets of the eager lane, by their kind.
    pub(super) kinds: [u64; PacketKind::ALL.len() + 1],
}

#[derive(Default)]
struct Wire {
    eager: VecDeque<(Time, Vec<u8>)>,
    bulk: VecDeque<(Time, Vec<u8>)>,
    /// Posted receives of the bulk lane: the message, the offset and the length, or a trailer.
    receives: VecDeque<Receive>,
    /// The payload that waits for its trailer, and the buffer where it belongs.
    payload: Option<(Option<u32>, u64, Vec<u8>)>,
}

enum Receive {
    Payload { buffer: Option<u32>, offset: u64, len: u32 },
    Trailer { has_payload: bool },
}

pub(super) struct Node {
    pub(super) peering: Peering,
    /// Messages that were sent and not delivered.
    pub(super) outgoing: BTreeMap<u32, Vec<u8>>,
    next_token: u32,
    /// By number of the message: its buffer, and what is there.
    incoming: BTreeMap<u32, (u32, Vec<u8>)>,
    next_buffer: u32,
    /// Where messages are expected, and of which lengths.
    pub(super) expects: Option<(SessionId, StreamId, Vec<usize>)>,
    pub(super) unexpected: usize,
    /// Messages that were handed on.
    pub(super) received: BTreeMap<(SessionId, StreamId), Vec<Vec<u8>>>,
    pub(super) finished: Vec<(SessionId, StreamId)>,
    pub(super) opened: Vec<SessionId>,
    pub(super) closed: Vec<SessionId>,
    pub(super) opened_streams: Vec<(SessionId, StreamId)>,
    pub(super) closed_streams: Vec<(SessionId, StreamId)>,
    pub(super) stopped: Vec<(SessionId, StreamId)>,
    pub(super) resets: Vec<(SessionId, u64)>,
    pub(super) undelivered: Vec<u32>,
    pub(super) losses: Vec<PathLoss>,
    /// Whether the application reads.
    pub(super) reads: bool,
    pub(super) unread: Vec<(SessionId, StreamId, u32)>,
    /// Whether there is memory for announced messages.
    pub(super) has_memory: bool,
    announced: Vec<IncomingId>,
}

impl Node {
    fn new(side: Side) -> Self {
        let limits = Limits { max_message: 1 << 24, max_sessions: 64, max_streams: 4, stream_share: SHARE };
        let config = PeeringConfig {
            side,
            integrity: Integrity::Crc32,
            bulk_fragment: 1 << 16,
            local: limits,
            peer: limits,
        };
        Self {
            peering: Peering::new(config),
            outgoing: BTreeMap::new(),
            next_token: 0,
            incoming: BTreeMap::new(),
            next_buffer: 0,
            expects: None,
            unexpected: 0,
            received: BTreeMap::new(),
            finished: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            opened_streams: Vec::new(),
            closed_streams: Vec::new(),
            stopped: Vec::new(),
            resets: Vec::new(),
            undelivered: Vec::new(),
            losses: Vec::new(),
            reads: true,
            unread: Vec::new(),
            has_memory: true,
            announced: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, session: SessionId, stream: StreamId, message: Vec<u8>) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.peering.send(session, stream, token, message.len() as u64).unwrap();
        self.outgoing.insert(token.0, message);
        token
    }

    /// Expects a message of `len` bytes; whether that is possible
    pub(super) fn expect(&mut self, session: SessionId, stream: StreamId, len: usize) -> bool {
        self.expect_at(session, stream, len, 0..u32::MAX)
    }

    /// As [`expect`](Self::expect), at some of the places of the stream
    pub(super) fn expect_at(
        &mut self,
        session: SessionId,
        stream: StreamId,
        len: usize,
        places: Range<u32>,
    ) -> bool {
        self.peering.expect_again(session, stream);
        let id = self.peering.expect(session, stream, len as u64, places);
        id.is_some_and(|id| {
            self.insert(id, len);
            true
        })
    }

    fn insert(&mut self, id: IncomingId, len: usize) {
        self.next_buffer += 1;
        let before = self.incoming.insert(id.0, (self.next_buffer, vec![0; len]));
        assert!(before.is_none(), "{id:?} is in use");
    }

    /// Finds memory for everything that was announced
    pub(super) fn accept_all(&mut self) {
        self.has_memory = true;
        self.announced.drain(..).for_each(|id| self.peering.accept_bulk(id));
    }

    /// Reads everything that was left unread
    pub(super) fn read_all(&mut self) {
        self.reads = true;
        for (session, stream, packets) in std::mem::take(&mut self.unread) {
            self.peering.consume(session, stream, packets);
        }
    }
}

impl World {
    pub(super) fn new(paths: usize, seed: u64) -> Self {
        let mut world = Self {
            now: Time::ZERO,
            nodes: [Node::new(Side::Connecting), Node::new(Side::Accepting)],
            wires: (0..paths).map(|_| Default::default()).collect(),
            repairs: vec![None; paths],
            epoch: 0,
            faults: Faults::default(),
            random: seed.wrapping_mul(2).wrapping_add(1),
            packets: 0,
            sends_take: Duration::ZERO,
            sends: VecDeque::new(),
            sent: vec![[[0; 2]; 2]; paths],
            spoiled: [0; 3],
            kinds: Default::default(),
        };
        (0..paths).for_each(|path| world.connect(path));
        world
    }

    fn connect(&mut self, index: usize) {
        self.epoch += 1;
        self.wires[index] = Default::default();
        for (node, probes) in self.nodes.iter_mut().zip([true, false]) {
            let path = PathId(index as u32);
            node.peering.add_path(self.now, path, self.epoch, 10_000_000_000, LANE, probes);
            (0..LANE.window).for_each(|_| node.peering.packet_receive_posted(path));
        }
    }

    /// Ends a path on one side; the other finds out by itself
    pub(super) fn cut(&mut self, index: usize, node: usize) {
        self.nodes[node].peering.lose_path(PathId(index as u32), PathLoss::Device);
    }

    /// Sends what is due, and lets what bulk lanes carry arrive later
    pub(super) fn delay_bulk(&mut self, by: Duration) {
        while self.step() {}
        let wires = self.wires.iter_mut().flatten().flat_map(|wire| &mut wire.bulk);
        wires.for_each(|(at, _)| *at += by);
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000 < u64::from(per_mille)
    }

    /// Runs until nothing is under way, or for `limit`
    pub(super) fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        loop {
            while self.step() {}
            let under_way = self.wires.iter().flatten().flat_map(|wire| {
                [wire.eager.front(), wire.bulk.front()].into_iter().flatten().map(|(at, _)| *at)
            });
            let timers = self.nodes.iter().map(|node| node.peering.next_timeout());
            let timers = timers.chain(self.sends.front().map(|(at, ..)| *at));
            let repairs = self.repairs.iter().copied().flatten();
            let Some(next) = under_way.chain(timers).chain(repairs).min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
        }
        self.now = end;
    }

    /// Does what is due now; false if there is nothing
    fn step(&mut self) -> bool {
        let mut is_busy = false;
        while let Some((_, node, path)) = self.sends.pop_front_if(|(at, ..)| *at <= self.now) {
            self.nodes[node].peering.bulk_sent(path);
            is_busy = true;
        }
        for index in 0..self.repairs.len() {
            if self.repairs[index].is_some_and(|at| at <= self.now) {
                self.repairs[index] = None;
                self.nodes.iter_mut().for_each(|node| {
                    node.peering.lose_path(PathId(index as u32), PathLoss::Device);
                });
                (0..2).for_each(|node| self.handle_events(node));
                self.repairs[index] = None;
                self.nodes.iter_mut().for_each(|node| node.peering.path_stopped(PathId(index as u32)));
                self.connect(index);
                is_busy = true;
            }
        }
        for node in 0..2 {
            for path in 0..self.wires.len() {
                while self.deliver_packet(node, path) | self.deliver_bulk(node, path) {
                    is_busy = true;
                }
            }
            self.nodes[node].peering.tick(self.now);
            self.handle_events(node);
            if self.nodes[node].expects.is_some() && self.chance(self.faults.expect) {
                let random = (self.random >> 10) as usize;
                let node = &mut self.nodes[node];
                let (session, stream, lens) = node.expects.clone().unwrap();
                node.expect(session, stream, lens[random % lens.len()]);
            }
            let memory = if self.chance(self.faults.no_memory) { 0 } else { 64 };
            while let Some(transmit) = self.nodes[node].peering.poll_transmit(self.now, memory) {
                self.transmit(node, transmit);
                is_busy = true;
            }
        }
        is_busy
    }

    fn transmit(&mut self, node: usize, transmit: Transmit) {
        self.packets += 1;
        let at = self.now + LATENCY;
        match transmit {
            Transmit::Packet { path, payload, trailer } => {
                let index = path.0 as usize;
                self.kinds[trailer.kind as usize] += 1;
                self.sent[index][node][0] += 1;
                self.nodes[node].peering.packet_sent(path);
                let mut packet = match &payload {
                    Payload::Fragment { token, offset, len } => {
                        self.nodes[node].outgoing[&token.0][*offset as usize..][..*len as usize].to_vec()
                    }
                    Payload::Inline(inline) => inline.as_slice().to_vec(),
                };
                packet.extend(trailer.to_bytes(&packet, Integrity::Crc32));
                if self.chance(self.faults.cut) {
                    self.cut(index, node);
                } else if self.chance(self.faults.lose) {
                    self.spoiled[0] += 1;
                } else {
                    if self.chance(self.faults.damage) {
                        self.spoiled[1] += 1;
                        let at = self.random as usize % packet.len();
                        packet[at] ^= 1;
                    }
                    if self.chance(self.faults.repeat) {
                        self.spoiled[2] += 1;
                        self.wires[index][1 - node].eager.push_back((at, packet.clone()));
                    }
                    self.wires[index][1 - node].eager.push_back((at, packet));
                }
            }
            Transmit::BulkReceive { path, id, offset, len } => {
                let buffer = id.map(|id| self.nodes[node].incoming[&id.0].0);
                let receives = &mut self.wires[path.0 as usize][node].receives;
                if len > 0 {
                    receives.push_back(Receive::Payload { buffer, offset, len });
                }
                receives.push_back(Receive::Trailer { has_payload: len > 0 });
            }
            Transmit::BulkSend { path, token, trailer } => {
                self.sent[path.0 as usize][node][1] += 1;
                let Grant { offset, len, .. } = trailer.grant;
                let payload = match token {
                    Some(token) => {
                        self.nodes[node].outgoing[&token.0][offset as usize..][..len as usize].to_vec()
                    }
                    None => vec![0; len as usize],
                };
                let trailer = trailer.to_bytes(&payload, Integrity::Crc32).to_vec();
                self.sends.push_back((self.now + self.sends_take, node, path));
                for mut message in [payload, trailer] {
                    if message.is_empty() || self.chance(self.faults.lose_bulk) {
                        continue;
                    }
                    if self.chance(self.faults.damage_bulk) {
                        let at = self.random as usize % message.len();
                        message[at] ^= 1;
                    }
                    self.wires[path.0 as usize][1 - node].bulk.push_back((at, message));
                }
            }
        }
    }

    fn deliver_packet(&mut self, node: usize, path: usize) -> bool {
        let queue = &mut self.wires[path][node].eager;
        let Some((_, packet)) = queue.pop_front_if(|(at, _)| *at <= self.now) else { return false };
        let found = &mut self.nodes[node];
        let id = PathId(path as u32);
        if let Some(placed) = found.peering.on_packet(self.now, id, &packet).unwrap() {
            let Placement { id, offset, len, total, is_first } = placed;
            if is_first {
                found.insert(id, total as usize);
            }
            let (_, bytes) = found.incoming.get_mut(&id.0).expect("the first part came first");
            bytes[offset as usize..][..len as usize].copy_from_slice(&packet[..len as usize]);
        }
        found.peering.packet_receive_posted(id);
        self.handle_events(node);
        true
    }

    fn deliver_bulk(&mut self, node: usize, path: usize) -> bool {
        let wire = &mut self.wires[path][node];
        let Some((_, message)) = wire.bulk.pop_front_if(|(at, _)| *at <= self.now) else { return false };
        let trailer = match wire.receives.pop_front() {
            Some(Receive::Payload { buffer, offset, len }) if message.len() <= len as usize => {
                wire.payload = Some((buffer, offset, message));
                return true;
            }
            Some(Receive::Trailer { has_payload }) => {
                if !has_payload {
                    wire.payload = Some((None, 0, Vec::new()));
                }
                message
            }
            // As on the device, a message that does not fit its receive ends the queue pair.
            _ => {
                self.cut(path, node);
                self.handle_events(node);
                return true;
            }
        };
        // Nothing else arrives on a queue pair that has failed.
        let Some((buffer, offset, payload)) = wire.payload.take() else { return true };
        let Node { peering, incoming, .. } = &mut self.nodes[node];
        // The buffer is gone if its message was given up.
        if let Some((_, bytes)) = incoming.values_mut().find(|(other, _)| Some(*other) == buffer) {
            bytes[offset as usize..][..payload.len()].copy_from_slice(&payload);
        }
        peering.on_bulk(self.now, PathId(path as u32), &payload, &trailer).expect("the peer is correct");
        self.handle_events(node);
        true
    }

    fn handle_events(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        while let Some(event) = node.peering.poll_event() {
            match event {
                Event::Opened(session) => node.opened.push(session),
                Event::StreamOpened { session, stream } => node.opened_streams.push((session, stream)),
                Event::StreamClosed { session, stream } => node.closed_streams.push((session, stream)),
                Event::Message { session, stream, id } => {
                    let (_, message) = node.incoming.remove(&id.0).expect("it is complete");
                    let count = packets(message.len() as u64);
                    node.received.entry((session, stream)).or_default().push(message);
                    if node.reads {
                        node.peering.consume(session, stream, count);
                    } else {
                        node.unread.push((session, stream, count));
                    }
                }
                Event::Finished { session, stream } => node.finished.push((session, stream)),
                Event::Announced { id, len, .. } => {
                    node.insert(id, len as usize);
                    if node.has_memory {
                        node.peering.accept_bulk(id);
                    } else {
                        node.announced.push(id);
                    }
                }
                Event::Withdrawn(id) => drop(node.incoming.remove(&id.0)),
                Event::Unexpected(id) => {
                    node.incoming.remove(&id.0).expect("it has memory");
                    node.unexpected += 1;
                }
                Event::Delivered { token, .. } => {
                    assert!(node.outgoing.remove(&token.0).is_some(), "{token:?} was delivered twice");
                }
                Event::Undelivered { token, .. } => {
                    node.outgoing.remove(&token.0).expect("it was not delivered");
                    node.undelivered.push(token.0);
                }
                Event::Stopped { session, stream } => node.stopped.push((session, stream)),
                Event::Flushed(_) | Event::PathProven(_) | Event::PeerClosed(_) => (),
                Event::Closed(session) => node.closed.push(session),
                Event::Reset { session, code } => node.resets.push((session, code)),
                Event::PathLost { path, reason, .. } => {
                    node.losses.push(reason);
                    let at = self.now + REPAIR;
                    self.repairs[path.0 as usize].get_or_insert(at);
                }
            }
        }
    }
}
