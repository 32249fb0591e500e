//! The clock of the threads that wait for other ranks

use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "ranks register before they have a node, and with it a runtime that tells the time"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}
