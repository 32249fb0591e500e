//! Rules about the ways of messages that no field switches: which receive a message takes, and which queue pair waits for another one

use std::sync::Arc;
use std::time::Duration;

use rdma_core::{Cause, Device, FRAME, Status};
use rdma_sim::profile::Decided;
use rdma_sim::rules::{QueueGrant, QueueUnit};

use super::answers::{STAGE, fail, lost, unless_invalid};
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::{Reply, Request};
use crate::station::Station;

/// The number of messages of which none may be lost.
const MESSAGES: usize = 32;
/// Frames of queue pairs, by experiment.
const LOSS: u32 = 36;
const READINESS: u32 = 24;
const PAIRING: u32 = 40;
const PACE: u32 = 44;
const ACCESS: u32 = 28;
const SHARED: u32 = 20;
/// The frames for which the queue pair asks that gets a message longer than its queue.
const DEPTH: u32 = 64;
/// Within this time a message would have arrived.
const MOMENT: Duration = Duration::from_millis(2);

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    loss(lab).await?;
    readiness(lab).await?;
    pairing(lab).await?;
    own_pace(lab).await?;
    shared_queue(lab).await?;
    access(lab).await?;
    depth(lab).await?;
    if !lab.device.caps().one_sided {
        operations(lab).await?;
    }
    Ok(())
}

async fn loss(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut station = lab.pair(STAGE, LOSS, (MESSAGES + 1) * FRAME).await?;
    lab.recv(MESSAGES, 8).await?;
    for _ in 0..MESSAGES {
        station.send(8).map_err(fail)?;
    }
    let instead = match lab.ask(Request::Received { count: MESSAGES }).await {
        Ok(Reply::Received { statuses }) if statuses == [Status::Success; MESSAGES] => None,
        Ok(Reply::Received { statuses }) => Some(format!("32 messages ended with {statuses:?}")),
        Ok(_) => return Err(CalibrateError::NotCalibrate),
        Err(CalibrateError::PeerFailed(why)) => Some(format!("of 32 messages not all arrived: {why}")),
        Err(error) => return Err(error),
    };
    lab.findings.rule("no-loss", instead);
    Ok(())
}

/// A message for a peer that is not connected yet
async fn readiness(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let peer = lab.make(0, 64, 1 << 16).await?;
    let mut station = Station::new(&lab.runtime, &lab.device, READINESS, 1 << 14).map_err(fail)?;
    station.connect(&peer).map_err(fail)?;
    let sent = station.send(8);
    lab.rest(MOMENT).await;
    lab.ask(Request::Connect { address: station.address() }).await?;
    lab.recv(1, 8).await?;
    let instead = match sent {
        Ok(_) => lost(lab).await?,
        Err(error) => Some(format!("the post failed: {error}")),
    };
    lab.findings.rule("peer-readiness", instead);
    Ok(())
}

/// A message of a queue pair that the peer does not name, and one of the queue pair that it names
async fn pairing(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let device = Arc::clone(&lab.device);
    let (mut named, peer) = lab.half_pair(STAGE, &device, PAIRING, 1 << 14).await?;
    named.connect(&peer).map_err(fail)?;
    let mut stranger = Station::new(&lab.runtime, &lab.device, 16, 1 << 14).map_err(fail)?;
    stranger.connect(&peer).map_err(fail)?;
    lab.recv(1, 8).await?;
    stranger.send(8).map_err(fail)?;
    lab.rest(MOMENT).await;
    named.send(8).map_err(fail)?;
    let instead = waited(
        named.sent(STAGE).await,
        "a message of a queue pair that the peer does not name took the receive",
    )?;
    lab.findings.rule("pairing", instead);
    Ok(())
}

/// What happened instead of a completion; `None` if it came
fn waited<T>(completed: Result<T, CalibrateError>, instead: &str) -> Result<Option<String>, CalibrateError> {
    match completed {
        Ok(_) => Ok(None),
        Err(CalibrateError::Silent { .. }) => Ok(Some(instead.to_owned())),
        Err(error) => Err(error),
    }
}

/// A message of one queue pair while that of another one waits for a receive
async fn own_pace(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    if !lab.device.caps().send_waits_for_receive {
        lab.findings.leave_rule("own-pace", "no send of the device waits".to_owned());
        return Ok(());
    }
    let mut waiting = lab.pair(STAGE, 16, 1 << 14).await?;
    waiting.send(8).map_err(fail)?;
    lab.ask(Request::Keep).await?;
    let mut station = lab.pair(STAGE, PACE, 1 << 14).await?;
    lab.recv(1, 8).await?;
    station.send(8).map_err(fail)?;
    let instead = waited(station.sent(STAGE).await, "a message waits as long as that of another queue pair")?;
    lab.ask(Request::Drop).await?;
    lab.findings.rule("own-pace", instead);
    Ok(())
}

/// Two queue pairs that complete to one queue
async fn shared_queue(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut one = lab.pair(STAGE, SHARED, 1 << 14).await?;
    lab.recv(1, 8).await?;
    lab.ask(Request::Keep).await?;
    let peer = lab.make(0, 64, 1 << 16).await?;
    let mut two = one.beside(SHARED, 1 << 14).map_err(fail)?;
    lab.ask(Request::Connect { address: two.address() }).await?;
    two.connect(&peer).map_err(fail)?;
    lab.recv(1, 8).await?;
    one.send(8).map_err(fail)?;
    let mut named = vec![one.next_named(STAGE).await];
    two.send(8).map_err(fail)?;
    named.push(one.next_named(STAGE).await);
    lab.ask(Request::Drop).await?;
    let named = match named.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(named) => named,
        Err(error) => {
            let instead = waited::<()>(Err(error), "a completion of one of two queue pairs did not come")?;
            lab.findings.rule("shared-cq", instead);
            return Ok(());
        }
    };
    let posted = [one.address().qpn, two.address().qpn];
    let instead = (named != posted).then(|| format!("completions of {posted:?} name {named:?}"));
    lab.findings.rule("shared-cq", instead);
    Ok(())
}

/// A message for memory without the right to write
async fn access(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let device = Arc::clone(&lab.device);
    let (mut station, peer) = lab.half_pair(STAGE, &device, ACCESS, 1 << 14).await?;
    let registered = station.register_read_only(FRAME);
    station.connect(&peer).map_err(fail)?;
    if let Err(error) = registered.and_then(|()| station.recv_read_only(8)) {
        lab.findings.leave_rule("receive-access", format!("refused before: {error}"));
        return Ok(());
    }
    lab.ask(Request::Send { len: 8 }).await?;
    let status = match station.receive_status(STAGE).await {
        Err(CalibrateError::Silent { .. }) => Err("the receive did not complete".to_owned()),
        status => Ok(status?),
    };
    let instead = match status {
        Ok(Status::LocalProtection) => None,
        Ok(status) => Some(format!("the receive completed with {status}")),
        Err(why) => Some(why),
    };
    lab.findings.rule("receive-access", instead);
    Ok(())
}

/// A send that is longer than the queue
async fn depth(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    const RULE: &str = "queue-depth";
    let max = lab.device.caps().max_queue_frames;
    let profile = &lab.findings.profile;
    let is_known = ["rules.queue_grant", "rules.queue_unit"]
        .into_iter()
        .all(|field| profile.decided(field) == Some(Decided::Measured));
    let rules = &profile.model.rules;
    let granted = match rules.queue_grant {
        QueueGrant::AtLeast(least) => ((DEPTH + 1).next_power_of_two() - 1).max(least),
        QueueGrant::Fixed(frames) => frames,
        _ => DEPTH,
    };
    let longer = granted.min(max) as usize + 1;
    if !is_known || rules.queue_unit != QueueUnit::Frames {
        lab.findings.leave_rule(
            RULE,
            "it is not known that queues are counted in frames, and in how many".to_owned(),
        );
        return Ok(());
    }
    if longer * FRAME > lab.device.caps().max_message as usize {
        lab.findings.leave_rule(RULE, "a queue holds the longest message".to_owned());
        return Ok(());
    }
    let device = Arc::clone(&lab.device);
    let (mut station, peer) = lab.half_pair(STAGE, &device, DEPTH, longer * FRAME).await?;
    station.connect(&peer).map_err(fail)?;
    let answer = match station.send(longer * FRAME) {
        Err(error) if matches!(error.cause, Cause::MessageTooLong { .. }) => None,
        answer => unless_invalid(answer, "a message longer than the queue"),
    };
    lab.findings.rule(RULE, answer);
    Ok(())
}

/// A read of the peer's memory
async fn operations(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut station = lab.pair(STAGE, 64, 1 << 14).await?;
    let instead = match station.read(8).map_err(|error| error.cause) {
        Err(Cause::Unsupported) => None,
        Ok(_) => Some("a read was accepted".to_owned()),
        Err(cause) => Some(format!("a read failed otherwise: {cause}")),
    };
    lab.findings.rule("operations", instead);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches queue pairs of two experiments that deviating devices cannot tell apart.
    #[test]
    fn each_experiment_has_queue_pairs_of_its_own_size() {
        let mut frames = [LOSS, READINESS, PAIRING, PACE, ACCESS, SHARED, DEPTH, 16];
        frames.sort_unstable();
        assert!(frames.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
