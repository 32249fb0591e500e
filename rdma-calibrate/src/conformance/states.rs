//! The state machine of queue pairs

use rdma_core::{Cause, QpAddress, QpState, Transition};

use super::body::Body;
use super::lifecycle::invalid;
use super::verdict::{Outcome, refused, skip};
use crate::lab::nowhere;

pub(super) async fn connecting_goes_through_all_states(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.singles().await?;
    ensure_eq!(body.state(a).await?, QpState::Init, "at first");
    body.modify(a, Transition::ReadyToReceive { peer: b.address }).await?;
    ensure_eq!(body.state(a).await?, QpState::ReadyToReceive, "after the transition to RTR");
    body.modify(a, Transition::ReadyToSend).await?;
    ensure_eq!(body.state(a).await?, QpState::ReadyToSend, "after the transition to RTS");
    Ok(())
}

pub(super) async fn steps_cannot_be_skipped(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.singles().await?;
    invalid(refused(body.modify(a, Transition::ReadyToSend).await, "RTS after INIT")?)?;
    ensure_eq!(body.state(a).await?, QpState::Init, "after a refused transition");
    body.connect_to(a, b).await?;
    body.modify(a, Transition::Reset).await?;
    invalid(refused(body.modify(a, Transition::ReadyToSend).await, "RTS after RESET")?)
}

pub(super) async fn steps_cannot_be_repeated_backwards(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.singles().await?;
    body.connect_to(a, b).await?;
    invalid(refused(body.modify(a, Transition::Init).await, "INIT after RTS")?)?;
    ensure_eq!(body.state(a).await?, QpState::ReadyToSend, "after a refused transition");
    Ok(())
}

pub(super) async fn a_send_before_ready_is_refused(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.singles().await?;
    invalid(refused(body.send(a, 1, 0..8).await, "a send in INIT")?)?;
    body.modify(a, Transition::ReadyToReceive { peer: b.address }).await?;
    invalid(refused(body.send(a, 1, 0..8).await, "a send in RTR")?)
}

pub(super) async fn a_receive_after_init_is_kept(body: &mut Body<'_, '_>) -> Outcome {
    body.needs_rule("rules.early_receives")?;
    let [a, b] = body.singles().await?;
    if !body.expectations.receives_at_init {
        invalid(refused(body.recv(b, 5, 0..64).await, "a receive in INIT")?)?;
        return Ok(());
    }
    body.recv(b, 5, 0..64).await?;
    body.connect(b, a).await?;
    body.send(a, 1, 0..64).await?;
    ensure_eq!(body.received(b).await?.id.0, 5, "the receive that was used");
    Ok(())
}

pub(super) async fn a_queue_pair_can_begin_anew_after_reset(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.singles().await?;
    body.connect_to(a, b).await?;
    body.recv(a, 7, 512..576).await?;
    body.modify(a, Transition::Reset).await?;
    ensure_eq!(body.state(a).await?, QpState::Reset, "after the transition to RESET");
    body.modify(a, Transition::Init).await?;
    body.connect(a, b).await?;
    body.recv(b, 1, 0..8).await?;
    body.send(a, 1, 0..8).await?;
    body.received(b).await?;
    body.recv(a, 8, 64..128).await?;
    body.send(b, 2, 0..64).await?;
    ensure_eq!(body.received(a).await?.id.0, 8, "the receive that was used, after RESET has discarded one");
    Ok(())
}

pub(super) async fn the_error_state_is_seen(body: &mut Body<'_, '_>) -> Outcome {
    body.mode.error_state.or_else(skip)?;
    let [a, _b] = body.singles().await?;
    body.modify(a, Transition::Error).await?;
    ensure_eq!(body.state(a).await?, QpState::Error, "after the transition to ERROR");
    Ok(())
}

pub(super) async fn an_unknown_peer_is_not_found(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.peer_checked_by_connect {
        return skip("connecting does not ask for the peer");
    }
    body.mode.failing_transitions.or_else(skip)?;
    let [a, b] = body.singles().await?;
    let to = |peer: QpAddress| Transition::ReadyToReceive { peer };
    let error = refused(body.modify(a, to(nowhere(&b.address))).await, "an address that no host has")?;
    let is_unknown = matches!(error.cause, Cause::PeerUnreachable | Cause::NoNeighbour);
    ensure!(is_unknown, "refused otherwise: {error}");
    // Half begun: the next attempt fails for another reason.
    let error = refused(body.modify(a, to(b.address)).await, "another transition to RTR")?;
    ensure_eq!(error.cause, Cause::Busy, "the refusal");
    Ok(())
}
