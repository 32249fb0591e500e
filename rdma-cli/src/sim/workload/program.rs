//! Interface, kinds and limits of all programs

use crate::sim::failure::Failure;
use crate::sim::outcome::Outcome;
use crate::sim::side::Side;
use futures::future::BoxFuture;
use serde::de::{Deserialize, Deserializer, Error};
use std::fmt;
use std::sync::Arc;

/// A kind of program
pub(crate) trait Program: fmt::Debug + Send + Sync + 'static {
    /// Refuses a program that takes too long to simulate
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether it uses sessions, not bare verbs
    fn has_sessions(&self) -> bool {
        true
    }

    /// Runs at one end of a link
    fn run(&self, side: Side) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A [`Program`] of any kind, as a scenario holds it: it runs at each end of each link
pub(crate) trait Workload: fmt::Debug + Send + Sync {
    /// Starts the program at one end of a link
    fn start(self: Arc<Self>, side: Side) -> BoxFuture<'static, Result<(), Failure>>;
}

impl<P: Program> Workload for P {
    fn start(self: Arc<Self>, side: Side) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { self.run(side).await })
    }
}

/// The kinds of workloads
#[derive(Clone, Copy, Debug, serde::Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Both sides send to each other at once
    Exchange,
    /// Two round trips with a pause between them
    Idle,
    /// Round trips
    Ping,
    /// The first side sends to the second
    Stream,
    /// The first side sends to the second, on bare verbs
    Verbs,
}

/// Limits of a workload: longer ones take too long to simulate.
const MAX_MESSAGES: u32 = 1_000_000;
const MAX_MESSAGE_BYTES: u32 = 16 << 20;
const MAX_BYTES: u64 = 1 << 30;

pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let count = u32::deserialize(deserializer)?;
    if (1..=MAX_MESSAGES).contains(&count) {
        return Ok(count);
    }
    Err(D::Error::custom(format!("{count} messages are not possible: write 1 to {MAX_MESSAGES}")))
}

pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let size = u32::deserialize(deserializer)?;
    if size <= MAX_MESSAGE_BYTES {
        return Ok(size);
    }
    Err(D::Error::custom(format!(
        "{size} bytes are too long for a message: write at most {MAX_MESSAGE_BYTES} bytes"
    )))
}

pub(super) fn small() -> u32 {
    64
}

/// Refuses more bytes than can be simulated in a reasonable time
pub(super) fn check_volume(count: u32, size: u32) -> Result<(), String> {
    if u64::from(count) * u64::from(size) <= MAX_BYTES {
        return Ok(());
    }
    Err(format!(
        "{count} messages of {size} bytes are more than {MAX_BYTES} bytes: write a smaller count or size"
    ))
}

/// The peer ended before all messages had arrived
pub(super) fn ended_early(have: u32, count: u32) -> Failure {
    Failure::new(Outcome::Fails, format!("the peer ended after {have} of {count} messages"))
}
