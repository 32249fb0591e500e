//! Constants of both sides of a copy
//!
//! The sender announces each file, directory and link, and last the end. The receiver answers to a file with the length and the
//! hash of what is there of it, and the sender says where it begins: behind that, if its own file begins so. Then come the bytes in
//! pieces, and their hash; the receiver hashes what it has, and answers with its own. To the end, it answers with the hash of the
//! whole copy, and with the number of bytes that it has asked for again.

use anyhow::{Context as _, Result};
use rdma_async::{Device, Message, Session};

/// Bytes in a piece: a few pieces keep the cable busy and need little memory.
pub(super) const PIECE: usize = 512 << 10;
/// Pieces in flight at once.
pub(super) const PIECES: usize = 8;

pub(super) const DIFFERS: &str = "the bytes that arrived are not the bytes that were sent";
pub(super) const UNEXPECTED: &str = "the peer sent a message of unexpected length";

/// A simulated copy ended, and another one can continue it
#[derive(Debug, thiserror::Error)]
#[error(
    "nothing has arrived for 10 s since the last fault: if a cable is out, add a fault that plugs it in, such as `at 8ms a:rdma_en2 replug`"
)]
pub(super) struct Stalled;

pub(super) async fn next<D: Device>(session: &Session<D>) -> Result<Message> {
    session.recv().await?.context("the peer closed the session before the copy was complete")
}
