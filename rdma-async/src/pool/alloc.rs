use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Effects, Lease, Pool, Zone};
use crate::error::AllocError;
use crate::wait_queue::Waiter;

/// Future of [`Connection::alloc`](crate::Connection::alloc) and [`Endpoint::alloc`](crate::Endpoint::alloc)
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// let alloc: rdma_async::future::Alloc = endpoint.alloc(4096);
/// assert!(alloc.await?.capacity() >= 4096);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Dropping it gives up the place in line; no memory is lost.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Alloc {
    pool: Pool,
    frames: Result<u32, AllocError>,
    waiter: Waiter,
}

impl Alloc {
    pub(crate) fn new(pool: &Pool, len: usize) -> Self {
        Self { pool: pool.clone(), frames: pool.frames(Zone::Send, len), waiter: Waiter::default() }
    }
}

impl Future for Alloc {
    type Output = Result<Lease, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pool, frames, waiter } = &mut *self;
        let frames = (*frames)?;
        let mut effects = Effects::new();
        let lease = pool.poll_lease(Zone::Send, frames, waiter, cx, &mut effects);
        effects.run_alone();
        lease.map(Ok)
    }
}

impl Drop for Alloc {
    fn drop(&mut self) {
        if self.waiter.waits() {
            let mut effects = Effects::new();
            self.pool.leave(Zone::Send, &mut self.waiter, &mut effects);
            effects.run_alone();
        }
    }
}
