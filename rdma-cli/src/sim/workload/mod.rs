//! What the programs do, one file for each kind
//!
//! A program runs at each end of each link. Whatever happens, it checks that what arrives is what was sent, in order and
//! once, and says so if not.

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
use super::scenario::{Scenario, Wrong};
use super::side::Side;

/// What the programs of a scenario do
pub(crate) trait Workload: fmt::Debug + Send + Sync {
    /// Whether it is more than the simulator should be asked for
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether it runs on endpoints, rather than on bare verbs
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
    /// A round trip, nothing for a while, and another round trip
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
    pub(super) fn parse(self, text: &str) -> Result<Scenario, Wrong> {
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

/// More than any scenario needs.
const MOST_MESSAGES: u32 = 1_000_000;
const LONGEST_MESSAGE: u32 = 16 << 20;
const MOST_BYTES: u64 = 1 << 30;

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let count = u32::deserialize(deserializer)?;
    if (1..=MOST_MESSAGES).contains(&count) {
        return Ok(count);
    }
    Err(D::Error::custom(format!("{count} is no count of messages: write 1 to {MOST_MESSAGES}")))
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let size = u32::deserialize(deserializer)?;
    if size <= LONGEST_MESSAGE {
        return Ok(size);
    }
    Err(D::Error::custom(format!("{size} is no length of a message: write at most {LONGEST_MESSAGE} bytes")))
}

fn small() -> u32 {
    64
}

/// Refuses what takes too long to simulate
fn check_volume(count: u32, size: u32) -> Result<(), String> {
    if u64::from(count) * u64::from(size) <= MOST_BYTES {
        return Ok(());
    }
    Err(format!(
        "{count} messages of {size} bytes are more than {MOST_BYTES} bytes: write a smaller count or size"
    ))
}

/// The peer ended before everything was there
fn ended_early(have: u32, count: u32) -> Failure {
    Failure::new(Outcome::Fails, format!("the peer ended after {have} of {count} messages"))
}
