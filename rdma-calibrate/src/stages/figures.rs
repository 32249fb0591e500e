//! Figures beside the model: rates by size

use rdma_core::{Device, FRAME};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::Request;

const STAGE: &str = "figures";
/// Message sizes in frames, each with how many messages are posted at once.
const STREAMS: [(&str, usize, usize); 3] = [
    ("32 messages of 4 KiB, GB/s", 1, 32),
    ("16 messages of 64 KiB, GB/s", 16, 16),
    ("2 messages of 512 KiB, GB/s", 128, 2),
];

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    for (what, frames, count) in STREAMS {
        if frames * FRAME <= lab.device.caps().max_message as usize {
            stream(lab, what, frames * FRAME, count).await?;
        }
    }
    Ok(())
}

/// Sends messages that fill the queue, and waits for an answer to the last
async fn stream(
    lab: &mut Lab<'_>,
    what: &'static str,
    len: usize,
    count: usize,
) -> Result<(), CalibrateError> {
    let fail = |error| CalibrateError::Verb { stage: STAGE, error };
    let mut station = lab.pair(STAGE, 512, (count + 2) * len).await?;
    // Behind the memory of the sends.
    station.recv(count * len..count * len + 8).map_err(fail)?;
    if let Err(CalibrateError::PeerFailed(why)) = lab.ask(Request::Stream { count, len }).await {
        lab.findings.figure(what, format_args!("the queues of the device do not hold them: {why}"));
        return Ok(());
    }
    let start = lab.now();
    for _ in 0..count {
        if let Err(error) = station.send(len) {
            lab.findings.figure(what, format_args!("the queues of the device do not hold them: {error}"));
            // The peer waits in vain, and says so.
            return match lab.reply().await {
                Err(CalibrateError::PeerFailed(_)) => Ok(()),
                reply => reply.map(drop),
            };
        }
    }
    station.received(STAGE).await?;
    let took = lab.now() - start;
    lab.reply().await?;
    let rate = (count * len) as f64 / (took.as_nanos() as f64).max(1.0);
    lab.findings.figure(what, format_args!("{rate:.2}, with the answer to the last"));
    Ok(())
}
