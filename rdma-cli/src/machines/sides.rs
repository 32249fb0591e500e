//! What both sides do alike

use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use rdma_async::{AnyDevice, Node, NodeOptions, RecvError, SendError, Session, SessionError, SharedKey};

use super::limits::{CHECK_INTERVAL, CLOSE_TIMEOUT, MAX_MEASUREMENT, MAX_PEERS, MAX_SILENCE};
use crate::failure::at;
use crate::signals::{Interrupt, Interrupted};

/// The code with which a side that fails resets the session.
const FAILED: u64 = 1;
/// The code with which a side resets the session when its user stops it.
const INTERRUPTED: u64 = 4;
/// Failures of files that the peer is told of: their code, their kind, and what the user of the peer reads, of the side that writes and
/// of the one that reads
const FILES: [(u64, ErrorKind, &str); 8] = [
    (5, ErrorKind::StorageFull, "has no space left"),
    (6, ErrorKind::QuotaExceeded, "has used up its disk quota"),
    (7, ErrorKind::PermissionDenied, "lacks a permission"),
    (8, ErrorKind::ReadOnlyFilesystem, "has a read-only file system"),
    (9, ErrorKind::NotFound, "has no such file or directory"),
    (
        11,
        ErrorKind::InvalidFilename,
        "has no room for so long a name, and most systems for none of more than 255 bytes",
    ),
    (10, ErrorKind::IsADirectory, "has a directory in the place of a file"),
    (12, ErrorKind::FileTooLarge, "may not write so long a file"),
];

/// What a side that serves refuses or ends: the peer learns it by a code
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Declined {
    #[error("it asks for a copy: write --into DIR to take copies")]
    Copy,
    #[error("it asks for a measurement, and this side takes one copy: `tb5 serve` does both")]
    Measurement,
    #[error("{MAX_PEERS} other peers are served already")]
    Peer,
    #[error("the measurement is ended: no message passed for {MAX_SILENCE:?}")]
    Silence,
    #[error("the measurement is ended: it has taken {} minutes", MAX_MEASUREMENT.as_secs() / 60)]
    Duration,
}

impl Declined {
    const ALL: [Self; 5] = [Self::Copy, Self::Measurement, Self::Peer, Self::Silence, Self::Duration];

    /// The code with which the session ends
    fn code(self) -> u64 {
        match self {
            Self::Copy => 2,
            Self::Measurement => 3,
            Self::Peer => 13,
            Self::Silence => 14,
            Self::Duration => 15,
        }
    }

    /// What the user of the peer reads
    fn remedy(self) -> String {
        match self {
            Self::Copy => "the other side takes no copies: run `tb5 serve --into DIR` there".to_owned(),
            Self::Measurement => {
                "the other side takes one copy and nothing else: run `tb5 serve` there".to_owned()
            }
            Self::Peer => format!("the other side serves {MAX_PEERS} others already: try again later"),
            Self::Silence => {
                format!("the other side has ended the measurement: no message passed for {MAX_SILENCE:?}")
            }
            Self::Duration => {
                let minutes = MAX_MEASUREMENT.as_secs() / 60;
                format!(
                    "the other side has ended the measurement: it answers one for {minutes} minutes at most"
                )
            }
        }
    }
}

/// The code with which a session ends because of `error`
pub(super) fn reset_code(error: &anyhow::Error) -> u64 {
    match error.downcast_ref::<Declined>() {
        Some(declined) => declined.code(),
        None if error.is::<Interrupted>() => INTERRUPTED,
        None => {
            let of_file = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
            let code = of_file.and_then(|of_file| FILES.iter().find(|(_, kind, _)| *kind == of_file.kind()));
            code.map_or(FAILED, |(code, ..)| *code)
        }
    }
}

/// What the user is told when the peer has ended the session with `code`
fn told(code: u64) -> String {
    if code == INTERRUPTED {
        return "the other side was stopped by its user".to_owned();
    }
    if let Some(declined) = Declined::ALL.into_iter().find(|why| why.code() == code) {
        return declined.remedy();
    }
    let why = FILES.iter().find(|of_file| of_file.0 == code);
    let why = why.map_or("has given up", |(_, _, why)| why);
    format!("the other side {why}: its output says more")
}

/// A runtime with a thread for sessions and for watchers, which go on while this one reads, writes, hashes, or calls a verb
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().context("the runtime cannot be started")
}

/// The options of a node, with the key in the file `key`
pub(crate) fn key_options(key: Option<&Path>) -> Result<NodeOptions> {
    let options = NodeOptions::new();
    let Some(path) = key else { return Ok(options) };
    let text = std::fs::read_to_string(path).with_context(|| at(path, "cannot be read"))?;
    let key = text.parse::<SharedKey>();
    let why = || at(path, "holds no key: make one with `openssl rand -hex 32`");
    Ok(options.shared_key(key.with_context(why)?))
}

/// Waits until the user asks to stop
pub(crate) async fn interrupted(interrupt: &Interrupt) -> Interrupted {
    loop {
        if let Err(interrupted) = interrupt.check() {
            return interrupted;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// What `work` returns, unless the user asks to stop before
pub(crate) async fn unless_interrupted<T>(
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        interrupted = interrupted(interrupt) => Err(interrupted.into()),
    }
}

/// Ends a session, and gives the peer time to learn of it
pub(crate) async fn part<T>(node: Node<AnyDevice>, session: Session<AnyDevice>, done: &Result<T>) {
    let over = async {
        match done {
            // Both sides know the outcome already.
            Ok(_) => drop(session.close().await),
            Err(error) => session.reset(reset_code(error)),
        }
        drop(session);
        node.close();
        node.wait_idle().await;
    };
    // A peer that is gone learns nothing.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, over).await;
}

/// The error, or which side has failed
pub(crate) fn explain(error: anyhow::Error) -> anyhow::Error {
    let lost = |error: &(dyn std::error::Error + 'static)| match (error.downcast_ref(), error.downcast_ref())
    {
        (Some(RecvError::Lost(lost)), _) | (_, Some(SendError::Lost(lost))) => Some(lost.clone()),
        _ => None,
    };
    match error.chain().find_map(lost) {
        Some(SessionError::Reset(code)) => anyhow!(told(code)),
        Some(SessionError::PeerGone) => anyhow!("the program at the other side has ended"),
        _ => error,
    }
}

/// A node for one peer, with memory for `count` messages of `longest` bytes, and twice as much to receive
pub(crate) fn room(options: NodeOptions, longest: usize, count: usize) -> NodeOptions {
    let memory = longest * count;
    options.max_peers(1).max_message(longest).send_memory(memory).receive_memory(2 * memory)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Catches a failure of a file that the peer is not told of, also below the context that names the file.
    #[test]
    fn the_peer_is_told_why_a_file_failed() {
        for (errno, code, why) in [
            (libc::ENOSPC, 5, "has no space left"),
            (libc::EDQUOT, 6, "has used up its disk quota"),
            (libc::EACCES, 7, "lacks a permission"),
            (libc::EPERM, 7, "lacks a permission"),
            (libc::EROFS, 8, "has a read-only file system"),
            (libc::ENOENT, 9, "has no such file or directory"),
            (libc::EISDIR, 10, "has a directory in the place of a file"),
            (
                libc::ENAMETOOLONG,
                11,
                "has no room for so long a name, and most systems for none of more than 255 bytes",
            ),
            (libc::EFBIG, 12, "may not write so long a file"),
            (libc::EIO, FAILED, "has given up"),
        ] {
            let error =
                anyhow::Error::new(io::Error::from_raw_os_error(errno)).context("copy: cannot be written");
            assert_eq!(reset_code(&error), code, "{errno}");
            assert_eq!(told(code), format!("the other side {why}: its output says more"));
        }
    }
}
