//! Carries a schedule out over the links of a rank

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll};

use rdma_async::{Device, Lease};

use super::blocks::Blocks;
use super::call::Call;
use super::error::GroupError;
use super::kernels::Kernel;
use super::link::{Block, Link};
use super::schedule::{Feed, Schedule};
use super::wire::{Channel, Control, Header};

/// The memory that an operation works on
pub(crate) struct Buffers<'a> {
    /// `None` if the output is the input as well
    pub(crate) input: Option<&'a [u8]>,
    pub(crate) output: &'a mut [u8],
}

impl Buffers<'_> {
    fn input(&self) -> &[u8] {
        self.input.unwrap_or(self.output)
    }
}

/// What an operation is carried out with
pub(crate) struct Job<'a> {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) sequence: u32,
    pub(crate) call: Call,
    /// What this rank called before
    pub(crate) previous: Option<Call>,
    pub(crate) schedule: &'a Schedule,
    pub(crate) kernel: Option<Kernel>,
    pub(crate) blocks: Blocks,
    /// How many blocks of a channel may be under way, or held by the receiver
    pub(crate) window: u32,
    pub(crate) buffers: Buffers<'a>,
}

/// An operation under way
pub(crate) struct Execution<'a, D: Device> {
    job: Job<'a>,
    links: &'a mut [Link<D>],
    /// By link
    neighbours: Vec<Neighbour>,
    /// By link and channel
    channels: BTreeMap<(usize, Channel), usize>,
    ins: Vec<InState>,
    outs: Vec<OutState>,
    /// How many blocks each sink has
    kept: Vec<u32>,
    /// The blocks of the longest channel to a neighbour
    longest: i64,
}

/// How many blocks of the longest channel pass while a block takes one step: measured over simulated sessions.
const BLOCKS_AHEAD: i64 = 2;

struct Neighbour {
    /// Indices of what goes to it
    outs: Vec<usize>,
    /// Blocks that it still has to send
    expected: u32,
    /// Whether it has said that it has begun the operation
    has_begun: bool,
    /// Whether this rank has told it
    is_told: bool,
    /// Whether it has begun the next operation
    is_ahead: bool,
}

struct InState {
    link: usize,
    blocks: VecDeque<Block>,
    arrived: u32,
    total: u32,
    /// How many may be sent by what the sender has been told
    granted: u32,
    used: u32,
}

struct OutState {
    sent: u32,
    total: u32,
    granted: u32,
}

impl<'a, D: Device> Execution<'a, D> {
    pub(crate) fn new(job: Job<'a>, links: &'a mut [Link<D>]) -> Self {
        for copy in &job.schedule.copies {
            if let Some(input) = job.buffers.input {
                job.buffers.output[copy.output..][..copy.len]
                    .copy_from_slice(&input[copy.input..][..copy.len]);
            }
        }
        let index: BTreeMap<_, _> = links.iter().map(|link| link.rank).zip(0..).collect();
        let new =
            || Neighbour { outs: Vec::new(), expected: 0, has_begun: false, is_told: false, is_ahead: false };
        let mut neighbours: Vec<_> = links.iter().map(|_| new()).collect();
        let mut channels = BTreeMap::new();
        let mut ins = Vec::new();
        for (number, from) in job.schedule.ins.iter().enumerate() {
            let (link, total) = (index[&from.from], job.blocks.count(from.len));
            neighbours[link].expected += total;
            channels.insert((link, from.channel), number);
            ins.push(InState {
                link,
                blocks: VecDeque::new(),
                arrived: 0,
                total,
                granted: job.window,
                used: 0,
            });
        }
        let mut outs = Vec::new();
        for (number, to) in job.schedule.outs.iter().enumerate() {
            neighbours[index[&to.to]].outs.push(number);
            outs.push(OutState { sent: 0, total: job.blocks.count(to.len), granted: job.window });
        }
        let kept = vec![0; job.schedule.sinks.len()];
        let longest = outs.iter().map(|out| i64::from(out.total)).max().unwrap_or(1);
        Self { job, links, neighbours, channels, ins, outs, kept, longest }
    }

    /// Goes on until there is nothing to do before something arrives or has been sent
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GroupError>> {
        loop {
            let mut has_progress = false;
            for link in 0..self.links.len() {
                has_progress |= self.receive(link, cx)?;
            }
            for sink in 0..self.kept.len() {
                has_progress |= self.keep(sink);
            }
            for link in 0..self.links.len() {
                has_progress |= self.send(link, cx)?;
            }
            has_progress |= self.grant(cx)?;
            if self.is_done() {
                return Poll::Ready(Ok(()));
            }
            if !has_progress {
                return Poll::Pending;
            }
        }
    }

    fn is_done(&self) -> bool {
        let has_met =
            |neighbour: &Neighbour| neighbour.has_begun && neighbour.is_told && neighbour.expected == 0;
        self.neighbours.iter().all(has_met)
            && self.outs.iter().all(|out| out.sent == out.total)
            && self
                .kept
                .iter()
                .zip(&self.job.schedule.sinks)
                .all(|(kept, sink)| *kept == self.job.blocks.count(sink.len))
    }

    fn receive(&mut self, link: usize, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let mut has_progress = self.links[link].poll_sent(cx)?;
        while let Poll::Ready(control) = self.links[link].poll_control(cx) {
            has_progress = true;
            match control {
                Control::Credit { sequence, channel, blocks } => self.credit(link, sequence, channel, blocks),
                Control::End(error) => return Err(error),
            }
        }
        loop {
            let neighbour = &self.neighbours[link];
            if neighbour.is_ahead || neighbour.has_begun && neighbour.expected == 0 {
                return Ok(has_progress);
            }
            let Poll::Ready(block) = self.links[link].poll_message(cx) else { return Ok(has_progress) };
            self.arrived(link, block?)?;
            has_progress = true;
        }
    }

    fn arrived(&mut self, link: usize, block: Block) -> Result<(), GroupError> {
        let Job { sequence, call, previous, .. } = self.job;
        let (rank, neighbour) = (self.job.rank, self.links[link].rank);
        let protocol = GroupError::Protocol { rank: neighbour, sequence };
        let Some(header) = Header::decode(block.message()) else { return Err(protocol) };
        let mismatch = |sequence, own, other| {
            Err(GroupError::Mismatch { sequence, ranks: [rank, neighbour], calls: [own, other] })
        };
        if header.sequence == sequence.wrapping_add(1) && self.neighbours[link].has_begun {
            self.links[link].early = Some(block);
            self.neighbours[link].is_ahead = true;
            return Ok(());
        }
        if header.sequence == sequence.wrapping_sub(1) {
            return previous
                .map_or(Err(protocol), |previous| mismatch(header.sequence, previous, header.call));
        }
        if header.sequence != sequence {
            return Err(protocol);
        }
        if header.call != call {
            return mismatch(sequence, call, header.call);
        }
        self.neighbours[link].has_begun = true;
        let Some((channel, number)) = header.block else { return Ok(()) };
        let Some(&index) = self.channels.get(&(link, channel)) else { return Err(protocol) };
        let (arrived, total) = (self.ins[index].arrived, self.ins[index].total);
        if number != arrived || number >= total {
            return Err(protocol);
        }
        let [_, len] = self.job.blocks.range(number, self.job.schedule.ins[index].len);
        if block.payload().len() != len {
            return Err(protocol);
        }
        self.neighbours[link].expected -= 1;
        self.ins[index].arrived += 1;
        self.ins[index].blocks.push_back(block);
        Ok(())
    }

    /// The neighbour has used blocks
    fn credit(&mut self, link: usize, sequence: u32, channel: Channel, blocks: u32) {
        if sequence != self.job.sequence {
            return;
        }
        let outs = &self.job.schedule.outs;
        let mut to_link = self.neighbours[link].outs.iter();
        if let Some(&out) = to_link.find(|&&out| outs[out].channel == channel) {
            self.outs[out].granted = self.outs[out].granted.saturating_add(blocks);
        }
    }

    /// Combines and keeps what has arrived for a sink
    fn keep(&mut self, number: usize) -> bool {
        let schedule = self.job.schedule;
        let sink = &schedule.sinks[number];
        let before = self.kept[number];
        let total = self.job.blocks.count(sink.len);
        while self.kept[number] < total && self.have_all(&sink.ins) {
            let [start, len] = self.job.blocks.range(self.kept[number], sink.len);
            let Buffers { input, output } = &mut self.job.buffers;
            let output = &mut output[sink.output + start..][..len];
            if let (Some(own), Some(input)) = (sink.own, input) {
                output.copy_from_slice(&input[own + start..][..len]);
            }
            let mut is_first = sink.own.is_none();
            for &index in &sink.ins {
                let Some(block) = self.ins[index].take() else { continue };
                match (self.job.kernel, is_first) {
                    (_, true) => output.copy_from_slice(block.payload()),
                    (Some(kernel), false) => (kernel.combine)(output, block.payload()),
                    (None, false) => (),
                }
                is_first = false;
            }
            if let (Some(divide), Some(_)) = (self.job.kernel.and_then(|kernel| kernel.divide), sink.own) {
                divide(output, self.job.ranks);
            }
            self.kept[number] += 1;
        }
        self.kept[number] > before
    }

    fn have_all(&self, ins: &[usize]) -> bool {
        ins.iter().all(|&index| !self.ins[index].blocks.is_empty())
    }

    /// Sends what can be sent to a neighbour, the most urgent first
    fn send(&mut self, link: usize, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let mut has_progress = false;
        while self.links[link].has_room() {
            let outs = self.neighbours[link].outs.iter().copied().filter(|&out| self.can_send(out));
            let next = outs.min_by_key(|&out| self.urgency(out));
            let is_told = &mut self.neighbours[link].is_told;
            // At once, also without a block: ranks that called different operations may wait for each other.
            if next.is_none() && *is_told {
                break;
            }
            *is_told = true;
            let Some(mut lease) = self.links[link].take_spare() else { break };
            lease.clear();
            match next {
                Some(out) => self.write(out, &mut lease),
                None => {
                    let Job { sequence, call, .. } = self.job;
                    lease.extend_from_slice(&Header { sequence, call, block: None }.encode());
                }
            }
            self.links[link].send(lease, cx)?;
            has_progress = true;
        }
        Ok(has_progress)
    }

    /// How far a channel is; the lowest goes first
    ///
    /// All channels end at the same time if each goes on in proportion to its length, and those whose blocks still have a long way are
    /// ahead by the time that the way takes.
    fn urgency(&self, out: usize) -> i64 {
        const SCALE: i64 = 1 << 16;
        let OutState { sent, total, .. } = self.outs[out];
        let beyond = i64::from(self.job.schedule.outs[out].beyond);
        let done = i64::from(sent) * self.longest * SCALE / i64::from(total.max(1));
        done - BLOCKS_AHEAD * SCALE * beyond
    }

    fn can_send(&self, out: usize) -> bool {
        let OutState { sent, total, granted } = self.outs[out];
        let is_there = match &self.job.schedule.outs[out].feed {
            Feed::Combined { ins, .. } => self.have_all(ins),
            Feed::Input(_) => true,
            Feed::Sink(sink) => sent < self.kept[*sink],
        };
        sent < total.min(granted) && is_there
    }

    /// Writes the next block of a channel into a lease
    fn write(&mut self, number: usize, lease: &mut Lease) {
        let schedule = self.job.schedule;
        let out = &schedule.outs[number];
        let block = self.outs[number].sent;
        let Job { sequence, call, .. } = self.job;
        lease.extend_from_slice(&Header { sequence, call, block: Some((out.channel, block)) }.encode());
        let [start, len] = self.job.blocks.range(block, out.len);
        match &out.feed {
            Feed::Input(from) => lease.extend_from_slice(&self.job.buffers.input()[from + start..][..len]),
            Feed::Sink(sink) => {
                let from = schedule.sinks[*sink].output + start;
                lease.extend_from_slice(&self.job.buffers.output[from..][..len]);
            }
            Feed::Combined { own, ins } => {
                if let Some(own) = own {
                    lease.extend_from_slice(&self.job.buffers.input()[own + start..][..len]);
                }
                let mut is_first = own.is_none();
                for &index in ins {
                    let Some(block) = self.ins[index].take() else { continue };
                    match (self.job.kernel, is_first) {
                        (_, true) => lease.extend_from_slice(block.payload()),
                        (Some(kernel), false) => (kernel.combine)(&mut lease[Header::LEN..], block.payload()),
                        (None, false) => (),
                    }
                    is_first = false;
                }
            }
        }
        self.outs[number].sent += 1;
    }

    /// Tells neighbours how many more blocks they may send
    fn grant(&mut self, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let Job { sequence, window, schedule, .. } = self.job;
        let mut has_progress = false;
        for (input, from) in self.ins.iter_mut().zip(&schedule.ins) {
            let granted = input.used.saturating_add(window).min(input.total);
            let blocks = granted.saturating_sub(input.granted);
            // Not for each block, unless the sender may be waiting for it.
            if blocks == 0 || blocks < window.div_ceil(2) && granted < input.total {
                continue;
            }
            let credit = Control::Credit { sequence, channel: from.channel, blocks };
            if self.links[input.link].send_control(&credit, cx)? {
                input.granted = granted;
                has_progress = true;
            }
        }
        Ok(has_progress)
    }
}

impl InState {
    fn take(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front()?;
        self.used += 1;
        Some(block)
    }
}
