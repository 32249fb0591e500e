//! How many objects there are

use rdma_core::{CompletionQueue as _, Device, QpInit};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::Request;

/// The most that are made: more are no limit that a program meets.
const MOST: usize = 64;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    lab.ask(Request::Drop).await?;
    let fail = |error| CalibrateError::Verb { stage: "limits", error };
    let cq = lab.calls.during("create_cq", || lab.device.create_cq(16)).map_err(fail)?;
    let mut pairs = Vec::new();
    while pairs.len() < MOST
        && let Ok(qp) = lab.calls.during("create_qp", || cq.create_qp(&QpInit::with_frames(1)))
    {
        pairs.push(qp);
    }
    match pairs.len() {
        MOST => lab.findings.leave("caps.max_qp", "there are more than 64"),
        count => lab.findings.decide("caps.max_qp", count),
    }
    Ok(())
}
