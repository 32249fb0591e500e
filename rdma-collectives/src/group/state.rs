//! A rank of a group, and how it carries an operation out

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use rdma_async::Device;

use super::call::Call;
use super::counts::Counts;
use super::error::GroupError;
use super::execution::{Buffers, Execution, Job};
use super::kernels::Kernel;
use super::link::{Link, Parts};
use super::monitor::{Monitor, Waits};
use super::options::GroupOptions;
use super::plans::{Plans, Prepared};
use super::relay::Relays;
use super::wire::{End, FIRST};
use crate::Cabling;

/// One rank of several that carry out collective operations over the cables between them
///
/// The ranks are the hosts of a [`Cabling`], in its order. Each has a session with each rank that a cable joins it to, and calls the same
/// operations in the same order; data for others goes through it while it does. An operation is carried out by the
/// [plan](crate::plan()) for the cabling, in blocks that follow each other: no rank waits for another between blocks, and each
/// byte goes over a cable as often as the plan says.
///
/// Vectors have any length, the same one on all ranks. The elements of a result are combined in an order that depends on the plan and the
/// length only: all ranks get the same bits, in each run, on each machine and in each build. For that, a NaN that comes out of a
/// reduction has the bits of `NAN` of its type, whatever those of the inputs were, and 0 is more than -0. Elements that are only
/// passed on keep their bits. While cables are out, the plan is another one, and so may be the bits of sums of floating-point numbers, unless the
/// options [keep the plan](GroupOptions::keep_plan).
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
/// An operation whose ranks do not agree, or of which one is lost, fails with a [`GroupError`] on every rank that can be reached. A rank that has
/// done all of its part, and waits for no other, may learn of it in its next operation. The error names the ranks; of several that disagree,
/// ranks may name different pairs, each in its own order. Operations before it are completed, also on ranks that are slower, unless a rank is lost or the group is
/// revoked: these end the operation under way.
///
/// # Two ranks alone
///
/// [`send`](Self::send) and [`recv`](Self::recv) are called by two ranks, and take no place in the order of the operations. All other methods that
/// wait for ranks are called by all of them.
///
/// # Cables that are pulled
///
/// A cable that is out is no error. While other ranks reach the neighbour, what it does not have yet goes over them: the operation under way goes on,
/// and so do those that follow. The ranks agree on the cables that work in an operation in which each of them learns something of each
/// other one (all_reduce, reduce_scatter, all_gather, all_to_all, barrier, duplicate, split; with parts of equal lengths above 0), and plan for these cables
/// before the next one; in the same way they take a cable in again that works. Without another way, the operation waits until a cable is back, and so do ranks
/// that [`join`](Self::join) or [`grow`](Self::grow), for each cable that is out. A program that would rather go on without the ranks behind it drops
/// the operation after a time of its own, and calls [`shrink`](Self::shrink). A session that is over because its cables are out is not used again; its ranks go on
/// as long as others reach both.
///
/// A rank that drops its group goes on by itself until each neighbour has all its messages, or is not reached any more, and while a cable is out
/// until all ranks have dropped theirs. A process that ends before takes its last messages with it: end with a [barrier](Self::barrier) where that counts.
///
/// # Cancel safety
///
/// An operation whose future is dropped before its end ends the group: this rank and the others get [`GroupError::Cancelled`]. Data
/// of the caller is only read and written while the future is polled, never by a device.
pub struct Group<D: Device> {
    pub(super) rank: usize,
    pub(super) links: Vec<Link<D>>,
    /// Dropped after the links, whose last messages may go over other ranks
    pub(super) relays: Relays<D>,
    pub(super) options: GroupOptions,
    /// All cables, whether or not they work
    pub(super) cabling: Cabling,
    /// For the cables that worked when the ranks came together to plan last
    pub(super) plans: Plans,
    /// Whether the ranks plan anew before the next operation
    pub(super) wants_plan: bool,
    /// Number of the next operation
    pub(super) sequence: u32,
    /// How much of the receive memory of its node blocks may hold while they wait for others, in bytes
    max_held: usize,
    /// The operation before
    pub(super) before: Option<Arc<Prepared>>,
    /// Why the group is over
    pub(super) end: Option<GroupError>,
    pub(super) founding: Founding,
    pub(super) monitor: Monitor,
}

/// The group from which a group came about by loss
#[derive(Clone, Debug)]
pub(super) struct Founding {
    pub(super) cabling: Cabling,
    /// The rank in it of each rank
    pub(super) ranks: Vec<usize>,
    /// How often ranks have come together since
    pub(super) epoch: u64,
}

impl Founding {
    /// Of a group that is not what is left of another one
    pub(super) fn new(cabling: &Cabling, epoch: u64) -> Self {
        Self { cabling: cabling.clone(), ranks: (0..cabling.hosts().len()).collect(), epoch }
    }
}

/// Blocks that wait hold at most this part of the longest message that the node takes
///
/// A session receives nothing more when it holds half of the receive memory, which is at least as long as that message. With a quarter,
/// a node with the least receive memory has a block's length to spare, and one with the default of it several groups.
const HELD_PART: usize = 4;

impl<D: Device> Group<D> {
    /// A group of these links
    pub(super) fn new(
        rank: usize,
        mut links: Vec<Parts<D>>,
        plans: Plans,
        options: GroupOptions,
        founding: Founding,
    ) -> Self {
        // If each link has a node of its own, the least of all.
        let max_message = links.iter().map(|link| link.max_message).min().unwrap_or(usize::MAX);
        links.sort_by_key(|link| link.rank);
        let relays = Relays::new(rank, Arc::clone(&plans.over.cabled), options.block_bytes);
        let link = |parts: Parts<D>| {
            let cables = plans.over.cabling.between(rank, parts.rank).count();
            Link::new(rank, parts, cables, relays.shared())
        };
        let links: Vec<_> = links.into_iter().map(link).collect();
        if let Some(link) = links.first() {
            relays.start(&**link.runtime());
        }
        let max_held = max_message / HELD_PART;
        let monitor = Monitor::new(rank);
        Self {
            rank,
            links,
            relays,
            options,
            cabling: plans.over.cabling.clone(),
            plans,
            wants_plan: false,
            sequence: 0,
            max_held,
            before: None,
            end: None,
            founding,
            monitor,
        }
    }

    /// The number of this rank, from 0: its index in [`Cabling::hosts`]
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are
    #[must_use]
    pub fn size(&self) -> usize {
        self.plans.over.cabling.hosts().len()
    }

    /// The names of the hosts of the ranks, in the order of the ranks
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        self.plans.over.cabling.hosts()
    }

    /// How often ranks have come together since the group was first joined, the same on all ranks: higher with each
    /// [`shrink`](Self::shrink) and [`grow`](Self::grow)
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.founding.epoch
    }

    /// How many operations this rank has begun: the number of the next one
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Shows what this rank waits for, also while an operation is under way; not after [`shrink`](Self::shrink) or [`grow`](Self::grow), whose
    /// groups have monitors of their own
    ///
    /// ```
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| rdma_async::Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a")?, node("b")?);
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
    /// # let peer = b.accept().await.expect("the node is open");
    /// # use rdma_collectives::{Cabling, Group, Reduction};
    /// # let cabling = &Cabling::line(2, 9_200_000_000);
    /// # let join = |rank: usize, session| Group::join(rank, cabling, [(1 - rank, session)]);
    /// # let (mut group, _other) = futures::future::try_join(join(0, session), join(1, peer)).await?;
    /// let monitor = group.monitor();
    /// let mut vector = [1.0; 8];
    /// let mut operation = Box::pin(group.all_reduce(&mut vector, Reduction::Sum));
    /// # let pause = Box::pin(net.sleep(std::time::Duration::from_millis(1)));
    /// # let _ = futures::future::select(operation.as_mut(), pause).await;
    /// let found = "rank 0 is in operation 0 (all_reduce of 8 f64, sum) and waits for rank 1 to call it";
    /// assert_eq!(monitor.waits().to_string(), found);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # }).value.unwrap();
    /// ```
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Why the group is over, or `None` while it works
    #[must_use]
    pub fn end(&self) -> Option<&GroupError> {
        self.end.as_ref()
    }

    /// Carries out the next operation, by a plan unless this rank does it alone
    pub(super) async fn run(
        &mut self,
        call: Call,
        counts: &Counts,
        kernel: Option<Kernel>,
        buffers: Buffers<'_>,
    ) -> Result<(), GroupError> {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        self.carry_out(sequence, call, counts, kernel, buffers).await
    }

    /// Carries out an operation with this number
    pub(super) async fn carry_out(
        &mut self,
        sequence: u32,
        call: Call,
        counts: &Counts,
        kernel: Option<Kernel>,
        buffers: Buffers<'_>,
    ) -> Result<(), GroupError> {
        let prepared = if self.size() == 1 || call.to.is_some() && call.to == call.root {
            Arc::new(Prepared::alone(&call, self.options))
        } else {
            self.plans.prepare(self.rank, &call, counts, self.options)?
        };
        if let Some(before) = self.before.replace(Arc::clone(&prepared)) {
            before.note_follower(&prepared);
        }
        let following = prepared.following();
        let (rank, ranks, max_held) = (self.rank, self.size(), self.max_held);
        let is_agreeing = call.is_agreeing(counts) && !self.options.keeps_plan;
        self.monitor.update(|waits| (waits.sequence, waits.call) = (sequence, Some(call)));
        let running = Running { sequence, group: self };
        let Self { links, relays, monitor, .. } = &mut *running.group;
        let (prepared, following) = (&*prepared, following.as_deref());
        let job = Job {
            rank,
            ranks,
            sequence,
            call,
            prepared,
            following,
            kernel,
            is_agreeing,
            max_held,
            monitor,
            buffers,
        };
        let mut execution = Execution::new(job, links);
        let result = poll_fn(|cx| {
            relays.register(cx);
            execution.poll(cx)
        })
        .await;
        let wants_plan = execution.has_agreed();
        running.group.wants_plan |= wants_plan;
        running.finish(result)
    }

    /// Ends the group here and on all ranks that can be reached, before operation `sequence` is completed
    pub(super) fn end_with(&mut self, error: GroupError, sequence: u32) {
        let end = End { error, sequence };
        self.links.iter_mut().for_each(|link| link.end(&end));
        self.relays.shared().lock().end_pairs(&end.error);
        self.end = Some(end.error);
    }
}

/// An operation under way, which ends the group if it is dropped
pub(super) struct Running<'a, D: Device> {
    pub(super) group: &'a mut Group<D>,
    pub(super) sequence: u32,
}

impl<D: Device> Running<'_, D> {
    pub(super) fn finish(mut self, result: Result<(), GroupError>) -> Result<(), GroupError> {
        self.end(result.as_ref().err().cloned());
        std::mem::forget(self);
        result
    }

    fn end(&mut self, error: Option<GroupError>) {
        let sequence = self.group.sequence;
        self.group.monitor.update(|waits| *waits = Waits { rank: waits.rank, sequence, ..Waits::default() });
        if let Some(error) = error {
            self.group.end_with(error, self.sequence);
        }
    }
}

impl<D: Device> Drop for Running<'_, D> {
    fn drop(&mut self) {
        let (rank, sequence) = (self.group.rank, self.sequence);
        self.end(Some(match sequence {
            FIRST => GroupError::Left { rank },
            _ => GroupError::Cancelled { rank, sequence },
        }));
    }
}

impl<D: Device> fmt::Debug for Group<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("rank", &self.rank).field("size", &self.size()).finish_non_exhaustive()
    }
}
