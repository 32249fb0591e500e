//! The programs that published figures come from, as their source or description has them

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join_all;
use rdma_bare::BareQp;
use rdma_core::{Completion, FRAME, Opcode, QpInit, Runtime, Work};
use rdma_sim::{LineRate, Model, Net, Sim, SimDevice, Topology};
use rdma_tests::value_of;

type Bare = BareQp<SimDevice>;

/// The longest buffer of MLX's JACCL
pub(crate) const BUFFER: usize = 512 << 10;

/// What each process of a program does
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// Every rank sends its vector to all others and adds theirs: MLX's JACCL for two ranks, for small vectors and in its first
    /// versions
    Mesh {
        /// Bytes of the vector
        bytes: usize,
        /// Bytes of a message
        buffer: usize,
    },
    /// Parts of the vector go around in both directions at once, first to be added, then to be copied; a step begins when the
    /// one before has ended
    Ring {
        /// Bytes of the vector
        bytes: usize,
        /// Messages in flight in each direction while parts are added, and while they are copied
        depths: [usize; 2],
    },
    /// The first rank sends, the second answers, so many times one after another
    Ping {
        /// Bytes of a message
        bytes: usize,
        /// How many times
        rounds: u32,
    },
    /// The first rank sends messages to the second, which looks at every byte
    Stream {
        /// Bytes of a message
        bytes: usize,
        /// How many
        count: usize,
        /// Messages in flight
        depth: usize,
        /// Whether the receiver compares every byte with what it expects
        verifies: bool,
    },
}

/// How long `program` takes on so many hosts with a cable of this rate between every two, until the last has finished
///
/// All begin at once. The memory of a message is counted from its frames.
pub(crate) fn time_of(model: Model, hosts: usize, rate: LineRate, program: Program) -> Duration {
    let names: Vec<_> = (0..hosts).map(|host| format!("host{host}")).collect();
    let mut topology = names.iter().fold(Topology::new(), |topology, name| topology.host(name, 6));
    for (a, from) in names.iter().enumerate() {
        for (b, to) in names.iter().enumerate().skip(a + 1) {
            // The ports of a host lead to the others in the order of their ranks.
            topology = topology.cable((from.as_str(), b - 1), (to.as_str(), a), rate);
        }
    }
    value_of(Sim::new().sanitize(false).model(model).topology(topology), async |net| {
        let mut ranks: Vec<_> = names.iter().map(|name| Rank::new(&net, name)).collect();
        for a in 0..hosts {
            for b in a + 1..hosts {
                let open = |host: usize, peer: usize| net.host(&names[host]).open_to(&names[peer]).unwrap();
                let memory = program.memory();
                let init = QpInit::with_frames(4095);
                let [at_a, at_b] = Bare::pair_of(open(a, b), open(b, a), &init, memory).unwrap();
                ranks[a].qps.push(at_a);
                ranks[b].qps.push(at_b);
            }
        }
        net.sleep(Duration::from_secs(1)).await;
        let start = net.now();
        let mut ends = Vec::new();
        for (number, (name, mut rank)) in names.iter().zip(ranks).enumerate() {
            let (sender, receiver) = oneshot::channel();
            let of_rank = net.clone();
            net.host(name).spawn(async move {
                program.run(number, &mut rank).await;
                // With its queue pairs, which live until all have finished.
                let _ = sender.send((of_rank.now(), rank));
            });
            ends.push(receiver);
        }
        let ended: Vec<_> =
            join_all(ends).await.into_iter().map(|end| end.expect("every rank ends")).collect();
        let last = ended.iter().map(|(end, _)| *end).max();
        last.expect("there are ranks").since(start)
    })
}

impl Program {
    /// Bytes of memory of each queue pair
    fn memory(self) -> usize {
        match self {
            Self::Mesh { buffer, .. } => 4 * buffer,
            Self::Ring { .. } => 4 * BUFFER,
            Self::Ping { bytes, .. } => 2 * bytes.next_multiple_of(FRAME),
            Self::Stream { bytes, depth, .. } => depth * bytes.next_multiple_of(FRAME),
        }
    }

    async fn run(self, number: usize, rank: &mut Rank) {
        match self {
            Self::Mesh { bytes, buffer } => rank.add_all(bytes.div_ceil(buffer), buffer).await,
            Self::Ring { bytes, depths } => {
                let ranks = rank.qps.len() + 1;
                // The neighbours in the ring, by their place among the peers.
                let place = |peer: usize| if peer > number { peer - 1 } else { peer };
                let neighbours = [(number + 1) % ranks, (number + ranks - 1) % ranks].map(place);
                let count = bytes.div_ceil(2 * ranks).div_ceil(BUFFER);
                for step in 0..2 * (ranks - 1) {
                    let adds = step + 1 < ranks;
                    rank.exchange(neighbours, count, depths[usize::from(!adds)], adds).await;
                }
            }
            Self::Ping { bytes, rounds } => rank.ping(number == 0, bytes, rounds).await,
            Self::Stream { bytes, count, depth, .. } if number == 0 => rank.stream(bytes, count, depth).await,
            Self::Stream { bytes, count, depth, verifies } => rank.sink(bytes, count, depth, verifies).await,
        }
    }
}

/// One process of a program, on a host of its own, with a queue pair to each of its peers in the order of their ranks
struct Rank {
    runtime: Arc<dyn Runtime>,
    qps: Vec<Bare>,
}

impl Rank {
    fn new(net: &Net, host: &str) -> Self {
        Self { runtime: net.host(host).runtime(), qps: Vec::new() }
    }

    fn copy(&self, bytes: usize) {
        self.runtime.spend(Work::Copy { bytes });
    }

    fn reduce(&self, bytes: usize) {
        self.runtime.spend(Work::Reduce { bytes });
    }

    /// The next completion of any queue pair; all are polled in turn
    async fn next(&mut self) -> (usize, Completion) {
        poll_fn(|cx| {
            for (peer, qp) in self.qps.iter_mut().enumerate() {
                if let Poll::Ready(completion) = pin!(qp.completion()).poll(cx) {
                    return Poll::Ready((peer, completion.expect("nothing fails")));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Offers buffer `number` of two for receiving
    fn recv(&mut self, peer: usize, number: usize, buffer: usize) {
        let at = (2 + number % 2) * buffer;
        self.qps[peer].recv(number as u64, at..at + buffer).expect("two are in flight");
    }

    /// Sends buffer `number` of two
    fn send(&mut self, peer: usize, number: usize, buffer: usize) {
        let at = number % 2 * buffer;
        self.qps[peer].send(number as u64, at..at + buffer).expect("two are in flight");
    }

    /// Copies buffer `number` and sends it to all
    fn send_all(&mut self, number: usize, buffer: usize) {
        self.copy(buffer);
        (0..self.qps.len()).for_each(|peer| self.send(peer, number, buffer));
    }

    /// [`Program::Mesh`]: a buffer is filled again when all peers have it, and what arrives is added in the order of the ranks
    async fn add_all(&mut self, count: usize, buffer: usize) {
        let peers = self.qps.len();
        let (mut posted, mut sent, mut added) = (0, 0, 0);
        let (mut in_buffer, mut arrived, mut used) = ([0; 2], vec![0; peers], vec![0; peers]);
        for number in 0..count.min(2) {
            (0..peers).for_each(|peer| self.recv(peer, number, buffer));
            self.send_all(number, buffer);
            posted += 1;
        }
        while sent < peers * count || added < peers * count {
            let (peer, completion) = self.next().await;
            if completion.opcode == Opcode::Recv {
                arrived[peer] += 1;
            } else {
                sent += 1;
                let sends = &mut in_buffer[completion.id.0 as usize % 2];
                *sends += 1;
                if *sends == peers && posted < count {
                    *sends = 0;
                    self.send_all(posted, buffer);
                    posted += 1;
                }
            }
            for peer in 0..peers {
                while used[peer] < arrived[peer] && used[peer] < posted {
                    self.reduce(buffer);
                    used[peer] += 1;
                    added += 1;
                    if used[peer] + 1 < count {
                        self.recv(peer, used[peer] + 1, buffer);
                    }
                }
            }
        }
    }

    /// A step of [`Program::Ring`]: `count` buffers to each neighbour and from it
    async fn exchange(&mut self, neighbours: [usize; 2], count: usize, depth: usize, adds: bool) {
        let mut posted = [0; 2];
        let (mut sent, mut used) = (0, 0);
        for number in 0..count.min(depth) {
            for (way, &peer) in neighbours.iter().enumerate() {
                self.recv(peer, number, BUFFER);
                self.copy(BUFFER);
                self.send(peer, number, BUFFER);
                posted[way] += 1;
            }
        }
        while sent < 2 * count || used < 2 * count {
            let (peer, completion) = self.next().await;
            let way = usize::from(neighbours[0] != peer);
            if completion.opcode == Opcode::Recv {
                if adds {
                    self.reduce(BUFFER)
                } else {
                    self.copy(BUFFER)
                }
                used += 1;
                let next = completion.id.0 as usize + depth;
                if next < count {
                    self.recv(peer, next, BUFFER);
                }
            } else {
                sent += 1;
                if posted[way] < count {
                    self.copy(BUFFER);
                    self.send(peer, posted[way], BUFFER);
                    posted[way] += 1;
                }
            }
        }
    }

    async fn ping(&mut self, begins: bool, bytes: usize, rounds: u32) {
        let [qp] = &mut self.qps[..] else { panic!("a ping has two ends") };
        let to_send = bytes.next_multiple_of(FRAME);
        qp.recv(1, 0..bytes).unwrap();
        for round in 0..rounds {
            if begins {
                qp.send(2, to_send..to_send + bytes).unwrap();
            }
            qp.received().await.unwrap();
            if round + 1 < rounds {
                qp.recv(1, 0..bytes).unwrap();
            }
            if !begins {
                qp.send(2, to_send..to_send + bytes).unwrap();
            }
        }
        // The first rank has the last answer; a queue pair that is dropped sends nothing.
        if !begins {
            qp.completion().await.unwrap();
        }
    }

    async fn stream(&mut self, bytes: usize, count: usize, depth: usize) {
        let [qp] = &mut self.qps[..] else { panic!("a stream has two ends") };
        let place = |number: usize| number % depth * bytes.next_multiple_of(FRAME);
        for number in 0..count {
            if number >= depth {
                qp.completion().await.unwrap();
            }
            qp.send(number as u64, place(number)..place(number) + bytes).unwrap();
        }
        for _ in 0..count.min(depth) {
            qp.completion().await.unwrap();
        }
    }

    async fn sink(&mut self, bytes: usize, count: usize, depth: usize, verifies: bool) {
        let place = |number: usize| number % depth * bytes.next_multiple_of(FRAME);
        for number in 0..count.min(depth) {
            self.qps[0].recv(number as u64, place(number)..place(number) + bytes).unwrap();
        }
        for number in 0..count {
            self.qps[0].completion().await.unwrap();
            if verifies {
                self.reduce(bytes);
            }
            if number + depth < count {
                self.qps[0].recv(number as u64, place(number)..place(number) + bytes).unwrap();
            }
        }
    }
}

/// How many receives of 64 KiB a queue pair takes for which `asked` frames were asked
pub(crate) fn accepted_receives(asked: u32) -> f64 {
    const LEN: usize = 64 << 10;
    value_of(Sim::new(), async |net| {
        let open = |host| net.open(host, rdma_tests::DEVICE).unwrap();
        let init = QpInit::with_frames(asked);
        let [mut qp, _peer] = Bare::pair_of(open("a"), open("b"), &init, 100 * LEN).unwrap();
        (0..100)
            .take_while(|number| {
                qp.recv(*number, LEN * *number as usize..LEN * (*number as usize + 1)).is_ok()
            })
            .count() as f64
    })
}
