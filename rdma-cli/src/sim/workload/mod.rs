//! The programs of scenarios, one file for each kind
//!
//! A program runs at each end of each link. It checks that messages arrive unchanged, in order and once, and reports every
//! violation.

mod exchange;
mod idle;
mod message;
mod ping;
mod reconnect;
mod stream;
mod verbs;

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::de::{Deserialize, Deserializer, Error};

use self::exchange::Exchange;
use self::idle::Idle;
use self::ping::Ping;
use self::reconnect::Reconnect;
use self::stream::Stream;
use self::verbs::Verbs;
use super::expect::Outcome;
use super::failure::Failure;
use super::scenario::{Invalid, Scenario};
use super::side::Side;

/// The programs of a scenario
pub(crate) trait Workload: fmt::Debug + Send + Sync {
    /// Refuses a workload that takes too long to simulate
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether it uses endpoints, not bare verbs
    fn has_endpoints(&self) -> bool {
        true
    }

    /// The program at one end of a link
    fn run(self: Arc<Self>, side: Side) -> BoxFuture<'static, Result<(), Failure>>;
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
    /// The first side sends to the second, and both connect again whenever the connection is lost
    Reconnect,
    /// The first side sends to the second
    Stream,
    /// The first side sends to the second, on bare verbs
    Verbs,
}

impl Kind {
    /// Reads a scenario whose workload is of this kind
    pub(super) fn parse(self, text: &str) -> Result<Scenario, Invalid> {
        match self {
            Self::Exchange => Scenario::parse_with::<Exchange>(text),
            Self::Idle => Scenario::parse_with::<Idle>(text),
            Self::Ping => Scenario::parse_with::<Ping>(text),
            Self::Reconnect => Scenario::parse_with::<Reconnect>(text),
            Self::Stream => Scenario::parse_with::<Stream>(text),
            Self::Verbs => Scenario::parse_with::<Verbs>(text),
        }
    }
}

/// Limits of a workload: longer ones take too long to simulate.
const MAX_MESSAGES: u32 = 1_000_000;
const MAX_MESSAGE_BYTES: u32 = 16 << 20;
const MAX_BYTES: u64 = 1 << 30;

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let count = u32::deserialize(deserializer)?;
    if (1..=MAX_MESSAGES).contains(&count) {
        return Ok(count);
    }
    Err(D::Error::custom(format!("{count} messages are not possible: write 1 to {MAX_MESSAGES}")))
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let size = u32::deserialize(deserializer)?;
    if size <= MAX_MESSAGE_BYTES {
        return Ok(size);
    }
    Err(D::Error::custom(format!(
        "{size} bytes are too long for a message: write at most {MAX_MESSAGE_BYTES} bytes"
    )))
}

fn small() -> u32 {
    64
}

/// Refuses more bytes than can be simulated in a reasonable time
fn check_volume(count: u32, size: u32) -> Result<(), String> {
    if u64::from(count) * u64::from(size) <= MAX_BYTES {
        return Ok(());
    }
    Err(format!(
        "{count} messages of {size} bytes are more than {MAX_BYTES} bytes: write a smaller count or size"
    ))
}

/// The peer ended before all messages had arrived
fn ended_early(have: u32, count: u32) -> Failure {
    Failure::new(Outcome::Fails, format!("the peer ended after {have} of {count} messages"))
}
