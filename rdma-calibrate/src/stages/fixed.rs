//! Rules that no field of a profile switches: whether the device follows them
//!
//! Behaviours of the conformance body of this project that one side sees, with a peer that does nothing unusual.

use std::sync::Arc;

use rdma_core::{Cause, CompletionQueue as _, Device, Error, QpInit, QpType, QueuePair as _, Transition};

use super::answers::{STAGE, fail, lost, unless_invalid};
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::Request;
use crate::station::{ALL_ACCESS, Memory, Station};

/// Longer than the 16 MB that Apple's device advertises.
const LONG: usize = (16 << 20) + 1;
/// The number of sends in the check of their order.
const SENDS: usize = 8;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    port(lab)?;
    memory(lab)?;
    if !lab.device.caps().one_sided {
        queue_pairs(lab)?;
    }
    states(lab).await?;
    unregistered(lab).await?;
    unsignaled(lab).await?;
    order(lab).await?;
    super::messages::run(lab).await?;
    // The last: a device that does otherwise may be left with half a connection.
    reset(lab).await
}

/// The name of the device, and the addresses of its port
fn port(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let name = lab.device.name();
    let number = name.strip_prefix("rdma_en").unwrap_or_default();
    let is_named = number.starts_with(|first: char| first.is_ascii_digit());
    let instead = (!is_named).then(|| format!("the device is called {name}"));
    let gids = lab.device.gids().map_err(fail)?;
    let is_eui_64 =
        gids.first().is_some_and(|gid| gid.0[..2] == [0xfe, 0x80] && gid.0[11..13] == [0xff, 0xfe]);
    let entries = gids.iter().filter(|gid| !gid.is_zero()).count();
    let of_table = (!is_eui_64 || entries != 3).then(|| format!("{gids:?}"));
    lab.findings.rule("device-per-port", instead);
    lab.findings.rule("gid-table", of_table);
    Ok(())
}

fn memory(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let register = |len| Memory::register(&lab.device, 0, len, ALL_ACCESS);
    let refused = [1, LONG].map(|len| Some((len, register(len).err()?)));
    let (one, other) = (register(4096).map_err(fail)?, register(4096).map_err(fail)?);
    let repeats = one.lkey() == other.lkey();
    drop((one, other));
    let is_invalid = |refused: &&(usize, Error)| matches!(refused.1.cause, Cause::Invalid(_));
    let say = |(len, error): &(usize, Error)| format!("{len} bytes: {error}");
    let mut refused = refused.iter().flatten();
    match (refused.clone().find(is_invalid), refused.next()) {
        // Refused for another reason than its length, such as a limit of locked memory.
        (None, Some(other)) => lab.findings.leave_rule("registration-length", say(other)),
        (invalid, _) => lab.findings.rule("registration-length", invalid.map(say)),
    }
    lab.findings.rule("keys", repeats.then(|| "two regions have one key".to_owned()));
    Ok(())
}

fn queue_pairs(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let cq = lab.device.create_cq(16).map_err(fail)?;
    let create = |qp_type| {
        let init = QpInit { qp_type, ..QpInit::with_frames(8) };
        cq.create_qp(&init)
    };
    let other = [QpType::Rc, QpType::Ud].into_iter().find_map(|qp_type| match create(qp_type) {
        Err(Error { cause: Cause::Unsupported, .. }) => None,
        Ok(_) => Some(format!("{qp_type:?} was accepted")),
        Err(error) => Some(format!("{qp_type:?} failed otherwise: {error}")),
    });
    let pairs = [create(QpType::Uc).map_err(fail)?, create(QpType::Uc).map_err(fail)?];
    let [one, two] = pairs.each_ref().map(|pair| pair.address().qpn.0);
    drop(pairs);
    let is_hop = |number: u32| number.is_multiple_of(256) && number >= 9 * 256;
    let follows = one != two && is_hop(one) && is_hop(two);
    lab.findings.rule("transports", other);
    lab.findings.rule("qp-numbers", (!follows).then(|| format!("{one} and {two}")));
    Ok(())
}

/// Transitions out of order, and sends too early
async fn states(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let device = Arc::clone(&lab.device);
    let (mut station, peer) = lab.half_pair(STAGE, &device, 64, 1 << 16).await?;
    let skipped = unless_invalid(station.modify(Transition::ReadyToSend), "RTS after INIT");
    let at_init = unless_invalid(station.send(8), "a send in INIT");
    let to_rtr = station.modify(Transition::ReadyToReceive { peer });
    let at_rtr = unless_invalid(station.send(8), "a send in RTR");
    let to_rts = station.modify(Transition::ReadyToSend);
    let back = unless_invalid(station.modify(Transition::Init), "INIT after RTS");
    let refused =
        to_rtr.and(to_rts).err().map(|error| format!("after a refused one, a step failed: {error}"));
    lab.findings.rule("steps", skipped.or(refused).or(back));
    lab.findings.rule("send-at-rts", at_init.or(at_rtr));
    Ok(())
}

/// A send of memory that is not registered, and one of memory that is
async fn unregistered(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut station = lab.pair(STAGE, 64, 1 << 16).await?;
    lab.recv(1, 8).await?;
    let instead = unless_invalid(station.send_unregistered(8), "a send with an unknown key");
    let is_refused = instead.is_none();
    lab.findings.rule("unregistered", instead);
    if is_refused {
        let instead = match station.send(8) {
            Ok(_) => lost(lab).await?,
            Err(error) => Some(format!("the next post failed: {error}")),
        };
        lab.findings.rule("post-failure", instead);
    }
    Ok(())
}

/// A send that must not complete before one that must
async fn unsignaled(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut station = lab.pair(STAGE, 64, 1 << 16).await?;
    lab.recv(2, 8).await?;
    station.send_unsignaled(8).map_err(fail)?;
    let first = station.send(8).map_err(fail)?;
    let is_silent = station.sent_name(STAGE).await? == first;
    lab.ask(Request::Received { count: 2 }).await?;
    lab.findings.rule("unsignaled", (!is_silent).then(|| "it completed".to_owned()));
    Ok(())
}

async fn order(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let mut station = lab.pair(STAGE, 2 * SENDS as u32, 1 << 16).await?;
    lab.recv(SENDS, 8).await?;
    let mut posted = Vec::new();
    for _ in 0..SENDS {
        posted.push(station.send(8).map_err(fail)?);
    }
    let mut completed = Vec::new();
    for _ in 0..SENDS {
        completed.push(station.sent_name(STAGE).await?);
    }
    lab.ask(Request::Received { count: SENDS }).await?;
    let instead = (completed != posted).then(|| format!("posts {posted:?} completed as {completed:?}"));
    lab.findings.rule("order", instead);
    Ok(())
}

/// A queue pair that is connected once more
async fn reset(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let peer = lab.make(0, 64, 1 << 16).await?;
    let mut station = Station::new(&lab.runtime, &lab.device, 64, 1 << 16).map_err(fail)?;
    station.connect(&peer).map_err(fail)?;
    let anew = station
        .modify(Transition::Reset)
        .and_then(|()| station.modify(Transition::Init))
        .and_then(|()| station.connect(&peer));
    let instead = match anew {
        Err(error) => Some(error.to_string()),
        Ok(()) => {
            lab.ask(Request::Connect { address: station.address() }).await?;
            lab.recv(1, 8).await?;
            match station.send(8) {
                Ok(_) => lost(lab).await?,
                Err(error) => Some(format!("the next post failed: {error}")),
            }
        }
    };
    lab.findings.rule("reset", instead);
    Ok(())
}
