//! What only programs in C see

use std::sync::Arc;
use std::time::Duration;

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::machine::ViewOfC;

/// The fields of this stage
const FIELDS: [&str; 2] = ["rules.completion_events", "rules.large_gid_table"];
/// The longest GID table that is not large
const SMALL_GID_TABLE: u32 = 16;
/// How long an event may come after its completion
const LATE: Duration = Duration::from_secs(1);

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let Some(view) = lab.open_for_c() else {
        for field in FIELDS {
            lab.findings.leave(field, "only programs in C see it, and this device is simulated");
        }
        return Ok(());
    };
    let ViewOfC { device, gid_table_len, completion_events } = view?;
    lab.findings.decide("rules.large_gid_table", gid_table_len > SMALL_GID_TABLE);
    let mut completion_events = match completion_events {
        Ok(completion_events) => completion_events,
        Err(error) => {
            lab.findings
                .leave("rules.completion_events", &format!("there is no completion channel: {error}"));
            return Ok(());
        }
    };
    let (mut station, peer) = lab.half_pair(&Arc::new(device), 64, 1 << 16).await?;
    station.connect(&peer)?;
    lab.recv(1, 8).await?;
    station.send(8)?;
    station.sent().await?;
    let mut count = completion_events()?;
    if count == 0 {
        lab.rest(LATE).await;
        count = completion_events()?;
    }
    lab.findings.decide("rules.completion_events", count > 0);
    Ok(())
}
