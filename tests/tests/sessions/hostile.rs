//! A hostile process beside an honest one at the same node: the honest one hardly notices, and nothing is left behind

use std::time::Duration;

use futures::future::{Either, join, join_all, select};
use rdma_async::{ByeReason, ConnectError, Node, NodeOptions, Session, Transport};
use rdma_core::session::{
    Address, ControlMessage, Hello, Integrity, Limits, Offer, PacketKind, PacketTrailer, PathEnd, PathId,
    Report,
};
use rdma_core::{Access, FRAME, QpCapacity, QpInit, QpType, QueuePair as _, SendOp};
use rdma_sim::{LineRate, Model, Net, Sim, SimDevice, Topology};
use rdma_tests::{DEVICE, Raw, connect, hello, message, node, node_over, options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Hosts of hostile processes
const HOSTS: [&str; 4] = ["c", "d", "e", "f"];
const DEVICES: [&str; 5] = [DEVICE, "rdma_en3", "rdma_en4", "rdma_en5", "rdma_en6"];

/// `b` has a cable to the honest `a`, and one to each hostile host
fn topology(hostile: usize) -> Topology {
    let ports = hostile + 1;
    let hosts = Topology::new().host("a", 1).host("b", ports);
    let hosts = hosts.cable(("a", 0), ("b", 0), LineRate::TB5);
    HOSTS[..hostile]
        .iter()
        .zip(1..)
        .fold(hosts, |hosts, (host, port)| hosts.host(host, 1).cable((*host, 0), ("b", port), LineRate::TB5))
}

/// What a hostile process does once it has a path
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Attack {
    /// Bytes that are no packet
    Noise,
    /// Frames without room for a trailer
    Short,
    /// Announcements of messages of the greatest length, none of which comes
    Announcements,
    /// First parts of messages, and never the rest
    Beginnings,
    /// Sessions and streams without end
    Sessions,
    /// Lengths that fit nothing
    Lengths,
    /// Reports of packets that were never sent
    Reports,
    /// Questions without end
    Questions,
    /// Packets of another incarnation of the path
    Epochs,
    /// Messages on the bulk lane for which nothing was granted
    Bulk,
    /// Receives nothing, so that no session of it is handed on, and exceeds its room
    Deaf,
    /// Offers the path again and again
    Offers,
    /// A long message in each of as many sessions as there may be, none of which comes, and correct reports of what arrives
    Hoard,
    /// A session that is opened and reset, and not a report of what arrives
    Vanishing,
}

/// Each attack, and whether the node ends the peering at once: what no correct peer sends is a violation
const ATTACKS: [(Attack, bool); 13] = [
    (Attack::Noise, false),
    (Attack::Short, true),
    (Attack::Announcements, true),
    (Attack::Beginnings, true),
    (Attack::Sessions, true),
    (Attack::Lengths, true),
    (Attack::Reports, true),
    (Attack::Questions, false),
    (Attack::Epochs, false),
    (Attack::Bulk, false),
    (Attack::Deaf, true),
    (Attack::Offers, false),
    (Attack::Hoard, false),
];

/// The sessions that a peer may have by default.
const MAX_SESSIONS: u32 = 16;
/// Frames of a hostile process under way at once, and its receives.
const SLOTS: usize = 32;

/// A process that speaks the bootstrap correctly, and then not
struct Hostile {
    stream: DuplexStream,
    eager: Raw,
    bulk: Raw,
    epoch: u16,
    sent: u32,
    /// The number of the packet of the node that is expected next
    received: u32,
    random: u64,
    /// The numbers of the first two sessions that a connecting side opens
    sessions: [u32; 2],
}

impl Hostile {
    /// Connects from `host` to the node that serves the other end of `stream`
    async fn introduce(net: &Net, host: &str, mut stream: DuplexStream, sessions: [u32; 2]) -> Self {
        let limits = Limits {
            max_message: 4 << 20,
            max_sessions: 1 << 18,
            max_streams: 1 << 10,
            stream_share: 1 << 14,
        };
        stream.write_all(&hello(limits).to_bytes()).await.unwrap();
        let mut theirs = [0; Hello::LEN];
        stream.read_exact(&mut theirs).await.unwrap();
        let theirs = Hello::from_bytes(&theirs).unwrap();
        stream.write_all(&ControlMessage::Confirm(theirs.nonce).to_bytes()).await.unwrap();
        let raw = || {
            let capacity = QpCapacity { recv_frames: 1024, send_frames: 1024 };
            let init = QpInit { capacity, qp_type: QpType::Uc };
            let device = net.open(host, DEVICE).unwrap();
            Raw::new(device, &init, Access::LOCAL_WRITE, 2 * SLOTS * FRAME)
        };
        let (eager, bulk) = (raw(), raw());
        Self { stream, eager, bulk, epoch: 0, sent: 0, received: 0, random: 1, sessions }
    }

    async fn next(&mut self) -> Option<ControlMessage> {
        let mut bytes = [0; ControlMessage::LEN];
        self.stream.read_exact(&mut bytes).await.ok()?;
        Some(ControlMessage::from_bytes(&bytes).unwrap())
    }

    /// Offers the path; whether it was answered
    async fn offer(&mut self, port: u32) -> bool {
        self.epoch = self.epoch.wrapping_add(1);
        let end = PathEnd {
            path: PathId(0),
            epoch: self.epoch,
            window: 64,
            rate: u64::MAX,
            eager: self.eager.qp.address(),
            bulk: self.bulk.qp.address(),
        };
        let offer = Offer { end, port, transport: Transport::Rdma, link: None };
        if self.stream.write_all(&ControlMessage::Offer(offer).to_bytes()).await.is_err() {
            return false;
        }
        loop {
            match self.next().await {
                Some(ControlMessage::Answer { end, .. }) => {
                    // Only once: an offer that is repeated names the same queue pairs.
                    if self.eager.qp.connect(&end.eager).is_ok() {
                        self.bulk.qp.connect(&end.bulk).unwrap();
                    }
                    return true;
                }
                Some(ControlMessage::Lost { .. }) | None => return false,
                Some(_) => (),
            }
        }
    }

    fn random(&mut self) -> u32 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as u32
    }

    fn noise(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.random() as u8).collect()
    }

    /// Whether the node has ended the peering
    async fn is_thrown_out(&mut self, net: &Net) -> bool {
        loop {
            let message = select(Box::pin(self.next()), Box::pin(net.sleep(Duration::from_millis(1)))).await;
            match message {
                Either::Left((None, _)) => return true,
                Either::Left((Some(ControlMessage::Bye(reason)), _)) => {
                    assert_eq!(reason, ByeReason::Violation);
                    return true;
                }
                Either::Left(_) => (),
                Either::Right(_) => return false,
            }
        }
    }

    /// The next frame of an attack
    fn frame(&mut self, attack: Attack) -> Vec<u8> {
        let number = self.sent;
        let long = FRAME - PacketTrailer::LEN;
        let [session, second] = self.sessions;
        let (kind, address, len, payload) = match attack {
            Attack::Noise => {
                let len = PacketTrailer::LEN + self.random() as usize % long;
                return self.noise(len);
            }
            Attack::Short => return self.noise(number as usize % PacketTrailer::LEN),
            Attack::Announcements => {
                let address = Address { session, stream: 0, message: number };
                (PacketKind::Announce, address, 0, (4_u64 << 20).to_le_bytes().to_vec())
            }
            Attack::Beginnings => {
                let address = Address { session, stream: 0, message: number };
                (PacketKind::Fragment, address, 17 * long as u32, self.noise(long))
            }
            Attack::Sessions => {
                let address = Address {
                    session: session + (second - session) * number,
                    stream: 2 * (number % 64),
                    message: 0,
                };
                (PacketKind::Fragment, address, 1, vec![0])
            }
            Attack::Lengths => {
                let address = Address { session, stream: 0, message: 0 };
                (PacketKind::Fragment, address, self.random(), self.noise(9))
            }
            Attack::Reports | Attack::Questions | Attack::Epochs => {
                (PacketKind::Report, Address::default(), 0, Vec::new())
            }
            Attack::Hoard if number < MAX_SESSIONS => {
                let session = session + (second - session) * number;
                let address = Address { session, stream: 0, message: 0 };
                (PacketKind::Announce, address, 0, (4_u64 << 20).to_le_bytes().to_vec())
            }
            Attack::Vanishing if number == 0 => {
                let address = Address { session, stream: 0, message: 0 };
                (PacketKind::Fragment, address, 1, vec![0])
            }
            Attack::Vanishing if number == 1 => {
                (PacketKind::Reset, Address { session, ..Address::default() }, 0, vec![0; 8])
            }
            Attack::Hoard | Attack::Vanishing => (PacketKind::Report, Address::default(), 0, Vec::new()),
            Attack::Bulk | Attack::Deaf | Attack::Offers => {
                let address = Address { session, stream: 0, message: number };
                (PacketKind::Fragment, address, 8, self.noise(8))
            }
        };
        let trailer = PacketTrailer {
            kind,
            address,
            len,
            number,
            fragment: 0,
            wants_report: attack == Attack::Questions,
            epoch: if attack == Attack::Epochs { self.epoch.wrapping_sub(1) } else { self.epoch },
            limit: self.received + SLOTS as u32,
            report: match attack {
                Attack::Reports => Report { next: 1000, bitmap: u128::MAX },
                Attack::Hoard => {
                    let bitmap = u128::MAX.checked_shl(self.received).map_or(u128::MAX, |above| !above);
                    Report { next: self.received, bitmap }
                }
                _ => Report { next: 0, bitmap: 0 },
            },
            room: 1 << 14,
        };
        let trailer = trailer.to_bytes(&payload, Integrity::Crc32);
        [&payload[..], &trailer].concat()
    }

    /// Attacks as fast as the device takes it, until the node has ended the peering or `count` frames are sent
    async fn attack(&mut self, net: &Net, attack: Attack, port: u32, count: u32) {
        if attack != Attack::Deaf {
            for slot in 0..SLOTS {
                let at = (SLOTS + slot) * FRAME;
                let sge = self.eager.sge(at..at + FRAME);
                if self.eager.recv(1 << 32 | slot as u64, &[sge]).is_err() {
                    return;
                }
            }
        }
        let mut free: Vec<_> = (0..SLOTS).collect();
        for _ in 0..count {
            if attack == Attack::Offers && !self.offer(port).await {
                return;
            }
            let lane = if attack == Attack::Bulk { &self.bulk } else { &self.eager };
            while let Some(done) = lane.poll() {
                match done.id.0 >> 32 {
                    0 => free.push(done.id.0 as usize),
                    _ => {
                        self.received += 1;
                        let at = (SLOTS + done.id.0 as u32 as usize) * FRAME;
                        // The path may be over.
                        let _ = lane.recv(done.id.0, &[lane.sge(at..at + FRAME)]);
                    }
                }
            }
            if attack == Attack::Hoard && self.sent >= MAX_SESSIONS {
                net.sleep(Duration::from_micros(20)).await;
                if self.sent.is_multiple_of(1024) {
                    self.stream.write_all(&ControlMessage::Alive.to_bytes()).await.unwrap();
                }
            }
            let Some(slot) = free.pop() else {
                net.sleep(Duration::from_micros(2)).await;
                continue;
            };
            let frame = self.frame(attack);
            let lane = if attack == Attack::Bulk { &self.bulk } else { &self.eager };
            lane.write(slot * FRAME, &frame);
            let sge = lane.sge(slot * FRAME..slot * FRAME + frame.len());
            if lane.post(slot as u64, SendOp::Send, &[sge]).is_err() {
                return;
            }
            self.sent = self.sent.wrapping_add(1);
        }
    }
}

/// Reads all messages of all sessions, as a server does
async fn read_all(net: Net, node: Node<SimDevice>) {
    while let Some(session) = node.accept().await {
        net.spawn(async move { while let Ok(Some(_)) = session.recv().await {} });
    }
}

/// Sends 64 MiB, with short messages between, and returns how long it took
pub(crate) async fn transfer(net: &Net, from: &Session<SimDevice>, to: &Session<SimDevice>) -> Duration {
    let start = net.now();
    let lens = [1 << 20, 100, 1 << 20, 30_000].repeat(32);
    let send = async {
        for (number, len) in lens.iter().enumerate() {
            from.send_bytes(&message(number, *len)).await.unwrap();
        }
    };
    let receive = async {
        for (number, len) in lens.iter().enumerate() {
            let got = to.recv().await.unwrap().unwrap();
            assert!(*got == message(number, *len), "message {number}");
        }
    };
    join(send, receive).await;
    net.now() - start
}

/// How long the honest transfer takes beside so many processes with an attack, which is a violation or not
fn duration(hostile: usize, attack: Attack, is_violation: bool, options: &NodeOptions) -> Duration {
    // An offer that leads elsewhere costs an attacker a second, in which others would fall silent.
    let mut model = Model::tb5();
    model.timing.unresolved_rtr_ns = 0;
    let run = Sim::new().model(model).topology(topology(hostile)).run(async |net| {
        let (a, b) = (node(&net, "a", options), node_over(&net, "b", &DEVICES[..hostile + 1], options));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let sessions = [&ab, &ab.open().unwrap()].map(|session| session.id().number());
        net.spawn(read_all(net.clone(), b.clone()));
        let mut attackers = Vec::new();
        for (host, port) in HOSTS[..hostile].iter().zip(1..) {
            let (ours, theirs) = tokio::io::duplex(1024);
            let serving = b.clone();
            net.spawn(async move { drop(serving.serve(theirs).await) });
            let mut attacker = Hostile::introduce(&net, host, ours, sessions).await;
            assert!(matches!(attacker.next().await, Some(ControlMessage::Confirm(_))));
            assert!(!attacker.offer(0).await, "that cable leads elsewhere");
            assert!(attacker.offer(port).await);
            attackers.push((attacker, port));
        }
        let took = {
            let attacked = attackers.iter_mut().map(|(attacker, port)| {
                let net = &net;
                async move {
                    attacker.attack(net, attack, *port, u32::MAX).await;
                    // An attacker that was thrown out keeps its objects.
                    std::future::pending::<()>().await;
                }
            });
            let honest = Box::pin(async {
                // The attackers come first.
                net.sleep(Duration::from_micros(300)).await;
                transfer(&net, &ab, &ba).await
            });
            let Either::Left((took, _)) = select(honest, join_all(attacked)).await else { unreachable!() };
            took
        };
        for (attacker, _) in &mut attackers {
            assert_eq!(attacker.is_thrown_out(&net).await, is_violation, "{attack:?}");
        }
        drop(attackers);
        // Sessions that the attacker has opened, as the application takes and drops them.
        b.close();
        drop((ab, ba));
        net.sleep(Duration::from_secs(15)).await;
        assert!(b.pool_stats().is_whole(), "{attack:?}: {:?}", b.pool_stats());
        took
    });
    run.value
}

/// How long the honest transfer takes alone
fn alone(options: &NodeOptions) -> Duration {
    let run = Sim::new().topology(topology(1)).run(async |net| {
        let (a, b) = (node(&net, "a", options), node_over(&net, "b", &DEVICES[..2], options));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        transfer(&net, &ab, &ba).await
    });
    run.value
}

/// Catches memory, credit or time of an honest peer that a hostile one can take.
#[test]
fn an_honest_session_keeps_its_goodput() {
    let options = options();
    let alone = alone(&options);
    for (attack, is_violation) in ATTACKS {
        let beside = duration(1, attack, is_violation, &options);
        let part = alone.as_secs_f64() / beside.as_secs_f64();
        assert!(part >= 0.9, "{attack:?}: {part:.3} of the goodput");
    }
}

/// Regression: three peers that announced messages and sent none had all receive memory. Catches a peer without a share of its own.
#[test]
fn an_honest_session_keeps_its_goodput_beside_several_hostile_peers() {
    let options = options();
    let alone = alone(&options);
    for hostile in [3, 4] {
        for attack in [Attack::Hoard, Attack::Bulk, Attack::Questions] {
            let beside = duration(hostile, attack, false, &options);
            let part = alone.as_secs_f64() / beside.as_secs_f64();
            assert!(part >= 0.9, "{hostile} times {attack:?}: {part:.3} of the goodput");
        }
    }
}

/// Regression: sessions of a peer that was given up waited to be accepted, with their messages, and the wait for a proven path went on
/// when the last of them was over. Catches sessions that are handed on before a path is proven.
#[test]
fn a_peer_that_reports_nothing_and_is_gone_is_given_up() {
    Sim::new().topology(topology(1)).run(async |net| {
        let b = node_over(&net, "b", &DEVICES[..2], &options());
        let (ours, theirs) = tokio::io::duplex(1024);
        // Place 0 of the connecting side, generation 1.
        let first = 1 << 19;
        let attack = async {
            let mut attacker = Hostile::introduce(&net, "c", ours, [first; 2]).await;
            assert!(matches!(attacker.next().await, Some(ControlMessage::Confirm(_))));
            assert!(!attacker.offer(0).await, "that cable leads elsewhere");
            assert!(attacker.offer(1).await);
            attacker.attack(&net, Attack::Vanishing, 1, 16).await;
            // The node waits for a proof until it gives up.
            while attacker.next().await.is_some() {}
        };
        let (served, ()) = join(b.serve(theirs), attack).await;
        let error = served.map(drop).unwrap_err();
        assert!(matches!(error, ConnectError::Lost(_)), "{error:?}");
        net.sleep(Duration::from_secs(15)).await;
        assert!(b.pool_stats().is_whole(), "{:?}", b.pool_stats());
    });
}
