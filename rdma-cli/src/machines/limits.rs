//! Limits of peers of a machine that serves, and times that one side waits for the other

use std::time::Duration;

/// Peers that are served at once
pub(crate) const MAX_PEERS: usize = 4;
/// The time for a step of making a session.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The time for the peer to learn of the end of the session before the program ends.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks whether the user has asked to stop.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A peer to which no path works for this long is said to have none.
pub(super) const LONG_OUTAGE: Duration = Duration::from_secs(3);
/// A measurement in which no message passes for this long is ended.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(60);
/// A measurement that takes longer is ended.
pub(crate) const MAX_MEASUREMENT: Duration = Duration::from_hours(1);
