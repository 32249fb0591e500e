//! Registered memory

use rdma_core::{Cause, Device as _, FRAME, Status};

use super::body::{Body, REGION_LEN};
use super::verdict::{Outcome, skip};
use crate::memory::{ALL_ACCESS, Memory};

pub(super) async fn a_region_has_the_length_of_its_memory(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    // The last byte is inside.
    let end = 64 * FRAME;
    body.recv(b, 1, end - 1..end).await?;
    body.send(a, 1, end - 1..end).await?;
    ensure_eq!(body.received(b).await?.byte_len, 1, "the length of the message");
    Ok(())
}

pub(super) async fn regions_have_different_keys(body: &mut Body<'_, '_>) -> Outcome {
    let device = body.device();
    let register = || Memory::register(&device, 0, REGION_LEN, ALL_ACCESS);
    let (one, two) = (register()?, register()?);
    ensure!(one.lkey() != two.lkey(), "both have the key {:?}", one.lkey());
    Ok(())
}

pub(super) async fn regions_come_and_go(body: &mut Body<'_, '_>) -> Outcome {
    for _ in 0..300 {
        drop(Memory::register(&body.device(), 0, REGION_LEN, ALL_ACCESS)?);
        body.lab.keep_alive().await?;
    }
    Ok(())
}

pub(super) async fn a_region_of_one_byte_works(body: &mut Body<'_, '_>) -> Outcome {
    drop(Memory::register(&body.device(), 0, 1, ALL_ACCESS)?);
    Ok(())
}

/// Longer than the 16 MB that Apple's device advertises
const LONG: usize = (16 << 20) + 1;

pub(super) async fn a_region_longer_than_16_mb_works(body: &mut Body<'_, '_>) -> Outcome {
    match Memory::register(&body.device(), 0, LONG, ALL_ACCESS) {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.cause, Cause::Invalid(_)) => Err(error.into()),
        // Refused for another reason than its length, such as a limit of locked memory.
        Err(error) => skip(format!("{LONG} bytes: {error}")),
    }
}

pub(super) async fn remote_keys_are_for_others(body: &mut Body<'_, '_>) -> Outcome {
    let has_key = Memory::register(&body.device(), 0, REGION_LEN, ALL_ACCESS)?.has_rkey();
    ensure!(
        !has_key || body.device().caps().one_sided,
        "a device without one-sided operations has a remote key"
    );
    Ok(())
}

pub(super) async fn bytes_behind_a_message_stay(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    body.fill(b, 64..128, 7).await?;
    body.fill(a, 0..64, 1).await?;
    body.recv(b, 1, 0..64).await?;
    body.send(a, 1, 0..64).await?;
    ensure_eq!(body.received(b).await?.byte_len, 64, "the length of the message");
    body.holds(b, 0..64, 1).await?;
    body.holds(b, 64..128, 7).await
}

pub(super) async fn the_memory_of_a_send_stays(body: &mut Body<'_, '_>) -> Outcome {
    body.needs(5000)?;
    let [a, b] = body.pair().await?;
    body.fill(a, 0..5000, 3).await?;
    body.recv(b, 1, 0..5000).await?;
    body.send(a, 1, 0..5000).await?;
    body.received(b).await?;
    ensure_eq!(body.next(a).await?.status, Status::Success, "the send");
    body.holds(a, 0..5000, 3).await
}
