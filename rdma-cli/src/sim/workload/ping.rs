//! Round trips

use rdma_async::Lease;
use serde::Deserialize;

use super::message;
use super::program::{Kind, Program, check_volume, count, ended_early, size, small};
use crate::sim::failure::Failure;
use crate::sim::period::Period;
use crate::sim::side::{Connected, Side};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Ping {
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(deserialize_with = "count")]
    count: u32,
    #[serde(default = "small", deserialize_with = "size")]
    size: u32,
    /// Before each round trip.
    #[serde(default)]
    rest: Period,
}

impl Program for Ping {
    fn check(&self) -> Result<(), String> {
        check_volume(self.count, self.size)
    }

    async fn run(&self, side: Side) -> Result<(), Failure> {
        let connected = side.connect().await?;
        if !side.is_first {
            return connected.echo(self.count, self.size).await;
        }
        let mut lease = connected.session.alloc(self.size as usize).await?;
        lease.resize(self.size as usize, 0);
        for number in 0..self.count {
            side.rest(self.rest.0).await;
            lease = connected.round_trip(lease, number, self.count).await?;
        }
        drop(lease);
        Ok(connected.session.close().await?)
    }
}

impl Connected {
    /// Sends message `number` in `lease`, and waits until it comes back
    pub(super) async fn round_trip(
        &self,
        mut lease: Lease,
        number: u32,
        count: u32,
    ) -> Result<Lease, Failure> {
        let Self { side, session, .. } = self;
        message::write(&mut lease, number);
        let start = side.now();
        let lease = session.send(lease).await?;
        let answer = session.recv().await?.ok_or_else(|| ended_early(number, count))?;
        side.log.round_trip(side.now() - start);
        side.check(message::check(&answer, number, lease.len()));
        Ok(lease)
    }

    /// Sends each message back until the peer has finished
    pub(super) async fn echo(&self, count: u32, size: u32) -> Result<(), Failure> {
        let mut number = 0;
        while let Some(received) = self.session.recv().await? {
            self.side.check(message::check(&received, number, size as usize));
            number += 1;
            let mut lease = self.session.alloc(received.len()).await?;
            lease.extend_from_slice(&received);
            drop(received);
            self.session.send(lease).await?;
        }
        if number == count { Ok(()) } else { Err(ended_early(number, count)) }
    }
}
