//! Pairs of queue pairs between which messages pass, and messages that wait

use super::body::Body;
use super::verdict::{Outcome, skip};
use rdma_core::Status;

const NO_WAIT: &str = "no send of the device waits";

pub(super) async fn a_queue_pair_without_peer_sends_nothing(body: &mut Body<'_, '_>) -> Outcome {
    body.needs_rule("rules.early_receives")?;
    let [a, b] = body.singles().await?;
    let has_receive = body.expectations.receives_at_init;
    if has_receive {
        body.recv(b, 1, 0..64).await?;
    } else if !body.expectations.send_waits {
        return skip("a queue pair that is not connected takes no receive, and no send of the device waits");
    }
    body.connect_to(a, b).await?;
    body.send(a, 1, 0..8).await?;
    body.silent(b).await?;
    if body.expectations.send_waits { body.silent(a).await } else { Ok(()) }
}

pub(super) async fn a_message_waits_until_its_peer_is_connected(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.send_waits {
        return skip(NO_WAIT);
    }
    let [a, b] = body.singles().await?;
    body.connect_to(a, b).await?;
    body.fill(a, 0..64, 4).await?;
    body.send(a, 1, 0..64).await?;
    body.silent(a).await?;
    body.connect_to(b, a).await?;
    body.recv(b, 1, 0..64).await?;
    ensure_eq!(body.received(b).await?.status, Status::Success, "the receive");
    body.holds(b, 0..64, 4).await?;
    ensure_eq!(body.next(a).await?.status, Status::Success, "the send");
    Ok(())
}

pub(super) async fn messages_pass_only_between_queue_pairs_that_name_each_other(
    body: &mut Body<'_, '_>,
) -> Outcome {
    if !body.expectations.is_thunderbolt {
        return skip("a queue pair of another kind of device may take messages of any that names it");
    }
    let [a, b] = body.pair().await?;
    let stranger = body.make(0, 64, 4096).await?;
    body.connect_to(stranger, b).await?;
    body.recv(b, 1, 0..64).await?;
    body.send(stranger, 1, 0..8).await?;
    body.silent(b).await?;
    body.send(a, 1, 0..16).await?;
    ensure_eq!(
        body.received(b).await?.byte_len,
        16,
        "the length of the message of the queue pair that is named"
    );
    ensure_eq!(body.next(a).await?.status, Status::Success, "its send");
    Ok(())
}

pub(super) async fn a_waiting_send_does_not_delay_other_queue_pairs(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.send_waits {
        return skip(NO_WAIT);
    }
    let [waiting, _] = body.pair().await?;
    body.send(waiting, 1, 0..8).await?;
    let [a, b] = body.pair().await?;
    body.recv(b, 1, 0..8).await?;
    body.send(a, 1, 0..8).await?;
    body.received(b).await?;
    ensure_eq!(body.next(a).await?.status, Status::Success, "the send");
    body.silent(waiting).await
}
