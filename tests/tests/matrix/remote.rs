//! The program over regions that the peer serves

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use rdma_async::{Access, Adopted, Device, Lease, MappedBytes, Node, Regions, RemoteError, Session};
use rdma_tests::message;

use super::program::{Promise, Seen};

const NAME: &str = "region";
/// Places in the region, each for the longest message.
const PLACES: usize = 4;
const PLACE: usize = 1 << 20;

/// A session on which one side uses a region of the other
pub(crate) struct Remote<A: Device, B: Device> {
    from: Session<A>,
    to: Session<B>,
    memory: Arc<Adopted<MappedBytes>>,
    regions: Regions,
}

impl<A: Device, B: Device> Remote<A, B> {
    pub(crate) async fn new(ab: &Session<A>, b: &Node<B>) -> Self {
        let bytes = MappedBytes::zeroed(PLACES * PLACE).expect("the system has memory");
        let memory = Arc::new(b.adopt(bytes).expect("the device takes it"));
        let regions = Regions::new();
        let rights = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
        regions.open(NAME, Arc::clone(&memory), rights);
        let from = ab.open().expect("the session is open");
        Self { from, to: b.accept().await.expect("the node is open"), memory, regions }
    }

    /// Writes messages of these lengths and reads each; whether all of them were written and read
    pub(crate) async fn transfer(&self, lens: &[usize], seen: &Seen, at_half: &impl Fn()) -> bool {
        let serves = pin!(self.regions.serve(&self.to));
        let uses = pin!(self.write_and_read(lens, seen, at_half));
        match select(serves, uses).await {
            // The session is lost at this side.
            Either::Left((_, uses)) => uses.await.is_ok(),
            Either::Right((used, _)) => used.is_ok(),
        }
    }

    async fn write_and_read(
        &self,
        lens: &[usize],
        seen: &Seen,
        at_half: &impl Fn(),
    ) -> Result<(), RemoteError> {
        let mut free = None::<Lease>;
        for (number, &len) in lens.iter().enumerate() {
            if number == lens.len() / 2 {
                at_half();
            }
            // In every third place, not where the frames of the memory begin.
            let at = number % PLACES * PLACE;
            let offset = at + if number % 3 == 0 { 5.min(PLACE - len) } else { 0 };
            let mut lease = match free.take() {
                Some(lease) => {
                    seen.note(Promise::Reuse);
                    lease
                }
                None => self.from.alloc(PLACE).await.expect("the memory holds such messages"),
            };
            lease.clear();
            lease.extend_from_slice(&message(number, len));
            if number % 5 == 3 {
                let mut dropped = Box::pin(self.from.get(NAME, at as u64, len));
                if futures::poll!(dropped.as_mut()).is_pending() {
                    seen.note(Promise::Cancel);
                }
            }
            let lease = self.from.put(NAME, offset as u64, lease).await?;
            if len > 0 {
                let there = self.memory.lease_when_free(at..at + PLACE).await;
                assert!(there[offset - at..][..len] == *message(number, len), "write {number} is not there");
                seen.note(Promise::Delivered);
            }
            free = Some(lease);
            let got = self.from.get(NAME, offset as u64, len).await?;
            assert!(*got == message(number, len), "message {number} of {len} bytes");
            seen.note(Promise::Order);
            seen.note(Promise::Place);
        }
        Ok(())
    }
}
