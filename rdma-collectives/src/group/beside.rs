//! Groups beside another one, over the same sessions

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures::future::{Either, select};
use rdma_async::{Device, Session};

use super::call::OperationKind;
use super::counts::Counts;
use super::dispatch::call;
use super::element::sealed::Sealed as _;
use super::error::JoinError;
use super::join::{Reset, Waiting};
use super::options::GroupOptions;
use super::state::{Founding, Group};
use crate::Cabling;
use crate::network::Network;

impl<D: Device> Group<D> {
    /// Makes another group of the same ranks: operations of both can be under way at once
    ///
    /// All ranks call it in the place of an operation, with the same options; their [priority](GroupOptions::priority) says which group goes
    /// first. Both groups work on, each with memory and streams of its own. Ranks make groups over the same sessions one after another, in the
    /// same order, and so they [shrink](Self::shrink) them.
    ///
    /// The new group has the cables for which this one plans: it does not use one later that is out now.
    ///
    /// Both groups lease send memory: with the defaults, a rank with four neighbours has too little for two groups. Give its node
    /// [more](rdma_async::NodeOptions::send_memory), or the groups shorter [blocks](GroupOptions::block_bytes).
    ///
    /// ```
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| rdma_async::Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a")?, node("b")?);
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
    /// # let peer = b.accept().await.expect("the node is open");
    /// # use rdma_collectives::{Cabling, Group, GroupOptions, Reduction};
    /// # let cabling = &Cabling::line(2, 9_200_000_000);
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// use rdma_async::Priority;
    ///
    /// let mut background = group.duplicate(GroupOptions::new().priority(Priority::Low)).await?;
    /// let (mut gradients, mut tokens) = (vec![1.0; 100_000], [rank as i32]);
    /// let slow = background.all_reduce(&mut gradients, Reduction::Sum);
    /// let fast = group.all_reduce(&mut tokens, Reduction::Sum);
    /// futures::future::try_join(slow, fast).await?;
    /// assert_eq!((gradients[0], tokens), (2.0, [1]));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`JoinError::Group`] if this group is over, or ends before all ranks have called this: the sessions go on, and the ranks that are left can
    /// [shrink](Self::shrink) this group. Later as [`join`](Self::join): a [`JoinError`], which is [`JoinError::Memory`] if the node has too little. The
    /// rank then resets its sessions, which ends both groups.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends this group, as in any operation; once all ranks have called it, it resets the sessions, as in
    /// [`join`](Self::join).
    pub async fn duplicate(&mut self, options: GroupOptions) -> Result<Self, JoinError> {
        self.come_together(OperationKind::Duplicate).await.map_err(JoinError::of_call)?;
        self.begin().await.map_err(JoinError::of_call)?;
        let (rank, cabling, founding) = (self.rank, self.plans.over.cabling.clone(), self.founding.clone());
        let reset = Reset { sessions: self.planned_sessions().collect(), rank };
        self.join_beside(options, rank, &cabling, reset, founding).await
    }

    /// Divides the ranks into groups beside this one: those with the same `color`, numbered by `key`, and by their ranks here if it is equal
    ///
    /// All ranks call it in the place of an operation; one without a color gets no group. The cabling of a group is that between its members:
    /// data does not go through other ranks. Beyond that, as [`duplicate`](Self::duplicate).
    ///
    /// ```
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| rdma_async::Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a")?, node("b")?);
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
    /// # let peer = b.accept().await.expect("the node is open");
    /// # use rdma_collectives::{Cabling, Group, GroupOptions, Reduction};
    /// # let cabling = &Cabling::line(2, 9_200_000_000);
    /// # let rank = async |rank: usize, session| {
    /// # let mut group = Group::join(rank, cabling, [(1 - rank, session)]).await?;
    /// // The same ranks in reverse order.
    /// let reversed = group.split(Some(0), -(rank as i64), GroupOptions::new()).await?;
    /// assert_eq!(reversed.map(|group| group.rank()), Some(1 - rank));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::try_join(rank(0, session), rank(1, peer)).await
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`JoinError::Plan`] on all members if no cables join them to each other; the group here then works on, and so do the other groups.
    /// Otherwise as [`duplicate`](Self::duplicate).
    ///
    /// # Cancel safety
    ///
    /// As [`duplicate`](Self::duplicate).
    pub async fn split(
        &mut self,
        color: Option<u64>,
        key: i64,
        options: GroupOptions,
    ) -> Result<Option<Self>, JoinError> {
        let own = [u64::from(color.is_some()), color.unwrap_or(0), key as u64];
        let mut all = vec![0; own.len() * self.size()];
        let (call, counts) = (call::<u64>(OperationKind::Split, own.len()), Counts::Even(own.len()));
        let gathered = self.apart(call, &counts, None, u64::bytes(&own), u64::output(&mut all));
        gathered.await.map_err(JoinError::of_call)?;
        self.begin().await.map_err(JoinError::of_call)?;
        if color.is_none() {
            return Ok(None);
        }
        let asked = all.as_chunks::<3>().0.iter().enumerate();
        let same = asked.filter(|(_, asked)| asked[..2] == own[..2]);
        let mut members: Vec<_> = same.map(|(rank, [.., key])| (*key as i64, rank)).collect();
        members.sort_unstable();
        let members: Vec<_> = members.into_iter().map(|(_, rank)| rank).collect();
        let number = |rank: usize| members.iter().position(|member| *member == rank);
        let Some(rank) = number(self.rank) else { unreachable!("the rank has its own color") };
        let cabling = self.plans.over.cabling.among(&members, |_| true);
        if members.len() > 1 {
            Network::of(&cabling)?;
        }
        let founding = Founding::new(&cabling, self.founding.epoch);
        let sessions = self.planned_sessions().filter_map(|(rank, session)| Some((number(rank)?, session)));
        let reset = Reset { sessions: sessions.collect(), rank };
        self.join_beside(options, rank, &cabling, reset, founding).await.map(Some)
    }

    /// Joins a group beside this one, after the operation in which the ranks have come together
    ///
    /// That operation is completed here, and may fail on another rank, which then does not join.
    async fn join_beside(
        &mut self,
        options: GroupOptions,
        rank: usize,
        cabling: &Cabling,
        reset: Reset<D>,
        founding: Founding,
    ) -> Result<Self, JoinError> {
        let (sequence, links, relays) = (self.sequence.wrapping_sub(1), &mut self.links, &self.relays);
        let joining = pin!(Self::join_at(options, rank, cabling, reset, Waiting::Never, founding));
        let given_up = poll_fn(|cx| {
            relays.register(cx);
            let mut ends = links.iter_mut().map(|link| link.poll_given_up(sequence, cx));
            ends.find(Poll::is_ready).unwrap_or(Poll::Pending)
        });
        let error = match select(joining, given_up).await {
            Either::Left((joined, _)) => return joined,
            Either::Right((error, _)) => error,
        };
        self.end_with(error.clone(), sequence);
        Err(JoinError::of_group(error))
    }

    /// The sessions with the neighbours to which cables work by the present plan
    fn planned_sessions(&self) -> impl Iterator<Item = (usize, Session<D>)> {
        let planned = self.links.iter().filter(|link| link.cables > 0);
        planned.map(|link| (link.rank, link.session()))
    }

    /// The sessions with all neighbours
    pub(super) fn sessions(&self) -> impl Iterator<Item = (usize, Session<D>)> {
        self.links.iter().map(|link| (link.rank, link.session()))
    }
}
