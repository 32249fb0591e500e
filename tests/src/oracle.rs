//! Random verbs programs under random faults, against an oracle
//!
//! A [`Program`] posts, polls and sleeps on two connected queue pairs. The oracle does not use the fabric: it matches messages with
//! receives by counting frames, and predicts all completions. Under faults that lose frames it checks less: messages arrive
//! unchanged, in order, at most once, and before the cable is unplugged.

use std::time::Duration;

use rdma_async::time::sleep;
use rdma_bare::BareQp;
use rdma_core::{Cause, Opcode, QpInit, Status, frames};
use rdma_sim::{Choices, Digest, FaultKind, FaultPlan, Net, RandomFaults, Sim, SimDevice, Topology};

use crate::DEVICE;

/// An operation of one side
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Side, length: posts a send
    Send(usize, usize),
    /// Side, length: posts a receive
    Recv(usize, usize),
    /// Side: polls all completions
    Poll(usize),
    /// Sleeps for this many nanoseconds
    Rest(u64),
}

/// A program and its faults
#[derive(Clone, Debug)]
pub struct Program {
    /// Depth of the queues of both sides, in frames
    pub depth: u32,
    /// The operations, in order
    pub ops: Vec<Op>,
    /// The faults
    pub faults: FaultPlan,
}

/// The result of a program
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Differences from the prediction of the oracle
    pub violations: Vec<String>,
    /// The fingerprint of the run
    pub digest: Digest,
    /// The number of completions
    pub completions: usize,
}

/// Frames in a slot of the arena: the longest message.
const SLOT: usize = 5 * rdma_core::FRAME;
/// Slots for sends, and as many for receives.
const SLOTS: usize = 24;

impl Program {
    /// Generates a program from `choices`, in half of the cases without faults
    pub fn generate(choices: &mut dyn Choices) -> Self {
        let lens = [1, 64, 4095, 4096, 4097, 8192, 12_000, 20_480];
        let depth = [1, 7, 15, 63][choices.pick(4) as usize];
        let count = 8 + choices.pick(56);
        let mut ops = Vec::new();
        for _ in 0..count {
            let side = choices.pick(2) as usize;
            let len = lens[choices.pick(lens.len() as u32) as usize];
            match choices.pick(8) {
                // A message and its receive, in either order: single ones rarely match.
                0..=2 => {
                    let pair = [Op::Send(side, len), Op::Recv(1 - side, len)];
                    ops.extend(if choices.pick(2) == 0 { pair } else { [pair[1], pair[0]] });
                }
                3 => ops.push(Op::Send(side, len)),
                4 => ops.push(Op::Recv(side, len)),
                5 => ops.push(Op::Poll(side)),
                _ => ops.push(Op::Rest(u64::from(choices.pick(30_000)))),
            }
        }
        let faults = if choices.pick(2) == 0 {
            FaultPlan::none()
        } else {
            RandomFaults::up_to(4).within(Duration::from_micros(400)).draw(choices, &Topology::pair())
        };
        Self { depth, ops, faults }
    }

    /// Whether the faults only delay, so that all matching messages must arrive
    fn is_lossless(&self) -> bool {
        self.faults.0.iter().all(|fault| {
            matches!(
                fault.kind,
                FaultKind::Slow { .. }
                    | FaultKind::Delay { .. }
                    | FaultKind::Pause
                    | FaultKind::Resume
                    | FaultKind::LeakPds { .. }
                    | FaultKind::Unresolvable
                    | FaultKind::Resolvable
            )
        })
    }

    /// Runs the program with the choices of `seed`
    pub fn run(&self, seed: u64) -> Outcome {
        // The plan begins with the program, after the queue pairs were connected.
        let sim = Sim::new().seed(seed);
        let run = sim.try_run(|net| async move {
            let mut oracle = Oracle::new(&net, self.depth);
            for fault in &self.faults.0 {
                net.inject(fault.clone());
            }
            for op in &self.ops {
                oracle.take(&net, *op).await;
            }
            sleep(&*net.runtime(), Duration::from_secs(1)).await;
            oracle.take(&net, Op::Poll(0)).await;
            oracle.take(&net, Op::Poll(1)).await;
            oracle.conclude(self.is_lossless())
        });
        match run {
            Ok(run) => {
                let (mut violations, completions) = run.value;
                violations.extend(run.findings.iter().map(ToString::to_string));
                Outcome { violations, digest: run.digest, completions }
            }
            Err(error) => panic!("the program does not end: {error}"),
        }
    }
}

struct Oracle {
    sides: [Side; 2],
    violations: Vec<String>,
}

struct Side {
    qp: BareQp<SimDevice>,
    depth: u32,
    /// Lengths of posted sends and receives.
    sends: Vec<usize>,
    recvs: Vec<usize>,
    /// Statuses of completed sends and receives, the latter with what arrived.
    sent: Vec<Status>,
    received: Vec<(Status, Vec<u8>)>,
    is_cut: bool,
}

/// The contents of message `number`, which differ from those of all others
fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number.wrapping_mul(31) ^ at.wrapping_mul(7) ^ at >> 8) as u8).collect()
}

/// The prediction: the completed receives, each with the number of its message unless it fails, and the count of completed sends
fn expect(sends: &[usize], recvs: &[usize]) -> (Vec<Option<usize>>, usize) {
    let mut ended = Vec::new();
    for (number, len) in sends.iter().enumerate() {
        let mut left = frames(*len);
        let mut is_whole = true;
        loop {
            let Some(space) = recvs.get(ended.len()) else { return (ended, number) };
            let fits = is_whole && left == frames(*space) && len <= space;
            ended.push(fits.then_some(number));
            if left <= frames(*space) {
                break;
            }
            left -= frames(*space);
            is_whole = false;
        }
    }
    (ended, sends.len())
}

impl Oracle {
    fn new(net: &Net, depth: u32) -> Self {
        let open = |host| net.open(host, DEVICE).expect("the cable is plugged in");
        let pair = BareQp::pair_of(open("a"), open("b"), &QpInit::with_frames(depth), 2 * SLOTS * SLOT);
        let pair = pair.expect("both are fresh");
        let side = |qp| Side {
            qp,
            depth,
            sends: Vec::new(),
            recvs: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            is_cut: false,
        };
        Self { sides: pair.map(side), violations: Vec::new() }
    }

    async fn take(&mut self, net: &Net, op: Op) {
        let result = match op {
            Op::Send(side, len) => self.sides[side].post(Opcode::Send, len),
            Op::Recv(side, len) => self.sides[side].post(Opcode::Recv, len),
            Op::Poll(side) => self.sides[side].poll(),
            Op::Rest(ns) => {
                sleep(&*net.runtime(), Duration::from_nanos(ns)).await;
                Ok(())
            }
        };
        if let Err(violation) = result {
            self.violations.push(violation);
        }
    }

    fn conclude(mut self, is_lossless: bool) -> (Vec<String>, usize) {
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = (&self.sides[from], &self.sides[to]);
            let found = if is_lossless { exact(sender, receiver) } else { plausible(sender, receiver) };
            self.violations.extend(found.err());
        }
        let completions = self.sides.iter().map(|side| side.sent.len() + side.received.len()).sum();
        (self.violations, completions)
    }
}

/// Checks that all matching messages have arrived, and no others
fn exact(sender: &Side, receiver: &Side) -> Result<(), String> {
    let (ended, sent) = expect(&sender.sends, &receiver.recvs);
    if sender.sent.len() != sent || sender.sent.iter().any(|status| *status != Status::Success) {
        return Err(format!("{sent} sends fit, and ended are {:?}", sender.sent));
    }
    if receiver.received.len() != ended.len() {
        return Err(format!("{} receives are due, and {} ended", ended.len(), receiver.received.len()));
    }
    for (place, ((status, bytes), expected)) in receiver.received.iter().zip(ended).enumerate() {
        match expected {
            Some(number) if *status != Status::Success => {
                return Err(format!(
                    "receive {place} should hold message {number} and ended with {status:?}"
                ));
            }
            Some(number) if *bytes != content(number, sender.sends[number]) => {
                return Err(format!("receive {place} does not hold message {number}"));
            }
            None if *status != Status::LocalLength => {
                return Err(format!("receive {place} does not fit and ended with {status:?}"));
            }
            _ => (),
        }
    }
    Ok(())
}

/// Checks that messages have arrived in order and at most once
fn plausible(sender: &Side, receiver: &Side) -> Result<(), String> {
    let mut numbers = 0..sender.sends.len();
    for (place, (status, bytes)) in receiver.received.iter().enumerate() {
        if *status == Status::Success
            && !numbers.any(|number| content(number, sender.sends[number]) == *bytes)
        {
            return Err(format!("receive {place} holds nothing that was sent after what came before it"));
        }
    }
    Ok(())
}

impl Side {
    /// Checks a refusal: a full queue must be full, and after an unplug all posts are refused
    fn refused(&mut self, cause: Cause, posted: usize, used: usize) -> Result<(), String> {
        match cause {
            Cause::DeviceGone => self.is_cut = true,
            Cause::MessageTooLong { .. } if posted > self.depth as usize => (),
            Cause::QueueFull if used + posted > self.depth as usize => (),
            Cause::QueueFull => {
                return Err(format!("{posted} frames were refused with {used} of {} in use", self.depth));
            }
            other => return Err(format!("refused with {other:?}")),
        }
        Ok(())
    }

    /// Posts a send or a receive, if its slot is free
    fn post(&mut self, kind: Opcode, len: usize) -> Result<(), String> {
        let sends = kind == Opcode::Send;
        let ended = if sends { self.sent.len() } else { self.received.len() };
        let posts = if sends { &mut self.sends } else { &mut self.recvs };
        let number = posts.len();
        if number - ended >= SLOTS || self.is_cut {
            return Ok(());
        }
        let at = (number % SLOTS + if sends { 0 } else { SLOTS }) * SLOT;
        let posted = if sends {
            self.qp.write(at, &content(number, len));
            self.qp.send(number as u64, at..at + len)
        } else {
            self.qp.recv(number as u64, at..at + len)
        };
        match posted {
            Ok(()) => posts.push(len),
            Err(error) => {
                let used = posts[ended..].iter().map(|len| frames(*len)).sum();
                self.refused(error.cause, frames(len), used)?;
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), String> {
        loop {
            let completion = match self.qp.poll() {
                Ok(Some(completion)) => completion,
                Ok(None) => return Ok(()),
                // The fault killed the host.
                Err(error) if error.cause == Cause::DeviceGone => return Ok(()),
                Err(error) => return Err(format!("polling failed: {error}")),
            };
            let (kind, due, posted) = match completion.opcode {
                Opcode::Recv => ("receive", self.received.len(), self.recvs.len()),
                _ => ("send", self.sent.len(), self.sends.len()),
            };
            if completion.id.0 != due as u64 || due >= posted {
                return Err(format!("{kind} {} ended where {due} of {posted} was due", completion.id.0));
            }
            if completion.opcode == Opcode::Recv {
                let at = (SLOTS + due % SLOTS) * SLOT;
                let len = (completion.byte_len as usize).min(self.recvs[due]);
                let bytes = self.qp.read(at..at + len);
                self.received.push((completion.status, bytes));
            } else {
                self.sent.push(completion.status);
            }
        }
    }
}
