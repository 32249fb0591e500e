//! Messages of one size over a session, of both sides

use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use rdma_async::{Device, Session};

/// Bytes that are sent of each size: so many that the first and the last message count for little
const VOLUME: u64 = 64 << 20;

/// Number of messages that are sent of a size
pub(crate) fn count_of(size_bytes: u64, in_flight: u16) -> u64 {
    VOLUME.div_ceil(size_bytes).clamp(8 * u64::from(in_flight), 4000)
}

/// Sends `count` messages of `len` bytes, `in_flight` at once
pub(crate) async fn send_messages<D: Device>(
    session: &Session<D>,
    len: usize,
    count: usize,
    in_flight: usize,
) -> Result<()> {
    let sends = stream::iter(0..count).map(async |_| {
        let mut lease = session.alloc(len).await?;
        lease.resize(len, 7);
        session.send(lease).await?;
        anyhow::Ok(())
    });
    sends.buffered(in_flight).try_collect().await
}

/// Receives `count` messages, which all have `len` bytes
pub(crate) async fn receive_messages<D: Device>(
    session: &Session<D>,
    len: usize,
    count: usize,
) -> Result<()> {
    for number in 0..count {
        let message =
            session.recv().await?.with_context(|| format!("the session ended at message {number}"))?;
        ensure!(message.len() == len, "message {number} has {} bytes", message.len());
    }
    Ok(())
}
