//! The states of the session protocol that a simulation counts

use std::fmt;

/// Makes [`ProtocolState`] and the list of its variants
macro_rules! protocol_states {
    ($($(#[doc = $description:literal])+ $state:ident = $name:literal,)+) => {
        /// A state of the session protocol, of which a simulation counts how often it was reached
        ///
        /// ```
        /// use rdma_core::probe::ProtocolState;
        ///
        /// assert_eq!(ProtocolState::RoomStarved.to_string(), "message waits for room");
        /// assert!(ProtocolState::ALL.contains(&ProtocolState::PathProven));
        /// ```
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum ProtocolState {
            $($(#[doc = $description])+ $state,)+
        }

        impl ProtocolState {
            /// All states
            pub const ALL: &[Self] = &[$(Self::$state,)+];

            /// Its name
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$state => $name,)+
                }
            }
        }
    };
}

protocol_states! {
    /// A long message was announced
    BulkAnnounced = "message announced",
    /// All of a long message has arrived
    BulkArrived = "long message arrived",
    /// A receive was posted for a part of a long message
    BulkGranted = "part granted",
    /// A part of a long message is granted on another path, or on the same one made again
    BulkGrantedAgain = "part granted again",
    /// Nothing was sent on a bulk lane for so long that its queue pair is kept alive
    BulkKeptAlive = "bulk lane kept alive",
    /// A long message is announced by its last part, because all of it was granted before it began
    BulkUnannounced = "message announced by its last part",
    /// A part was granted of a message that is sent no more
    BulkVoid = "part granted in vain",
    /// A message about a path goes by another path, because the bootstrap stream brings none
    ControlOnPath = "message about a path sent by another path",
    /// No memory was free for a long message
    MemoryStarved = "message waits for memory",
    /// A receive is granted for a long message before the peer has announced it
    MessageExpected = "message expected",
    /// A message is expected no more: another one or the end came, its memory was needed, or its stream was dropped
    MessageUnexpected = "message expected no more",
    /// A message will not arrive, because its session is over
    MessageWithdrawn = "message withdrawn",
    /// A packet arrived whose checksum does not match
    PacketDamaged = "packet damaged",
    /// A packet arrived that was sent on an earlier path
    PacketOfEarlierPath = "packet of an earlier path",
    /// A packet arrived that had arrived before
    PacketRepeated = "packet repeated",
    /// A packet was lost whose content is still needed
    PacketLost = "packet lost",
    /// A path was added
    PathAdded = "path added",
    /// A path ended because a message was lost on its bulk lane
    PathLostBulkLost = "path lost: message lost on the bulk lane",
    /// A path ended because the peer did not serve a bulk receive
    PathLostBulkStalled = "path lost: bulk receive not served",
    /// A path ended because the device or the peer reported its failure
    PathLostDevice = "path lost: device or peer",
    /// A path ended because nothing arrived for its timeout
    PathLostSilent = "path lost: silent",
    /// The first packet of the peer arrived on a path
    PathProven = "path proven",
    /// All sessions with a peer ended because the device reported what cannot be, or did not stop
    PeerLostDevice = "peer lost: device",
    /// All sessions with a peer ended because it ended its side
    PeerLostGone = "peer lost: gone",
    /// All sessions with a peer ended because it was silent for the peer timeout
    PeerLostSilent = "peer lost: silent",
    /// All sessions with a peer ended because it broke the protocol
    PeerLostViolation = "peer lost: violation",
    /// A message waits until the peer has room for it in its stream
    RoomStarved = "message waits for room",
    /// A session ended because its handles were dropped and the peer took nothing
    SessionAbandoned = "session abandoned",
    /// The peer opened a session
    SessionAccepted = "session accepted",
    /// A session ended in good order
    SessionClosed = "session closed",
    /// The peer has closed a session
    SessionClosedByPeer = "session closed by the peer",
    /// This side closes a session
    SessionClosing = "session closes",
    /// This side opened a session
    SessionOpened = "session opened",
    /// This side ended a session at once
    SessionReset = "session reset",
    /// The peer ended a session at once
    SessionResetByPeer = "session reset by the peer",
    /// The peer opened a stream of a session
    StreamAccepted = "stream accepted",
    /// A stream of a session ended in good order
    StreamClosed = "stream closed",
    /// This side opened a stream of a session
    StreamOpened = "stream opened",
    /// The peer reads no more of a stream
    StreamStopped = "stream stopped by the peer",
}

impl fmt::Display for ProtocolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
