//! Messages between both sides, each as a line of JSON

use rdma_core::{QpAddress, Status};
use serde::{Deserialize, Serialize};

use crate::conformance::acts::{Act, Acted, Refusal};
use crate::error::PeerFailure;

/// The first line of each side
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Hello {
    pub(crate) tb5_calibrate: u64,
}

/// A request with its number, or a reply with that of its request
///
/// A reply to an experiment that has stopped is recognised by its number, and ignored.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Numbered<T> {
    pub(crate) number: u64,
    pub(crate) body: T,
}

/// A request of the asking side; each request has one reply, or one before it begins and one after its end
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Makes a queue pair at a cable, in place of the one before
    Make { cable: usize, frames: u32, len: usize },
    /// Connects it
    Connect { address: QpAddress },
    /// Posts so many receives of `len` bytes into the slots from `first` on; the slots before may hold receives of other lengths
    Recv { first: usize, count: usize, len: usize },
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
    /// Receives a stream over each queue pair that rests, all at once, and sends those back; replies before they begin, and then with the
    /// time from the first message that arrived to the last of each
    Flow(Flow),
    /// Puts the queue pair behind those that rest
    Keep,
    /// Goes on with the one that has rested longest
    Take,
    /// Destroys all queue pairs
    Drop,
    /// Does something for the conformance body, with a queue pair of this number
    Act { qp: u32, act: Act },
    /// This side is there, and waits for something that takes long
    Alive,
    /// The end
    Bye,
}

/// A stream of messages of one length
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Flow {
    /// The number of messages of the side that asks, at least one: the first of them begins the stream
    pub(crate) there: usize,
    /// The number of messages of the side that answers, which it sends from the first message that arrives on
    pub(crate) back: usize,
    /// The length of a message
    pub(crate) len: usize,
    /// The number of sends that are posted at once
    pub(crate) depth: usize,
    /// The number of receives that are posted at once
    pub(crate) window: usize,
}

impl Flow {
    /// True if it has messages, and room for one on each side
    pub(crate) fn is_possible(&self) -> bool {
        self.there > 0 && self.depth > 0 && self.window > 0
    }
}

/// An answer
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    Failed(PeerFailure),
    Made { address: QpAddress },
    Received { statuses: Vec<Status> },
    Took { nanoseconds: Vec<u64> },
    Acted(Result<Acted, Refusal>),
}
