//! Ends of programs

use std::fmt;

use rdma_core::Time;
use serde::{Deserialize, Serialize};

use super::port::Port;

/// End of the program at one end of a link
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// The program finished its work
    Completes,
    /// The device, the node or the session could not be opened
    ConnectFails,
    /// A request failed, or the peer ended too early
    Fails,
    /// The session was lost because the peer was silent for too long
    PeerLost,
    /// The session was lost for another reason
    SessionLost,
    /// The program still waits
    Stalls,
}

/// When and why the program at one end of a link ended
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) port: Port,
    pub(crate) outcome: Outcome,
    pub(crate) why: String,
    pub(crate) at: Time,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6} s", self.outcome, self.at.as_secs_f64())?;
        if self.why.is_empty() { Ok(()) } else { write!(f, ": {}", self.why) }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
