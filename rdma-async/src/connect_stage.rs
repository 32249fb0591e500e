//! How far an attempt to connect has come

use std::fmt;

/// What an attempt to connect waits for
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ConnectStage {
    /// The proof that the peer has the shared key
    Key,
    /// The hello of the peer
    Hello,
    /// The answer of the peer to the hello of this side
    Answer,
    /// The first path
    Path,
}

/// A sentence about what has not happened in time, without the time
impl fmt::Display for ConnectStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "the peer did not prove that it has the shared key",
            Self::Hello => "the peer did not introduce itself",
            Self::Answer => "the peer did not answer the hello of this side",
            Self::Path => "no path to the peer was made",
        })
    }
}
