//! The states of connections that a simulation counts

use std::fmt;

/// Makes [`ConnectionState`] and the list of its variants
macro_rules! connection_states {
    ($($(#[doc = $description:literal])+ $state:ident = $name:literal,)+) => {
        /// A state of a connection, of which a simulation counts how often it was reached
        ///
        /// ```
        /// use rdma_core::probe::ConnectionState;
        ///
        /// assert_eq!(ConnectionState::CreditStarved.to_string(), "waits for credits");
        /// assert!(ConnectionState::ALL.contains(&ConnectionState::Open));
        /// ```
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum ConnectionState {
            $($(#[doc = $description])+ $state,)+
        }

        impl ConnectionState {
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

connection_states! {
    /// A long message was announced
    BulkAnnounced = "announces a long message",
    /// The receive for an announced message was posted
    BulkGranted = "grants a long message",
    /// No memory was free for an announced message
    BulkStarved = "waits for memory",
    /// Both sides closed at once
    ClosedAtOnce = "closes at once with the peer",
    /// It ended in good order
    Closed = "closed",
    /// This side closes
    Closing = "closes",
    /// An attempt to connect began
    Connecting = "connects",
    /// A message waits for a credit of the peer
    CreditStarved = "waits for credits",
    /// An attempt to connect failed
    Failed = "is not made",
    /// Nothing was sent for so long that a keep-alive is due
    KeepAliveDue = "owes a keep-alive",
    /// It ended because its handles were dropped and the peer did not answer
    LostAbandoned = "lost: abandoned",
    /// It ended because this side aborted it
    LostAborted = "lost: aborted",
    /// It ended because a request completed with an error
    LostCompletion = "lost: completion with an error",
    /// It ended because the device refused a verb
    LostDevice = "lost: device",
    /// It ended because the peer was silent for the peer timeout
    LostPeer = "lost: peer timeout",
    /// It ended because the peer or the device broke the protocol
    LostProtocol = "lost: protocol",
    /// It ended because its reactor was dropped
    LostReactor = "lost: reactor",
    /// It was made: both sides are ready
    Open = "open",
    /// The peer closes
    PeerClosing = "closes by the peer",
    /// Memory stays out of the pool, because the device may still touch it
    Quarantined = "quarantines memory",
    /// A message was not sent, because the peer closed before
    SendRefused = "refuses a message after the peer's close",
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
