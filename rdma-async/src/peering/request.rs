//! The names of the requests of a path

use rdma_core::WrId;

/// Which request of a path completed
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// The oldest receive of the bulk lane
    BulkReceive,
    /// The send of bytes of a message, by number of the message
    BulkPayload(u32),
    /// The send of a trailer on the bulk lane
    BulkTrailer,
    /// The send of a packet, by number of its frame
    Packet(u16),
    /// A receive of the eager lane
    Receive(u16),
}

impl Request {
    /// The name of this request of path `path`
    pub(super) fn wr_id(self, path: u32) -> WrId {
        let (kind, index) = match self {
            Self::BulkReceive => (0, 0),
            Self::BulkPayload(message) => (1, message),
            Self::BulkTrailer => (2, 0),
            Self::Packet(frame) => (3, frame.into()),
            Self::Receive(index) => (4, index.into()),
        };
        WrId(u64::from(path) << 32 | kind << 28 | u64::from(index))
    }

    /// Which path and which of its requests `id` names
    pub(crate) fn parse(id: WrId) -> (u32, Option<Self>) {
        let index = id.0 as u32 & 0xfff_ffff;
        let request = match id.0 >> 28 & 0xf {
            0 => Some(Self::BulkReceive),
            1 => Some(Self::BulkPayload(index)),
            2 => Some(Self::BulkTrailer),
            3 => u16::try_from(index).ok().map(Self::Packet),
            4 => u16::try_from(index).ok().map(Self::Receive),
            _ => None,
        };
        ((id.0 >> 32) as u32, request)
    }
}

/// Tokens of messages are below this: the ID of a work request has 28 bits for them.
pub(super) const MAX_TOKENS: u32 = SCRATCH;
/// Stands for the message in bulk sends from the scratch lease; the receiver discards these bytes.
pub(super) const SCRATCH: u32 = (1 << 28) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_found_again_by_its_name() {
        for request in [
            Request::BulkReceive,
            Request::BulkPayload(SCRATCH),
            Request::BulkTrailer,
            Request::Packet(u16::MAX),
            Request::Receive(u16::MAX),
        ] {
            assert_eq!(Request::parse(request.wr_id(0xdead_beef)), (0xdead_beef, Some(request)));
        }
    }
}
