//! Why a fabric cannot be made, opened or changed

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::settings::SettingsError;

/// Why a fabric cannot be made, opened or changed
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The name is invalid
    #[error(
        "{0:?} is no name of a fabric: use up to 64 letters, digits, '-', '_' and '.', and no '.' at the start"
    )]
    Name(String),
    /// No process has a fabric of that name
    #[error("there is no fabric called {0:?}")]
    Missing(String),
    /// The fabric was made by another version
    #[error(
        "fabric {0:?} was made by another version of this library; end its processes, or choose another name"
    )]
    Version(String),
    /// The fabric has other settings than those that were asked for
    #[error("fabric {0:?} already exists with different settings ({1}); choose another name")]
    Other(String, String),
    /// The host has as many processes as it can have
    #[error(
        "host {host:?} of fabric {fabric:?} has as many processes as it can have ({}): end one, or start this one as another host",
        list(.pids)
    )]
    Taken {
        /// The fabric
        fabric: String,
        /// The host
        host: String,
        /// Its processes
        pids: Vec<u32>,
    },
    /// Another process has held a lock for too long
    #[error(
        "fabric {fabric:?}: another process has held the lock of {what} for {} s, and processes hold it for milliseconds: end that \
         process if it hangs",
        .limit.as_secs()
    )]
    Locked {
        /// The fabric
        fabric: String,
        /// What is locked
        what: String,
        /// How long this process has waited for the lock
        limit: Duration,
    },
    /// The topology has no such host
    #[error("fabric {fabric:?} has no host {host:?}; its hosts are {hosts}")]
    NoHost {
        /// The fabric
        fabric: String,
        /// The host that was asked for
        host: String,
        /// The hosts of the topology
        hosts: String,
    },
    /// The log of faults is full
    #[error("the log of faults of fabric {0:?} is full: make a new fabric")]
    LogFull(String),
    /// The directory of fabrics belongs to another user
    #[error("{0:?} belongs to another user: remove it")]
    Foreign(PathBuf),
    /// The settings or a fault are invalid
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The system refused an operation on files or memory
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl FabricError {
    pub(super) fn io(subject: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let subject = subject.into();
        move |error| Self::Io(subject, error)
    }
}
