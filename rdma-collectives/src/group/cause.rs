//! The rank that keeps others from joining a group, as the code of a reset

use rdma_async::SessionError;

/// A rank that others wait for in vain
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cause {
    pub(super) rank: usize,
    /// Whether it is lost, and has not failed by itself
    pub(super) is_lost: bool,
}

/// The upper six bytes of the code; one bit of the others says whether the rank is lost, and the rest is the rank.
const MARK: u64 = u64::from_be_bytes(*b"nojoin\0\0");
const LOST: u64 = 1 << 15;
const RANK: u64 = LOST - 1;
const _: () = assert!(crate::MAX_HOSTS as u64 <= RANK);

impl Cause {
    pub(super) fn reset_code(self) -> u64 {
        MARK | if self.is_lost { LOST } else { 0 } | (self.rank as u64).min(RANK)
    }

    /// The cause, if a rank that does not join has ended the session
    pub(super) fn of(reason: &SessionError) -> Option<Self> {
        match *reason {
            SessionError::Reset(code) if code & !(LOST | RANK) == MARK => {
                Some(Self { rank: (code & RANK) as usize, is_lost: code & LOST != 0 })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rdma_async::ByeReason;

    use super::*;

    /// Catches a code of an application that is taken for that of a group, and a rank that gets lost.
    #[test]
    fn causes_survive_the_way() {
        for rank in 0..crate::MAX_HOSTS {
            for is_lost in [false, true] {
                let cause = Cause { rank, is_lost };
                assert_eq!(Cause::of(&SessionError::Reset(cause.reset_code())), Some(cause));
            }
        }
        for code in [0, 7, u64::MAX, MARK | 1 << 16] {
            assert_eq!(Cause::of(&SessionError::Reset(code)), None);
        }
        assert_eq!(Cause::of(&SessionError::PeerGone(ByeReason::Done)), None);
    }
}
