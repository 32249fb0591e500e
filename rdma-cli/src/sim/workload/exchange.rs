//! Messages both ways at once

use futures::future::try_join;
use serde::Deserialize;

use super::message;
use super::program::{Kind, Program, check_volume, count, ended_early, size, small};
use crate::sim::failure::Failure;
use crate::sim::period::Period;
use crate::sim::side::Side;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Exchange {
    #[serde(rename = "kind")]
    _kind: Kind,
    #[serde(deserialize_with = "count")]
    count: u32,
    #[serde(default = "small", deserialize_with = "size")]
    size: u32,
    /// Before each message.
    #[serde(default)]
    rest: Period,
}

impl Program for Exchange {
    fn check(&self) -> Result<(), String> {
        check_volume(self.count, self.size)
    }

    async fn run(&self, side: Side) -> Result<(), Failure> {
        let Self { count, size, rest, .. } = *self;
        let connected = side.connect().await?;
        let session = &connected.session;
        let take = async {
            for number in 0..count {
                let received = session.recv().await?.ok_or_else(|| ended_early(number, count))?;
                side.check(message::check(&received, number, size as usize));
            }
            Ok::<_, Failure>(())
        };
        try_join(connected.send(0..count, size, rest), take).await?;
        // All messages of the peer have arrived: any further one is a violation.
        let rest = async {
            if session.recv().await?.is_some() {
                side.violation(format!("a message came after the last of {count}"));
            }
            Ok::<_, Failure>(())
        };
        let close = async { Ok::<_, Failure>(session.close().await?) };
        try_join(close, rest).await?;
        Ok(())
    }
}
