//! Why a side ends a session: the code that it sends, and what the user of the peer reads

use std::io::{self, ErrorKind};

use anyhow::anyhow;
use rdma_async::{RecvError, SendError, SessionError};

use super::limits::{MAX_MEASUREMENT, MAX_PEERS, MAX_SILENCE};
use crate::signals::Interrupted;

/// The code with which a side that fails resets the session.
const FAILED: u64 = 1;
/// The code with which a side resets the session when its user stops it.
const INTERRUPTED: u64 = 4;

/// A failure of a file that the peer learns
struct FileFailure {
    code: u64,
    kind: ErrorKind,
    /// Text for the user of the peer, of the side that writes or of the one that reads
    why: &'static str,
    /// Whether there is no room for the file: a receiver removes what has arrived of it
    lacks_room: bool,
}

const FILES: [FileFailure; 8] = {
    const fn file(code: u64, kind: ErrorKind, lacks_room: bool, why: &'static str) -> FileFailure {
        FileFailure { code, kind, why, lacks_room }
    }
    [
        file(5, ErrorKind::StorageFull, true, "has no space left"),
        file(6, ErrorKind::QuotaExceeded, true, "has used up its disk quota"),
        file(7, ErrorKind::PermissionDenied, false, "lacks a permission"),
        file(8, ErrorKind::ReadOnlyFilesystem, false, "has a read-only file system"),
        file(9, ErrorKind::NotFound, false, "has no such file or directory"),
        file(
            11,
            ErrorKind::InvalidFilename,
            false,
            "has no room for so long a name, and most systems for none of more than 255 bytes",
        ),
        file(10, ErrorKind::IsADirectory, false, "has a directory in the place of a file"),
        file(12, ErrorKind::FileTooLarge, true, "may not write so long a file"),
    ]
};

/// Reasons of a side that serves to refuse or end a request: the peer learns them by a code
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Declined {
    #[error("it asks for a copy: write --into DIR to take copies")]
    Copy,
    #[error("nothing is written through a symbolic link")]
    Link,
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
    const ALL: [Self; 6] =
        [Self::Copy, Self::Link, Self::Measurement, Self::Peer, Self::Silence, Self::Duration];

    /// The code with which the session ends
    fn code(self) -> u64 {
        match self {
            Self::Copy => 2,
            Self::Measurement => 3,
            Self::Peer => 13,
            Self::Silence => 14,
            Self::Duration => 15,
            Self::Link => 16,
        }
    }

    /// Text for the user of the peer
    fn remedy(self) -> String {
        match self {
            Self::Copy => "the other side takes no copies: run `tb5 serve --into DIR` there".to_owned(),
            Self::Link => {
                "the other side has a symbolic link in this path, and writes nothing through it: name a \
                           path without one; its output says which it is"
                    .to_owned()
            }
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

/// The peer has ended the session with this code
#[derive(Debug, thiserror::Error)]
#[error("{}", reason(*.0))]
pub(super) struct PeerFailed(u64);

/// Why the peer has ended the session with `code`, for the user of this side
fn reason(code: u64) -> String {
    if code == INTERRUPTED {
        return "the other side was stopped by its user".to_owned();
    }
    if let Some(declined) = Declined::ALL.into_iter().find(|why| why.code() == code) {
        return declined.remedy();
    }
    let why = FILES.iter().find(|file| file.code == code).map_or("has given up", |file| file.why);
    format!("the other side {why}: its output says more")
}

/// The failure of a file that `error` reports, at this side
fn of_file(error: &anyhow::Error) -> Option<&'static FileFailure> {
    let kind = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>())?.kind();
    FILES.iter().find(|file| file.kind == kind)
}

/// The code with which a session ends because of `error`
pub(super) fn reset_code(error: &anyhow::Error) -> u64 {
    match error.downcast_ref::<Declined>() {
        Some(declined) => declined.code(),
        None if error.is::<Interrupted>() => INTERRUPTED,
        None => of_file(error).map_or(FAILED, |file| file.code),
    }
}

/// Whether `error` says that a file has no room, at this side or at the peer: on a disk, in a quota, or within a limit of file size
pub(crate) fn lacks_room(error: &anyhow::Error) -> bool {
    let peer = error.downcast_ref::<PeerFailed>();
    let file =
        peer.map_or_else(|| of_file(error), |PeerFailed(code)| FILES.iter().find(|file| file.code == *code));
    file.is_some_and(|file| file.lacks_room)
}

/// The error, or which side has failed
pub(crate) fn explain(error: anyhow::Error) -> anyhow::Error {
    let lost = |error: &(dyn std::error::Error + 'static)| match (error.downcast_ref(), error.downcast_ref())
    {
        (Some(RecvError::Lost(lost)), _) | (_, Some(SendError::Lost(lost))) => Some(lost.clone()),
        _ => None,
    };
    match error.chain().find_map(lost) {
        Some(SessionError::Reset(code)) => PeerFailed(code).into(),
        Some(SessionError::PeerGone(reason)) => anyhow!("the other side has ended: {reason}"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a failure of a file that the peer does not learn, also below the context that names the file, and sides that disagree
    /// whether the rest of a copy is kept.
    #[test]
    fn the_peer_learns_why_a_file_failed() {
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
            let peer = anyhow::Error::from(PeerFailed(code)).context("127.0.0.1");
            assert_eq!(peer.root_cause().to_string(), format!("the other side {why}: its output says more"));
            let is_room = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG].contains(&errno);
            assert_eq!((lacks_room(&error), lacks_room(&peer)), (is_room, is_room), "{errno}");
        }
    }
}
