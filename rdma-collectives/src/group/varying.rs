//! Operations whose parts have different lengths

use std::num::NonZeroU32;

use rdma_async::Device;

use super::call::{Call, OperationKind};
use super::counts::Counts;
use super::dispatch::{call, expect, kernel};
use super::element::Element;
use super::error::GroupError;
use super::reduction::Reduction;
use super::state::Group;
use crate::cabling::hash;

/// Operations with a `_v` in their names, as MPI calls them, for parts of different lengths
///
/// Each has the plan for these lengths, up to a 256th of the longest part; plans of the last 64 relations between lengths are
/// kept. A new relation is planned first, which takes processor time on all ranks.
impl<D: Device> Group<D> {
    /// As [`all_gather`](Self::all_gather), with `counts[rank]` elements in the part of each rank
    ///
    /// All ranks know the counts.
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
    /// let counts = [3, 1];
    /// let part = vec![rank as u8; counts[rank]];
    /// let mut all = [9; 4];
    /// group.all_gather_v(&part, &counts, &mut all).await?;
    /// assert_eq!(all, [0, 0, 0, 1]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if the slices are not as long as `counts` says, or `counts` not as the group;
    /// [`GroupError::Counts`] if they add up to more than a slice can have; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `all` is then partly changed.
    pub async fn all_gather_v<T: Element>(
        &mut self,
        part: &[T],
        counts: &[usize],
        all: &mut [T],
    ) -> Result<(), GroupError> {
        let call = self.call_v::<T>(OperationKind::AllGather, counts)?;
        expect("part", part.len(), counts[self.rank])?;
        expect("all", all.len(), total(counts))?;
        self.apart(call, &Counts::Parts(counts.to_vec()), None, T::bytes(part), T::output(all)).await
    }

    /// As [`reduce_scatter`](Self::reduce_scatter), with `counts[rank]` elements in the part of each rank
    ///
    /// All ranks know the counts.
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
    /// let counts = [1, 2];
    /// let mut part = vec![0; counts[rank]];
    /// group.reduce_scatter_v(&[10, 20, 30], &counts, &mut part, Reduction::Sum).await?;
    /// assert_eq!(part, [&[20][..], &[40, 60]][rank]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if the slices are not as long as `counts` says, or `counts` not as the group;
    /// [`GroupError::Counts`] if they add up to more than a slice can have;
    /// [`GroupError::Unsupported`] if elements of the type have no such reduction; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `part` is then partly changed.
    pub async fn reduce_scatter_v<T: Element>(
        &mut self,
        all: &[T],
        counts: &[usize],
        part: &mut [T],
        reduction: Reduction,
    ) -> Result<(), GroupError> {
        let kernel = kernel::<T>(reduction)?;
        let call = self.call_v::<T>(OperationKind::ReduceScatter, counts)?;
        expect("part", part.len(), counts[self.rank])?;
        expect("all", all.len(), total(counts))?;
        let call = Call { reduction: Some(reduction), ..call };
        self.apart(call, &Counts::Parts(counts.to_vec()), Some(kernel), T::bytes(all), T::output(part)).await
    }

    /// As [`scatter`](Self::scatter), with `counts[rank]` elements in the part of each rank
    ///
    /// All ranks know the counts. `all` of the ranks other than the root is not used, and may be empty.
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
    /// let all: &[u16] = if rank == 0 { &[7, 8, 9] } else { &[] };
    /// let counts = [1, 2];
    /// let mut part = vec![0; counts[rank]];
    /// group.scatter_v(0, all, &counts, &mut part).await?;
    /// assert_eq!(part, [&[7][..], &[8, 9]][rank]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if the slices are not as long as `counts` says, or `counts` not as the group;
    /// [`GroupError::Counts`] if they add up to more than a slice can have; [`GroupError::Rank`] if
    /// there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `part` is then partly changed.
    pub async fn scatter_v<T: Element>(
        &mut self,
        root: usize,
        all: &[T],
        counts: &[usize],
        part: &mut [T],
    ) -> Result<(), GroupError> {
        let call = Call { root: Some(root), ..self.call_v::<T>(OperationKind::Scatter, counts)? };
        expect("part", part.len(), counts[self.rank])?;
        if root == self.rank {
            expect("all", all.len(), total(counts))?;
        }
        self.apart(call, &Counts::Parts(counts.to_vec()), None, T::bytes(all), T::output(part)).await
    }

    /// As [`gather`](Self::gather), with `counts[rank]` elements in the part of each rank
    ///
    /// All ranks know the counts. `all` of the ranks other than the root is not used, and may be empty.
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
    /// let counts = [0, 2];
    /// let part = vec![rank == 1; counts[rank]];
    /// let mut all = if rank == 0 { vec![false; 2] } else { Vec::new() };
    /// group.gather_v(0, &part, &counts, &mut all).await?;
    /// assert!(rank == 1 || all == [true, true]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if the slices are not as long as `counts` says, or `counts` not as the group;
    /// [`GroupError::Counts`] if they add up to more than a slice can have; [`GroupError::Rank`] if
    /// there is no such rank; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `all` of the root is then partly changed.
    pub async fn gather_v<T: Element>(
        &mut self,
        root: usize,
        part: &[T],
        counts: &[usize],
        all: &mut [T],
    ) -> Result<(), GroupError> {
        let call = Call { root: Some(root), ..self.call_v::<T>(OperationKind::Gather, counts)? };
        expect("part", part.len(), counts[self.rank])?;
        if root == self.rank {
            expect("all", all.len(), total(counts))?;
        }
        self.apart(call, &Counts::Parts(counts.to_vec()), None, T::bytes(part), T::output(all)).await
    }

    /// Sends `sent_counts[rank]` elements to each rank, in the order of the ranks, and receives `received_counts[rank]` from each
    ///
    /// Each rank knows its own counts only, so they are exchanged first: it takes two operations. A rank that does not know how much it will
    /// receive exchanges the counts by [`all_to_all`](Self::all_to_all).
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
    /// let (sent, received) = [(["a", "bcd"], [1, 2]), (["ef", ""], [3, 0])][rank];
    /// let sent_counts = sent.map(str::len);
    /// let mut text = vec![0; received.iter().sum()];
    /// group.all_to_all_v(sent.concat().as_bytes(), &sent_counts, &mut text, &received).await?;
    /// assert_eq!(text, [b"aef", b"bcd"][rank]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`GroupError::Argument`] if the slices are not as long as the counts say, or the counts not as the group;
    /// [`GroupError::Mismatch`] on all ranks if one expects another count from a rank than that rank sends; those of every operation.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: dropping the future ends the group. `received` is then partly changed.
    pub async fn all_to_all_v<T: Element>(
        &mut self,
        sent: &[T],
        sent_counts: &[usize],
        received: &mut [T],
        received_counts: &[usize],
    ) -> Result<(), GroupError> {
        let ranks = self.size();
        expect("sent_counts", sent_counts.len(), ranks)?;
        expect("received_counts", received_counts.len(), ranks)?;
        expect("sent", sent.len(), total(sent_counts))?;
        expect("received", received.len(), total(received_counts))?;
        let own: Vec<_> = [sent_counts, received_counts].concat().iter().map(|&count| count as u64).collect();
        let mut all = vec![0; own.len() * ranks];
        self.all_gather(&own, &mut all).await?;
        let rows: Vec<_> = all.chunks_exact(2 * ranks).map(|row| row.split_at(ranks)).collect();
        for (from, (sent, _)) in rows.iter().enumerate() {
            for (to, (_, received)) in rows.iter().enumerate() {
                if sent[to] != received[from] {
                    let call = call::<T>(OperationKind::AllToAll, 0);
                    let calls = [sent[to], received[from]].map(|count| Call { count, ..call });
                    let error = GroupError::Mismatch { sequence: self.sequence, ranks: [from, to], calls };
                    self.end_with(error.clone(), self.sequence);
                    return Err(error);
                }
            }
        }
        let pairs = rows.iter().map(|(sent, _)| sent.iter().map(|&count| count as usize).collect());
        let pairs: Vec<Vec<_>> = pairs.collect();
        let call = call_of_counts::<T>(OperationKind::AllToAll, &pairs.concat());
        self.apart(call, &Counts::Pairs(pairs), None, T::bytes(sent), T::output(received)).await
    }

    fn call_v<T: Element>(&self, operation: OperationKind, counts: &[usize]) -> Result<Call, GroupError> {
        expect("counts", counts.len(), self.size())?;
        let (elements, max) = (total(counts), isize::MAX as usize / T::TYPE.size());
        if elements > max {
            return Err(GroupError::Counts { elements, max });
        }
        Ok(call_of_counts::<T>(operation, counts))
    }
}

/// The elements of all parts; more than any slice has if the numbers are too large to add
fn total(counts: &[usize]) -> usize {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

fn call_of_counts<T: Element>(operation: OperationKind, counts: &[usize]) -> Call {
    let bytes: Vec<_> = counts.iter().flat_map(|&count| (count as u64).to_le_bytes()).collect();
    let hash = hash(&bytes);
    let counts_hash = (hash ^ hash >> 32) as u32;
    Call {
        counts: NonZeroU32::new(counts_hash).or(Some(NonZeroU32::MIN)),
        ..call::<T>(operation, total(counts))
    }
}
