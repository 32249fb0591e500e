//! Reasons that a side sends to its peer: of the end of a peering, of a path that is lost

use std::fmt;

/// Makes an enum of reasons with consecutive codes, each with its sentence; codes of later versions stay readable
macro_rules! reasons {
    (
        $(#[$enum_doc:meta])*
        $name:ident from $first:literal, or else $unknown:literal;
        $($(#[$doc:meta])* $variant:ident: $text:literal,)+
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// A reason of a later version
            Other(u8),
        }

        impl $name {
            /// The known reasons, in the order of their codes
            const KNOWN: &[Self] = &[$(Self::$variant),+];

            /// The byte in the message
            pub fn code(self) -> u8 {
                match self {
                    Self::Other(code) => code,
                    known => {
                        let index = Self::KNOWN.iter().position(|other| *other == known);
                        $first + index.expect("the table has every known reason") as u8
                    }
                }
            }

            /// The reason with this code
            pub fn from_code(code: u8) -> Self {
                let known = code.checked_sub($first).and_then(|index| Self::KNOWN.get(usize::from(index)));
                known.copied().unwrap_or(Self::Other(code))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)+
                    Self::Other(code) => write!(f, $unknown, code),
                }
            }
        }
    };
}

reasons! {
    /// Why the sender of a [`Bye`](super::ControlMessage::Bye) ends all sessions
    ///
    /// Its text continues a sentence about the sender: "the peer has left: it …".
    ///
    /// ```
    /// use rdma_core::session::ByeReason;
    ///
    /// assert_eq!(ByeReason::from_code(ByeReason::NoMemory.code()), ByeReason::NoMemory);
    /// assert_eq!(ByeReason::from_code(200).to_string(), "it gives a reason that this version does not know, 200");
    /// ```
    ByeReason from 1, or else "it gives a reason that this version does not know, {}";
    /// The last session is over
    Done: "its last session is over",
    /// Its node is closed
    Closed: "its node is closed",
    /// Its application has given up connecting, or accepting the connection
    Cancelled: "its application has given up connecting",
    /// Its runtime has dropped the task that drives sessions
    RuntimeGone: "its runtime has dropped the task that drives sessions",
    /// It has heard nothing from the receiver for the peer timeout
    Silence: "it has heard nothing from this side for the peer timeout",
    /// The receiver does not keep to the protocol
    Violation: "it says that this side violates the protocol",
    /// Its device has failed
    Device: "its device has failed",
    /// It has as many peers as it has memory for
    NoMemory: "it has no memory for another peer",
    /// Too many attempts to connect to it were under way, and this one had begun first
    Crowded: "too many others were connecting to it at once",
    /// The receiver took too long for its part of the introduction
    Late: "this side took too long to introduce itself",
    /// No path was made, or none carried packets in both directions
    NoPath: "no path between the two sides carries packets",
}

reasons! {
    /// Why the sender of a [`Lost`](super::ControlMessage::Lost) has no such path
    LostReason from 0, or else "the peer gives a reason that this version does not know, {}";
    /// It had the path, and has lost it
    Lost: "the path was lost",
    /// The two ports do not reach each other, as far as the sender knows: no cable joins them, or they carry different transports
    Unreachable: "they do not reach each other",
    /// Its device has refused or failed, or cannot be opened
    Device: "the device of the peer has failed",
    /// Its port connects no queue pairs: another process has it, or it is wedged
    Busy: "the port of the peer is in use by another process, or wedged",
    /// It has no memory, or no objects of the device, for another path
    NoMemory: "the peer has no memory for another path",
    /// Another path of the peering is on its port
    PortUsed: "the port of the accepting side has another path",
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
