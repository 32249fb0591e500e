use std::time::Duration;

/// Limits that one side of a connection announces to its peer in its [`Hello`](super::Hello)
///
/// ```
/// use std::time::Duration;
/// use rdma_core::protocol::Params;
///
/// let peer_timeout = Duration::from_secs(5);
/// let params = Params { announces: 4, max_message: 1 << 24, peer_timeout, window: 256 };
/// assert!(params.is_usable());
/// assert!(!Params { window: params.reserve(), ..params }.is_usable(), "no credit is left for data");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Params {
    /// Announced messages that may wait for their grant, 1 to 1024
    pub announces: u32,
    /// The longest message that this side can receive, in bytes
    pub max_message: u32,
    /// Time without a message after which this side counts its peer as lost, in whole nanoseconds, at least two; the shorter one
    /// is that of both sides
    pub peer_timeout: Duration,
    /// Eager receives that this side keeps posted, at most 4095
    pub window: u32,
}

/// Keep-alive messages that a side may send before the peer timeout ends the connection
pub(super) const MAX_KEEPALIVES: u32 = 8;

impl Params {
    /// Credits that are kept back from data for updates
    ///
    /// Suppose that both sides are stuck: each has an update to send and no credit, and no message is on its way.
    /// Then A has sent at least `reserve` updates since the last message of B reached it; B has posted their receives again
    /// without reporting it. In that time A has received nothing. Its updates had these causes: at most `announces`
    /// grants; at most four times a quarter of a window of receives that A posted again (they held messages
    /// that B had sent before, at most a window of them); at most eight keep-alives, after which the peer timeout would
    /// have ended the connection; and at most two steps of closing, because the third needs a message of B.
    /// That is one less than the reserve, which contradicts the supposition.
    pub const fn reserve(&self) -> u32 {
        self.announces + 4 + MAX_KEEPALIVES + 2 + 1
    }

    /// How many receives are posted again before this side reports them in an update
    pub(super) const fn report_after(&self) -> u32 {
        self.window / 4
    }

    /// Whether data can flow: the window without the reserve is larger than the number of unreported receives, and a keep-alive
    /// fits into the peer timeout
    pub const fn is_usable(&self) -> bool {
        self.announces >= 1
            && self.announces <= 1024
            && self.window <= 4095
            && self.window > self.reserve() + self.report_after()
            && self.peer_timeout.as_nanos() >= 2
            && self.peer_timeout.as_nanos() <= u64::MAX as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// The documentation of `reserve` counts the updates that it has to outlast.
    ///
    /// Catches each `+` of the reserve replaced.
    #[test]
    fn the_reserve_is_one_more_than_the_updates_that_need_no_answer() {
        let params = Params { announces: 5, max_message: 1 << 16, peer_timeout: TIMEOUT, window: 100 };
        let [grants, reports, keep_alives, steps_of_closing] = [5, 4, 8, 2];
        assert_eq!(params.reserve(), grants + reports + keep_alives + steps_of_closing + 1);
    }

    /// Catches each comparison of `is_usable` moved by one, and each `&&` replaced.
    #[test]
    fn parameters_are_usable_within_their_limits() {
        let params = Params { announces: 2, max_message: 1 << 16, peer_timeout: TIMEOUT, window: 23 };
        assert!(params.is_usable(), "17 in reserve, 5 unreported, 1 for data");
        assert!(!Params { window: 22, ..params }.is_usable());
        for (announces, window, is_usable) in [
            (0, 4095, false),
            (1, 4095, true),
            (1024, 4095, true),
            (1025, 4095, false),
            (1, 4096, false),
            (1, 22, true),
        ] {
            let params = Params { announces, window, ..params };
            assert_eq!(params.is_usable(), is_usable, "{params:?}");
        }
        for (ns, is_usable) in [(0, false), (1, false), (2, true), (u64::MAX, true)] {
            let params = Params { peer_timeout: Duration::from_nanos(ns), ..params };
            assert_eq!(params.is_usable(), is_usable, "{params:?}");
        }
        assert!(!Params { peer_timeout: Duration::MAX, ..params }.is_usable(), "the hello cannot carry it");
        // The reserve of one announcement is 16; a quarter of 20 receives stays unreported, which leaves none for data.
        assert!(!Params { announces: 1, window: 20, ..params }.is_usable());
        assert!(!Params { announces: 1, window: 21, ..params }.is_usable());
    }
}
