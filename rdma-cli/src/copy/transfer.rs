//! A copy over the cables, from its start to its end

use std::cell::Cell;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::{Either, join, select, try_join};
use indicatif::ProgressBar;
use rdma_async::time::timeout;
use rdma_async::{AnyDevice, NodeOptions, Session};
use rdma_core::Time;
use rdma_sim::Net;

use super::agreed::{DIFFERS, PIECE, PIECES, Stalled};
use super::destination::Destination;
use super::faults::Faults;
use super::receive::{Arrived, Received, Receiver};
use super::send::{Sender, Sources};
use super::words::{ended_early, remedy};
use crate::failure::at;
use crate::file::Replacement;
use crate::mac;
use crate::path_counts::{reconnects, retransmitted_bytes};
use crate::report::with_sources;
use crate::signals::{Interrupt, Interrupted};

/// The longest time for which a copy waits for data.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Transfer {
    pub(crate) sources: Sources,
    pub(crate) destination: Destination,
    /// Of the destination, for errors.
    pub(crate) path: PathBuf,
    pub(crate) progress: ProgressBar,
    pub(crate) interrupt: Interrupt,
    pub(crate) cables: u8,
    pub(crate) faults: Faults,
}

/// A completed transfer
pub(crate) struct Done {
    pub(crate) received: Received,
    /// When the first message was sent
    pub(crate) start: Time,
    /// When the sender had the confirmation of the receiver
    pub(crate) end: Time,
    /// Number of times that the path of a cable was made again.
    pub(crate) reconnects: u32,
    pub(crate) retransmitted_bytes: u64,
    /// The faults, and which of them have not fired
    pub(crate) faults: String,
}

impl Transfer {
    pub(crate) async fn run(self, net: &Net) -> Result<Done> {
        let memory = PIECE * PIECES;
        // A session gets half of the receive memory.
        let options =
            NodeOptions::new().max_peers(1).max_message(PIECE).send_memory(memory).receive_memory(2 * memory);
        let Self { sources, mut destination, path, progress, interrupt, cables, faults } = self;
        let [a, b] = mac::connect(net, &options, cables).await?;
        let start = net.now();
        let arrived = Arrived::default();
        let receiver = Receiver::new(&b, &mut destination, &progress, &interrupt, &arrived);
        // The receiver shows how far the copy is.
        let (unseen, hashes) = (ProgressBar::hidden(), Cell::new(0));
        let copied = {
            let sender = Sender::new(&a, &unseen, &interrupt, &hashes);
            let both = try_join(sender.send(sources), receiver.receive());
            match select(pin!(both), pin!(stalled(net, &b, &faults))).await {
                Either::Left((copied, _)) => copied,
                Either::Right(_) => Err(Stalled.into()),
            }
        };
        let (sent, received) = match copied {
            Err(error) if error.is::<Stalled>() || error.is::<Interrupted>() => {
                let remedy = remedy(arrived.incomplete.take().map_or(Ok(None), Replacement::keep));
                let why = ended_early(&arrived, &with_sources(&error), &remedy);
                return Err(error.context(at(&path, why)));
            }
            copied => copied?,
        };
        ensure!(sent.hash == received.hash, DIFFERS);
        let (end, faults) = (net.now(), faults.describe(net));
        let (reconnects, retransmitted_bytes) = repairs([&a, &b]);
        // Both sides know the outcome: a cable that is out by now changes nothing.
        let _ = timeout(&*net.runtime(), PATIENCE, join(a.close(), b.close())).await;
        Ok(Done { received, start, end, reconnects, retransmitted_bytes, faults })
    }
}

/// Waits until nothing arrives any more, and no fault can change that
async fn stalled(net: &Net, receiver: &Session<AnyDevice>, faults: &Faults) {
    let arrived = || receiver.snapshot().messages_received;
    let mut before = arrived();
    loop {
        net.sleep(PATIENCE + faults.longest_outage()).await;
        let now = arrived();
        if now == before && net.now() >= faults.end() + PATIENCE {
            return;
        }
        before = now;
    }
}

/// Number of times that paths were made again, and of bytes that were sent again: parts of long messages are counted where they are
/// received
fn repairs(sessions: [&Session<AnyDevice>; 2]) -> (u32, u64) {
    let [ours, theirs] = sessions.map(|session| session.snapshot().paths);
    (reconnects(&ours), retransmitted_bytes(&ours) + retransmitted_bytes(&theirs))
}
