//! Messages one way, over as many connections as needed

use std::sync::atomic::Ordering;

use rdma_core::Time;
use serde::Deserialize;

use super::message;
use super::program::{Kind, Program, check_volume, count, ended_early, size};
use crate::sim::failure::Failure;
use crate::sim::outcome::Outcome;
use crate::sim::period::Period;
use crate::sim::side::Side;

/// When a connection is lost, both sides drop it, open the device again and reconnect. Then the second side sends how many
/// messages it has, and the first one continues from there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Reconnect {
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(deserialize_with = "count")]
    count: u32,
    #[serde(deserialize_with = "size")]
    size: u32,
    /// Before each message.
    #[serde(default)]
    rest: Period,
    /// Between attempts.
    #[serde(default = "shortly")]
    retry: Period,
    /// How long to retry without success.
    #[serde(default = "long")]
    give_up: Period,
}

fn shortly() -> Period {
    Period(std::time::Duration::from_millis(100))
}

fn long() -> Period {
    Period::from_secs(30)
}

/// Shorter ones take too long to simulate.
const SHORTEST_RETRY: Period = Period(std::time::Duration::from_millis(1));

impl Program for Reconnect {
    fn check(&self) -> Result<(), String> {
        if self.retry < SHORTEST_RETRY {
            return Err(format!("retry is shorter than {SHORTEST_RETRY}"));
        }
        check_volume(self.count, self.size)
    }

    async fn run(&self, side: Side) -> Result<(), Failure> {
        let mut connected = None;
        let mut lost_at: Option<Time> = None;
        loop {
            let attempt = self.attempt(&side, &mut connected).await;
            if side.is_first && attempt.is_ok() {
                return Ok(());
            }
            let is_complete = side.link.stored() == u64::from(self.count);
            if !side.is_first && is_complete {
                // The first side may not know yet: the second one goes on until it does.
                side.report(Ok(()));
            }
            let now = side.now();
            let since = match connected.take() {
                Some(()) => *lost_at.insert(now),
                None => *lost_at.get_or_insert(now),
            };
            let is_over = side.is_first || !is_complete;
            if let Err(failure) = attempt
                && is_over
                && now - since > self.give_up.0
            {
                return Err(failure);
            }
            side.rest(self.retry.0).await;
        }
    }
}

impl Reconnect {
    /// Continues until all messages have arrived or the connection is lost; sets `connected` once there is a connection
    async fn attempt(&self, side: &Side, connected: &mut Option<()>) -> Result<(), Failure> {
        let Self { count, size, rest, .. } = *self;
        let session = side.connect().await?;
        let connection = &session.connection;
        *connected = Some(());
        if side.is_first {
            let stored = connection.recv().await?.ok_or_else(|| ended_early(0, count))?;
            let stored = stored.first_chunk().copied().map(u32::from_le_bytes);
            let Some(stored) = stored.filter(|stored| *stored <= count) else {
                let why = "the other side acknowledged messages that were not sent";
                side.violation(why);
                return Err(Failure::new(Outcome::Fails, why));
            };
            session.send(stored..count, size, rest).await?;
            return Ok(connection.close().await?);
        }
        let mut stored = side.link.stored() as u32;
        connection.send_bytes(&stored.to_le_bytes()).await?;
        while let Some(received) = connection.recv().await? {
            side.check(message::check(&received, stored, size as usize));
            stored += 1;
            side.link.stored.store(stored.into(), Ordering::Relaxed);
        }
        if stored == count { Ok(()) } else { Err(ended_early(stored, count)) }
    }
}
