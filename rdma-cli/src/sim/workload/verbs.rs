//! Messages one way on bare verbs, as in a program without this library

use std::ops::Range;

use rdma_bare::BareQp;
use rdma_core::{Completion, Device, FRAME, QpAddress, QpInit, QpType, QueuePair, Status, frames};
use rdma_sim::SimDevice;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::message;
use super::program::{Kind, Program, size, small};
use crate::sim::failure::Failure;
use crate::sim::outcome::Outcome;
use crate::sim::period::Period;
use crate::sim::side::Side;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Verbs {
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "small", deserialize_with = "size")]
    size: u32,
    /// Bytes of each receive, if not of the messages.
    receive: Option<u32>,
    /// When the receives are posted, from when both queue pairs are ready.
    #[serde(default)]
    receive_after: Period,
    /// Before each message.
    #[serde(default)]
    rest: Period,
    /// Queue pairs of each side; the first of them is used.
    #[serde(default = "one")]
    queue_pairs: u32,
    /// Whether they are reliable: not on Thunderbolt.
    #[serde(default)]
    reliable: bool,
}

fn one() -> u32 {
    1
}

/// Bounds the memory of a scenario.
const MAX_QUEUE_PAIRS: u32 = 1024;
/// Frames that a queue holds.
const QUEUE: u64 = 4095;

impl Program for Verbs {
    fn check(&self) -> Result<(), String> {
        if !(1..=MAX_QUEUE_PAIRS).contains(&self.queue_pairs) {
            return Err(format!("queue_pairs is {}: write 1 to {MAX_QUEUE_PAIRS}", self.queue_pairs));
        }
        if self.count == 0 || u64::from(self.count) * self.frames() as u64 > QUEUE {
            let why = "count is 0, or the messages and their receives need more than the";
            return Err(format!("{why} {QUEUE} frames of a queue"));
        }
        Ok(())
    }

    fn has_sessions(&self) -> bool {
        false
    }

    async fn run(&self, side: Side) -> Result<(), Failure> {
        let queue_pairs = (0..self.queue_pairs).map(|_| self.queue_pair(&side));
        let mut queue_pairs = queue_pairs.collect::<Result<Vec<_>, _>>()?;
        let qp = &mut queue_pairs[0];
        let mut stream = side.stream().await?;
        let peer = swap(&mut stream, qp.qp().address()).await?;
        qp.qp().connect(&peer)?;
        let is_early = self.receive_after == Period::default();
        if !side.is_first && is_early {
            self.post_receives(qp)?;
        }
        // Both are ready from here on.
        swap(&mut stream, peer).await?;
        if side.is_first {
            return self.send(&side, qp).await;
        }
        if !is_early {
            side.rest(self.receive_after.0).await;
            self.post_receives(qp)?;
        }
        self.receive_all(&side, qp).await
    }
}

impl Verbs {
    fn receive(&self) -> usize {
        self.receive.unwrap_or(self.size) as usize
    }

    /// Frames of the slot of each message
    fn frames(&self) -> usize {
        frames(self.receive().max(self.size as usize))
    }

    /// The bytes of message `number` in the arena
    fn place(&self, number: u32, len: usize) -> Range<usize> {
        let start = number as usize * self.frames() * FRAME;
        start..start + len
    }

    fn queue_pair(&self, side: &Side) -> Result<BareQp<SimDevice>, Failure> {
        let device = side.open()?;
        let frames = device.caps().max_queue_frames;
        let qp_type = if self.reliable { QpType::Rc } else { QpType::Uc };
        let init = QpInit { qp_type, ..QpInit::with_frames(frames) };
        Ok(BareQp::new(device, &init, self.count as usize * self.frames() * FRAME)?)
    }

    fn post_receives(&self, qp: &mut BareQp<SimDevice>) -> Result<(), Failure> {
        (0..self.count).try_for_each(|number| {
            qp.recv(number.into(), self.place(number, self.receive())).map_err(Failure::verb)
        })
    }

    async fn send(&self, side: &Side, qp: &mut BareQp<SimDevice>) -> Result<(), Failure> {
        let mut message = vec![0; self.size as usize];
        for number in 0..self.count {
            side.rest(self.rest.0).await;
            message::write(&mut message, number);
            let place = self.place(number, message.len());
            qp.write(place.start, &message);
            qp.send(number.into(), place).map_err(Failure::verb)?;
            succeeded("send", number, qp.completion().await.map_err(Failure::verb)?)?;
        }
        Ok(())
    }

    async fn receive_all(&self, side: &Side, qp: &mut BareQp<SimDevice>) -> Result<(), Failure> {
        for number in 0..self.count {
            let completion = succeeded("receive", number, qp.completion().await.map_err(Failure::verb)?)?;
            let place = self.place(number, completion.byte_len as usize);
            let message = qp.read(place);
            side.check(message::check(&message, number, self.size as usize));
        }
        Ok(())
    }
}

fn succeeded(what: &str, number: u32, completion: Completion) -> Result<Completion, Failure> {
    match completion.status {
        Status::Success => Ok(completion),
        status => Err(Failure::completion(&format!("{what} {number}"), status)),
    }
}

/// Exchanges addresses with the peer
async fn swap(stream: &mut DuplexStream, address: QpAddress) -> Result<QpAddress, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Outcome::ConnectFails, format!("the other side went away: {error}"))
    };
    stream.write_all(&address.to_bytes()).await.map_err(failed)?;
    let mut bytes = [0; QpAddress::WIRE_LEN];
    stream.read_exact(&mut bytes).await.map_err(failed)?;
    Ok(QpAddress::from_bytes(&bytes))
}
