//! Requests that a device refuses
#![allow(unsafe_code, reason = "posting is unsafe in the traits")]

use rdma_core::{
    Access, Cause, Error, FRAME, QueuePair as _, RecvRequest, Rkey, SendOp, SendRequest, Sge, Status, Verb,
    WrId,
};

use super::body::{Body, Qp, REGION_LEN};
use super::lifecycle::invalid;
use super::verdict::{Outcome, Stop, refused, skip};
use crate::memory::{ALL_ACCESS, Memory};

/// Posts a request of one element at this side
fn post(body: &Body<'_, '_>, qp: Qp, op: SendOp, sge: Sge) -> Result<(), Error> {
    let request = SendRequest { id: WrId(9), op, sgl: &[sge], signaled: true };
    // SAFETY: the device must not access memory that is not registered. The callers keep the region of `sge` until the queue pair is
    // closed; if their future is dropped before, `Memory::drop` keeps the mapping unless deregistering proves that the device has stopped.
    unsafe { body.local(qp).qp().post_send(&request) }
}

/// An element with a key that no region has
fn unknown(memory: &Memory) -> Result<Sge, Error> {
    let sge = memory.sge(Verb::PostSend, &(0..64))?;
    Ok(Sge { lkey: rdma_core::Lkey(sge.lkey.0 ^ 0x5555_0000), ..sge })
}

/// Posts a send with an element outside of registered memory: the post is refused, or the completion fails where posts are not checked
async fn bad_element(
    body: &mut Body<'_, '_>,
    element: impl FnOnce(&Memory) -> Result<Sge, Error>,
) -> Outcome {
    let [a, _b] = body.pair().await?;
    let memory = Memory::register(&body.device(), 0, REGION_LEN, ALL_ACCESS)?;
    let ended = match post(body, a, SendOp::Send, element(&memory)?) {
        Err(error) => invalid(error),
        Ok(()) if body.expectations.posts_check_memory => {
            Err(Stop::Unexpected("the post was accepted".to_owned()))
        }
        Ok(()) => match body.next(a).await {
            Ok(failed) if failed.status != Status::Success && failed.id == WrId(9) => Ok(()),
            Ok(other) => Err(Stop::Unexpected(format!("it completed as {other:?}"))),
            Err(stop) => Err(stop),
        },
    };
    let closed = body.close(a).await;
    drop(memory);
    ended.and(closed)
}

pub(super) async fn an_unknown_key_is_an_error(body: &mut Body<'_, '_>) -> Outcome {
    bad_element(body, unknown).await
}

pub(super) async fn memory_beyond_the_region_is_an_error(body: &mut Body<'_, '_>) -> Outcome {
    bad_element(body, |memory| {
        let sge = memory.sge(Verb::PostSend, &(0..64))?;
        Ok(Sge { addr: sge.addr + REGION_LEN as u64 - 63, ..sge })
    })
    .await
}

pub(super) async fn memory_before_the_region_is_an_error(body: &mut Body<'_, '_>) -> Outcome {
    bad_element(body, |memory| {
        let sge = memory.sge(Verb::PostSend, &(0..64))?;
        Ok(Sge { addr: sge.addr - 1, ..sge })
    })
    .await
}

pub(super) async fn a_refused_post_takes_no_space(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.posts_check_memory {
        return skip("a post of memory that is not registered may be accepted");
    }
    let [a, b] = body.pair().await?;
    let memory = Memory::register(&body.device(), 0, REGION_LEN, ALL_ACCESS)?;
    // More than the queue holds.
    let element = unknown(&memory)?;
    let all_refused =
        (0..=body.caps().max_queue_frames).all(|_| post(body, a, SendOp::Send, element).is_err());
    let ended = if all_refused {
        arrives(body, [a, b]).await
    } else {
        skip("a post with an unknown key is accepted, which is another behaviour")
    };
    let closed = body.close(a).await;
    drop(memory);
    ended.and(closed)
}

/// Sends a message, which must arrive
async fn arrives(body: &mut Body<'_, '_>, [a, b]: [Qp; 2]) -> Outcome {
    body.recv(b, 1, 0..8).await?;
    body.send(a, 1, 0..8).await?;
    ensure_eq!(body.received(b).await?.status, Status::Success, "the receive");
    ensure_eq!(body.next(a).await?.status, Status::Success, "the send");
    Ok(())
}

pub(super) async fn reads_are_for_others(body: &mut Body<'_, '_>) -> Outcome {
    if body.caps().one_sided {
        return skip("the device has one-sided operations");
    }
    let [a, _b] = body.pair().await?;
    let memory = Memory::register(&body.device(), 0, REGION_LEN, ALL_ACCESS)?;
    let read = SendOp::Read { remote_addr: 0, rkey: Rkey(0) };
    let posted = post(body, a, read, memory.sge(Verb::PostSend, &(0..8))?);
    let ended = refused(posted, "a read");
    let closed = body.close(a).await;
    drop(memory);
    let error = ended?;
    closed?;
    ensure_eq!(error.cause, Cause::Unsupported, "the refusal");
    Ok(())
}

pub(super) async fn a_receive_without_the_right_to_write_fails(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    let memory = match Memory::register(&body.device(), 0, FRAME, Access::NONE) {
        Ok(memory) => memory,
        Err(error) => return skip(format!("memory without rights is refused: {error}")),
    };
    let request = RecvRequest { id: WrId(9), sgl: &[memory.sge(Verb::PostRecv, &(0..64))?] };
    // SAFETY: no other request uses the memory, and nothing reads or writes it. It outlives the queue pair, as for sends above.
    let posted = unsafe { body.local(a).qp().post_recv(&request) };
    let ended = match posted {
        Ok(()) => protected(body, [a, b]).await,
        Err(error) => skip(format!("the post is refused: {error}")),
    };
    let closed = body.close(a).await;
    drop(memory);
    ended.and(closed)
}

/// Sends a message to the first, of which the receive must fail
async fn protected(body: &mut Body<'_, '_>, [a, b]: [Qp; 2]) -> Outcome {
    body.send(b, 1, 0..8).await?;
    let status = body.next(a).await?.status;
    if body.expectations.is_thunderbolt {
        ensure_eq!(status, Status::LocalProtection, "the receive");
    }
    ensure!(status != Status::Success, "the receive completed with success");
    Ok(())
}
