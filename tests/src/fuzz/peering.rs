//! A peering against a hostile peer, on both lanes

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use rdma_core::Time;
use rdma_core::session::*;

use super::transcript::{Transcript, log};

const LANE: LaneConfig = LaneConfig {
    window: 32,
    peer_window: 32,
    bulk_slots: MAX_SLOTS,
    report_delay: Duration::from_micros(25),
    heartbeat: Duration::from_millis(10),
    timeout: Duration::from_millis(50),
    proof_timeout: Duration::from_millis(50),
};
const LIMITS: Limits = Limits { max_message: 1 << 20, max_sessions: 4, max_streams: 4, stream_share: 24 };
const PATH: PathId = PathId(0);
/// Lengths of messages around which something changes.
const LENS: [u64; 8] = [0, 1, 4031, 4032, 4033, 68_544, 68_545, 1 << 20];

#[derive(Debug)]
enum Step {
    /// A packet of the peer with a valid checksum and a number that may follow
    Packet {
        trailer: PacketTrailer,
        payload: usize,
    },
    /// A packet of arbitrary bytes
    Bytes(Vec<u8>),
    /// The oldest receive of the bulk lane completes
    Bulk {
        is_true: bool,
        part: BulkPart,
        len_off_by: i64,
    },
    Send {
        session: u32,
        stream: u32,
        len: u64,
    },
    Open,
    OpenStream {
        session: u32,
    },
    Finish {
        session: u32,
        stream: u32,
    },
    Close {
        session: u32,
    },
    Reset {
        session: u32,
    },
    Consume {
        session: u32,
        stream: u32,
        packets: u32,
    },
    AcceptBulk,
    Expect {
        session: u32,
        stream: u32,
        len: u64,
    },
    Transmit {
        has_memory: bool,
    },
    Advance(Duration),
    LosePath,
}

struct Victim {
    peering: Peering,
    now: Time,
    epoch: u16,
    /// The number of the peer's next packet, and how many packets the victim has sent.
    number: u32,
    sent: u32,
    limit: u32,
    /// Sessions that exist or existed.
    sessions: Vec<SessionId>,
    announced: VecDeque<IncomingId>,
    /// Messages that the victim keeps memory for.
    incoming: HashSet<IncomingId>,
    outgoing: HashSet<u32>,
    next_token: u32,
    /// Posted receives of the bulk lane.
    receives: VecDeque<(u64, u32)>,
    /// Grants that were sent.
    grants: VecDeque<Grant>,
}

/// Operands out of bytes; missing ones are zero
struct Operands<'a>(std::slice::Iter<'a, u8>);

impl Operands<'_> {
    fn byte(&mut self) -> u32 {
        self.0.next().copied().unwrap_or(0).into()
    }

    fn session(&mut self) -> u32 {
        // The first generations of places of both sides, and any number.
        match self.byte() {
            any if any >= 240 => self.byte() << 24 | self.byte() << 16 | self.byte(),
            byte => ((byte / 32 + 1) << 19) | ((byte / 2 % 5) << 1) | (byte % 2),
        }
    }

    fn stream(&mut self) -> u32 {
        match self.byte() {
            255 => StreamId(u32::MAX).0,
            254 => u32::MAX - self.byte(),
            byte => byte % 12,
        }
    }

    fn step(&mut self, victim: &Victim) -> Option<Step> {
        let op = self.0.next()?;
        Some(match op % 16 {
            0..=5 => self.packet(victim),
            6 => Step::Bytes((0..self.byte() % 80).map(|_| self.byte() as u8).collect()),
            7 => {
                let byte = self.byte();
                let len_off_by = if byte & 4 == 0 { 0 } else { i64::from(byte >> 3) - 16 };
                let part = match self.byte() % 4 {
                    0 => BulkPart::Void,
                    1 => BulkPart::Inner,
                    _ => BulkPart::Last,
                };
                Step::Bulk { is_true: byte & 1 == 0, part, len_off_by }
            }
            8 => {
                let (session, stream) = (self.session(), self.stream());
                Step::Send { session, stream, len: LENS[self.byte() as usize % LENS.len()] }
            }
            9 => match self.byte() % 5 {
                0 => Step::Open,
                1 => Step::OpenStream { session: self.session() },
                2 => Step::Finish { session: self.session(), stream: self.stream() },
                3 => Step::Close { session: self.session() },
                _ => Step::Reset { session: self.session() },
            },
            10 => {
                let (session, stream) = (self.session(), self.stream());
                Step::Consume { session, stream, packets: self.byte() }
            }
            11 if op & 64 != 0 => {
                let (session, stream) = (self.session(), self.stream());
                Step::Expect { session, stream, len: LENS[self.byte() as usize % LENS.len()] }
            }
            11 => Step::AcceptBulk,
            12 | 13 => Step::Transmit { has_memory: op & 64 == 0 },
            14 => Step::Advance(Duration::from_micros(1 << (self.byte() % 18))),
            _ => Step::LosePath,
        })
    }

    fn packet(&mut self, victim: &Victim) -> Step {
        let flags = self.byte();
        let kind = PacketKind::ALL[flags as usize % PacketKind::ALL.len()];
        let address = Address { session: self.session(), stream: self.stream(), message: self.byte() % 28 };
        let len = LENS[self.byte() as usize % LENS.len()] as u32;
        let mut fragment = self.byte() % 18;
        if kind == PacketKind::Bulk && flags & 128 == 0 {
            fragment %= MAX_GRANTS as u32 + 1;
        }
        let whole = (len as usize).saturating_sub(fragment as usize * FRAGMENT).min(FRAGMENT);
        let payload = match kind {
            _ if flags & 128 != 0 => self.byte() as usize,
            PacketKind::Fragment => whole,
            PacketKind::Announce | PacketKind::Reset => 8,
            PacketKind::Bulk => {
                Grant::LEN * fragment as usize + Address::LEN * (self.byte() as usize % (MAX_ARRIVALS + 1))
            }
            _ => 0,
        };
        let next = victim.sent.wrapping_sub(self.byte() % 4);
        let report = Report { next, bitmap: u128::from(self.byte()) * 0x0101_0101_0101_0101 };
        let skipped = if flags & 64 == 0 { 0 } else { self.byte() % 40 };
        let trailer = PacketTrailer {
            kind,
            fragment: fragment as u8,
            wants_report: flags & 32 != 0,
            epoch: victim.epoch,
            number: victim.number.wrapping_add(skipped),
            limit: victim.sent.wrapping_add(self.byte() % 34),
            report,
            address,
            len,
            room: self.byte() * 2,
        };
        Step::Packet { trailer, payload }
    }
}

impl Victim {
    fn new() -> Self {
        let config = PeeringConfig {
            side: Side::Accepting,
            integrity: Integrity::Crc32,
            bulk_fragment: 1 << 16,
            local: LIMITS,
            peer: LIMITS,
        };
        let mut victim = Self {
            peering: Peering::new(config),
            now: Time::ZERO,
            epoch: 0,
            number: 0,
            sent: 0,
            limit: 0,
            sessions: Vec::new(),
            announced: VecDeque::new(),
            incoming: HashSet::new(),
            outgoing: HashSet::new(),
            next_token: 0,
            receives: VecDeque::new(),
            grants: VecDeque::new(),
        };
        victim.connect();
        victim
    }

    fn connect(&mut self) {
        self.epoch += 1;
        (self.number, self.sent, self.limit) = (0, 0, LANE.peer_window);
        self.receives.clear();
        self.grants.clear();
        self.peering.add_path(self.now, PATH, self.epoch, 1 << 33, LANE, true);
        (0..LANE.window).for_each(|_| self.peering.packet_receive_posted(PATH));
    }

    fn id(&self, number: u32) -> Option<SessionId> {
        let last = self.sessions.last();
        self.sessions.iter().find(|id| id.number() == number).or(last).copied()
    }

    /// Carries a step out; false if the peer has violated the protocol
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Packet { trailer, payload } => return self.on_packet(trailer, *payload),
            Step::Bytes(bytes) => return self.on_bytes(bytes),
            Step::Bulk { is_true, part, len_off_by } => return self.on_bulk(*is_true, *part, *len_off_by),
            Step::Send { session, stream, len } => {
                let Some(id) = self.id(*session) else { return true };
                self.next_token += 1;
                if self.peering.send(id, StreamId(*stream), Token(self.next_token), *len).is_ok() {
                    self.outgoing.insert(self.next_token);
                }
            }
            Step::Open => self.sessions.extend(self.peering.open()),
            Step::OpenStream { session } => {
                let id = self.id(*session);
                let _refused = id.and_then(|id| self.peering.open_stream(id, Priority::Low)).is_none();
            }
            Step::Finish { session, stream } => {
                let id = self.id(*session);
                id.into_iter().for_each(|id| self.peering.finish(id, StreamId(*stream)));
            }
            Step::Close { session } => {
                self.id(*session).into_iter().for_each(|id| self.peering.close(id));
            }
            Step::Reset { session } => {
                self.id(*session).into_iter().for_each(|id| self.peering.reset(id, 7));
            }
            Step::Consume { session, stream, packets } => {
                let id = self.id(*session);
                id.into_iter().for_each(|id| _ = self.peering.consume(id, StreamId(*stream), *packets));
            }
            Step::AcceptBulk => {
                self.announced.pop_front().into_iter().for_each(|id| self.peering.accept_bulk(id));
            }
            Step::Expect { session, stream, len } => {
                let (stream, places) = (StreamId(*stream), (*len % 2) as u32..3);
                let id = self.id(*session).and_then(|id| self.peering.expect(id, stream, *len, places));
                if let Some(id) = id {
                    assert!(self.incoming.insert(id), "{id:?} is in use");
                }
            }
            Step::Transmit { has_memory } => self.transmit(*has_memory),
            Step::Advance(by) => {
                self.now += *by;
                self.peering.tick(self.now);
            }
            Step::LosePath => self.peering.lose_path(PATH, PathLoss::Device),
        }
        true
    }

    fn on_packet(&mut self, trailer: &PacketTrailer, len: usize) -> bool {
        let mut payload = vec![0; len];
        if trailer.kind == PacketKind::Announce
            && let Some(bytes) = payload.first_chunk_mut()
        {
            *bytes = (u64::from(trailer.len) + u64::from(trailer.room)).to_le_bytes();
        }
        if trailer.kind == PacketKind::Bulk {
            let grants = (usize::from(trailer.fragment) * Grant::LEN).min(payload.len());
            let (grants, arrivals) = payload.split_at_mut(grants);
            for (slot, place) in (trailer.room..).zip(grants.as_chunks_mut::<{ Grant::LEN }>().0) {
                let offset = u64::from(trailer.fragment) << 14;
                let address = trailer.address;
                *place = Grant { slot: slot % 40, len: trailer.len % (1 << 16), offset, address }.to_bytes();
            }
            let places = arrivals.as_chunks_mut::<{ Address::LEN }>().0;
            places.iter_mut().for_each(|place| *place = trailer.address.to_bytes());
        }
        let packet = [payload.as_slice(), &trailer.to_bytes(&payload, Integrity::Crc32)].concat();
        self.number = trailer.number.wrapping_add(1);
        self.on_bytes(&packet)
    }

    fn on_bytes(&mut self, packet: &[u8]) -> bool {
        let result = self.peering.on_packet(self.now, PATH, packet);
        self.peering.packet_receive_posted(PATH);
        match result {
            Ok(Some(placed)) if placed.is_first => {
                assert!(self.incoming.insert(placed.id), "{:?} is in use", placed.id);
            }
            Ok(Some(placed)) => assert!(self.incoming.contains(&placed.id)),
            Ok(None) => (),
            Err(_) => return false,
        }
        true
    }

    fn on_bulk(&mut self, is_true: bool, part: BulkPart, len_off_by: i64) -> bool {
        let Some((offset, len)) = self.receives.pop_front() else { return true };
        let grant = self.grants.pop_front().filter(|_| is_true);
        let other = Grant { slot: 0, len, offset, address: Address::default() };
        let grant = grant.unwrap_or(other);
        let len = i64::from(len).saturating_add(len_off_by).clamp(0, 1 << 16) as usize;
        let payload = vec![0; len];
        let trailer = BulkTrailer { grant, epoch: self.epoch, part };
        let trailer = trailer.to_bytes(&payload, Integrity::Crc32);
        self.peering.on_bulk(self.now, PATH, &payload, &trailer).is_ok()
    }

    fn transmit(&mut self, has_memory: bool) {
        while let Some(transmit) = self.peering.poll_transmit(self.now, if has_memory { 64 } else { 0 }) {
            match transmit {
                Transmit::Packet { path, payload, trailer } => {
                    self.peering.packet_sent(path);
                    assert_eq!(trailer.number, self.sent, "numbers follow each other");
                    self.sent = self.sent.wrapping_add(1);
                    if let Payload::Inline(inline) = payload
                        && trailer.kind == PacketKind::Bulk
                    {
                        let grants = inline.as_slice().as_chunks::<{ Grant::LEN }>().0.iter();
                        self.grants.extend(grants.take(trailer.fragment.into()).map(Grant::from_bytes));
                    }
                }
                Transmit::BulkReceive { offset, len, .. } => {
                    self.receives.push_back((offset, len));
                    assert!(self.receives.len() <= MAX_SLOTS as usize, "more receives than a lane has");
                }
                Transmit::BulkSend { path, token, .. } => {
                    assert!(token.is_none_or(|token| self.outgoing.contains(&token.0)));
                    self.peering.bulk_sent(path);
                }
            }
        }
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.peering.poll_event() {
            match event {
                Event::Opened(id) => self.sessions.push(id),
                Event::Message { id, .. } => {
                    assert!(self.incoming.remove(&id), "{id:?} was handed on twice");
                }
                Event::Withdrawn(id) => {
                    // It may not have been announced: messages before it were unknown.
                    self.incoming.remove(&id);
                    self.announced.retain(|other| *other != id);
                }
                Event::Unexpected(id) => assert!(self.incoming.remove(&id), "{id:?} was not expected"),
                Event::Announced { id, .. } => {
                    assert!(self.incoming.insert(id));
                    self.announced.push_back(id);
                }
                Event::Delivered { token, .. } | Event::Undelivered { token, .. } => {
                    assert!(self.outgoing.remove(&token.0), "{token:?} ended twice");
                }
                Event::PathLost { path, .. } => {
                    self.peering.path_stopped(path);
                    self.connect();
                }
                _ => (),
            }
        }
        // Of both sides' sessions and streams, each message takes one packet of room.
        let streams = 1 + 2 * LIMITS.max_streams;
        let most = 2 * LIMITS.max_sessions * streams * LIMITS.stream_share;
        assert!(self.incoming.len() <= most as usize, "{} messages", self.incoming.len());
        assert!(self.peering.session_count() <= 2 * LIMITS.max_sessions as usize);
    }
}

/// Feeds a peering with the packets and bulk messages of a hostile peer, while its application does anything
///
/// It must never panic, keep more than its limits, end a message twice, or hand one on twice.
pub fn peering(data: &[u8]) {
    let _transcript = Transcript::begin();
    let mut victim = Victim::new();
    let mut operands = Operands(data.iter());
    while let Some(step) = operands.step(&victim) {
        log(&step);
        if !victim.step(&step) {
            break;
        }
        victim.handle_events();
    }
}
