//! What ranks say to each other before they have sessions: lines of JSON over TCP

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::LaunchError;

/// Begins each first line; it changes when ranks of different versions do not understand each other
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) enum Protocol {
    /// The only one so far
    #[serde(rename = "rdma-collectives launch 1")]
    V1,
}

/// The first line of a rank to rank 0
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Registration {
    pub(super) protocol: Protocol,
    pub(super) rank: usize,
    /// Differs from that of a rank with another device matrix
    pub(super) matrix: u64,
    /// The port at which the rank listens for its neighbours
    pub(super) port: u16,
}

/// What rank 0 answers when all ranks have registered, or when that is impossible; and what a rank answers a neighbour
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Answer {
    /// Where each rank listens, as rank 0 sees it
    Roster {
        /// Proves to a neighbour that a rank is of the same run
        token: String,
        addresses: Vec<SocketAddr>,
    },
    /// All neighbours are connected to the rank that answers
    Connected,
    Duplicate {
        rank: usize,
        addresses: [SocketAddr; 2],
    },
    Missing {
        ranks: Vec<usize>,
        timeout: Duration,
    },
    OtherMatrix {
        rank: usize,
    },
}

/// The first line of a rank to a neighbour of lower rank
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct NeighbourHello {
    pub(super) protocol: Protocol,
    pub(super) token: String,
    pub(super) rank: usize,
    /// The node of the rank, as sessions name it
    pub(super) node: String,
}

/// The longest first line, in bytes
pub(super) const MAX_FIRST_LINE: usize = 4096;
/// The longest answer, in bytes: the roster of the most hosts fits
pub(super) const MAX_ANSWER: usize = 1 << 20;
/// Between two looks of a thread that reads at whether it still should.
const READ_TIMEOUT: Duration = Duration::from_millis(50);
/// A line fits the buffers of the connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes a line
pub(super) fn write<T: Serialize>(mut stream: &TcpStream, line: &T) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// Reads a line of at most `max` bytes, and nothing behind it, which belongs to a session; fails when `is_over`
pub(super) fn read<T: DeserializeOwned>(
    mut stream: &TcpStream,
    max: usize,
    mut is_over: impl FnMut() -> bool,
) -> io::Result<T> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\n") {
        if is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if line.len() == max => return Err(io::ErrorKind::InvalidData.into()),
            Ok(_) => line.push(byte[0]),
            Err(error) if is_temporary(&error) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Whether a read or an accept may be tried again after this error
pub(super) fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

impl Answer {
    /// The error that it says, if it says one
    pub(super) fn into_error(self) -> Result<Self, LaunchError> {
        match self {
            Self::Roster { .. } | Self::Connected => Ok(self),
            Self::Duplicate { rank, addresses } => Err(LaunchError::Duplicate { rank, addresses }),
            Self::Missing { ranks, timeout } => Err(LaunchError::Missing { ranks, timeout }),
            Self::OtherMatrix { rank } => Err(LaunchError::OtherMatrix { rank }),
        }
    }
}
