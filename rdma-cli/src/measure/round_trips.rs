//! Round trips over a session, of both sides

use anyhow::{Context as _, Result, ensure};
use indicatif::ProgressBar;
use rdma_async::{Device, Session};

/// Measures `count` round trips of `size` bytes with a peer that [echoes](echo), in nanoseconds
pub(crate) async fn round_trips<D: Device>(
    session: &Session<D>,
    size: usize,
    count: u32,
    progress: &ProgressBar,
) -> Result<Vec<u64>> {
    let runtime = session.runtime();
    let mut samples = Vec::with_capacity(count as usize);
    let mut lease = session.alloc(size).await?;
    lease.resize(size, 0);
    for number in 0..count {
        stamp(&mut lease, number);
        let start = runtime.now();
        lease = session.send(lease).await?;
        let answer =
            session.recv().await?.context("the peer closed the session before the last round trip")?;
        samples.push((runtime.now() - start).as_nanos() as u64);
        progress.inc(1);
        ensure!(*answer == *lease, "round trip {number}: the answer differs from the message");
    }
    Ok(samples)
}

/// Sends each message back, until the peer closes the session; returns how many bytes came
pub(crate) async fn echo<D: Device>(session: &Session<D>) -> Result<u64> {
    let mut total = 0;
    let Some(first) = session.recv().await? else { return Ok(total) };
    let mut lease = session.alloc(first.len()).await?;
    let mut next = Some(first);
    while let Some(message) = next {
        if message.len() > lease.capacity() {
            lease = session.alloc(message.len()).await?;
        }
        lease.clear();
        lease.extend_from_slice(&message);
        total += message.len() as u64;
        drop(message);
        lease = session.send(lease).await?;
        next = session.recv().await?;
    }
    Ok(total)
}

fn stamp(message: &mut [u8], number: u32) {
    for (byte, stamp) in message.iter_mut().zip(number.to_le_bytes()) {
        *byte = stamp;
    }
}
