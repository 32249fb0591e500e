//! The transfer of a file over the cable
//!
//! The first message is the length, then come the bytes in pieces, and last their hash. The receiver hashes what it writes
//! and answers with its own.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{Either, select, try_join};
use futures::stream::{self, TryStreamExt};
use indicatif::ProgressBar;
use rdma_async::session::{Message, NodeOptions, Session};
use rdma_core::Time;
use rdma_sim::{Net, SimDevice};

use super::source::Source;
use crate::failure::at;
use crate::file::Replacement;
use crate::mac;
use crate::signals::Interrupt;

/// Bytes in a piece: a few pieces keep the cable busy and need little memory.
const PIECE: usize = 512 << 10;
/// Pieces in flight at once.
const PIECES: usize = 8;

pub(crate) struct Transfer {
    pub(crate) source: Source,
    pub(crate) destination: Replacement,
    pub(crate) progress: ProgressBar,
    pub(crate) interrupt: Interrupt,
    pub(crate) cables: u8,
    pub(crate) last_fault: Time,
}

/// A completed transfer
pub(crate) struct Done {
    pub(crate) bytes: u64,
    pub(crate) hash: blake3::Hash,
    /// From the first message to the receiver's confirmation.
    pub(crate) virtual_time: Duration,
    pub(crate) end: Time,
    /// How often the path of a cable was made again.
    pub(crate) reconnects: u32,
    pub(crate) retransmitted_bytes: u64,
}

impl Transfer {
    pub(crate) async fn run(self, net: &Net) -> Result<Done> {
        let memory = PIECE * PIECES;
        let options =
            NodeOptions::new().max_peers(1).max_message(PIECE).send_memory(memory).receive_memory(memory);
        let Self { source, destination, progress, interrupt, cables, last_fault } = self;
        let [a, b] = mac::connect(net, &options, cables).await?;
        let start = net.now();
        let both = try_join(send(&a, source), receive(&b, destination, &progress, &interrupt));
        let stalled = stalled(net, &progress, last_fault);
        let (sent, received) = match select(pin!(both), pin!(stalled)).await {
            Either::Left((copied, _)) => copied?,
            Either::Right(_) => bail!(STALLED),
        };
        ensure!(sent.1 == received.1, DIFFERS);
        let end = net.now();
        let (destination, hash) = received;
        let (reconnects, retransmitted_bytes) = reconnects_and_retransmitted(&a);
        try_join(a.close(), b.close()).await?;
        if interrupt.is_requested() {
            bail!(at(destination.path(), INTERRUPTED));
        }
        destination.finish()?;
        Ok(Done { bytes: sent.0, hash, virtual_time: end - start, end, reconnects, retransmitted_bytes })
    }
}

const DIFFERS: &str = "the bytes that arrived are not the bytes that were sent";
const INTERRUPTED: &str = "interrupted; the destination was not changed";
const UNEXPECTED: &str = "the peer sent a message of unexpected length";

const STALLED: &str =
    "nothing has arrived for 10 s since the last fault: plug a cable in with another one, such as replug@8ms";

/// How long a copy waits for data.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until nothing arrives any more, and no fault can change that
async fn stalled(net: &Net, progress: &ProgressBar, last_fault: Time) {
    let mut arrived = progress.position();
    loop {
        net.sleep(PATIENCE).await;
        if arrived == progress.position() && net.now() >= last_fault + PATIENCE {
            return;
        }
        arrived = progress.position();
    }
}

fn reconnects_and_retransmitted(_session: &Session<SimDevice>) -> (u32, u64) {
    // TODO snapshot
    (0, 0)
}

async fn next(session: &Session<SimDevice>) -> Result<Message> {
    session.recv().await?.context("the peer closed the session before the file was complete")
}

/// Sends the file, and returns its length and hash once the receiver has confirmed the hash
async fn send(session: &Session<SimDevice>, mut source: Source) -> Result<(u64, blake3::Hash)> {
    let len = source.len();
    session.send_bytes(&len.to_le_bytes()).await?;
    let mut hasher = blake3::Hasher::new();
    let pieces = stream::try_unfold((&mut source, &mut hasher), async |(source, hasher)| {
        let len = source.rest().min(PIECE as u64) as usize;
        if len == 0 {
            source.check_end()?;
            return Ok(None);
        }
        let mut lease = session.alloc(len).await?;
        lease.resize(len, 0);
        source.read(&mut lease)?;
        hasher.update(&lease);
        anyhow::Ok(Some((session.send(lease), (source, hasher))))
    });
    let sends = pieces.map_ok(async |send| Ok(send.await?));
    sends.try_buffered(PIECES).try_for_each(async |_lease| Ok(())).await?;

    let hash = hasher.finalize();
    session.send_bytes(hash.as_bytes()).await?;
    ensure!(*next(session).await? == *hash.as_bytes(), DIFFERS);
    Ok((len, hash))
}

/// Writes the pieces to the destination, and returns its hash once that of the sender is equal
async fn receive(
    session: &Session<SimDevice>,
    mut destination: Replacement,
    progress: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<(Replacement, blake3::Hash)> {
    let first = next(session).await?;
    let mut rest = u64::from_le_bytes(<[u8; 8]>::try_from(&*first).context(UNEXPECTED)?);
    drop(first);
    let mut hasher = blake3::Hasher::new();
    while rest > 0 {
        if interrupt.is_requested() {
            bail!(at(destination.path(), INTERRUPTED));
        }
        let piece = next(session).await?;
        rest = rest.checked_sub(piece.len() as u64).context(UNEXPECTED)?;
        hasher.update(&piece);
        destination.write(&piece)?;
        progress.inc(piece.len() as u64);
    }
    let hash = hasher.finalize();
    ensure!(*next(session).await? == *hash.as_bytes(), DIFFERS);
    session.send_bytes(hash.as_bytes()).await?;
    Ok((destination, hash))
}
