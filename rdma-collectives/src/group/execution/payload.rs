//! What is done with the bytes of blocks: copying, combining, writing

use std::sync::Arc;

use rdma_async::{Device, Runtime, Work};

use super::super::buffer::Buffer;
use super::super::schedule::Feed;
use super::super::wire::Header;
use super::{Buffers, Execution, Job, MAX_WORK, OutState};

impl<D: Device> Execution<'_, D> {
    /// Copies a piece of the rank's own part to the output
    pub(super) fn copy(&mut self) -> bool {
        let copy = &self.job.prepared.schedule.copy;
        let len = (copy.len - self.copied).min(MAX_WORK);
        if let Buffers { input: Some(input), output } = &mut self.job.buffers {
            let from = &input[copy.input + self.copied..][..len];
            output[copy.output + self.copied..][..len].copy_from_slice(from);
            self.work += len;
            spend(self.runtime.as_ref(), Work::Copy { bytes: len });
        }
        self.copied += len;
        len > 0
    }

    /// Combines and keeps what has arrived for a sink
    pub(super) fn keep(&mut self, number: usize) -> bool {
        let schedule = &self.job.prepared.schedule;
        let sink = &schedule.sinks[number];
        let before = self.kept[number];
        let total = self.job.prepared.blocks.count(sink.len);
        while self.kept[number] < total && !self.has_worked() && self.have_all(&sink.ins) {
            let [start, len] = self.job.prepared.blocks.range(self.kept[number], sink.len);
            self.work += len * sink.ins.len();
            let Buffers { input, output } = &mut self.job.buffers;
            let output = &mut output[sink.output + start..][..len];
            if let (Some(own), Some(input)) = (sink.own, input) {
                output.copy_from_slice(&input[own + start..][..len]);
                spend(self.runtime.as_ref(), Work::Copy { bytes: len });
            }
            let mut is_first = sink.own.is_none();
            for &index in &sink.ins {
                let Some(block) = self.ins[index].take() else { continue };
                spend(self.runtime.as_ref(), work(is_first, len));
                match (self.job.kernel, is_first) {
                    (_, true) => output.copy_from_slice(block.payload(len)),
                    (Some(kernel), false) => (kernel.combine)(output, block.payload(len)),
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

    /// Writes the next block of a channel into a message
    pub(super) fn write(&mut self, number: usize, lease: &mut Buffer) {
        let OutState { sent: block, total, .. } = self.outs[number];
        let wants_plan = block + 1 == total && self.wants_plan();
        let schedule = &self.job.prepared.schedule;
        let out = &schedule.outs[number];
        let Job { sequence, call, .. } = self.job;
        let header = Header { sequence, call, block: Some((out.channel, block)), wants_plan };
        lease.extend_from_slice(&header.encode());
        let [start, len] = self.job.prepared.blocks.range(block, out.len);
        self.work += len;
        if !matches!(out.feed, Feed::Combined { own: None, .. }) {
            spend(self.runtime.as_ref(), Work::Copy { bytes: len });
        }
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
                    self.work += len;
                    spend(self.runtime.as_ref(), work(is_first, len));
                    match (self.job.kernel, is_first) {
                        (_, true) => lease.extend_from_slice(block.payload(len)),
                        (Some(kernel), false) => {
                            (kernel.combine)(&mut lease[Header::LEN..], block.payload(len))
                        }
                        (None, false) => (),
                    }
                    is_first = false;
                }
            }
        }
        if let Some(len) = self.job.prepared.blocks.message(out.len) {
            // What a message has behind its block is not read.
            lease.resize(len, 0);
        }
        self.outs[number].sent += 1;
    }

    /// Copies blocks that hold more of the receive memory of the node than they may while they wait for others
    ///
    /// A session that holds too much of it receives nothing more, and the next block may be the one for which the others wait.
    pub(super) fn release(&mut self) {
        let mut held = 0;
        for block in self.ins.iter_mut().flat_map(|input| &mut input.blocks) {
            let len = block.held();
            if held + len <= self.job.max_held {
                held += len;
            } else if self.work < MAX_WORK {
                self.work += len;
                spend(self.runtime.as_ref(), Work::Copy { bytes: len });
                block.release();
            }
        }
    }
}

/// Lets the time of the processor pass, in a simulation that models it
fn spend(runtime: Option<&Arc<dyn Runtime>>, work: Work) {
    if let Some(runtime) = runtime {
        runtime.spend(work);
    }
}

/// What is done with a block of `len` bytes: the first of several is copied, the others are combined with it
fn work(is_first: bool, len: usize) -> Work {
    if is_first { Work::Copy { bytes: len } } else { Work::Reduce { bytes: len } }
}
