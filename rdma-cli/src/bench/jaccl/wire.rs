//! Buffers in flight between two ranks of the baseline

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;

use anyhow::{Result, ensure};
use rdma_bare::BareQp;
use rdma_core::{Completion, Device as _, FRAME, Opcode, Status};
use rdma_sim::SimDevice;

/// The longest buffer: of the classes of 4096 · 2^k bytes, that with k = 7.
const LONGEST: usize = FRAME << 7;
/// Buffers that are in flight in each direction.
const IN_FLIGHT: usize = 2;

/// A queue pair with two buffers for sending, and two for receiving
pub(super) type Wire = BareQp<SimDevice>;

/// Memory of a wire.
pub(super) const WIRE_BYTES: usize = 2 * IN_FLIGHT * LONGEST;

/// The length of the buffers for so many bytes: the largest class that they fill and the device carries, or the smallest one
///
/// JACCL uses the smallest class alone on macOS 26.2 (source of MLX, jaccl/rdma.h).
fn buffer_len(bytes: usize, longest_message: usize) -> usize {
    let classes = (0..8).map(|k| FRAME << k);
    classes.take_while(|class| *class <= bytes.min(longest_message)).last().unwrap_or(FRAME)
}

/// The vectors of a rank, as bytes
pub(super) struct Vectors<'a> {
    pub(super) input: &'a [u8],
    pub(super) output: &'a mut [u8],
    /// Adds elements to others
    pub(super) add: fn(&mut [u8], &[u8]),
}

/// Which vector is sent
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Input,
    Output,
}

/// Effect of received bytes on the output
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sink {
    Add,
    Store,
}

/// Bytes that a rank sends to a neighbour and receives from it, over one wire
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The bytes with which both sides choose the buffers: at least those of each range
    pub(super) bytes: usize,
    pub(super) send: Option<Range<usize>>,
    pub(super) receive: Option<Range<usize>>,
}

/// A step of a schedule: it is over when everything has been sent and received
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) source: Source,
    pub(super) sink: Sink,
    /// Whether all wires send the same bytes, from buffers that are filled again when all have been sent
    pub(super) is_shared: bool,
}

/// Progress of a flow, in buffers
struct Progress {
    len: usize,
    sends: usize,
    receives: usize,
    posted: usize,
    sent: usize,
    received: usize,
}

impl Step {
    /// Carries out the step; there is a flow for each wire
    ///
    /// Receives are posted before the sends, a whole buffer is sent however little of it is filled, and a buffer that was received is
    /// posted again at once. Copies take no virtual time, nor do additions.
    pub(super) async fn run(
        self,
        wires: &mut [Wire],
        flows: &[Flow],
        vectors: &mut Vectors<'_>,
    ) -> Result<()> {
        let mut all: Vec<_> = wires.iter().zip(flows).map(|(wire, flow)| Progress::new(wire, flow)).collect();
        for (wire, progress) in wires.iter_mut().zip(&all) {
            for number in 0..progress.receives.min(IN_FLIGHT) {
                progress.post_receive(wire, number)?;
            }
        }
        loop {
            let slowest = all.iter().map(|progress| progress.sent).min().unwrap_or(0);
            for ((wire, progress), flow) in wires.iter_mut().zip(&mut all).zip(flows) {
                let sent = if self.is_shared { slowest } else { progress.sent };
                while progress.posted < progress.sends.min(sent + IN_FLIGHT) {
                    let from = match self.source {
                        Source::Input => vectors.input,
                        Source::Output => &*vectors.output,
                    };
                    progress.post_send(wire, from, flow)?;
                }
            }
            if all.iter().all(Progress::is_complete) {
                return Ok(());
            }
            let (number, completion) = next(wires).await?;
            ensure!(completion.status == Status::Success, "a work request failed: {}", completion.status);
            let progress = &mut all[number];
            if completion.opcode == Opcode::Recv {
                progress.take(&mut wires[number], &flows[number], self.sink, vectors)?;
            } else {
                progress.sent += 1;
            }
        }
    }
}

impl Progress {
    fn new(wire: &Wire, flow: &Flow) -> Self {
        let len = buffer_len(flow.bytes, wire.device().caps().max_message as usize);
        let buffers = |range: &Option<_>| if range.is_some() { flow.bytes.div_ceil(len).max(1) } else { 0 };
        let (sends, receives) = (buffers(&flow.send), buffers(&flow.receive));
        Self { len, sends, receives, posted: 0, sent: 0, received: 0 }
    }

    fn is_complete(&self) -> bool {
        self.sent == self.sends && self.received == self.receives
    }

    fn post_receive(&self, wire: &mut Wire, number: usize) -> Result<()> {
        let buffer = number % IN_FLIGHT;
        let start = (IN_FLIGHT + buffer) * LONGEST;
        Ok(wire.recv(buffer as u64, start..start + self.len)?)
    }

    /// Fills the next buffer, and sends it
    fn post_send(&mut self, wire: &mut Wire, from: &[u8], flow: &Flow) -> Result<()> {
        let buffer = self.posted % IN_FLIGHT;
        let start = buffer * LONGEST;
        wire.write(start, &from[self.part(&flow.send, self.posted)]);
        wire.send(buffer as u64, start..start + self.len)?;
        self.posted += 1;
        Ok(())
    }

    /// Takes a buffer that was received, and posts it again if there is more to come
    fn take(&mut self, wire: &mut Wire, flow: &Flow, sink: Sink, vectors: &mut Vectors<'_>) -> Result<()> {
        let part = self.part(&flow.receive, self.received);
        let start = (IN_FLIGHT + self.received % IN_FLIGHT) * LONGEST;
        let bytes = wire.read(start..start + part.len());
        let into = &mut vectors.output[part];
        match sink {
            Sink::Add => (vectors.add)(into, &bytes),
            Sink::Store => into.copy_from_slice(&bytes),
        }
        if self.received + IN_FLIGHT < self.receives {
            self.post_receive(wire, self.received + IN_FLIGHT)?;
        }
        self.received += 1;
        Ok(())
    }

    /// The part of a range that is in the buffer with this number
    fn part(&self, range: &Option<Range<usize>>, number: usize) -> Range<usize> {
        let Range { start, end } = range.clone().unwrap_or_default();
        let at = |buffers: usize| (start + buffers * self.len).min(end);
        at(number)..at(number + 1)
    }
}

/// The next completion of any wire, with its number
async fn next(wires: &mut [Wire]) -> Result<(usize, Completion)> {
    let completed = poll_fn(|cx| {
        for (number, wire) in wires.iter_mut().enumerate() {
            if let Poll::Ready(completion) = pin!(wire.completion()).poll(cx) {
                return Poll::Ready(completion.map(|completion| (number, completion)));
            }
        }
        Poll::Pending
    });
    Ok(completed.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_the_largest_that_are_filled() {
        let found = [1, 4096, 8191, 8192, 300_000, 524_288, 1 << 30].map(|bytes| buffer_len(bytes, 1 << 24));
        assert_eq!(found, [4096, 4096, 4096, 8192, 262_144, 524_288, 524_288]);
        assert_eq!(buffer_len(1 << 30, 4096), 4096);
    }
}
