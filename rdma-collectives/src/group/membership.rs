//! Which ranks a group has: joining, going on without those that are lost, and taking others in

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{Either, pending, select};
use futures::stream::FuturesUnordered;
use rdma_async::{Device, Session, Stream};

use super::error::{GroupError, JoinError, ShrinkError};
use super::join::{self, Linked, Reset, Waiting};
use super::options::GroupOptions;
use super::reduction::Reduction;
use super::shrink;
use super::state::{Founding, Group};
use super::wire::{End, FIRST};
use crate::Cabling;

impl<D: Device> Group<D> {
    /// Joins the group of all hosts of `cabling` as one of them, with default options
    ///
    /// `sessions` are pairs of a rank and a session with it: one for each rank that has a cable with this one. The group opens streams of
    /// its own in each session, and takes those that the neighbour opens; the main stream stays free for the application. It must not accept
    /// streams meanwhile. All ranks have to join at the same time with the same cabling, including names, rates and latencies; a
    /// rank has joined when all have.
    ///
    /// # Errors
    ///
    /// [`JoinError::Disagreement`] if a neighbour has another cabling, number of ranks, rank or other options, or other plans because of its
    /// version; [`JoinError::Rank`] or [`JoinError::Sessions`] if the arguments contradict each other; [`JoinError::Plan`] if the
    /// cabling has no plan; [`JoinError::Failed`], [`JoinError::Lost`] or [`JoinError::Greeting`] if another rank does not join;
    /// [`JoinError::Memory`], [`JoinError::MaxMessage`], [`JoinError::Statement`] or [`JoinError::Streams`] if the nodes have too little for the
    /// group.
    ///
    /// A rank that does not join [resets](Session::reset) its sessions, so that the others do not wait for it: they get
    /// [`JoinError::Failed`] or [`JoinError::Lost`] with the rank that is the cause.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is a failure to join: it resets the sessions.
    pub async fn join(
        rank: usize,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
    ) -> Result<Self, JoinError> {
        Self::join_with(rank, cabling, sessions, GroupOptions::new()).await
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
        rank: usize,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
        options: GroupOptions,
    ) -> Result<Self, JoinError> {
        let reset = Reset { sessions: sessions.into_iter().collect(), rank };
        // The rank itself may have the rest of the memory.
        Self::join_at(options, rank, cabling, reset, Waiting::Never, Founding::new(cabling, 0)).await
    }

    /// Joins the hosts of `cabling`; resets the sessions if that fails
    pub(super) async fn join_at(
        options: GroupOptions,
        rank: usize,
        cabling: &Cabling,
        reset: Reset<D>,
        waiting: Waiting,
        founding: Founding,
    ) -> Result<Self, JoinError> {
        let Linked { links, plans, mut reset } = join::join(rank, options, cabling, waiting, reset).await?;
        let group = Self::new(rank, links, plans, options, founding);
        let agreed = group.agree_on_epoch().await.map_err(JoinError::of_group);
        match &agreed {
            Ok(_) => reset.sessions.clear(),
            Err(error) => reset.now(error.cause(rank)),
        }
        agreed
    }

    /// Waits until all ranks are there; agrees on the highest epoch
    pub(super) async fn agree_on_epoch(mut self) -> Result<Self, GroupError> {
        let mut epoch = [self.founding.epoch];
        self.sequence = FIRST;
        self.all_reduce(&mut epoch, Reduction::Max).await?;
        [self.founding.epoch] = epoch;
        self.links.iter_mut().for_each(|link| link.is_last = true);
        Ok(self)
    }

    /// Goes on without the ranks that are lost or have left
    ///
    /// All ranks that are left call it, as soon as an operation has failed, or the group is [revoked](Self::revoke); they get a new
    /// group, which begins with operation 0. Its ranks are numbered anew in the same order ([`hosts`](Self::hosts) names them), and its cabling is
    /// what is left of the first one: pairs of ranks whose session is over, or whose cables are out while others reach both, have no cable.
    ///
    /// The ranks agree on which of them are left, also if more are lost meanwhile. Only more than half of the ranks of the group go on, or
    /// half of them with the lowest one: ranks that are cut off from each other do not go on side by side.
    ///
    /// A group that still works is [revoked](Self::revoke). Other groups over the same sessions are not: revoke those first, or a rank that waits in
    /// one of them does not come here.
    ///
    /// # Errors
    ///
    /// [`ShrinkError::Minority`] if too few are left; [`ShrinkError::Excluded`] if the others take this rank for one that has left;
    /// [`ShrinkError::Join`] if the nodes have too little for a group. The rank then [resets](Session::reset) its sessions, as one that fails
    /// to [`join`](Self::join) does.
    ///
    /// # Cancel safety
    ///
    /// Waits for every rank that can be reached, until that rank calls it, drops its group, or its sessions end. A rank whose sessions live and to which
    /// no path leads, not over other ranks either, is waited for as long as the [`peer_timeout`](rdma_async::Session::peer_timeout)
    /// of its sessions; then it is left out, and its sessions are [reset](Session::reset), also if its device is only slow to make a path again. Waits
    /// also for the memory of the
    /// group, if the application has leased it meanwhile, and five streams to each neighbour
    /// ([`max_streams`](rdma_async::NodeOptions::max_streams)). Dropping the future leaves the group: it resets the sessions, and the others go
    /// on without this rank.
    pub async fn shrink(mut self) -> Result<Self, ShrinkError> {
        if self.end.is_none() {
            self.revoke();
        }
        self.links.iter_mut().for_each(|link| link.is_last = false);
        let Self { rank, links, relays, options, founding, .. } = self;
        let ends = links.iter().map(|link| (founding.ranks[link.rank], link.end_stream())).collect();
        let left =
            links.iter().filter(|link| link.has_left()).map(|link| founding.ranks[link.rank]).collect();
        // Their memory and their other streams are needed for the new ones.
        drop((links, relays));
        shrink::shrink(rank, founding, ends, left, options).await
    }

    /// Goes on with further ranks
    ///
    /// All ranks of the group call it with the same cabling, in the place of an operation; the new ranks [`join`](Self::join) with that
    /// cabling at the same time. Its hosts are those of the group, by their names, and the new ones, in any order. `sessions` are those with new
    /// neighbours, by their ranks in `cabling`; the group keeps the sessions that it has, as far as the cabling has a cable for them. A host
    /// that was lost or has left comes back with a new session. The new group begins with operation 0.
    ///
    /// # Errors
    ///
    /// As [`join`](Self::join): a [`JoinError`]; [`JoinError::Host`] if the cabling lacks a host of the group; [`JoinError::Lost`] with a rank that
    /// was lost before, and [`JoinError::Failed`] with one that leaves. The ranks of errors are those in `cabling`.
    ///
    /// # Cancel safety
    ///
    /// As [`join`](Self::join).
    pub async fn grow(
        mut self,
        cabling: &Cabling,
        sessions: impl IntoIterator<Item = (usize, Session<D>)>,
    ) -> Result<Self, JoinError> {
        self.links.iter_mut().for_each(|link| link.is_last = false);
        let kept: Vec<_> = self.sessions().collect();
        let mut reset = Reset { sessions: sessions.into_iter().collect(), rank: self.rank };
        let newcomers: Vec<_> = reset.sessions.iter().map(|(rank, _)| *rank).collect();
        reset.sessions.extend(kept.iter().cloned());
        let hosts = self.hosts().to_vec();
        let number = |rank: usize| {
            let host = &hosts[rank];
            let found = cabling.hosts().iter().position(|other| other == host);
            found.ok_or_else(|| JoinError::Host { host: host.clone() })
        };
        let of_group = |error| JoinError::of_group(error).renumbered(number);
        let rank = number(self.rank)?;
        // A neighbour may have said so during the operation before.
        let over = self.links.iter().find_map(|link| link.over().cloned());
        if let Some(error) = self.end.take().or(over) {
            let error = of_group(error);
            reset.now(error.cause(rank));
            return Err(error);
        }
        let kept: Vec<_> = kept
            .into_iter()
            .map(|(neighbour, session)| Ok((number(neighbour)?, session)))
            .collect::<Result<_, JoinError>>()?;
        reset.sessions.truncate(newcomers.len());
        // One that is over may have been replaced; otherwise it says why.
        let is_kept = |(neighbour, session): &(usize, Session<D>)| {
            let is_cabled = cabling.between(rank, *neighbour).next().is_some();
            is_cabled && (session.close_reason().is_none() || !newcomers.contains(neighbour))
        };
        reset.sessions.extend(kept.into_iter().filter(is_kept));
        reset.rank = rank;
        let Self { links, relays, options, founding, .. } = self;
        // A neighbour that has lost another rank, or leaves, does not come.
        let mut others = FuturesUnordered::new();
        others.extend(links.iter().map(|link| gives_up(link.rank, link.end_stream())));
        // Their memory and their other streams are needed for the new ones.
        drop((links, relays));
        let founding = Founding::new(cabling, founding.epoch + 1);
        let sessions = reset.sessions.clone();
        let joining = pin!(Self::join_at(options, rank, cabling, reset, Waiting::ForEarlierGroup, founding));
        let stays_away = pin!(async {
            loop {
                match others.next().await {
                    Some(Some(error)) => return error,
                    Some(None) => (),
                    None => return pending().await,
                }
            }
        });
        match select(joining, stays_away).await {
            Either::Left((joined, _)) => joined,
            Either::Right((error, _joining)) => {
                let error = of_group(error);
                Reset { sessions, rank }.now(error.cause(rank));
                Err(error)
            }
        }
    }

    /// Ends the group on all ranks that can be reached: operations under way and later ones fail with [`GroupError::Revoked`] there
    ///
    /// Does nothing if the group is over already.
    pub fn revoke(&mut self) {
        if self.end.is_none() {
            self.end_with(GroupError::Revoked { rank: self.rank }, self.sequence);
        }
    }
}

/// Waits until a neighbour says that its group is over; returns why, or `None` if it goes on elsewhere
async fn gives_up<D: Device>(rank: usize, end: Arc<Stream<D>>) -> Option<GroupError> {
    let message = end.recv().await.ok().flatten()?;
    Some(End::decode(&message).map_or(GroupError::Left { rank }, |end| end.error))
}
