//! How the ranks of a group go on without those that were lost
//!
//! Each rank opens streams of its own to its neighbours and sends them what it knows ([`Views`]), until all that it reaches have said
//! which ranks they reach. They then know the same, decide the same, state so to each other, and join a group of themselves. A rank that learns
//! of another loss meanwhile, or whose group does not come together, begins another attempt, and the others follow it.

mod survivor;
mod views;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{Either, select, try_join_all};
use rdma_async::{Device, Session, Stream};

use self::survivor::{Bundle, Event, Survivor, open};
use self::views::Decision;
pub(super) use self::views::Statement;
use super::error::{GroupError, JoinError, ShrinkError};
use super::join::{self, Reset, Waiting};
use super::link::{Leases, Streams};
use super::options::GroupOptions;
use super::plans::Plans;
use super::state::{Founding, Group};
use super::wire::{End, FIRST};

/// Joins a group of the ranks of `founding` that are left, as rank `rank` of the group that has lost some
///
/// `ends` are the streams of ends to the neighbours, by founding rank, and `left` the neighbours that have left. Resets the sessions if it
/// fails or is dropped.
pub(super) async fn shrink<D: Device>(
    rank: usize,
    founding: Founding,
    ends: Vec<(usize, Arc<Stream<D>>)>,
    left: Vec<usize>,
    options: GroupOptions,
) -> Result<Group<D>, ShrinkError> {
    let own = founding.ranks[rank];
    let sessions: BTreeMap<_, _> = ends.iter().map(|(rank, end)| (*rank, end.session())).collect();
    let reset = sessions.iter().map(|(rank, session)| (*rank, session.clone())).collect();
    let mut survivor = Survivor::new(own, founding, sessions, options);
    left.into_iter().for_each(|rank| survivor.views.leave(rank));
    let paths: Vec<_> = survivor.sessions.iter().map(|(rank, session)| (*rank, session.paths_up())).collect();
    paths.into_iter().for_each(|(rank, up)| survivor.apply(Event::Paths(rank, up)));
    // So that the streams are over as soon as both ranks have come here.
    ends.iter().for_each(|(_, end)| end.finish());
    survivor.watch(ends);
    // Dropped before the streams: neighbours should learn of the reset before they see the ends of streams.
    let mut reset = Reset { sessions: reset, rank };
    let group = survivor.agree().await;
    if group.is_ok() {
        reset.sessions.clear();
    }
    drop(reset);
    group
}

impl<D: Device> Survivor<D> {
    async fn agree(&mut self) -> Result<Group<D>, ShrinkError> {
        loop {
            self.choose_cables();
            self.open_all();
            let decision = self.decision()?;
            self.send_statements(decision.as_ref());
            match decision.filter(|decision| self.is_agreed(decision)) {
                Some(decision) => {
                    // It may come together at others, and not here.
                    if !self.groups.contains(&decision.members) {
                        self.groups.push(decision.members.clone());
                    }
                    let attempt = self.attempt;
                    match self.join(&decision).await {
                        Some(joined) => return joined,
                        None => self.begin_again(attempt),
                    }
                }
                None => {
                    let event = self.events.next().await;
                    event.into_iter().for_each(|event| self.apply(event));
                }
            }
        }
    }

    /// The ranks that go on, as far as this one knows
    fn decision(&self) -> Result<Option<Decision>, ShrinkError> {
        if let Some(error) = &self.failure {
            return Err(error.clone().into());
        }
        if self.views.is_excluded() {
            return Err(ShrinkError::Excluded { host: self.name(self.own) });
        }
        let decision = self.views.decision();
        if let Some(decision) = &decision
            && let Some(group) = self.groups.iter().find(|group| !decision.has_quorum(group))
        {
            let hosts = decision.members.common(group).iter().map(|rank| self.name(rank)).collect();
            return Err(ShrinkError::Minority { hosts, size: group.len() });
        }
        Ok(decision)
    }

    fn name(&self, rank: usize) -> String {
        self.founding.cabling.hosts()[rank].clone()
    }

    /// Whether all neighbours have decided the same, and were sent that this rank has
    fn is_agreed(&self, decision: &Decision) -> bool {
        let expected = decision.fingerprint(self.attempt);
        let is_agreed =
            |bundle: &Bundle<D>| bundle.decided == expected && bundle.sent == Some([self.attempt, expected]);
        decision.neighbours(self.own).all(|rank| self.bundles.get(&rank).is_some_and(is_agreed))
    }

    /// Sends the neighbours what this rank knows, if they were not sent it yet
    fn send_statements(&mut self, decision: Option<&Decision>) {
        let decided = decision.map_or(0, |decision| decision.fingerprint(self.attempt));
        let (attempt, sent) = (self.attempt, Some([self.attempt, decided]));
        for (&rank, bundle) in self.bundles.iter_mut().filter(|(_, bundle)| !bundle.is_sending) {
            let views = self.views.newer(&bundle.known);
            if views.is_empty() && bundle.sent == sent {
                continue;
            }
            bundle.known.note(&views);
            (bundle.sent, bundle.is_sending) = (sent, true);
            let (stream, statement) = (Arc::clone(&bundle.statements), Statement { attempt, decided, views });
            let bytes = statement.encode();
            self.events.push(Box::pin(async move {
                let sent = stream.send_bytes(&bytes).await;
                Event::Sent(rank, stream.id(), sent)
            }));
        }
    }

    /// Goes on without the cables to neighbours that no path reaches, as long as others reach them, and without neighbours that are cut off
    ///
    /// Those others may have given up theirs at the same time, because of this rank: then it takes the neighbour back, and waits for a path.
    /// For that, a path of others counts as its nearer end says: the other end may not have said yet that the path is back, and the others may
    /// have formed the group already.
    fn choose_cables(&mut self) {
        let neighbours: Vec<_> = self.sessions.keys().copied().collect();
        for rank in neighbours {
            if self.given_up.contains(&rank) && !self.views.may_lead_around(rank) {
                self.given_up.remove(&rank);
                self.views.take_back(rank);
            }
            if self.given_up.contains(&rank) || !self.views.is_unreached(rank) {
                continue;
            }
            if self.views.leads_around(rank) {
                self.given_up.insert(rank);
                self.views.lose(rank);
                self.bundles.remove(&rank);
            } else if self.cut_off.contains(&rank) {
                self.reset(rank);
            }
        }
    }

    /// Opens streams to all neighbours to which there are none
    fn open_all(&mut self) {
        let gone = self.views.gone();
        let lacking = |rank: &usize| {
            let has_streams = self.bundles.contains_key(rank) || self.opening.contains(rank);
            !gone.contains(*rank) && !has_streams && !self.given_up.contains(rank)
        };
        let lacking: Vec<_> = self.sessions.keys().copied().filter(lacking).collect();
        for rank in lacking {
            self.opening.insert(rank);
            self.events.push(Box::pin(open(rank, self.sessions[&rank].clone())));
        }
    }

    /// Joins the group that was decided; `None` if it does not come together
    async fn join(&mut self, decision: &Decision) -> Option<Result<Group<D>, ShrinkError>> {
        let (mut streams, mut ends) = (Vec::new(), Vec::new());
        for rank in decision.neighbours(self.own) {
            let link = self.bundles.get_mut(&rank)?.link.take()?;
            ends.push((rank, Arc::clone(&link.end)));
            streams.push((rank, self.sessions.get(&rank)?.clone(), link));
        }
        let joined = self.join_with(decision, streams).await;
        if joined.is_none() {
            let rank = decision.members.iter().take_while(|rank| *rank != self.own).count();
            for (_, end) in &ends {
                let end_of_group = End { error: GroupError::Revoked { rank }, sequence: FIRST };
                let (end, message) = (Arc::clone(end), end_of_group.encode());
                self.events.push(Box::pin(async move {
                    // Fails if the neighbour is lost, which other streams say.
                    let _ = end.send_bytes(&message).await;
                    end.finish();
                    Event::Silent
                }));
            }
            // It may have come together at a neighbour, which may leave it.
            self.watch(ends);
        }
        joined
    }

    async fn join_with(
        &mut self,
        decision: &Decision,
        streams: Vec<(usize, Session<D>, Streams<D>)>,
    ) -> Option<Result<Group<D>, ShrinkError>> {
        let attempt = self.attempt;
        let founding = Founding { epoch: attempt, ..self.founding.clone() };
        let mut joining = pin!(join_members(self.own, founding, decision.clone(), streams, self.options));
        loop {
            let event = match select(joining, self.events.next()).await {
                Either::Left((Ok(group), _)) => return Some(Ok(group)),
                Either::Left((Err(error), _)) => return error.map(|error| Err(error.into())),
                Either::Right((event, rest)) => {
                    joining = rest;
                    event
                }
            };
            event.into_iter().for_each(|event| self.apply(event));
            self.choose_cables();
            if self.attempt > attempt || self.views.decision().as_ref() != Some(decision) {
                return None;
            }
        }
    }

    /// Begins another attempt: all streams are opened anew
    fn begin_again(&mut self, failed: u64) {
        self.attempt = self.attempt.max(failed.saturating_add(1));
        self.bundles.clear();
    }
}

/// The group of the ranks that were decided, once all of them are there; an error only if it can never come together
async fn join_members<D: Device>(
    own: usize,
    founding: Founding,
    decision: Decision,
    neighbours: Vec<(usize, Session<D>, Streams<D>)>,
    options: GroupOptions,
) -> Result<Group<D>, Option<JoinError>> {
    let ranks: Vec<usize> = decision.members.iter().collect();
    let number = |rank: usize| ranks.binary_search(&rank).unwrap_or(ranks.len());
    let is_left =
        |[left, right]: [usize; 2]| decision.pairs.binary_search(&[left.min(right), left.max(right)]).is_ok();
    let plans = Plans::new(founding.cabling.among(&ranks, is_left)).map_err(|error| Some(error.into()))?;
    let rank = number(own);
    let greeting = join::greeting(rank, &plans, &options);
    let cabled = &plans.over.cabled;
    let links = neighbours.into_iter().map(async |(neighbour, session, streams)| {
        let neighbour = number(neighbour);
        // The memory of the group before comes back, also what was under way to ranks that are lost.
        let leases = Leases::new(&session, neighbour, cabled, options, Waiting::ForEarlierGroup).await?;
        streams.data.set_priority(options.priority);
        join::greet(greeting, neighbour, session.max_message(), streams, leases).await
    });
    let links = try_join_all(links).await.map_err(|error| error.is_lasting().then_some(error))?;
    let group = Group::new(rank, links, plans, options, Founding { ranks, ..founding });
    // Another rank may have been lost meanwhile.
    group.agree_on_epoch().await.map_err(|_| None)
}
