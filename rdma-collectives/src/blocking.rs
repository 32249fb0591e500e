//! Groups for programs that are not async: plain threads, slices in and out

use std::fmt;

use rdma_async::{Device, Session, block_on};

use crate::{Cabling, Element, GroupError, GroupOptions, JoinError, Monitor, Reduction, ShrinkError};

/// One rank of a cabling, each of whose methods returns when it is done
///
/// The same operations, errors and promises as those of [`crate::Group`], whose documentation says what each does; ranks with the one and
/// with the other work together. The thread of the caller sleeps while it waits, and does the arithmetic itself. The sessions have to be
/// driven meanwhile, and between operations: their nodes run on another thread, such as that of a [`ThreadRuntime`](rdma_async::ThreadRuntime).
/// Before a process ends, it drops the group, [closes](rdma_async::Node::close) the node and waits until it is
/// [idle](rdma_async::Node::wait_idle): else the others may take the rank for lost.
///
/// ```
/// use std::net::{Ipv4Addr, TcpListener, TcpStream};
///
/// use rdma_async::{BlockingStream, Node, ThreadRuntime, block_on};
/// use rdma_collectives::{Cabling, Reduction, blocking::Group};
///
/// # type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// # let running = rdma_sim::driver::realtime::start(rdma_sim::Sim::new(), drop)?;
/// # let [open_a, open_b] = ["a", "b"].map(|host| running.net().opener(host, "rdma_en2"));
/// let runtime = ThreadRuntime::start()?;
/// let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
/// let address = listener.local_addr()?;
/// let cabling = Cabling::line(2, 9_200_000_000);
///
/// // Two threads take the part of two Macs. `open_a` and `open_b` open their devices, of any backend.
/// let rank_1 = || -> Result<f32> {
///     let node = Node::builder(open_b).runtime(runtime.handle()).build()?;
///     block_on(node.serve(BlockingStream::new(listener.accept()?.0)?))?;
///     let session = block_on(node.accept()).ok_or("the node is closed")?;
///     let mut group = Group::join(1, &cabling, [(0, session)])?;
///     let mut vector = [2.0; 100];
///     group.all_reduce(&mut vector, Reduction::Sum)?;
///     group.barrier()?;
///     Ok(vector[0])
/// };
/// let rank_0 = || -> Result<f32> {
///     let node = Node::builder(open_a).runtime(runtime.handle()).build()?;
///     let session = block_on(node.connect(BlockingStream::new(TcpStream::connect(address)?)?))?;
///     let mut group = Group::join(0, &cabling, [(1, session)])?;
///     let mut vector = [1.0; 100];
///     group.all_reduce(&mut vector, Reduction::Sum)?;
///     group.barrier()?;
///     Ok(vector[0])
/// };
/// std::thread::scope(|scope| -> Result<()> {
///     let other = scope.spawn(rank_1);
///     assert_eq!(rank_0()?, 3.0);
///     assert_eq!(other.join().expect("no panic")?, 3.0);
///     Ok(())
/// })?;
/// # Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// Those of [`crate::Group`]: an operation whose ranks do not agree, or of which one is lost, fails on every rank that can be reached within
/// the peer timeout of the nodes; it never waits for ever. Its results are then undefined.
pub struct Group<D: Device>(crate::Group<D>);

impl<D: Device> Group<D> {
    /// Joins the group of all hosts of `cabling` as one of them, with default options; see [`crate::Group::join`]
    ///
    /// # Errors
    ///
    /// A [`JoinError`], as [`crate::Group::join`].
    pub fn join(
        rank: usize,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
    ) -> Result<Self, JoinError> {
        block_on(crate::Group::join(rank, cabling, sessions)).map(Self)
    }

    /// Joins with these options, as [`join`](Self::join)
    ///
    /// # Errors
    ///
    /// A [`JoinError`], as [`crate::Group::join`].
    pub fn join_with(
        rank: usize,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
        options: GroupOptions,
    ) -> Result<Self, JoinError> {
        block_on(crate::Group::join_with(rank, cabling, sessions, options)).map(Self)
    }

    /// The group for async code, with the same ranks and operations
    #[must_use]
    pub fn into_async(self) -> crate::Group<D> {
        self.0
    }

    /// The number of this rank, from 0: its index in [`Cabling::hosts`]
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// How many ranks there are
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// The names of the hosts of the ranks, in the order of the ranks
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        self.0.hosts()
    }

    /// How often ranks have come together since the group was first joined, the same on all ranks
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    /// How many operations this rank has begun: the number of the next one
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.0.sequence()
    }

    /// Shows other threads what this rank waits for; see [`crate::Group::monitor`]
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.0.monitor()
    }

    /// Why the group is over, or `None` while it works
    #[must_use]
    pub fn end(&self) -> Option<&GroupError> {
        self.0.end()
    }

    /// Gives every rank the vectors of all ranks combined, element by element
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::all_reduce`].
    pub fn all_reduce<T: Element>(
        &mut self,
        vector: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        block_on(self.0.all_reduce(vector, reduction))
    }

    /// Gives the vector of rank `root` to every rank
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::broadcast`].
    pub fn broadcast<T: Element>(&mut self, root: usize, vector: &mut [T]) -> Result<(), GroupError> {
        block_on(self.0.broadcast(root, vector))
    }

    /// Gives rank `root` the vectors of all ranks combined, element by element; those of the others stay as they are
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::reduce`].
    pub fn reduce<T: Element>(
        &mut self,
        root: usize,
        vector: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        block_on(self.0.reduce(root, vector, reduction))
    }

    /// Gives every rank the parts of all ranks, in the order of the ranks
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::all_gather`].
    pub fn all_gather<T: Element>(&mut self, part: &[T], all: &mut [T]) -> Result<(), GroupError> {
        block_on(self.0.all_gather(part, all))
    }

    /// As [`all_gather`](Self::all_gather), with `counts[rank]` elements in the part of each rank
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::all_gather_v`].
    pub fn all_gather_v<T: Element>(
        &mut self,
        part: &[T],
        counts: &[usize],
        all: &mut [T],
    ) -> Result<(), GroupError> {
        block_on(self.0.all_gather_v(part, counts, all))
    }

    /// Combines the vectors of all ranks, element by element, and gives each rank its part
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::reduce_scatter`].
    pub fn reduce_scatter<T: Element>(
        &mut self,
        all: &[T],
        part: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        block_on(self.0.reduce_scatter(all, part, reduction))
    }

    /// As [`reduce_scatter`](Self::reduce_scatter), with `counts[rank]` elements in the part of each rank
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::reduce_scatter_v`].
    pub fn reduce_scatter_v<T: Element>(
        &mut self,
        all: &[T],
        counts: &[usize],
        part: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        block_on(self.0.reduce_scatter_v(all, counts, part, reduction))
    }

    /// Gives each rank its part of what rank `root` has
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::scatter`].
    pub fn scatter<T: Element>(&mut self, root: usize, all: &[T], part: &mut [T]) -> Result<(), GroupError> {
        block_on(self.0.scatter(root, all, part))
    }

    /// As [`scatter`](Self::scatter), with `counts[rank]` elements in the part of each rank
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::scatter_v`].
    pub fn scatter_v<T: Element>(
        &mut self,
        root: usize,
        all: &[T],
        counts: &[usize],
        part: &mut [T],
    ) -> Result<(), GroupError> {
        block_on(self.0.scatter_v(root, all, counts, part))
    }

    /// Gives rank `root` the parts of all ranks, in the order of the ranks
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::gather`].
    pub fn gather<T: Element>(&mut self, root: usize, part: &[T], all: &mut [T]) -> Result<(), GroupError> {
        block_on(self.0.gather(root, part, all))
    }

    /// As [`gather`](Self::gather), with `counts[rank]` elements in the part of each rank
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::gather_v`].
    pub fn gather_v<T: Element>(
        &mut self,
        root: usize,
        part: &[T],
        counts: &[usize],
        all: &mut [T],
    ) -> Result<(), GroupError> {
        block_on(self.0.gather_v(root, part, counts, all))
    }

    /// Sends a part to each rank, the first one to rank 0 and so on, and receives one from each, in the same order
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::all_to_all`].
    pub fn all_to_all<T: Element>(&mut self, sent: &[T], received: &mut [T]) -> Result<(), GroupError> {
        block_on(self.0.all_to_all(sent, received))
    }

    /// Sends `sent_counts[rank]` elements to each rank, and receives `received_counts[rank]` from each
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::all_to_all_v`].
    pub fn all_to_all_v<T: Element>(
        &mut self,
        sent: &[T],
        sent_counts: &[usize],
        received: &mut [T],
        received_counts: &[usize],
    ) -> Result<(), GroupError> {
        block_on(self.0.all_to_all_v(sent, sent_counts, received, received_counts))
    }

    /// Sends a vector to rank `to`, which receives it; no other rank calls anything
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::send`].
    pub fn send<T: Element>(&mut self, to: usize, vector: &[T]) -> Result<(), GroupError> {
        block_on(self.0.send(to, vector))
    }

    /// Receives a vector that rank `from` sends; no other rank calls anything
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::recv`].
    pub fn recv<T: Element>(&mut self, from: usize, vector: &mut [T]) -> Result<(), GroupError> {
        block_on(self.0.recv(from, vector))
    }

    /// Sends a vector from rank `from` to rank `to`; the others pass it on
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::transfer`].
    pub fn transfer<T: Element>(
        &mut self,
        from: usize,
        to: usize,
        vector: &mut [T],
    ) -> Result<(), GroupError> {
        block_on(self.0.transfer(from, to, vector))
    }

    /// Waits until all ranks have called it
    ///
    /// # Errors
    ///
    /// A [`GroupError`], as [`crate::Group::barrier`].
    pub fn barrier(&mut self) -> Result<(), GroupError> {
        block_on(self.0.barrier())
    }

    /// Goes on without the ranks that are lost or have left; see [`crate::Group::shrink`]
    ///
    /// # Errors
    ///
    /// A [`ShrinkError`], as [`crate::Group::shrink`].
    pub fn shrink(self) -> Result<Self, ShrinkError> {
        block_on(self.0.shrink()).map(Self)
    }

    /// Goes on with further ranks; see [`crate::Group::grow`]
    ///
    /// # Errors
    ///
    /// A [`JoinError`], as [`crate::Group::grow`].
    pub fn grow(
        self,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
    ) -> Result<Self, JoinError> {
        block_on(self.0.grow(cabling, sessions)).map(Self)
    }

    /// Ends the group on all ranks that can be reached; see [`crate::Group::revoke`]
    pub fn revoke(&mut self) {
        self.0.revoke();
    }

    /// Makes another group of the same ranks, for another thread; see [`crate::Group::duplicate`]
    ///
    /// # Errors
    ///
    /// A [`JoinError`], as [`crate::Group::duplicate`].
    pub fn duplicate(&mut self, options: GroupOptions) -> Result<Self, JoinError> {
        block_on(self.0.duplicate(options)).map(Self)
    }

    /// Divides the ranks into groups beside this one; see [`crate::Group::split`]
    ///
    /// # Errors
    ///
    /// A [`JoinError`], as [`crate::Group::split`].
    pub fn split(
        &mut self,
        color: Option<u64>,
        key: i64,
        options: GroupOptions,
    ) -> Result<Option<Self>, JoinError> {
        Ok(block_on(self.0.split(color, key, options))?.map(Self))
    }
}

impl<D: Device> From<crate::Group<D>> for Group<D> {
    fn from(group: crate::Group<D>) -> Self {
        Self(group)
    }
}

impl<D: Device> fmt::Debug for Group<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
