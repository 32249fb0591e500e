//! The operations of a group

use rdma_async::Device;

use super::call::{Call, OperationKind};
use super::counts::Counts;
use super::dispatch::{call, expect, kernel};
use super::element::Element;
use super::error::GroupError;
use super::execution::Buffers;
use super::reduction::Reduction;
use super::state::Group;

/// Every operation returns, beside what it says itself, [`GroupError::Mismatch`], [`GroupError::Lost`], [`GroupError::Left`],
/// [`GroupError::Cancelled`] or [`GroupError::Protocol`] if the group is over, or is then; and [`GroupError::Plan`] if the
/// operation has no plan. Dropping the future of one that was polled ends the group.
impl<D: Device> Group<D> {
    /// Gives every rank the vectors of all ranks combined, element by element
    ///
    /// Short vectors are flooded, and combined in the order of the ranks; long ones go up and down the trees of the plan.
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut vector = [rank as i32, 10];
    /// group.all_reduce(&mut vector, Reduction::Sum).await?;
    /// assert_eq!(vector, [1, 20]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Unsupported`] if elements of the type have no such reduction, and those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector is then partly changed.
    pub async fn all_reduce<T: Element>(
        &mut self,
        vector: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        let kernel = kernel::<T>(reduction)?;
        let call = Call { reduction: Some(reduction), ..call::<T>(OperationKind::AllReduce, vector.len()) };
        self.all_reduce_in_place(call, kernel, T::output(vector)).await
    }

    /// Gives the vector of rank `root` to every rank
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut vector = [rank as u32; 3];
    /// group.broadcast(1, &mut vector).await?;
    /// assert_eq!(vector, [1; 3]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Rank`] if there is no such rank, and those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector is then partly changed.
    pub async fn broadcast<T: Element>(&mut self, root: usize, vector: &mut [T]) -> Result<(), GroupError> {
        let call = Call { root: Some(root), ..call::<T>(OperationKind::Broadcast, vector.len()) };
        self.in_place(call, &Counts::Even(vector.len()), None, T::output(vector)).await
    }

    /// Gives rank `root` the vectors of all ranks combined, element by element; those of the others stay as they are
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut vector = [rank as f32];
    /// group.reduce(0, &mut vector, Reduction::Max).await?;
    /// assert_eq!(vector, [1.0], "rank 0 gets the larger one, and rank 1 keeps its own");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Unsupported`] if elements of the type have no such reduction; [`GroupError::Rank`] if there is no such rank;
    /// those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector of the root is then partly changed.
    pub async fn reduce<T: Element>(
        &mut self,
        root: usize,
        vector: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        let kernel = kernel::<T>(reduction)?;
        let call = call::<T>(OperationKind::Reduce, vector.len());
        let call = Call { root: Some(root), reduction: Some(reduction), ..call };
        self.in_place(call, &Counts::Even(vector.len()), Some(kernel), T::output(vector)).await
    }

    /// Gives every rank the parts of all ranks, in the order of the ranks
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut all = [0; 4];
    /// group.all_gather(&[rank as u8; 2], &mut all).await?;
    /// assert_eq!(all, [0, 0, 1, 1]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` is not as long as the parts of all ranks, which have the same length; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `all` is then partly changed.
    pub async fn all_gather<T: Element>(&mut self, part: &[T], all: &mut [T]) -> Result<(), GroupError> {
        expect("all", all.len(), part.len() * self.size())?;
        let counts = Counts::Even(part.len());
        self.apart(
            call::<T>(OperationKind::AllGather, part.len()),
            &counts,
            None,
            T::bytes(part),
            T::output(all),
        )
        .await
    }

    /// Combines the vectors of all ranks, element by element, and gives each rank its part: the first one to rank 0, and so on
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut part = [0];
    /// group.reduce_scatter(&[10, 20], &mut part, Reduction::Sum).await?;
    /// assert_eq!(part, [[20], [40]][rank]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` is not as long as the parts of all ranks, which have the same length;
    /// [`GroupError::Unsupported`] if elements of the type have no such reduction; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `part` is then partly changed.
    pub async fn reduce_scatter<T: Element>(
        &mut self,
        all: &[T],
        part: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        expect("all", all.len(), part.len() * self.size())?;
        let kernel = kernel::<T>(reduction)?;
        let call = Call { reduction: Some(reduction), ..call::<T>(OperationKind::ReduceScatter, part.len()) };
        self.apart(call, &Counts::Even(part.len()), Some(kernel), T::bytes(all), T::output(part)).await
    }

    /// Gives each rank its part of what rank `root` has: the first one to rank 0, and so on
    ///
    /// `all` of the other ranks is not used, and may be empty.
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let all: &[u16] = if rank == 0 { &[7, 8] } else { &[] };
    /// let mut part = [0];
    /// group.scatter(0, all, &mut part).await?;
    /// assert_eq!(part, [[7], [8]][rank]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` of the root is not as long as the parts of all ranks, which have the same length;
    /// [`GroupError::Rank`] if there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `part` is then partly changed.
    pub async fn scatter<T: Element>(
        &mut self,
        root: usize,
        all: &[T],
        part: &mut [T],
    ) -> Result<(), GroupError> {
        if root == self.rank {
            expect("all", all.len(), part.len() * self.size())?;
        }
        let call = Call { root: Some(root), ..call::<T>(OperationKind::Scatter, part.len()) };
        self.apart(call, &Counts::Even(part.len()), None, T::bytes(all), T::output(part)).await
    }

    /// Gives rank `root` the parts of all ranks, in the order of the ranks
    ///
    /// `all` of the other ranks is not used, and may be empty.
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut all = if rank == 1 { vec![false; 2] } else { Vec::new() };
    /// group.gather(1, &[rank == 1], &mut all).await?;
    /// assert!(rank == 0 || all == [false, true]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if `all` of the root is not as long as the parts of all ranks, which have the same length;
    /// [`GroupError::Rank`] if there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `all` of the root is then partly changed.
    pub async fn gather<T: Element>(
        &mut self,
        root: usize,
        part: &[T],
        all: &mut [T],
    ) -> Result<(), GroupError> {
        if root == self.rank {
            expect("all", all.len(), part.len() * self.size())?;
        }
        let call = Call { root: Some(root), ..call::<T>(OperationKind::Gather, part.len()) };
        self.apart(call, &Counts::Even(part.len()), None, T::bytes(part), T::output(all)).await
    }

    /// Sends a part to each rank, the first one to rank 0 and so on, and receives one from each, in the same order
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut received = [0; 2];
    /// group.all_to_all(&[10 * rank as i64, 10 * rank as i64 + 1], &mut received).await?;
    /// assert_eq!(received, [[0, 10], [1, 11]][rank]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if the slices are not equally long, or cannot be divided by the number of ranks; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `received` is then partly changed.
    pub async fn all_to_all<T: Element>(&mut self, sent: &[T], received: &mut [T]) -> Result<(), GroupError> {
        let part = sent.len() / self.size();
        expect("sent", sent.len(), part * self.size())?;
        expect("received", received.len(), sent.len())?;
        let call = call::<T>(OperationKind::AllToAll, part);
        self.apart(call, &Counts::Even(part), None, T::bytes(sent), T::output(received)).await
    }

    /// Sends a vector from rank `from` to rank `to`; the others pass it on
    ///
    /// All ranks call it, with vectors of the same length; those of the other ranks are not used.
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// let mut vector = [rank as u64 + 5];
    /// group.transfer(0, 1, &mut vector).await?;
    /// assert_eq!(vector, [5]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Rank`] if there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. The vector of the receiver is then partly changed.
    pub async fn transfer<T: Element>(
        &mut self,
        from: usize,
        to: usize,
        vector: &mut [T],
    ) -> Result<(), GroupError> {
        self.check_rank(to)?;
        let call =
            Call { root: Some(from), to: Some(to), ..call::<T>(OperationKind::Transfer, vector.len()) };
        let mut counts = vec![0; self.size()];
        counts[to] = vector.len();
        self.in_place(call, &Counts::Parts(counts), None, T::output(vector)).await
    }

    /// Waits until all ranks have called it
    ///
    /// A rank that returns may still have to pass on what others wait for. Before its process ends, it drops the group, and the node is
    /// [closed](rdma_async::Node::close) and [idle](rdma_async::Node::wait_idle): else the others may take the rank for lost.
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
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// group.barrier().await?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Those of every operation, such as [`GroupError::Lost`].
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group.
    pub async fn barrier(&mut self) -> Result<(), GroupError> {
        self.come_together(OperationKind::Barrier).await
    }

    /// Waits until all ranks have called an operation of this kind, which does nothing else
    pub(super) async fn come_together(&mut self, kind: OperationKind) -> Result<(), GroupError> {
        self.begin().await?;
        let mut all = vec![0; self.size()];
        let buffers = Buffers { input: Some(&[0]), output: &mut all };
        self.run(call::<u8>(kind, 1), &Counts::Even(1), None, buffers).await
    }
}
