//! Messages one way

use std::ops::Range;
use std::task::Poll;

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use serde::Deserialize;

use super::message;
use super::program::{Kind, Program, check_volume, count, ended_early, size};
use crate::sim::failure::Failure;
use crate::sim::period::Period;
use crate::sim::side::{Connected, Side};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Stream {
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(deserialize_with = "count")]
    count: u32,
    #[serde(deserialize_with = "size")]
    size: u32,
    /// Before each message.
    #[serde(default)]
    rest: Period,
}

/// Messages in flight at once, so that the cable does not idle between them.
const AT_ONCE: usize = 4;

impl Program for Stream {
    fn check(&self) -> Result<(), String> {
        check_volume(self.count, self.size)
    }

    async fn run(&self, side: Side) -> Result<(), Failure> {
        let Self { count, size, rest, .. } = *self;
        let connected = side.connect().await?;
        if !side.is_first {
            return connected.receive(count, size).await;
        }
        let start = side.now();
        connected.send(0..count, size, rest).await?;
        connected.session.close().await?;
        side.log.transfer(u64::from(count) * u64::from(size), side.now() - start);
        Ok(())
    }
}

impl Connected {
    /// Sends messages, in order
    pub(super) async fn send(&self, numbers: Range<u32>, size: u32, rest: Period) -> Result<(), Failure> {
        let mut under_way = FuturesOrdered::new();
        for number in numbers {
            self.side.rest(rest.0).await;
            if under_way.len() == AT_ONCE {
                under_way.next().await.transpose()?;
            }
            let mut lease = self.session.alloc(size as usize).await?;
            lease.resize(size as usize, 0);
            message::write(&mut lease, number);
            let mut send = self.session.send(lease);
            // Messages have the order in which their sends were first polled.
            match futures::poll!(&mut send) {
                Poll::Ready(sent) => drop(sent?),
                Poll::Pending => under_way.push_back(send),
            }
        }
        while let Some(sent) = under_way.next().await {
            sent?;
        }
        Ok(())
    }

    /// Receives messages, in order, until the peer has finished
    async fn receive(&self, count: u32, size: u32) -> Result<(), Failure> {
        let mut number = 0;
        while let Some(received) = self.session.recv().await? {
            self.side.check(message::check(&received, number, size as usize));
            number += 1;
        }
        if number == count { Ok(()) } else { Err(ended_early(number, count)) }
    }
}
