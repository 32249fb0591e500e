//! Messages: that they arrive, whole and in order

use std::time::Duration;

use rdma_core::{Cause, FRAME, QpCapacity, Status};

use super::body::{Body, Qp};
use super::verdict::{Outcome, Stop};

/// Messages that are under way at once, if the queues of the device hold as many
const BATCH: usize = 32;

/// Sends a message of `len` bytes and looks at what arrives
async fn transfer(body: &mut Body<'_, '_>, [a, b]: [Qp; 2], number: u8, len: usize) -> Outcome {
    body.recv(b, number.into(), 0..len).await?;
    body.fill(a, 0..len, number).await?;
    body.send(a, number.into(), 0..len).await?;
    let arrived = body.received(b).await?;
    let found = (arrived.status, arrived.byte_len, arrived.id.0);
    ensure_eq!(found, (Status::Success, len as u32, number.into()), "a receive of {len} bytes");
    body.holds(b, 0..len, number).await?;
    ensure_eq!(body.next(a).await?.status, Status::Success, "a send of {len} bytes");
    Ok(())
}

pub(super) async fn messages_around_every_boundary_arrive(body: &mut Body<'_, '_>) -> Outcome {
    let around = [FRAME, 2 * FRAME].map(|frames| [frames - 1, frames, frames + 1]).concat();
    let mut arrived = 0;
    for len in [1, 64].into_iter().chain(around).chain([100_000, 1 << 20]) {
        let [a, b] = body.pair_with(511, [len.next_multiple_of(FRAME); 2]).await?;
        let depth = |QpCapacity { recv_frames, send_frames }| recv_frames.min(send_frames);
        let frames = depth(a.capacity).min(depth(b.capacity)) as usize;
        if len <= frames * FRAME && len <= body.caps().max_message as usize {
            match transfer(body, [a, b], 5, len).await {
                // The queue is shallower than it says, which has a behaviour of its own.
                Err(Stop::Verb(error))
                    if len > FRAME
                        && matches!(error.cause, Cause::MessageTooLong { .. } | Cause::Invalid(_)) => {}
                there => {
                    there?;
                    transfer(body, [b, a], 6, len).await?;
                    arrived += 1;
                }
            }
        }
        body.close(a).await?;
        body.close(b).await?;
    }
    ensure!(arrived > 0, "the device has messages of no length");
    Ok(())
}

pub(super) async fn nothing_arrives_as_nothing(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    body.recv(b, 1, 0..64).await?;
    body.send(a, 1, 0..0).await?;
    let arrived = body.received(b).await?;
    ensure_eq!((arrived.status, arrived.byte_len), (Status::Success, 0), "the receive");
    Ok(())
}

pub(super) async fn both_directions_work_at_once(body: &mut Body<'_, '_>) -> Outcome {
    const LEN: usize = 50_000;
    body.needs(LEN)?;
    let [a, b] = body.pair().await?;
    for (qp, pattern) in [(a, 1), (b, 2)] {
        body.recv(qp, 9, 0..LEN).await?;
        body.fill(qp, LEN..2 * LEN, pattern).await?;
    }
    body.send(a, 1, LEN..2 * LEN).await?;
    body.send(b, 1, LEN..2 * LEN).await?;
    for (qp, pattern) in [(a, 2), (b, 1)] {
        ensure_eq!(body.received(qp).await?.byte_len as usize, LEN, "the length of a message");
        body.holds(qp, 0..LEN, pattern).await?;
    }
    Ok(())
}

pub(super) async fn a_hundred_messages_keep_their_order(body: &mut Body<'_, '_>) -> Outcome {
    let at_once = body.at_once(BATCH)?;
    let [a, b] = body.pair().await?;
    let slot = |number: usize| number * 64..number * 64 + 8;
    let messages: Vec<_> = (0..100u8).collect();
    for batch in messages.chunks(at_once) {
        for (number, message) in batch.iter().enumerate() {
            body.recv(b, u64::from(*message), slot(number)).await?;
        }
        for (number, message) in batch.iter().enumerate() {
            body.fill(a, slot(number), *message).await?;
            body.send(a, u64::from(*message), slot(number)).await?;
        }
        for (number, message) in batch.iter().enumerate() {
            ensure_eq!(body.received(b).await?.id.0, u64::from(*message), "the receive that completed");
            body.holds(b, slot(number), *message).await?;
        }
        for message in batch {
            ensure_eq!(body.next(a).await?.id.0, u64::from(*message), "the send that completed");
        }
    }
    Ok(())
}

pub(super) async fn no_message_of_a_batch_is_lost(body: &mut Body<'_, '_>) -> Outcome {
    let batch = body.at_once(BATCH)?;
    let [a, b] = body.pair().await?;
    let slot = |number: usize| number * 64..number * 64 + 8;
    for number in 0..batch {
        body.recv(b, number as u64, slot(number)).await?;
    }
    for number in 0..batch {
        body.send(a, number as u64, slot(number)).await?;
    }
    for number in 0..batch {
        ensure_eq!(body.received(b).await?.status, Status::Success, "message {number}");
    }
    Ok(())
}

pub(super) async fn sizes_may_change_from_message_to_message(body: &mut Body<'_, '_>) -> Outcome {
    body.needs(60_000)?;
    let pair = body.pair().await?;
    for (number, len) in (0..).zip([1, 60_000, 4096, 2, 8193, 4095, 64, 12_288]) {
        transfer(body, pair, number, len).await?;
    }
    Ok(())
}

pub(super) async fn two_queue_pairs_do_not_mix(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    let [c, d] = body.pair().await?;
    for (qp, pattern) in [(a, 1), (c, 2)] {
        body.fill(qp, 0..64, pattern).await?;
    }
    for qp in [b, d] {
        body.recv(qp, 1, 0..64).await?;
    }
    for qp in [c, a] {
        body.send(qp, 1, 0..64).await?;
    }
    for (qp, pattern) in [(b, 1), (d, 2)] {
        body.received(qp).await?;
        body.holds(qp, 0..64, pattern).await?;
    }
    Ok(())
}

pub(super) async fn receives_are_used_in_order(body: &mut Body<'_, '_>) -> Outcome {
    body.needs_at_once(3)?;
    let [a, b] = body.pair().await?;
    for (at, id) in [30, 10, 20].into_iter().enumerate() {
        body.recv(b, id, at * 64..at * 64 + 64).await?;
    }
    for _ in 0..3 {
        body.send(a, 1, 0..64).await?;
    }
    for id in [30, 10, 20] {
        ensure_eq!(body.received(b).await?.id.0, id, "the receive that completed");
    }
    Ok(())
}

pub(super) async fn a_send_before_its_receive(body: &mut Body<'_, '_>) -> Outcome {
    if body.expectations.send_waits {
        let [a, b] = body.pair().await?;
        body.fill(a, 0..64, 9).await?;
        body.send(a, 1, 0..64).await?;
        body.silent(a).await?;
        body.recv(b, 1, 0..64).await?;
        ensure_eq!(body.received(b).await?.byte_len, 64, "the length of the message");
        body.holds(b, 0..64, 9).await?;
        ensure_eq!(body.next(a).await?.status, Status::Success, "the send");
        return Ok(());
    }
    let mut time = Duration::from_millis(1);
    loop {
        let [a, b] = body.pair().await?;
        body.send(a, 1, 0..64).await?;
        ensure_eq!(body.next(a).await?.status, Status::Success, "the send");
        body.lab.rest(time).await;
        // The message is lost without an error; the next one arrives.
        body.recv(b, 1, 0..64).await?;
        body.send(a, 2, 0..32).await?;
        if body.received(b).await?.byte_len == 32 {
            return Ok(());
        }
        body.close_all().await?;
        // It may have been on its way that long, where time is that of the wall.
        if time > Duration::from_secs(1) {
            return Err(Stop::Unexpected("the message has waited for its receive".to_owned()));
        }
        time *= 4;
    }
}

pub(super) async fn a_second_send_does_not_overtake(body: &mut Body<'_, '_>) -> Outcome {
    body.needs(20_000)?;
    body.needs_at_once(rdma_core::frames(20_000) + 1)?;
    let [a, b] = body.pair().await?;
    body.recv(b, 1, 0..20_000).await?;
    body.recv(b, 2, 20_000..20_001).await?;
    body.send(a, 1, 0..20_000).await?;
    body.send(a, 2, 0..1).await?;
    for len in [20_000, 1] {
        ensure_eq!(body.received(b).await?.byte_len, len, "the length of a message");
    }
    Ok(())
}
