//! Queues: how much they hold, counted in frames
//!
//! Devices accept more than was asked for, less, or exactly that, and report the one or the other. So the body finds out how
//! much a queue takes, and requires only that it takes the lesser of what was asked for and what is reported: programs that
//! keep to that are right on every device.

use rdma_core::{Cause, CompletionQueue as _, Device as _, FRAME, QpCapacity, QpInit, Status};

use super::body::{ARRIVAL_TIME, Body, Qp};
use super::lifecycle::invalid;
use super::verdict::{Outcome, Stop, refused, skip};

/// The frames for which the body asks where it fills a queue
const ASKED: u32 = 7;

/// The memory of a request while a queue is filled
const SLOT: usize = 64;

/// The frames that the device may accept for one queue, and one more
fn most(body: &Body<'_, '_>) -> usize {
    (body.caps().max_queue_frames as usize).saturating_add(1)
}

/// Stops unless a full queue refuses more: one that accepts more damages data
fn needs_refusal(body: &Body<'_, '_>) -> Result<(), Stop> {
    body.needs_rule("rules.ring_overflow")?;
    if body.expectations.full_queues_refuse {
        Ok(())
    } else {
        skip("a full queue accepts more, and damages data")
    }
}

/// Two connected queue pairs for which [`ASKED`] was asked, with memory for as many requests as fit any queue
async fn filled_pair(body: &mut Body<'_, '_>) -> Result<[Qp; 2], Stop> {
    needs_refusal(body)?;
    body.pair_of(ASKED, most(body) * SLOT).await
}

/// Posts receives of one frame until the queue is full; returns how many it took
async fn fill_receives(body: &mut Body<'_, '_>, qp: Qp) -> Result<usize, Stop> {
    let most = most(body);
    for number in 0..most {
        match body.recv(qp, number as u64, number * SLOT..number * SLOT + 8).await {
            Ok(()) => (),
            Err(Stop::Verb(error)) if error.cause == Cause::QueueFull => return Ok(number),
            Err(stop) => return Err(stop),
        }
    }
    Err(Stop::Unexpected(format!("a queue took {most} frames, more than the limit of the device")))
}

/// The number of frames of receives that a queue accepts, and queue pairs with memory for two more
async fn accepted(body: &mut Body<'_, '_>) -> Result<(usize, [Qp; 2]), Stop> {
    needs_refusal(body)?;
    body.needs_rule("rules.queue_unit")?;
    if !body.expectations.queues_count_frames {
        return skip("the device counts requests, however long");
    }
    let [a, b] = filled_pair(body).await?;
    let accepted = fill_receives(body, a).await?;
    ensure!(accepted > 0, "the queue takes no receive");
    body.close(a).await?;
    body.close(b).await?;
    Ok((accepted, body.pair_of(ASKED, (accepted + 2) * FRAME).await?))
}

/// The outcome of the post of frame `number`
fn fits(posted: Outcome, number: usize, [asked, reported]: [u32; 2]) -> Outcome {
    posted.map_err(|stop| match stop {
        Stop::Verb(error) => {
            Stop::Unexpected(format!("frame {number}, asked for {asked}, reported {reported}: {error}"))
        }
        stop => stop,
    })
}

pub(super) async fn what_was_asked_for_or_reported_fits(body: &mut Body<'_, '_>) -> Outcome {
    // Each request has an entry of the completion queue.
    let most = body.caps().max_queue_frames.min(body.caps().max_cqe);
    for asked in [1, 2, 5, 31, 64, 200].map(|asked: u32| asked.min(most)) {
        let [a, b] = body.pair_with(asked, [asked as usize * FRAME; 2]).await?;
        let QpCapacity { recv_frames, send_frames } = a.capacity;
        ensure!(recv_frames > 0 && send_frames > 0, "asked for {asked}: {:?}", a.capacity);
        let [to_receive, to_send] = [b.capacity.recv_frames, send_frames].map(|reported| reported.min(asked));
        for number in 0..to_receive as usize {
            let posted = body.recv(b, number as u64, number * FRAME..(number + 1) * FRAME).await;
            fits(posted, number, [asked, b.capacity.recv_frames])?;
        }
        for number in 0..to_send as usize {
            let posted = body.send(a, number as u64, number * FRAME..number * FRAME + 8).await;
            fits(posted, number, [asked, send_frames])?;
        }
        body.close(a).await?;
        body.close(b).await?;
    }
    Ok(())
}

pub(super) async fn queues_deeper_than_the_device_are_refused(body: &mut Body<'_, '_>) -> Outcome {
    let max = body.caps().max_queue_frames;
    let Some(deeper) = max.checked_add(1) else { return skip("the device states no limit") };
    let deeper = QpInit::with_frames(deeper);
    let cq = body.device().create_cq(16)?;
    invalid(refused(cq.create_qp(&deeper), "a queue deeper than the limit")?)
}

pub(super) async fn long_and_short_receives_share_the_queue(body: &mut Body<'_, '_>) -> Outcome {
    let (accepted, [a, _]) = accepted(body).await?;
    let longest = body.caps().max_message as usize / FRAME;
    if longest < 2 {
        return skip("every message is one frame");
    }
    // As few as make the queue one frame short of full.
    let mut number = 0;
    let mut at = 0;
    while at < accepted - 1 {
        let frames = longest.min(accepted - 1 - at);
        body.recv(a, number, at * FRAME..(at + frames) * FRAME).await?;
        (number, at) = (number + 1, at + frames);
    }
    let full = refused(body.recv(a, number, at * FRAME..(at + 2) * FRAME).await, "a frame too many")?;
    ensure_eq!(full.cause, Cause::QueueFull, "the refusal");
    body.recv(a, number, at * FRAME..(at + 1) * FRAME).await
}

fn too_long(error: &rdma_core::Error) -> Outcome {
    // A provider only says that an argument is invalid.
    let is_refused = matches!(error.cause, Cause::MessageTooLong { .. } | Cause::Invalid(_));
    ensure!(is_refused, "refused otherwise: {error}");
    Ok(())
}

/// A length that the device has and a queue does not, and queue pairs with so much memory
async fn longer(body: &mut Body<'_, '_>) -> Result<(usize, [Qp; 2]), Stop> {
    let (accepted, pair) = accepted(body).await?;
    let longer = accepted * FRAME + 1;
    if longer > body.caps().max_message as usize {
        return skip("a queue holds the longest message");
    }
    Ok((longer, pair))
}

pub(super) async fn a_receive_longer_than_the_queue_is_refused(body: &mut Body<'_, '_>) -> Outcome {
    let (longer, [a, _]) = longer(body).await?;
    let posted = body.recv(a, 1, 0..longer).await;
    too_long(&refused(posted, "a receive longer than the queue")?)
}

pub(super) async fn a_send_longer_than_the_queue_is_refused(body: &mut Body<'_, '_>) -> Outcome {
    let (longer, [a, _]) = longer(body).await?;
    let posted = body.send(a, 1, 0..longer).await;
    too_long(&refused(posted, "a send longer than the queue")?)
}

pub(super) async fn a_full_queue_takes_more_after_a_completion(body: &mut Body<'_, '_>) -> Outcome {
    let [a, b] = filled_pair(body).await?;
    let filled = fill_receives(body, a).await?;
    body.send(b, 1, 0..8).await?;
    body.received(a).await?;
    body.recv(a, 99, filled * SLOT..filled * SLOT + 8).await
}

/// Leaves one completion unpolled, which overruns no completion queue
pub(super) async fn space_returns_before_its_completion_is_polled(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.is_thunderbolt {
        return skip("a device of another kind may count what was not polled");
    }
    let [a, b] = filled_pair(body).await?;
    let Ok(filled) = fill_receives(body, a).await else {
        return skip("the queue of the device does not fill up");
    };
    body.send(b, 1, 0..8).await?;
    ensure_eq!(body.next(b).await?.status, Status::Success, "the send");
    body.lab.rest(ARRIVAL_TIME).await;
    body.recv(a, 99, filled * SLOT..filled * SLOT + 8).await?;
    ensure_eq!(body.received(a).await?.id.0, 0, "the receive that had completed");
    Ok(())
}

pub(super) async fn a_send_queue_fills_up(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.send_waits {
        return skip("sends leave whether or not there is a receive");
    }
    let [a, b] = filled_pair(body).await?;
    let most = most(body);
    let mut posted = 0;
    loop {
        match body.send(a, posted, 0..8).await {
            Ok(()) => posted += 1,
            Err(Stop::Verb(error)) if error.cause == Cause::QueueFull => break,
            Err(stop) => return Err(stop),
        }
        ensure!(posted < most as u64, "a queue took {most} frames, more than the limit of the device");
    }
    body.recv(b, 1, 0..8).await?;
    body.received(b).await?;
    ensure_eq!(body.next(a).await?.id.0, 0, "the send that completed");
    body.send(a, 99, 0..8).await
}
