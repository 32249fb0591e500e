//! Two round trips with an idle session between them

use serde::Deserialize;

use super::program::{Kind, Program, small};
use crate::sim::failure::Failure;
use crate::sim::period::Period;
use crate::sim::side::Side;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Idle {
    #[serde(rename = "kind")]
    _kind: Kind,
    /// Between the two round trips.
    duration: Period,
}

impl Program for Idle {
    async fn run(&self, side: Side) -> Result<(), Failure> {
        let connected = side.connect().await?;
        if !side.is_first {
            return connected.echo(2, small()).await;
        }
        let mut lease = connected.session.alloc(small() as usize).await?;
        lease.resize(small() as usize, 0);
        let lease = connected.round_trip(lease, 0, 2).await?;
        side.rest(self.duration.0).await;
        drop(connected.round_trip(lease, 1, 2).await?);
        Ok(connected.session.close().await?)
    }
}
