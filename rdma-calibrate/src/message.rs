//! What the sides say to each other, each as a line of JSON

use rdma_core::{QpAddress, Status};
use serde::{Deserialize, Serialize};

use crate::conformance::acts::{Act, Acted, Refusal};

/// The version of the conversation: sides of different versions part at once
pub const VERSION: u64 = 4;

/// The first line of each side
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Hello {
    pub(crate) tb5_calibrate: u64,
}

/// What the asking side wants; each request has one reply
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Makes a queue pair in place of the one before
    Make { frames: u32, len: usize },
    /// As [`Make`](Self::Make), at one of several cables
    MakeAt { cable: usize, frames: u32, len: usize },
    /// Connects it
    Connect { address: QpAddress },
    /// Posts so many receives of `len` bytes
    Recv { count: usize, len: usize },
    /// As [`Recv`](Self::Recv), into the memory from receive `first` on: that before is of receives of other lengths
    RecvFrom { first: usize, count: usize, len: usize },
    /// Posts a send of `len` bytes
    Send { len: usize },
    /// Posts a receive into memory that is registered only now
    RecvLate { len: usize },
    /// Waits for receives, and says how they completed
    Received { count: usize },
    /// Answers so many messages of `len` bytes; replies before it begins
    Echo { rounds: usize, len: usize },
    /// Posts so many receives, one after the other has completed, and says how long each took
    Credits { rounds: usize, len: usize },
    /// Posts a send, and a receive some time after the send has completed; replies before it begins, and then how long that time was
    Relay { len: usize },
    /// Receives a stream, and sends one if it is of both ways; replies before it begins, and then how long it took
    Flow(Flow),
    /// As [`Flow`](Self::Flow), of each queue pair that rests at once
    Flows(Flow),
    /// Puts the queue pair behind those that rest
    Keep,
    /// Goes on with the one that has rested longest
    Take,
    /// Destroys all queue pairs
    Drop,
    /// Does something for the conformance body, with a queue pair of this number
    Act { qp: u32, act: Act },
    /// The end
    Bye,
}

/// A stream of messages of one length
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Flow {
    /// How many messages
    pub(crate) count: usize,
    /// Their length
    pub(crate) len: usize,
    /// How many sends are posted at once
    pub(crate) depth: usize,
    /// How many receives are posted at once
    pub(crate) window: usize,
    /// Whether the side that answers sends as many, from the first message that arrives on
    pub(crate) is_both_ways: bool,
}

/// An answer
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    Failed(String),
    Made { address: QpAddress },
    Received { statuses: Vec<Status> },
    Took { nanoseconds: Vec<u64> },
    Acted(Result<Acted, Refusal>),
}
