//! Both ends of a cable, for the behaviours

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{
    AnyDevice, Caps, Completion, Device as _, Error, FRAME, Opcode, PortState, QpAddress, QpCapacity,
    QpState, Status, Transition,
};
use rdma_sim::profile::Decided;

use super::acts::{Act, Acted, End, MAX_MEMORY, Queues, Refusal};
use super::expectations::{Expectations, Mode};
use super::limits;
use super::raw::Raw;
use super::verdict::{Stop, skip};
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::{Reply, Request};
use crate::station::COMPLETION_TIMEOUT;

/// The time within which an unexpected completion would come
const SILENCE: Duration = Duration::from_millis(10);
/// The time within which a message arrives
pub(super) const ARRIVAL_TIME: Duration = Duration::from_millis(2);
/// The length of the memory that behaviours register beside that of a queue pair
pub(super) const REGION_LEN: usize = 4 * 16 * 1024;

/// A queue pair at one end
#[derive(Clone, Copy)]
pub(super) struct Qp {
    /// 0 is that of this side, 1 that of the peer
    end: usize,
    number: u32,
    pub(super) address: QpAddress,
    pub(super) capacity: QpCapacity,
}

fn silent() -> Stop {
    Stop::Unexpected(format!("nothing completed within {COMPLETION_TIMEOUT:?}"))
}

pub(super) struct Body<'a, 'b> {
    pub(super) lab: &'a mut Lab<'b>,
    pub(super) expectations: Expectations,
    pub(super) mode: Mode,
    /// False if the caller states the expectations
    by_rules: bool,
    queues: Queues,
    made: u32,
}

impl<'a, 'b> Body<'a, 'b> {
    pub(super) fn new(lab: &'a mut Lab<'b>, mode: Mode) -> Self {
        let stated = lab.stated_expectations();
        let by_rules = stated.is_none();
        let expectations = stated.unwrap_or_else(|| Expectations::of(&lab.findings.profile.model));
        Self { lab, expectations, mode, by_rules, queues: Queues::default(), made: 0 }
    }

    /// Stops unless it is known which of the rules of `field` the device follows
    pub(super) fn needs_rule(&self, field: &str) -> Result<(), Stop> {
        let profile = &self.lab.findings.profile;
        if !self.by_rules || profile.decided(field) == Some(Decided::Measured) {
            return Ok(());
        }
        let why = profile.why(field).unwrap_or("its experiments have stopped");
        skip(format!("{field} is not known: {why}"))
    }

    async fn act(&mut self, end: usize, qp: u32, act: Act) -> Result<Acted, Stop> {
        let acted = if end == 0 {
            let Lab { device, runtime, transitions, .. } = &mut *self.lab;
            let end = End { device, runtime: &**runtime, transitions, memory: MAX_MEMORY, requests: None };
            self.queues.act(end, qp, act).await
        } else {
            match self.lab.ask(Request::Act { qp, act }).await? {
                Reply::Acted(acted) => acted,
                _ => return Err(CalibrateError::NotCalibrate.into()),
            }
        };
        acted.map_err(|refusal| match refusal {
            Refusal::Verb(error) => Stop::Verb(error),
            Refusal::Unexpected(why) => Stop::Unexpected(why),
            Refusal::TooManyFailures(why) => Stop::Skipped(why.into()),
        })
    }

    /// The device of this side
    pub(super) fn device(&self) -> Arc<AnyDevice> {
        Arc::clone(&self.lab.device)
    }

    pub(super) fn caps(&self) -> Caps {
        self.lab.device.caps().clone()
    }

    /// A queue pair of this side, for verbs that are no act
    pub(super) fn local(&self, qp: Qp) -> &BareQp<AnyDevice> {
        self.queues.get(qp.number).expect("it was made at this side")
    }

    /// The longest message of the device
    pub(super) fn longest(&self) -> usize {
        let max = self.lab.device.caps().max_message as usize;
        max.min(limits::queue_frames(self.lab).saturating_mul(FRAME))
    }

    /// Stops unless the device has the objects that a behaviour needs; where limits are high, each handle of a device may have its own
    pub(super) fn needs_objects(&self, behaviour: &str) -> Result<(), Stop> {
        if self.expectations.limits_are_small { limits::require_objects(behaviour, self.lab) } else { Ok(()) }
    }

    /// Stops unless each queue of a queue pair may hold so many requests, or frames, at once
    pub(super) fn needs_at_once(&self, count: usize) -> Result<(), Stop> {
        limits::requests(self.lab, count, count).map(drop)
    }

    /// The number of requests of a frame, at most `most`, that each queue of a queue pair may hold at once; stops if it is fewer than two
    pub(super) fn at_once(&self, most: usize) -> Result<usize, Stop> {
        limits::requests(self.lab, 2, most)
    }

    /// Stops unless the device has messages of `len` bytes
    pub(super) fn needs(&self, len: usize) -> Result<(), Stop> {
        if len <= self.longest() { Ok(()) } else { skip("the messages of the device are shorter") }
    }

    /// A queue pair that is not connected
    pub(super) async fn make(&mut self, end: usize, frames: u32, len: usize) -> Result<Qp, Stop> {
        self.made += 1;
        let number = self.made;
        match self.act(end, number, Act::Make { frames, len }).await? {
            Acted::Made { address, capacity } => Ok(Qp { end, number, address, capacity }),
            _ => Err(CalibrateError::NotCalibrate.into()),
        }
    }

    /// Two connected queue pairs with queues of `frames` frames; the first, of this side, has `len` bytes of memory, and the other
    /// at most as many as [`pair`](Self::pair) has
    pub(super) async fn pair_of(&mut self, frames: u32, len: usize) -> Result<[Qp; 2], Stop> {
        self.pair_with(frames, [len, len.min(64 * FRAME)]).await
    }

    /// As [`pair_of`](Self::pair_of), with so much memory at each end
    pub(super) async fn pair_with(
        &mut self,
        frames: u32,
        [here, there]: [usize; 2],
    ) -> Result<[Qp; 2], Stop> {
        let pair = [self.make(0, frames, here).await?, self.make(1, frames, there).await?];
        self.connect(pair[0], pair[1]).await?;
        Ok(pair)
    }

    /// As [`pair_of`](Self::pair_of), for behaviours that do not look at the depth: each of those keeps at most 64 frames posted
    pub(super) async fn pair(&mut self) -> Result<[Qp; 2], Stop> {
        self.pair_with(511, [64 * FRAME; 2]).await
    }

    /// One of either side that are not connected
    pub(super) async fn singles(&mut self) -> Result<[Qp; 2], Stop> {
        Ok([self.make(0, 64, 64 * FRAME).await?, self.make(1, 64, 64 * FRAME).await?])
    }

    /// Connects both to each other
    pub(super) async fn connect(&mut self, a: Qp, b: Qp) -> Result<(), Stop> {
        self.connect_to(a, b).await?;
        self.connect_to(b, a).await
    }

    /// Connects the first to the second
    pub(super) async fn connect_to(&mut self, a: Qp, b: Qp) -> Result<(), Stop> {
        self.connect_to_address(a, b.address).await
    }

    pub(super) async fn connect_to_address(&mut self, qp: Qp, peer: QpAddress) -> Result<(), Stop> {
        self.act(qp.end, qp.number, Act::Connect { peer }).await.map(drop)
    }

    /// Connects a queue pair of this side that is none of [`Act`]s
    pub(super) fn connect_beside(&mut self, connect: impl FnOnce() -> Result<(), Error>) -> Result<(), Stop> {
        self.lab.transitions.attempt(|| connect().map_err(Stop::from))
    }

    pub(super) async fn modify(&mut self, qp: Qp, to: Transition) -> Result<(), Stop> {
        self.act(qp.end, qp.number, Act::Modify { to }).await.map(drop)
    }

    pub(super) async fn recv(&mut self, qp: Qp, id: u64, range: Range<usize>) -> Result<(), Stop> {
        self.act(qp.end, qp.number, Act::Recv { id, part: range.into() }).await.map(drop)
    }

    pub(super) async fn send(&mut self, qp: Qp, id: u64, range: Range<usize>) -> Result<(), Stop> {
        self.act(qp.end, qp.number, Act::Send { id, part: range.into() }).await.map(drop)
    }

    /// Writes a pattern
    pub(super) async fn fill(&mut self, qp: Qp, range: Range<usize>, pattern: u8) -> Result<(), Stop> {
        self.act(qp.end, qp.number, Act::Fill { part: range.into(), pattern }).await.map(drop)
    }

    /// Stops unless the memory holds a pattern
    pub(super) async fn holds(&mut self, qp: Qp, range: Range<usize>, pattern: u8) -> Result<(), Stop> {
        let compare = Act::Compare { part: range.clone().into(), pattern };
        match self.act(qp.end, qp.number, compare).await? {
            Acted::Compared { deviates_at: None } => Ok(()),
            Acted::Compared { deviates_at: Some(at) } => Err(Stop::Unexpected(format!(
                "byte {at} of {} is not the one that it should be",
                range.len()
            ))),
            _ => Err(CalibrateError::NotCalibrate.into()),
        }
    }

    pub(super) async fn next_within(&mut self, qp: Qp, time: Duration) -> Result<Option<Completion>, Stop> {
        let milliseconds = time.as_millis() as u64;
        match self.act(qp.end, qp.number, Act::Next { milliseconds }).await? {
            Acted::Next { completion } => Ok(completion),
            _ => Err(CalibrateError::NotCalibrate.into()),
        }
    }

    /// The next completion, which must come
    pub(super) async fn next(&mut self, qp: Qp) -> Result<Completion, Stop> {
        self.next_within(qp, COMPLETION_TIMEOUT).await?.ok_or_else(silent)
    }

    /// The next completion of a receive; sends before it must succeed
    pub(super) async fn received(&mut self, qp: Qp) -> Result<Completion, Stop> {
        loop {
            let completion = self.next(qp).await?;
            if completion.opcode == Opcode::Recv {
                return Ok(completion);
            }
            ensure_eq!(completion.status, Status::Success, "a send");
        }
    }

    /// The next completion of a queue pair without bookkeeping, which must come: its name and its status
    pub(super) async fn polled(&mut self, raw: &Raw) -> Result<(u64, Status), Stop> {
        let mut out = [Completion::default()];
        let deadline = self.lab.now() + COMPLETION_TIMEOUT;
        while raw.poll(&mut out)? == 0 {
            if self.lab.now() >= deadline {
                return Err(silent());
            }
            self.lab.rest(Duration::from_millis(1)).await;
        }
        Ok((out[0].id.0, out[0].status))
    }

    /// Nothing completes for a while
    pub(super) async fn silent(&mut self, qp: Qp) -> Result<(), Stop> {
        match self.next_within(qp, SILENCE).await? {
            None => Ok(()),
            Some(completion) => {
                Err(Stop::Unexpected(format!("{completion:?} where nothing should complete")))
            }
        }
    }

    pub(super) async fn state(&mut self, qp: Qp) -> Result<QpState, Stop> {
        match self.act(qp.end, qp.number, Act::State).await? {
            Acted::State { state } => Ok(state),
            _ => Err(CalibrateError::NotCalibrate.into()),
        }
    }

    /// The state of the port of an end
    pub(super) async fn port(&mut self, end: usize) -> Result<PortState, Stop> {
        match self.act(end, 0, Act::Port).await? {
            Acted::Port { state } => Ok(state),
            _ => Err(CalibrateError::NotCalibrate.into()),
        }
    }

    /// Destroys a queue pair, whatever is posted on it
    pub(super) async fn close(&mut self, qp: Qp) -> Result<(), Stop> {
        self.act(qp.end, qp.number, Act::Close).await?;
        Ok(self.lab.keep_alive().await?)
    }

    /// Destroys what a behaviour has left, on both sides; stops if the device wrote where nothing was posted
    pub(super) async fn close_all(&mut self) -> Result<(), Stop> {
        let here = self.act(0, 0, Act::CloseAll).await;
        let there = self.act(1, 0, Act::CloseAll).await;
        here.and(there).map(drop)
    }
}
