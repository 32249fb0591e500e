//! Names of what a peering has

use std::fmt;

use super::config::MAX_SESSIONS;

/// The caller's identifier of a message that it sends
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Token(pub u32);

/// A peering's identifier of a message that arrives; used again when the message was handed on
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct IncomingId(pub u32);

/// Number of a session, the same on both sides and for a long time not used again
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub(super) u32);

impl SessionId {
    /// The number
    pub fn number(self) -> u32 {
        self.0
    }

    /// Whether both are of the same place, in different generations
    pub(super) fn shares_place(self, other: Self) -> bool {
        let places = MAX_SESSIONS * 2;
        self.0 % places == other.0 % places
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a stream in its session, the same on both sides
///
/// The side that opens a stream chooses the number: even where the session's [`Side`](super::Side) connected, odd where it accepted;
/// [`StreamId::MAIN`] is there from the start.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The stream that every session has
    pub const MAIN: Self = Self(0);
    /// Carries the end of the session, behind all streams.
    pub(super) const CONTROL: Self = Self(u32::MAX);
}

/// Which stream goes first; equals take turns
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Priority {
    /// Before all others
    High,
    /// Between the others
    #[default]
    Normal,
    /// After all others, and while the device has few packets to send: others hardly wait for it
    Low,
}

/// Number of a path of a peering, from zero; used again with another epoch
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PathId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches places that sessions share which may be open at once.
    #[test]
    fn a_place_has_sessions_of_different_generations() {
        let shares = |one: u32, other: u32| SessionId(one).shares_place(SessionId(other));
        let places = MAX_SESSIONS * 2;
        assert!(shares(3, 3) && shares(3, 3 + places) && shares(3 + 7 * places, 3));
        for other in [2, 4, 3 + MAX_SESSIONS / 2, 3 + MAX_SESSIONS, 3 + places - 1] {
            assert!(!shares(3, other), "{other}");
        }
    }
}
