use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Time;

/// The clock and the tasks that the layers above need
///
/// The simulator implements it over virtual time, `rdma-async` over tokio. Nothing in these crates asks a global
/// clock.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The time by this runtime's clock, which never goes back
    fn now(&self) -> Time;

    /// Runs `task` until it ends or the runtime does
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// A timer that is not set
    fn timer(&self) -> Pin<Box<dyn Timer>>;
}

/// Wakes a task at a point in time
pub trait Timer: fmt::Debug + Send {
    /// Makes the timer expire at `deadline`, instead of whenever it was going to
    fn reset(self: Pin<&mut Self>, deadline: Time);

    /// Ready once the deadline has passed; pending while none is set
    fn poll_expired(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
}
