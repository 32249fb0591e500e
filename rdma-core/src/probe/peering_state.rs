//! The states of a peering that tests of faults distinguish

use std::fmt;

/// Makes [`PeeringState`] and the list of its variants
macro_rules! peering_states {
    ($($(#[doc = $description:literal])+ $state:ident = $name:literal,)+) => {
        /// The state of one side of a peering: the first of these that holds
        ///
        /// Derived from what the side holds ([`Peering::state`](crate::session::Peering::state)), so a side is in exactly one of them.
        ///
        /// ```
        /// use rdma_core::probe::PeeringState;
        ///
        /// assert_eq!(PeeringState::AtRest.to_string(), "at rest");
        /// assert_eq!(PeeringState::ALL.len(), 17);
        /// ```
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum PeeringState {
            $($(#[doc = $description])+ $state,)+
        }

        impl PeeringState {
            /// All states
            pub const ALL: &[Self] = &[$(Self::$state,)+];

            /// Its name
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$state => $name,)+
                }
            }

            /// What holds in it
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$state => concat!($($description),+).trim_ascii_start(),)+
                }
            }
        }
    };
}

peering_states! {
    /// The sides know each other, and no path was made yet.
    NoPathYet = "no path yet",
    /// There are paths, and no packet of the peer has ever arrived.
    FirstUnproven = "first path not proven",
    /// There are paths, none of them proven, and packets of the peer have arrived on earlier ones.
    RemadeUnproven = "path made again, not proven",
    /// All paths are lost, and a device may still work on one of them.
    Stopping = "all paths lost, device not stopped",
    /// All paths are lost, and their devices have stopped.
    NoPath = "all paths lost",
    /// No session is open.
    NoSession = "no session",
    /// A path carries data, and another one that did is lost.
    PathMissing = "one path lost",
    /// A session closes, and the peer lacks messages or ends of streams.
    Draining = "closing, messages under way",
    /// A session closes, the peer has everything, and its own end is missing.
    Flushed = "closing, end of the peer missing",
    /// A message waits until the application of the peer reads.
    WaitsForRoom = "waits for room",
    /// A packet waits, because the peer has no receive for it on any path.
    WaitsForCredits = "waits for credits",
    /// Parts of a long message are sent, or grants wait to be served.
    ServesGrants = "serves grants",
    /// Receives are posted for parts of a long message.
    AwaitsParts = "granted, parts under way",
    /// The peer has announced a long message, for which no receive is posted.
    AwaitsMemory = "long message announced by the peer",
    /// This side has begun a long message, and the peer grants none of it now.
    AwaitsGrants = "long message announced",
    /// Messages are sent or queued, and the peer has not reported them.
    AwaitsReports = "short message under way",
    /// A session is open, and this side neither sends nor receives.
    AtRest = "at rest",
}

impl fmt::Display for PeeringState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
