//! Failures of commands

use std::fmt;
use std::path::Path;

use crate::report::plain;

/// A failure that has an exit code of its own, or no message; all others print their error and end with exit code 1
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Invalid arguments
    #[error("{0}")]
    Usage(String),
    /// A program that the command had started failed with this exit code
    #[error("a program failed")]
    Ended(u8),
    /// The command was carried out, and its output reports a failed check
    #[error("a check failed")]
    Reported,
}

impl Failure {
    /// Invalid arguments, for the reason that `error` says
    pub(crate) fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }
}

/// A failure of a file of this machine, in a command that has a peer: its message does not name the peer
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct OwnFile(#[from] anyhow::Error);

/// Name in messages of the file at `path`, where `-` is standard input
pub(crate) fn shown(path: &Path) -> String {
    named(path, "standard input")
}

/// Name in the output of the file at `path` that was written, where `-` is standard output
pub(crate) fn written(path: &Path) -> String {
    named(path, "standard output")
}

/// A name for people, without control characters: a peer may have chosen it
fn named(path: &Path, standard: &str) -> String {
    if is_standard(path) { standard.to_owned() } else { plain(&path.display().to_string()) }
}

/// The message that something is wrong with the file at `path`
pub(crate) fn at(path: &Path, what: impl fmt::Display) -> String {
    format!("{}: {what}", shown(path))
}

/// Whether an argument is `-`, which stands for standard input or output
pub(crate) fn is_standard(path: impl AsRef<Path>) -> bool {
    path.as_ref().as_os_str() == "-"
}
