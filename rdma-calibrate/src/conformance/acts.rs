//! Queue pairs of one end, by number, and what is done with them: the same on the side that asks and on the one that answers

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rdma_async::time::timeout;
use rdma_bare::BareQp;
use rdma_core::{
    AnyDevice, Completion, Device as _, Error, Opcode, PortState, QpAddress, QpCapacity, QpInit, QpState,
    QueuePair as _, Runtime, Transition, Verb,
};
use serde::{Deserialize, Serialize};

use crate::error::CalibrateError;
use crate::station::require_room;
use crate::transitions::Transitions;

/// The most registered memory of all queue pairs of an end together, in bytes: the body uses less.
pub(crate) const MAX_MEMORY: usize = 64 << 20;
/// The most queue pairs of an end at once: the body uses fewer.
const MAX_QUEUE_PAIRS: usize = 64;
/// The longest wait for a completion, in milliseconds
const MAX_WAIT: u64 = 10_000;
/// The bytes that are compared at once
const CHUNK: usize = 64 << 10;

/// An action of an end on one of its queue pairs
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Makes it, with queues of so many frames and so many bytes of registered memory
    Make {
        frames: u32,
        len: usize,
    },
    Modify {
        to: Transition,
    },
    Connect {
        peer: QpAddress,
    },
    /// Posts a receive into a part of its memory
    Recv {
        id: u64,
        part: Part,
    },
    /// Posts a send of a part of its memory
    Send {
        id: u64,
        part: Part,
    },
    /// Writes a pattern into a part of its memory
    Fill {
        part: Part,
        pattern: u8,
    },
    /// Says where a part of its memory deviates from a pattern
    Compare {
        part: Part,
        pattern: u8,
    },
    /// Waits for a completion
    Next {
        milliseconds: u64,
    },
    State,
    /// Looks for bytes that the device wrote where nothing was posted, and destroys it
    Close,
    CloseAll,
    /// Says the state of the port
    Port,
}

/// A range of memory, in bytes
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Part {
    start: usize,
    end: usize,
}

impl From<Range<usize>> for Part {
    fn from(Range { start, end }: Range<usize>) -> Self {
        Self { start, end }
    }
}

/// The result of an [`Act`]
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Acted {
    Done,
    Made { address: QpAddress, capacity: QpCapacity },
    Next { completion: Option<Completion> },
    Compared { deviates_at: Option<usize> },
    State { state: QpState },
    Port { state: PortState },
}

/// The reason for which an end did not carry out an [`Act`]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Refusal {
    /// The verb failed
    Verb(Error),
    /// The device did what no device may, or the request is invalid
    Unexpected(String),
    /// So many transitions to RTR have failed at this end that no more are made
    TooManyFailures(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Verb(error)
    }
}

impl From<CalibrateError> for Refusal {
    fn from(error: CalibrateError) -> Self {
        match error {
            CalibrateError::FailedTransitions(_) => Self::TooManyFailures(error.to_string()),
            error => Self::Unexpected(error.to_string()),
        }
    }
}

fn missing(number: u32) -> Refusal {
    Refusal::Unexpected(format!("there is no queue pair {number}"))
}

fn unexpected<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Unexpected(why.into()))
}

/// The byte of a pattern at an offset
pub(super) fn byte(pattern: u8, at: usize) -> u8 {
    (usize::from(pattern) * 17 + at * 3 + at / 255) as u8
}

/// The device of one side, and the limits within which it carries out acts
pub(crate) struct End<'a> {
    pub(crate) device: &'a AnyDevice,
    pub(crate) runtime: &'a dyn Runtime,
    pub(crate) transitions: &'a mut Transitions,
    /// The most registered memory of all queue pairs together, in bytes
    pub(crate) memory: usize,
    /// The most requests of a queue pair that may await their completion; `None` for as many as the device accepts
    pub(crate) requests: Option<u64>,
}

/// The queue pairs of an end
#[derive(Default)]
pub(crate) struct Queues(BTreeMap<u32, Queue>);

/// A queue pair, and what its memory should hold outside of posted receives
pub(crate) struct Queue {
    qp: BareQp<AnyDevice>,
    expected: Vec<u8>,
}

impl Queues {
    /// The bytes of the memory of all
    pub(crate) fn memory_len(&self) -> usize {
        self.0.values().map(|queue| queue.expected.len()).sum()
    }

    /// Does `act` with the queue pair of this number
    pub(crate) async fn act(&mut self, end: End<'_>, number: u32, act: Act) -> Result<Acted, Refusal> {
        let End { device, runtime, transitions, memory, requests } = end;
        match act {
            Act::Port => return Ok(Acted::Port { state: device.port()?.state }),
            Act::Make { frames, len } => return self.make(device, memory, number, frames, len),
            Act::Close => self.0.remove(&number).ok_or_else(|| missing(number))?.check()?,
            Act::CloseAll => std::mem::take(&mut self.0).into_values().try_for_each(|queue| queue.check())?,
            Act::Modify { to: to @ Transition::ReadyToReceive { .. } } => {
                let qp = self.queue(number)?.qp.qp();
                transitions.attempt(|| qp.modify(to).map_err(Refusal::from))?;
            }
            Act::Modify { to } => self.queue(number)?.qp.qp().modify(to)?,
            Act::Connect { peer } => {
                let qp = self.queue(number)?.qp.qp();
                transitions.attempt(|| qp.connect(&peer).map_err(Refusal::from))?;
            }
            Act::Recv { id, part } => {
                let queue = self.queue(number)?;
                let range = queue.free(part, |_| false)?;
                require_room(Verb::PostRecv, queue.awaited(), requests)?;
                queue.qp.recv(id, range)?;
            }
            Act::Send { id, part } => {
                let queue = self.queue(number)?;
                let range = queue.free(part, |opcode| opcode == Opcode::Send)?;
                require_room(Verb::PostSend, queue.awaited(), requests)?;
                queue.qp.send(id, range)?;
            }
            Act::Fill { part, pattern } => self.queue(number)?.fill(part, pattern)?,
            Act::Compare { part, pattern } => {
                let deviates_at = self.queue(number)?.deviates_at(part, pattern)?;
                return Ok(Acted::Compared { deviates_at });
            }
            Act::Next { milliseconds } => {
                let time = Duration::from_millis(milliseconds.min(MAX_WAIT));
                let completion = self.queue(number)?.next(runtime, time).await?;
                return Ok(Acted::Next { completion });
            }
            Act::State => return Ok(Acted::State { state: self.queue(number)?.qp.qp().state() }),
        }
        Ok(Acted::Done)
    }

    fn queue(&mut self, number: u32) -> Result<&mut Queue, Refusal> {
        self.0.get_mut(&number).ok_or_else(|| missing(number))
    }

    fn make(
        &mut self,
        device: &AnyDevice,
        memory: usize,
        number: u32,
        frames: u32,
        len: usize,
    ) -> Result<Acted, Refusal> {
        if self.0.len() >= MAX_QUEUE_PAIRS {
            return unexpected(format!("an end has at most {MAX_QUEUE_PAIRS} queue pairs"));
        }
        if self.0.contains_key(&number) || len > memory.saturating_sub(self.memory_len()) {
            return unexpected(format!("queue pair {number} exists, or {len} bytes are too many"));
        }
        let frames = frames.min(device.caps().max_queue_frames);
        let qp = BareQp::new(device.clone(), &QpInit::with_frames(frames), len)?;
        let (address, capacity) = (qp.qp().address(), qp.qp().capacity());
        self.0.insert(number, Queue { qp, expected: vec![0; len] });
        Ok(Acted::Made { address, capacity })
    }

    /// The queue pair of this number, for verbs that are no [`Act`]
    pub(crate) fn get(&self, number: u32) -> Option<&BareQp<AnyDevice>> {
        self.0.get(&number).map(|queue| &queue.qp)
    }
}

impl Queue {
    /// The range of `part`, which must be in the memory and may be posted only as `may_share` says
    fn free(&self, part: Part, may_share: fn(Opcode) -> bool) -> Result<Range<usize>, Refusal> {
        let Part { start, end } = part;
        if start > end || end > self.expected.len() {
            return unexpected(format!("{start}..{end} is not in the memory"));
        }
        let mut posted = self.qp.posted().filter(|(_, range)| range.start < end && start < range.end);
        if posted.any(|(opcode, _)| !may_share(opcode)) {
            return unexpected(format!(
                "{start}..{end} is posted: a request has not completed under its name"
            ));
        }
        Ok(start..end)
    }

    /// The number of requests that await their completion
    fn awaited(&self) -> u64 {
        self.qp.posted().count() as u64
    }

    fn fill(&mut self, part: Part, pattern: u8) -> Result<(), Refusal> {
        let range = self.free(part, |_| false)?;
        let bytes: Vec<_> = (0..range.len()).map(|at| byte(pattern, at)).collect();
        self.qp.write(range.start, &bytes);
        self.expected[range].copy_from_slice(&bytes);
        Ok(())
    }

    /// The first offset at which a part of the memory deviates from a pattern
    fn deviates_at(&self, part: Part, pattern: u8) -> Result<Option<usize>, Refusal> {
        let range = self.free(part, |opcode| opcode == Opcode::Send)?;
        let found = self.qp.read(range);
        Ok(found.iter().enumerate().position(|(at, found)| *found != byte(pattern, at)))
    }

    /// The ranges of posted receives
    fn receives(&self) -> Vec<Range<usize>> {
        self.qp.posted().filter(|(opcode, _)| *opcode == Opcode::Recv).map(|(_, range)| range).collect()
    }

    async fn next(&mut self, runtime: &dyn Runtime, time: Duration) -> Result<Option<Completion>, Refusal> {
        let before = self.receives();
        let Some(completion) = timeout(runtime, time, self.qp.completion()).await else { return Ok(None) };
        let completion = completion?;
        let after = self.receives();
        // The device was free to write there.
        let done =
            before.iter().zip(after.iter().map(Some).chain([None])).find(|(one, other)| Some(*one) != *other);
        if let Some((range, _)) = done.filter(|_| before.len() != after.len()) {
            let found = self.qp.read(range.clone());
            self.expected[range.clone()].copy_from_slice(&found);
        }
        Ok(Some(completion))
    }

    /// Fails if the device has written outside of posted receives
    fn check(&self) -> Result<(), Refusal> {
        let mut posted = self.receives();
        posted.sort_by_key(|range| range.start);
        let len = self.expected.len();
        let mut start = 0;
        for next in posted.into_iter().chain(std::iter::once(len..len)) {
            while start < next.start {
                let part = start..next.start.min(start + CHUNK);
                let (found, expected) = (self.qp.read(part.clone()), &self.expected[part.clone()]);
                if found != expected {
                    let differ = found.iter().zip(expected).position(|(found, expected)| found != expected);
                    let at = part.start + differ.unwrap_or(0);
                    return unexpected(format!(
                        "the device wrote at {at} of its memory, where nothing was posted"
                    ));
                }
                start = part.end;
            }
            start = start.max(next.end);
        }
        Ok(())
    }
}
