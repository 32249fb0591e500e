//! Why a side ends a peering, or has no path, as it tells the peer

use std::fmt;

/// Why the sender of a [`Bye`](super::ControlMessage::Bye) ends all sessions
///
/// ```
/// use rdma_core::session::ByeReason;
///
/// assert_eq!(ByeReason::from_code(ByeReason::NoMemory.code()), ByeReason::NoMemory);
/// assert_eq!(ByeReason::from_code(200).to_string(), "it gives a reason that this version does not know, 200");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ByeReason {
    /// The last session is over
    Done,
    /// Its node is closed
    Closed,
    /// Its application has given up connecting, or accepting the connection
    Cancelled,
    /// Its runtime has dropped the task that drives sessions
    RuntimeGone,
    /// It has heard nothing from the receiver for the peer timeout
    Silence,
    /// The receiver does not keep to the protocol
    Violation,
    /// Its device has failed
    Device,
    /// It has as many peers as it has memory for
    NoMemory,
    /// Too many attempts to connect to it were under way, and this one had begun first
    Crowded,
    /// The receiver took too long for its part of the introduction
    Late,
    /// No path was made, or none carried packets in both directions
    NoPath,
    /// A reason of a later version
    Other(u8),
}

const BYE_REASONS: [ByeReason; 11] = [
    ByeReason::Done,
    ByeReason::Closed,
    ByeReason::Cancelled,
    ByeReason::RuntimeGone,
    ByeReason::Silence,
    ByeReason::Violation,
    ByeReason::Device,
    ByeReason::NoMemory,
    ByeReason::Crowded,
    ByeReason::Late,
    ByeReason::NoPath,
];

impl ByeReason {
    /// The byte in the message; 1 to 11 for the known reasons
    pub fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => code_of(&BYE_REASONS, known, 1),
        }
    }

    /// The reason with this code
    pub fn from_code(code: u8) -> Self {
        with_code(&BYE_REASONS, code, 1).unwrap_or(Self::Other(code))
    }
}

/// The sentence continues one about the sender: "the peer has left: it …"
impl fmt::Display for ByeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "its last session is over",
            Self::Closed => "its node is closed",
            Self::Cancelled => "its application has given up connecting",
            Self::RuntimeGone => "its runtime has dropped the task that drives sessions",
            Self::Silence => "it has heard nothing from this side for the peer timeout",
            Self::Violation => "it says that this side violates the protocol",
            Self::Device => "its device has failed",
            Self::NoMemory => "it has no memory for another peer",
            Self::Crowded => "too many others were connecting to it at once",
            Self::Late => "this side took too long to introduce itself",
            Self::NoPath => "no path between the two sides carries packets",
            Self::Other(code) => {
                return write!(f, "it gives a reason that this version does not know, {code}");
            }
        })
    }
}

/// Why the sender of a [`Lost`](super::ControlMessage::Lost) has no such path
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// It had the path, and has lost it
    Lost,
    /// The two ports do not reach each other, as far as the sender knows: no cable joins them, or they carry different transports
    Unreachable,
    /// Its device has refused or failed, or cannot be opened
    Device,
    /// Its port connects no queue pairs: another process has it, or it is wedged
    Busy,
    /// It has no memory, or no objects of the device, for another path
    NoMemory,
    /// Another path of the peering is on its port
    PortUsed,
    /// A reason of a later version
    Other(u8),
}

const LOST_REASONS: [LostReason; 6] = [
    LostReason::Lost,
    LostReason::Unreachable,
    LostReason::Device,
    LostReason::Busy,
    LostReason::NoMemory,
    LostReason::PortUsed,
];

impl LostReason {
    /// The byte in the message; 0 to 5 for the known reasons
    pub fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => code_of(&LOST_REASONS, known, 0),
        }
    }

    /// The reason with this code
    pub fn from_code(code: u8) -> Self {
        with_code(&LOST_REASONS, code, 0).unwrap_or(Self::Other(code))
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "the path was lost",
            Self::Unreachable => "they do not reach each other",
            Self::Device => "the device of the peer has failed",
            Self::Busy => "the port of the peer is in use by another process, or wedged",
            Self::NoMemory => "the peer has no memory for another path",
            Self::PortUsed => "the port of the peer has another path",
            Self::Other(code) => {
                return write!(f, "the peer gives a reason that this version does not know, {code}");
            }
        })
    }
}

fn code_of<R: Copy + PartialEq>(reasons: &[R], reason: R, first: u8) -> u8 {
    let index = reasons.iter().position(|known| *known == reason).expect("the table has every known reason");
    first + index as u8
}

fn with_code<R: Copy>(reasons: &[R], code: u8, first: u8) -> Option<R> {
    reasons.get(usize::from(code.checked_sub(first)?)).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Catches a reason that is missing in its table, two with the same code or text, and an unknown code that is not kept.
    #[test]
    fn every_code_is_a_reason_and_stays_the_same() {
        let (mut byes, mut losses) = (HashSet::new(), HashSet::new());
        for code in 0..=u8::MAX {
            let (bye, lost) = (ByeReason::from_code(code), LostReason::from_code(code));
            assert_eq!((bye.code(), lost.code()), (code, code));
            assert_eq!(matches!(bye, ByeReason::Other(_)), !(1..=11).contains(&code), "{bye:?}");
            assert_eq!(matches!(lost, LostReason::Other(_)), code > 5, "{lost:?}");
            byes.insert(bye.to_string());
            losses.insert(lost.to_string());
        }
        assert_eq!((byes.len(), losses.len()), (256, 256));
    }
}
