//! Ranks that carry out collective operations together

mod blocks;
mod call;
mod dispatch;
mod element;
mod error;
mod execution;
mod join;
mod kernels;
mod link;
mod operations;
mod options;
mod plans;
mod reduction;
mod schedule;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::future::poll_fn;

use rdma_async::{Device, Session};

use self::blocks::Blocks;
pub use self::call::{Call, OperationKind};
pub use self::element::{Complex64, Element, ElementType};
pub use self::error::{GroupError, JoinError};
use self::execution::{Buffers, Execution, Job};
use self::kernels::Kernel;
use self::link::Link;
pub use self::options::GroupOptions;
use self::plans::{Planned, Plans};
pub use self::reduction::Reduction;
use self::schedule::Schedule;
use crate::Cabling;

/// One rank of several that carry out collective operations over the cables between them
///
/// The ranks are the hosts of a [`Cabling`], in its order. Each has a session with each rank that a cable joins it to, and calls the same
/// operations in the same order; data for others goes through it while it does. An operation is carried out by the
/// [plan](crate::plan()) for the cabling, in blocks that follow each other: no rank waits for another between blocks, and each
/// byte goes over a cable as often as the plan says.
///
/// Vectors have any length, the same one on all ranks. The elements of a result are combined in an order that depends on the plan only:
/// all ranks get the same bits, in each run.
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// # use rdma_async::Node;
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a")?, node("b")?);
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
/// # let peer = b.accept().await.expect("the node is open");
/// use rdma_collectives::{Cabling, Group, Reduction};
///
/// // Two Macs with one cable; `session` and `peer` are the two ends of a session between them.
/// let cabling = Cabling::line(2, 9_200_000_000);
/// let rank_0 = async {
///     let mut group = Group::join(0, &cabling, [(1, session)]).await?;
///     let mut vector = [1.0, 2.0, 3.0];
///     group.all_reduce(&mut vector, Reduction::Sum).await?;
///     Ok::<_, Box<dyn std::error::Error>>(vector)
/// };
/// let rank_1 = async {
///     let mut group = Group::join(1, &cabling, [(0, peer)]).await?;
///     let mut vector = [0.5; 3];
///     group.all_reduce(&mut vector, Reduction::Sum).await?;
///     Ok::<_, Box<dyn std::error::Error>>(vector)
/// };
/// let (zero, one) = futures::future::try_join(rank_0, rank_1).await?;
/// assert_eq!(zero, [1.5, 2.5, 3.5]);
/// assert_eq!(zero, one);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Errors
///
/// An operation whose ranks do not agree, or of which one is lost, fails on every rank that can be reached, with the same
/// [`GroupError`]; it names the ranks. A cable that is pulled and plugged in again is no error: the sessions go on, and the operation takes
/// longer.
///
/// # Cancel safety
///
/// An operation whose future is dropped before its end ends the group: this rank and the others get [`GroupError::Cancelled`]. Data
/// of the caller is only read and written while the future is polled, never by a device.
pub struct Group<D: Device> {
    rank: usize,
    links: Vec<Link<D>>,
    options: GroupOptions,
    plans: Plans,
    /// Number of the next operation
    sequence: u32,
    /// The operation before
    previous: Option<Call>,
    /// Why the group is over
    end: Option<GroupError>,
}

impl<D: Device> Group<D> {
    /// Joins the group of all hosts of `cabling` as one of them, with default options
    ///
    /// `sessions` are pairs of a rank and a session with it: one for each rank that has a cable with this one. The group opens streams of
    /// its own in each session, and takes those that the neighbour opens; the main stream stays free for the application. It must not accept
    /// streams meanwhile. All ranks have to join at the same time with the same cabling, including names, rates and latencies.
    ///
    /// # Errors
    ///
    /// [`JoinError::Disagreement`] if a neighbour has another cabling, number of ranks, rank or other options, or other plans because of its
    /// version; [`JoinError::Rank`] or [`JoinError::Sessions`] if the arguments contradict each other; [`JoinError::Plan`] if the
    /// cabling has no plan; [`JoinError::Lost`] or [`JoinError::Greeting`] if a neighbour does not join;
    /// [`JoinError::Memory`] or [`JoinError::MaxMessage`] if blocks are too long for the node.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the sessions. Neighbours get [`JoinError::Greeting`], or fail in their first operation.
    pub async fn join(
        rank: usize,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
    ) -> Result<Self, JoinError> {
        Self::join_with(GroupOptions::new(), rank, cabling, sessions).await
    }

    /// Joins with these options, as [`join`](Self::join)
    ///
    /// # Errors
    ///
    /// As [`join`](Self::join): a [`JoinError`].
    ///
    /// # Cancel safety
    ///
    /// As [`join`](Self::join).
    pub async fn join_with(
        options: GroupOptions,
        rank: usize,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
    ) -> Result<Self, JoinError> {
        let sessions = join::sessions(rank, cabling, sessions)?;
        let plans = Plans::new(cabling.clone())?;
        let greeting = join::greeting(rank, &plans, &options);
        let mut links = Vec::with_capacity(sessions.len());
        // In ascending order on all ranks: none waits for one that waits for it.
        for (neighbour, session) in sessions {
            links.push(join::link(greeting, neighbour, session, options).await?);
        }
        Ok(Self { rank, links, options, plans, sequence: 0, previous: None, end: None })
    }

    /// The number of this rank, from 0: its index in [`Cabling::hosts`]
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are
    #[must_use]
    pub fn size(&self) -> usize {
        self.plans.cabling.hosts().len()
    }

    /// How many operations this rank has begun: the number of the next one
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Why the group is over, or `None` while it works
    #[must_use]
    pub fn end(&self) -> Option<&GroupError> {
        self.end.as_ref()
    }

    /// Carries out the next operation by a plan; `None` for a single rank, which only copies
    async fn run(
        &mut self,
        call: Call,
        planned: Option<&Planned>,
        kernel: Option<Kernel>,
        buffers: Buffers<'_>,
    ) -> Result<(), GroupError> {
        let size = call.element.size();
        let count = call.count as usize;
        let (schedule, blocks, window) = match planned {
            Some(planned) => {
                let schedule = Schedule::new(&planned.plan, self.rank, count, size);
                let (blocks, window) = planned.blocks(&self.plans.cabling, call, self.options)?;
                (schedule, blocks, window)
            }
            None => (Schedule::alone(call, size), Blocks::new(0, 1, self.options.block_bytes, size), 1),
        };
        let job = Job {
            rank: self.rank,
            ranks: self.size(),
            sequence: self.sequence,
            call,
            previous: self.previous,
            schedule: &schedule,
            kernel,
            blocks,
            window,
            buffers,
        };
        self.previous = Some(call);
        self.sequence = self.sequence.wrapping_add(1);
        let running = Running { sequence: job.sequence, group: self };
        let mut execution = Execution::new(job, &mut running.group.links);
        let result = poll_fn(|cx| execution.poll(cx)).await;
        running.finish(result)
    }

    /// Ends the group here and on all ranks that can be reached
    fn end_with(&mut self, error: GroupError) {
        self.links.iter_mut().for_each(|link| link.end(&error));
        self.end = Some(error);
    }
}

/// An operation under way, which ends the group if it is dropped
struct Running<'a, D: Device> {
    group: &'a mut Group<D>,
    sequence: u32,
}

impl<D: Device> Running<'_, D> {
    fn finish(self, result: Result<(), GroupError>) -> Result<(), GroupError> {
        if let Err(error) = &result {
            self.group.end_with(error.clone());
        }
        std::mem::forget(self);
        result
    }
}

impl<D: Device> Drop for Running<'_, D> {
    fn drop(&mut self) {
        let (rank, sequence) = (self.group.rank, self.sequence);
        self.group.end_with(GroupError::Cancelled { rank, sequence });
    }
}

impl<D: Device> fmt::Debug for Group<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("rank", &self.rank).field("size", &self.size()).finish_non_exhaustive()
    }
}
