//! Ends under load

use std::time::Duration;

use rdma_core::{FRAME, QpState, Status};

use super::body::{ARRIVAL_TIME, Body};
use super::raw::Raw;
use super::verdict::{Outcome, skip};

const PATTERN: u8 = 5;
const OTHER: u8 = 6;
const UNPROVEN: &str = "the device does not prove that it has stopped";

pub(super) async fn posted_receives_go_with_their_queue_pair(body: &mut Body<'_, '_>) -> Outcome {
    let receives = body.at_once(20)?;
    let peer = body.make(1, 64, 4096).await?;
    let mut raw = Raw::new(&body.device(), 64, 64, 20 * 64, PATTERN)?;
    body.connect_beside(|| raw.connect(&peer.address))?;
    body.connect_to_address(peer, raw.address()).await?;
    for slot in 0..receives {
        raw.recv(slot as u64, slot * 64..slot * 64 + 64)?;
    }
    let Some(mut memory) = raw.destroy() else { return skip(UNPROVEN) };
    memory.fill(OTHER);
    // Later messages of the peer must not change the memory.
    body.send(peer, 1, 0..64).await?;
    body.lab.rest(ARRIVAL_TIME).await;
    let changed = memory.deviates_at(OTHER);
    ensure!(
        changed.is_none(),
        "the device wrote at {changed:?} of the memory of a queue pair that was destroyed"
    );
    Ok(())
}

pub(super) async fn sends_under_way_go_with_their_queue_pair(body: &mut Body<'_, '_>) -> Outcome {
    const LEN: usize = 200_000;
    body.needs(LEN)?;
    let peer = body.make(1, 511, 64 * FRAME).await?;
    let mut raw = Raw::new(&body.device(), 64, 511, LEN, PATTERN)?;
    body.connect_beside(|| raw.connect(&peer.address))?;
    body.connect_to_address(peer, raw.address()).await?;
    body.recv(peer, 1, 0..LEN).await?;
    raw.send(1, 0..LEN)?;
    let Some(mut memory) = raw.destroy() else { return skip(UNPROVEN) };
    // What is written later must not leave.
    memory.fill(OTHER);
    body.lab.rest(ARRIVAL_TIME).await;
    match body.next_within(peer, Duration::ZERO).await? {
        Some(arrived) if arrived.status == Status::Success => body.holds(peer, 0..LEN, PATTERN).await,
        _ => Ok(()),
    }
}

pub(super) async fn a_peer_that_goes_is_silence(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    body.recv(a, 1, 0..64).await?;
    body.recv(a, 2, 64..128).await?;
    // Over a connection that is still being made, TCP may say that the peer is lost.
    body.send(b, 1, 0..64).await?;
    body.received(a).await?;
    body.close(b).await?;
    body.silent(a).await
}

pub(super) async fn many_pairs_come_and_go_under_load(body: &mut Body<'_, '_>) -> Outcome {
    const LEN: usize = 9000;
    body.needs(LEN)?;
    let frames = rdma_core::frames(LEN);
    let messages = (body.at_once(8 * frames)? / frames) as u64;
    for round in 0..20 {
        let [a, b] = body.pair().await?;
        for slot in 0..messages {
            let start = slot as usize * 10_000;
            body.recv(b, slot, start..start + LEN).await?;
            body.send(a, slot, start..start + LEN).await?;
        }
        for _ in 0..round % messages {
            body.received(b).await?;
        }
        body.close(a).await?;
        let state = body.state(b).await?;
        ensure!(matches!(state, QpState::ReadyToSend | QpState::Error), "the peer is {state:?}");
        body.close(b).await?;
    }
    Ok(())
}
