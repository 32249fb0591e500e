//! The processes that simulate the other hosts, and the way to them

use rdma_core::FRAME;

use super::ids::QpKey;
use crate::remote::{LinkMessage, ProcessName, Transport};

/// The processes that simulate the other hosts; none, unless [`start`](Self::start) was called
#[derive(Default)]
pub(crate) struct Remotes(Option<Link>);

struct Link {
    transport: Box<dyn Transport>,
    /// Queue pairs that wait for room.
    blocked: Vec<QpKey>,
}

impl Remotes {
    /// Reaches the processes of other hosts by `transport` from now on
    pub(crate) fn start(&mut self, transport: Box<dyn Transport>) {
        self.0 = Some(Link { transport, blocked: Vec::new() });
    }

    /// How many frames can be sent to a process now
    pub(super) fn room(&mut self, to: ProcessName) -> u64 {
        self.0.as_mut().map_or(0, |link| link.transport.room(to) / FRAME) as u64
    }

    pub(super) fn send(&mut self, to: ProcessName, message: &LinkMessage<'_>) {
        if let Some(link) = &mut self.0 {
            link.transport.send(to, message);
        }
    }

    /// Remembers that `key` waits for room
    pub(super) fn block(&mut self, key: QpKey) {
        self.0.iter_mut().for_each(|link| link.blocked.push(key));
    }

    /// Sends what did not fit before, and returns the queue pairs that wait for room
    pub(super) fn flush(&mut self) -> Vec<QpKey> {
        let Some(link) = &mut self.0 else { return Vec::new() };
        link.transport.flush();
        std::mem::take(&mut link.blocked)
    }
}
