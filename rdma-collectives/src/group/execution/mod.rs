//! Carries a schedule out over the links of a rank

mod payload;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_async::{Device, Runtime};

use super::block::Block;
use super::call::Call;
use super::error::GroupError;
use super::kernels::Kernel;
use super::link::Link;
use super::monitor::{Monitor, Wait, WaitReason};
use super::neighbour::Neighbour;
use super::plans::Prepared;
use super::schedule::Feed;
use super::wire::{Channel, Credit, Header};

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

/// An operation, and how it is carried out
pub(crate) struct Job<'a> {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    pub(crate) sequence: u32,
    pub(crate) call: Call,
    pub(crate) prepared: &'a Prepared,
    /// The operation that is likely to follow
    pub(crate) following: Option<&'a Prepared>,
    pub(crate) kernel: Option<Kernel>,
    /// Whether each rank learns something of each other one in it, so that all can agree on more
    pub(crate) is_agreeing: bool,
    /// How much of the receive memory of its node blocks may hold while they wait for others, in bytes
    pub(crate) max_held: usize,
    pub(crate) monitor: &'a Monitor,
    pub(crate) buffers: Buffers<'a>,
}

/// An operation under way
pub(crate) struct Execution<'a, D: Device> {
    job: Job<'a>,
    links: &'a mut [Link<D>],
    /// By link
    neighbours: Vec<Neighbour>,
    /// The same in the operation that is likely to follow
    following: Option<Vec<Neighbour>>,
    /// By link and channel
    channels: BTreeMap<(usize, Channel), usize>,
    ins: Vec<InState>,
    outs: Vec<OutState>,
    /// How many blocks each sink has
    kept: Vec<u32>,
    /// How many bytes of its own part the rank has copied
    copied: usize,
    /// How many bytes this poll has copied or combined
    work: usize,
    /// Whether ranks want to plan anew, as far as this one has learned
    wants_plan: bool,
    /// Whether this rank does, once it has announced that
    own_wish: Option<bool>,
    /// The blocks of the longest channel to a neighbour
    longest: i64,
    /// Of a neighbour's node, if there is one
    runtime: Option<Arc<dyn Runtime>>,
}

/// How many blocks of the longest channel pass while a block takes one step: measured over simulated sessions.
const BLOCKS_AHEAD: i64 = 2;
/// How many bytes a poll copies and combines before it lets other tasks run.
const MAX_WORK: usize = 1 << 20;

struct InState {
    link: usize,
    blocks: VecDeque<Block>,
    arrived: u32,
    total: u32,
    /// How many may be sent by the credit that the sender has
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
        let index: BTreeMap<_, _> = links.iter().map(|link| link.rank).zip(0..).collect();
        let neighbours = |prepared: &Prepared| -> Vec<_> {
            links.iter().map(|link| Neighbour::new(link.rank, link.cables > 0, prepared)).collect()
        };
        let following = job.following.map(neighbours);
        let neighbours = neighbours(job.prepared);
        let mut channels = BTreeMap::new();
        let mut ins = Vec::new();
        for (number, from) in job.prepared.schedule.ins.iter().enumerate() {
            let (link, total) = (index[&from.from], job.prepared.blocks.count(from.len));
            channels.insert((link, from.channel), number);
            ins.push(InState {
                link,
                blocks: VecDeque::new(),
                arrived: 0,
                total,
                granted: job.prepared.window.min(total),
                used: 0,
            });
        }
        let mut outs = Vec::new();
        for to in &job.prepared.schedule.outs {
            let total = job.prepared.blocks.count(to.len);
            outs.push(OutState { sent: 0, total, granted: job.prepared.window.min(total) });
        }
        let kept = vec![0; job.prepared.schedule.sinks.len()];
        let longest = outs.iter().map(|out| i64::from(out.total)).max().unwrap_or(1);
        let runtime = links.first().map(|link| Arc::clone(link.runtime()));
        Self {
            job,
            links,
            neighbours,
            following,
            channels,
            ins,
            outs,
            kept,
            copied: 0,
            work: 0,
            wants_plan: false,
            own_wish: None,
            longest,
            runtime,
        }
    }

    /// Goes on until there is nothing to do before something arrives or has been sent, or other tasks should run
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GroupError>> {
        self.work = 0;
        if self.job.monitor.is_watched() {
            self.job.monitor.update(|found| found.neighbours.clear());
        }
        loop {
            let mut has_progress = self.copy();
            for link in &mut *self.links {
                has_progress |= link.poll_end(self.job.sequence, cx)?;
            }
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
                self.release();
            }
            if self.has_worked() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !has_progress {
                if self.job.monitor.is_watched() {
                    let waits = self.waits().collect();
                    self.job.monitor.update(|found| found.neighbours = waits);
                }
                return self.find_gone().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
            }
        }
    }

    fn is_done(&self) -> bool {
        self.copied == self.job.prepared.schedule.copy.len
            && self.neighbours.iter().all(|neighbour| neighbour.is_announced && !neighbour.is_awaited())
            && self.links.iter().all(Link::is_queued)
            && self.outs.iter().all(|out| out.sent == out.total)
            && self
                .kept
                .iter()
                .zip(&self.job.prepared.schedule.sinks)
                .all(|(kept, sink)| *kept == self.job.prepared.blocks.count(sink.len))
    }

    /// The neighbours that have to do something before this rank goes on
    fn waits(&self) -> impl Iterator<Item = Wait> {
        self.links.iter().zip(&self.neighbours).filter_map(|(link, neighbour)| {
            let has_to_send = |&number: &usize| self.outs[number].sent < self.outs[number].total;
            let reason = if !neighbour.has_begun {
                WaitReason::Begin
            } else if neighbour.expected > 0 {
                WaitReason::Blocks(neighbour.expected)
            } else if !link.is_queued() || neighbour.outs.iter().any(has_to_send) {
                WaitReason::Take
            } else {
                return None;
            };
            Some(Wait { rank: link.rank, reason })
        })
    }

    /// Whether other tasks should run
    fn has_worked(&self) -> bool {
        self.work >= MAX_WORK
    }

    /// Why a neighbour is gone that has not done its part; evaluated when nothing else remains to be done
    fn find_gone(&self) -> Option<GroupError> {
        let mut neighbours = self.links.iter().zip(&self.neighbours);
        neighbours.find_map(|(link, neighbour)| {
            let gone = link.gone()?;
            // Messages may arrive behind the end of another stream.
            let lacks = neighbour.is_awaited() && link.has_ended();
            let has_to_send = |&number: &usize| self.outs[number].sent < self.outs[number].total;
            let owes = link.has_failed() || !neighbour.is_announced || neighbour.outs.iter().any(has_to_send);
            (lacks || owes).then(|| gone.clone())
        })
    }

    fn receive(&mut self, link: usize, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let mut has_progress = self.links[link].poll_sent(cx)?;
        let following = self.following.as_ref().map(|following| &following[link]);
        for (len, places) in self.neighbours[link].next_to_expect(following) {
            self.links[link].expect(len, places);
        }
        while let Poll::Ready(credit) = self.links[link].poll_credit(self.job.sequence, cx) {
            self.credit(link, credit?)?;
            has_progress = true;
        }
        while !self.has_worked()
            && self.neighbours[link].is_awaited()
            && let Poll::Ready(block) = self.links[link].poll_message(self.job.sequence, cx)
        {
            let block = block?;
            self.work += block.message().len() - block.held();
            self.arrived(link, block)?;
            has_progress = true;
        }
        Ok(has_progress)
    }

    fn arrived(&mut self, link: usize, block: Block) -> Result<(), GroupError> {
        let Job { sequence, call, .. } = self.job;
        let (rank, neighbour) = (self.job.rank, self.links[link].rank);
        let protocol = GroupError::Protocol { rank: neighbour, sequence };
        let header = Header::decode(block.message()).filter(|header| header.sequence == sequence);
        let Some(header) = header else { return Err(protocol) };
        if header.call != call {
            let (ranks, calls) = ([rank, neighbour], [call, header.call]);
            return Err(GroupError::Mismatch { sequence, ranks, calls });
        }
        self.neighbours[link].has_begun = true;
        self.wants_plan |= header.wants_plan && self.job.is_agreeing;
        let Some((channel, number)) = header.block else { return Ok(()) };
        let Some(&index) = self.channels.get(&(link, channel)) else { return Err(protocol) };
        // Blocks beyond the credit would take memory without a bound.
        if number != self.ins[index].arrived || number >= self.ins[index].granted {
            return Err(protocol);
        }
        let (blocks, part) = (self.job.prepared.blocks, self.job.prepared.schedule.ins[index].len);
        let [_, len] = blocks.range(number, part);
        if block.message().len() != blocks.message(part).unwrap_or(Header::LEN + len) {
            return Err(protocol);
        }
        self.neighbours[link].expected -= 1;
        self.ins[index].arrived += 1;
        self.ins[index].blocks.push_back(block);
        Ok(())
    }

    /// The neighbour has used blocks
    fn credit(&mut self, link: usize, credit: Credit) -> Result<(), GroupError> {
        let Job { sequence, .. } = self.job;
        let outs = &self.job.prepared.schedule.outs;
        let mut to_link = self.neighbours[link].outs.iter();
        let out = to_link.find(|&&out| outs[out].channel == credit.channel).map(|&out| &mut self.outs[out]);
        // All credit of an operation is used in it.
        match out.filter(|out| credit.sequence == sequence && credit.blocks <= out.total - out.granted) {
            Some(out) => {
                out.granted += credit.blocks;
                Ok(())
            }
            None => Err(GroupError::Protocol { rank: self.links[link].rank, sequence }),
        }
    }

    fn have_all(&self, ins: &[usize]) -> bool {
        ins.iter().all(|&index| !self.ins[index].blocks.is_empty())
    }

    /// Sends what can be sent to a neighbour, the most urgent first
    fn send(&mut self, link: usize, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let mut has_progress = false;
        while !self.has_worked() && self.links[link].has_room() {
            let neighbour = &self.neighbours[link];
            let outs = neighbour.outs.iter().copied().filter(|&out| self.can_send(out));
            let mut next = outs.min_by_key(|&out| self.urgency(out));
            if next.is_none() && neighbour.is_announced {
                break;
            }
            // At once, also without a block: ranks that called different operations may wait for each other. The neighbour knows whether a
            // block goes first.
            next = next.filter(|_| neighbour.is_announced || neighbour.goes_at_once);
            self.neighbours[link].is_announced = true;
            let Some(mut message) = self.links[link].take_spare() else { break };
            match next {
                Some(out) => self.write(out, &mut message),
                None => {
                    let Job { sequence, call, .. } = self.job;
                    let header = Header { sequence, call, block: None, wants_plan: false };
                    message.extend_from_slice(&header.encode());
                }
            }
            self.links[link].send(message, cx)?;
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
        let beyond = i64::from(self.job.prepared.schedule.outs[out].beyond);
        let done = i64::from(sent) * self.longest * SCALE / i64::from(total.max(1));
        done - BLOCKS_AHEAD * SCALE * beyond
    }

    fn can_send(&self, out: usize) -> bool {
        let OutState { sent, total, granted } = self.outs[out];
        let is_there = match &self.job.prepared.schedule.outs[out].feed {
            Feed::Combined { ins, .. } => self.have_all(ins),
            Feed::Input(_) => true,
            Feed::Sink(sink) => sent < self.kept[*sink],
        };
        sent < total.min(granted) && is_there
    }

    /// Whether ranks want to plan anew, with what this one wants
    ///
    /// The last block of each channel says so. What reaches a rank in it depends on the last blocks of all ranks, so that all of them know the same
    /// at the end; what a rank wants is settled when it sends the first of them.
    fn wants_plan(&mut self) -> bool {
        let has_news = |link: &Link<D>| link.working_cables() != link.reported_cables;
        let own = || self.job.is_agreeing && self.links.iter().any(has_news);
        *self.own_wish.get_or_insert_with(own) || self.wants_plan
    }

    /// Whether the ranks have agreed to plan anew, after the end
    pub(crate) fn has_agreed(&self) -> bool {
        self.own_wish == Some(true) || self.wants_plan
    }

    /// Grants neighbours more blocks to send
    fn grant(&mut self, cx: &mut Context<'_>) -> Result<bool, GroupError> {
        let Job { sequence, prepared: Prepared { schedule, window, .. }, .. } = self.job;
        let window = *window;
        let mut has_progress = false;
        for (input, from) in self.ins.iter_mut().zip(&schedule.ins) {
            let granted = input.used.saturating_add(window).min(input.total);
            let blocks = granted.saturating_sub(input.granted);
            // Not for each block, unless the sender may be waiting for it.
            if blocks == 0 || blocks < window.div_ceil(2) && granted < input.total {
                continue;
            }
            let credit = Credit { sequence, channel: from.channel, blocks };
            if self.links[input.link].send_credit(credit, cx)? {
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
