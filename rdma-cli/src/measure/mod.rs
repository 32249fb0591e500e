//! Measurements between two machines: one asks for them, and one answers

mod bw;
mod distribution;
mod limit;
mod messages;
mod ping;
mod reduce;
mod round_trips;
mod wire;

use anyhow::Result;
use rdma_async::{Device, Session};

pub(crate) use self::bw::{RemoteBw, bw, measure_bw};
pub(crate) use self::distribution::Distribution;
pub(crate) use self::messages::{count_of, receive_messages, send_messages};
pub(crate) use self::ping::{RemotePing, measure_ping, ping};
pub(crate) use self::reduce::{MAX_ELEMENTS, Pair};
pub(crate) use self::round_trips::{echo, round_trips};
pub(crate) use self::wire::{FOREIGN, MAX_MESSAGE};

/// Measurement that a peer requests with the first message of a session
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Measurement {
    /// Each message is answered with a copy of it
    Ping,
    /// Messages are received and timed
    Bw,
    /// Both sum vectors
    AllReduce,
}

impl Measurement {
    /// The first message of a session
    fn request(self) -> &'static [u8] {
        match self {
            Self::Ping => wire::PING,
            Self::Bw => wire::BW,
            Self::AllReduce => wire::REDUCE,
        }
    }

    /// The measurement that the first message of a session asks for
    pub(crate) fn requested(message: &[u8]) -> Option<Self> {
        let all = [Self::Ping, Self::Bw, Self::AllReduce];
        all.into_iter().find(|measurement| measurement.request() == message)
    }

    /// The name of the measurement in messages and in JSON
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Bw => "bw",
            Self::AllReduce => "all_reduce",
        }
    }

    /// Answers until the peer closes the session; returns how many bytes came
    ///
    /// # Errors
    ///
    /// `Declined::Silence` and `Declined::Duration` if the peer takes too long; errors of the session.
    pub(crate) async fn answer<D: Device>(self, session: &Session<D>) -> Result<u64> {
        let answered = async {
            match self {
                Self::Ping => echo(session).await,
                Self::Bw => bw::answer(session).await,
                Self::AllReduce => reduce::answer(session).await,
            }
        };
        limit::limited(session, answered).await
    }
}
