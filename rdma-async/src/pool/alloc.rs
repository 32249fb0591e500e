use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Effects, Lease, Pool, Zone};
use crate::error::AllocError;
use crate::wait_queue::Waiter;

/// Future of [`Session::alloc`](crate::Session::alloc) and [`Node::alloc`](crate::Node::alloc)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let alloc: rdma_async::future::Alloc = a.alloc(4096);
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
