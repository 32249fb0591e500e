//! An all_reduce of two machines
//!
//! Before each one, this side says how many elements the vectors have.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::join;
use rdma_async::time::sleep;
use rdma_async::{AnyDevice, Device, Session};
use rdma_collectives::{Cabling, Group, Reduction};

use super::wire::{FOREIGN, REDUCE};

/// Elements of a vector, at most
pub(crate) const MAX_ELEMENTS: usize = 4 << 20;
/// The rate of the cable in the plan, in bytes per second; two ranks have one plan, whatever cables the session has.
const RATE: u64 = 9_200_000_000;

/// The group of this machine and a peer that [answers](answer)
pub(crate) struct Pair<'a> {
    session: &'a Session<AnyDevice>,
    group: Group<AnyDevice>,
}

impl<'a> Pair<'a> {
    /// Asks the peer for all_reduces, and joins the group as rank 0
    pub(crate) async fn join(session: &'a Session<AnyDevice>) -> Result<Self> {
        session.send_bytes(REDUCE).await?;
        Ok(Self { session, group: join_as(0, session).await? })
    }

    /// Sums vectors of `count` 32-bit floats, breaks all paths after `drill`, and returns how long the all_reduce took
    pub(crate) async fn all_reduce(&mut self, count: usize, drill: Option<Duration>) -> Result<Duration> {
        self.session.send_bytes(&(count as u64).to_le_bytes()).await?;
        sum(&mut self.group, self.session, count, drill).await
    }
}

/// Takes part in each all_reduce that the peer asks for, until it closes the session; returns how many bytes of vectors the peer has
/// contributed
pub(super) async fn answer<D: Device>(session: &Session<D>) -> Result<u64> {
    let mut group = join_as(1, session).await?;
    let mut total = 0;
    while let Some(request) = session.recv().await? {
        let count = request.as_array().map(|count| u64::from_le_bytes(*count));
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| (1..=MAX_ELEMENTS).contains(count)).context(FOREIGN)?;
        drop(request);
        sum(&mut group, session, count, None).await?;
        total += (count * size_of::<f32>()) as u64;
    }
    Ok(total)
}

async fn join_as<D: Device>(rank: usize, session: &Session<D>) -> Result<Group<D>> {
    Ok(Group::join(rank, &Cabling::line(2, RATE), [(1 - rank, session.clone())]).await?)
}

/// One all_reduce, of which every element is checked; returns how long it took from when both were ready
async fn sum<D: Device>(
    group: &mut Group<D>,
    session: &Session<D>,
    count: usize,
    drill: Option<Duration>,
) -> Result<Duration> {
    // Whole numbers, so that sums are exact.
    let value = |index: usize| (index % 1000) as f32;
    let mut vector: Vec<f32> = (0..count).map(|index| value(index) + group.rank() as f32).collect();
    group.barrier().await?;
    let runtime = session.runtime();
    let start = runtime.now();
    let reduced = async {
        group.all_reduce(&mut vector, Reduction::Sum).await?;
        anyhow::Ok(runtime.now() - start)
    };
    let breaking = async {
        if let Some(after) = drill {
            sleep(&**runtime, after).await;
            session.break_paths();
        }
    };
    let (took, ()) = join(reduced, breaking).await;
    let took = took?;
    let wrong = vector.iter().enumerate().filter(|(index, sum)| **sum != 2.0 * value(*index) + 1.0).count();
    ensure!(wrong == 0, "{wrong} of {count} elements of the all_reduce are wrong");
    Ok(took)
}
