//! The receives that a message may have

use rdma_core::{Device, FRAME, Status};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::{Reply, Request};

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    frame_match(lab).await?;
    late_registration(lab).await?;
    multi_sge(lab).await?;
    uc_write(lab).await
}

/// The status of the peer's next receive
async fn received(lab: &mut Lab<'_>) -> Result<Status, CalibrateError> {
    match lab.ask(Request::Received { count: 1 }).await? {
        Reply::Received { statuses } => statuses.first().copied().ok_or(CalibrateError::NotCalibrate),
        _ => Err(CalibrateError::NotCalibrate),
    }
}

pub(super) async fn frame_match(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    if (lab.device.caps().max_message as usize) < 2 * FRAME {
        lab.findings.leave("rules.frame_match", "a message of the device is one frame");
        return Ok(());
    }
    let mut station = lab.pair(64, 1 << 16).await?;
    lab.recv(1, 2 * FRAME).await?;
    station.send(8)?;
    let status = received(lab).await?;
    lab.findings.decide("rules.frame_match", if status == Status::Success { "fits" } else { "exact" });
    Ok(())
}

async fn late_registration(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut station = lab.pair(64, 1 << 16).await?;
    lab.ask(Request::RecvLate { len: 8 }).await?;
    station.send(8)?;
    let status = received(lab).await?;
    lab.findings.decide("rules.late_registration", status == Status::Success);
    Ok(())
}

async fn multi_sge(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut station = lab.pair(64, 1 << 16).await?;
    lab.recv(2, 8).await?;
    let is_split = station.send_two(8).is_ok();
    if is_split {
        lab.ask(Request::Received { count: 2 }).await?;
    }
    lab.findings.decide("rules.multi_sge", if is_split { "split" } else { "refused" });
    Ok(())
}

async fn uc_write(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    if lab.device.caps().one_sided {
        lab.findings.leave("rules.uc_write", "the device has one-sided operations");
        return Ok(());
    }
    let mut station = lab.pair(64, 1 << 16).await?;
    lab.recv(1, 8).await?;
    let is_accepted = station.write(8).is_ok();
    if is_accepted {
        received(lab).await?;
    }
    lab.findings.decide("rules.uc_write", if is_accepted { "as-send" } else { "refused" });
    Ok(())
}
