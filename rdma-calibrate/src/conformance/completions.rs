//! Completions: number, order and contents
#![allow(unsafe_code, reason = "posting is unsafe in the traits")]

use rdma_core::{Completion, FRAME, Opcode, QueuePair as _, SendOp, SendRequest, Status, Verb, WrId};

use super::body::{ARRIVAL_TIME, Body};
use super::raw::Raw;
use super::verdict::{Outcome, skip};
use crate::memory::{ALL_ACCESS, Memory};
use crate::station::Station;

pub(super) async fn a_send_completes_under_its_name(body: &mut Body<'_, '_>) -> Outcome {
    const NAME: u64 = 0xfeed_f00d_dead_beef;
    let [a, b] = body.pair().await?;
    body.recv(b, 1, 0..64).await?;
    body.send(a, NAME, 0..64).await?;
    let sent = body.next(a).await?;
    ensure_eq!((sent.id.0, sent.opcode, sent.status), (NAME, Opcode::Send, Status::Success), "the send");
    ensure_eq!(sent.qpn, a.address.qpn, "its queue pair");
    Ok(())
}

pub(super) async fn a_receive_completes_with_name_length_and_number(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    body.recv(b, u64::MAX, 0..100).await?;
    body.send(a, 1, 0..77).await?;
    let arrived = body.received(b).await?;
    ensure_eq!((arrived.id.0, arrived.byte_len, arrived.qpn), (u64::MAX, 77, b.address.qpn), "the receive");
    Ok(())
}

pub(super) async fn an_unsignaled_send_is_silent(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    let Ok(memory) = Memory::register(&body.device(), 0, FRAME, ALL_ACCESS) else {
        return skip("there is no second region");
    };
    for id in [1, 2] {
        body.recv(b, id, id as usize * 64..id as usize * 64 + 16).await?;
    }
    let sgl = [memory.sge(Verb::PostSend, &(0..16))?];
    let request = SendRequest { id: WrId(1), op: SendOp::Send, sgl: &sgl, signaled: false };
    // SAFETY: nothing writes the bytes. The queue pair is closed before `memory` is dropped; if this future is dropped before, `Memory::drop`
    // keeps the mapping unless deregistering proves that the device has stopped.
    unsafe { body.local(a).qp().post_send(&request) }?;
    let ended = async {
        body.send(a, 2, 0..16).await?;
        body.received(b).await?;
        body.received(b).await?;
        ensure_eq!(body.next(a).await?.id.0, 2, "the completion: the first send has none");
        body.silent(a).await
    };
    let ended = ended.await;
    let closed = body.close(a).await;
    drop(memory);
    ended.and(closed)
}

pub(super) async fn sends_complete_in_order(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    let lens = [5000, 1, 20_000, 64].map(|len: usize| len.min(body.longest()));
    body.needs_at_once(lens.into_iter().map(rdma_core::frames).sum())?;
    let mut at = 0;
    for (number, len) in (0..).zip(lens) {
        body.recv(b, number, at..at + len).await?;
        body.send(a, number, at..at + len).await?;
        at += len;
    }
    for (number, _) in (0..).zip(lens) {
        ensure_eq!(body.next(a).await?.id.0, number, "the send that completed");
    }
    Ok(())
}

pub(super) async fn polling_returns_at_most_what_fits(body: &mut Body<'_, '_>) -> Outcome {
    const MESSAGES: usize = 5;
    body.needs_at_once(MESSAGES)?;
    let peer = body.make(1, 16, 4096).await?;
    let mut raw = Raw::new(&body.device(), 64, 16, FRAME, 0)?;
    body.connect_beside(|| raw.connect(&peer.address))?;
    body.connect_to_address(peer, raw.address()).await?;
    let mut out = [Completion::default(); 2];
    ensure_eq!(raw.poll(&mut out)?, 0, "completions of an empty queue");
    for id in 0..MESSAGES {
        raw.recv(id as u64, id * 64..id * 64 + 8)?;
    }
    for id in 0..MESSAGES {
        body.send(peer, id as u64, 0..8).await?;
    }
    body.lab.rest(ARRIVAL_TIME).await;
    ensure_eq!(raw.poll(&mut [])?, 0, "completions without space");
    let mut names = Vec::new();
    for _ in 0..1000 {
        let count = raw.poll(&mut out)?;
        ensure!(count <= out.len(), "{count} completions in the space of {}", out.len());
        names.extend(out[..count].iter().map(|completion| completion.id.0 as usize));
        if names.len() >= MESSAGES {
            break;
        }
        body.lab.rest(ARRIVAL_TIME).await;
    }
    ensure_eq!(names, (0..MESSAGES).collect::<Vec<_>>(), "the receives that completed");
    Ok(())
}

pub(super) async fn an_empty_queue_returns_nothing(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = body.pair().await?;
    body.silent(a).await?;
    body.silent(b).await
}

pub(super) async fn names_may_repeat(body: &mut Body<'_, '_>) -> Outcome {
    body.needs_at_once(3)?;
    let [a, b] = body.pair().await?;
    for slot in 0..3 {
        body.recv(b, 7, slot * 64..slot * 64 + 64).await?;
    }
    for _ in 0..3 {
        body.send(a, 7, 0..64).await?;
    }
    for _ in 0..3 {
        ensure_eq!(body.received(b).await?.id.0, 7, "the name of the receive");
    }
    Ok(())
}

pub(super) async fn a_receive_that_is_too_short_fails(body: &mut Body<'_, '_>) -> Outcome {
    body.needs(3 * FRAME)?;
    let [a, b] = body.pair().await?;
    body.recv(b, 1, 0..FRAME).await?;
    body.send(a, 1, 0..3 * FRAME).await?;
    let failed = loop {
        let completion = body.next(b).await?;
        if completion.opcode == Opcode::Recv || completion.status != Status::Success {
            break completion;
        }
    };
    ensure!(failed.status != Status::Success, "a part of a message was taken for the message");
    ensure_eq!(failed.id.0, 1, "the name of the receive");
    Ok(())
}

pub(super) async fn the_excess_of_a_message_spoils_the_next_receive(body: &mut Body<'_, '_>) -> Outcome {
    body.needs(2 * FRAME)?;
    body.needs_rule("rules.frame_match")?;
    if !body.expectations.frames_match {
        return skip("a message need not span the frames of its receive");
    }
    let [a, b] = body.pair().await?;
    for id in 0..2 {
        body.recv(b, id, id as usize * FRAME..(id as usize + 1) * FRAME).await?;
    }
    body.send(a, 1, 0..2 * FRAME).await?;
    for id in 0..2 {
        let failed = body.next(b).await?;
        ensure!(failed.status != Status::Success, "receive {id} took a part of a message for one");
    }
    ensure_eq!(body.next(a).await?.status, Status::Success, "the send");
    body.recv(b, 2, 0..8).await?;
    body.send(a, 2, 0..8).await?;
    ensure_eq!(body.next(b).await?.status, Status::Success, "the receive of the next message");
    Ok(())
}

pub(super) async fn a_receive_that_is_too_long(body: &mut Body<'_, '_>) -> Outcome {
    body.needs(4 * FRAME)?;
    body.needs_rule("rules.frame_match")?;
    let [a, b] = body.pair().await?;
    body.recv(b, 1, 0..4 * FRAME).await?;
    body.send(a, 1, 0..FRAME).await?;
    let arrived = body.next(b).await?;
    if body.expectations.frames_match {
        ensure!(arrived.status != Status::Success, "a message and its receive span different frames");
    } else {
        ensure_eq!((arrived.status, arrived.byte_len), (Status::Success, FRAME as u32), "the receive");
    }
    Ok(())
}

pub(super) async fn one_queue_serves_two_queue_pairs(body: &mut Body<'_, '_>) -> Outcome {
    let device = body.device();
    let mut one = Station::new(&body.lab.runtime, &device, 16, 2 * FRAME)?;
    let mut other = one.beside(16, 2 * FRAME)?;
    let peers = [body.make(1, 16, 2 * FRAME).await?, body.make(1, 16, 2 * FRAME).await?];
    for (station, peer) in [&mut one, &mut other].into_iter().zip(peers) {
        body.connect_beside(|| station.connect(&peer.address))?;
        body.connect_to_address(peer, station.address()).await?;
        station.recv(0..64)?;
    }
    for (peer, posted) in peers.into_iter().zip([one.address().qpn, other.address().qpn]) {
        body.send(peer, 1, 0..64).await?;
        ensure_eq!(one.next_named().await?, posted, "the queue pair of the completion");
    }
    Ok(())
}
