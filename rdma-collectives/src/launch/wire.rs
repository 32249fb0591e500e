//! What ranks say to each other before they have sessions: lines of JSON over TCP

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::LaunchError;

/// What begins each first line; it changes when ranks of different versions do not understand each other.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum Protocol {
    /// The only one so far
    #[default]
    #[serde(rename = "rdma-collectives launch 1")]
    V1,
}

/// The first line of a rank to rank 0
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Hello {
    pub(super) protocol: Protocol,
    pub(super) rank: usize,
    /// Differs from that of a rank with another device matrix
    pub(super) matrix: u64,
    /// The port at which it listens for its neighbours
    pub(super) port: u16,
}

/// What rank 0 answers when all have come, or when that is impossible
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Answer {
    /// All are there
    All {
        /// What neighbours show each other: it is of this run
        token: String,
        /// Where each rank listens, as rank 0 sees it
        addresses: Vec<SocketAddr>,
    },
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
pub(super) struct Greeting {
    pub(super) protocol: Protocol,
    pub(super) token: String,
    pub(super) rank: usize,
    /// Its node, as sessions name it
    pub(super) node: String,
}

/// No line is longer, not even the one with the addresses of all hosts.
const LONGEST: usize = 1 << 20;
/// How often a thread that reads looks whether it still should.
const LOOK: Duration = Duration::from_millis(50);

/// Writes a line
pub(super) fn write<T: Serialize>(stream: &mut TcpStream, line: &T) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// Reads a line, and nothing behind it, which belongs to a session; gives up when `is_over`
pub(super) fn read<T: DeserializeOwned>(
    stream: &mut TcpStream,
    mut is_over: impl FnMut() -> bool,
) -> io::Result<T> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\n") {
        if is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if line.len() == LONGEST => return Err(io::ErrorKind::InvalidData.into()),
            Ok(_) => line.push(byte[0]),
            Err(error) if is_temporary(&error) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(serde_json::from_slice(&line)?)
}

/// Whether a read or an accept may go on after this error
pub(super) fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

impl Answer {
    /// Where the ranks are, and the token of this run
    pub(super) fn all(self) -> Result<(String, Vec<SocketAddr>), LaunchError> {
        match self {
            Self::All { token, addresses } => Ok((token, addresses)),
            Self::Duplicate { rank, addresses } => Err(LaunchError::Duplicate { rank, addresses }),
            Self::Missing { ranks, timeout } => Err(LaunchError::Missing { ranks, timeout }),
            Self::OtherMatrix { rank } => Err(LaunchError::OtherMatrix { rank }),
        }
    }
}
