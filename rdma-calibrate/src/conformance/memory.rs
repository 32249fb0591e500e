//! Registered memory
#![allow(unsafe_code, reason = "posting is unsafe in the traits")]

use rdma_core::{Device as _, FRAME, QueuePair as _, SendOp, SendRequest, Sge, Status, Verb, WrId};

use super::body::Body;
use super::lifecycle::invalid;
use super::verdict::{Outcome, Stop};
use crate::station::{ALL_ACCESS, Memory};

/// What the behaviours register beside the memory of a queue pair
const LEN: usize = 4 * 16 * 1024;

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
    let register = || Memory::register(&device, 0, LEN, ALL_ACCESS);
    let (one, two) = (register()?, register()?);
    ensure!(one.lkey() != two.lkey(), "both have the key {:?}", one.lkey());
    Ok(())
}

pub(super) async fn regions_come_and_go(body: &mut Body<'_, '_>) -> Outcome {
    for _ in 0..300 {
        drop(Memory::register(&body.device(), 0, LEN, ALL_ACCESS)?);
    }
    Ok(())
}

pub(super) async fn a_region_of_one_byte_works(body: &mut Body<'_, '_>) -> Outcome {
    drop(Memory::register(&body.device(), 0, 1, ALL_ACCESS)?);
    Ok(())
}

/// Posts a send with an element outside of registered memory: the post or the completion fails
async fn bad_element(body: &mut Body<'_, '_>, change: impl Fn(&mut Sge)) -> Outcome {
    let [a, _b] = body.pair().await?;
    let memory = Memory::register(&body.device(), 0, LEN, ALL_ACCESS)?;
    let mut sge = memory.sge(Verb::PostSend, &(0..64))?;
    change(&mut sge);
    let request = SendRequest { id: WrId(9), op: SendOp::Send, sgl: &[sge], signaled: true };
    // SAFETY: the device must not access memory that is not registered; `memory` outlives the request on either way out of here: a
    // completion, or the end of the queue pair before that of `memory`.
    let posted = unsafe { body.local(a).qp().post_send(&request) };
    let ended = match posted {
        Err(error) => invalid(error),
        Ok(()) => match body.next(a).await {
            Ok(failed) if failed.status != Status::Success && failed.id == WrId(9) => Ok(()),
            Ok(other) => Err(Stop::Otherwise(format!("it completed as {other:?}"))),
            Err(stop) => Err(stop),
        },
    };
    let closed = body.close(a).await;
    drop(memory);
    ended.and(closed)
}

pub(super) async fn an_unknown_key_is_an_error(body: &mut Body<'_, '_>) -> Outcome {
    bad_element(body, |sge| sge.lkey.0 ^= 0x5555_0000).await
}

pub(super) async fn memory_beyond_the_region_is_an_error(body: &mut Body<'_, '_>) -> Outcome {
    bad_element(body, |sge| sge.addr += LEN as u64 - 63).await
}

pub(super) async fn memory_before_the_region_is_an_error(body: &mut Body<'_, '_>) -> Outcome {
    bad_element(body, |sge| sge.addr -= 1).await
}

pub(super) async fn remote_keys_are_for_others(body: &mut Body<'_, '_>) -> Outcome {
    let has_key = Memory::register(&body.device(), 0, LEN, ALL_ACCESS)?.has_rkey();
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
    body.holds(a, 0..5000, 3).await
}
