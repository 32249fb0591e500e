//! Puts that were dropped before they resolved, and that the peer may still carry out

use rdma_core::session::StreamId;

/// Such puts of a session, by the streams on which they were made
#[derive(Debug, Default)]
pub(crate) struct DroppedPuts(Vec<DroppedPut>);

#[derive(Debug)]
struct DroppedPut {
    region: Box<str>,
    stream: StreamId,
}

impl DroppedPuts {
    pub(super) fn push(&mut self, region: &str, stream: StreamId) {
        self.0.push(DroppedPut { region: region.into(), stream });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The stream is over: the peer has done what was asked there, or never will
    pub(super) fn stream_over(&mut self, stream: StreamId) {
        self.0.retain(|put| put.stream != stream);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the peer may still write to a region what a dropped put has sent
    pub(crate) fn may_write(&self, region: &str) -> bool {
        self.0.iter().any(|put| *put.region == *region)
    }
}
