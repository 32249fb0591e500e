//! A rank that looks for the others: what it has, what it learns, and how it waits for that

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::{BoxFuture, pending};
use futures::stream::FuturesUnordered;
use rdma_async::time::timeout;
use rdma_async::{Device, RecvError, SendError, Session, Stream, StreamId};

use super::views::{Statement, Versions, Views};
use crate::group::error::JoinError;
use crate::group::join::{self, Waiting};
use crate::group::link::Streams;
use crate::group::options::GroupOptions;
use crate::group::ranks::Ranks;
use crate::group::state::Founding;
use crate::group::wire::LEAVING;

/// The streams to a neighbour
pub(super) struct Bundle<D: Device> {
    pub(super) statements: Arc<Stream<D>>,
    /// `None` once they are used
    pub(super) link: Option<Streams<D>>,
    /// The decision of the neighbour in the present attempt, or 0
    pub(super) decided: u64,
    /// The attempt and the decision of the statement that was sent last
    pub(super) sent: Option<[u64; 2]>,
    /// What the neighbour knows once that statement has arrived
    pub(super) known: Versions,
    /// Whether it is still being sent: one at a time, so that none overtakes another
    pub(super) is_sending: bool,
}

impl<D: Device> Drop for Bundle<D> {
    fn drop(&mut self) {
        // The future that receives keeps the stream, and the neighbour would wait for another statement.
        self.statements.finish();
    }
}

/// A rank that is looking for the others
pub(super) struct Survivor<D: Device> {
    /// Founding ranks, as everywhere here
    pub(super) own: usize,
    pub(super) founding: Founding,
    pub(super) options: GroupOptions,
    /// The last group that was agreed on, and those that may have been since
    pub(super) groups: Vec<Ranks>,
    pub(super) attempt: u64,
    pub(super) views: Views,
    pub(super) sessions: BTreeMap<usize, Session<D>>,
    pub(super) bundles: BTreeMap<usize, Bundle<D>>,
    /// Neighbours whose cables to this rank are given up: no path over them carries data, and other ranks reach these neighbours
    pub(super) given_up: BTreeSet<usize>,
    /// Neighbours to which no path has carried data for as long as their sessions may be silent
    pub(super) cut_off: BTreeSet<usize>,
    /// The neighbours to which streams are being opened
    pub(super) opening: BTreeSet<usize>,
    pub(super) events: FuturesUnordered<BoxFuture<'static, Event<D>>>,
    /// Why this rank can not go on
    pub(super) failure: Option<JoinError>,
}

/// What a rank learns while it looks for the others
pub(super) enum Event<D: Device> {
    /// The streams to a neighbour, or `None` if the session is over
    Opened(usize, Option<Bundle<D>>),
    /// What a neighbour sent on the stream with this number: `None` at its end, and `Some(None)` if that is no statement
    Received(usize, StreamId, Result<Option<Option<Statement>>, RecvError>),
    /// The last statement has been sent on the stream with this number, or could not be
    Sent(usize, StreamId, Result<(), SendError>),
    /// A neighbour has left the group before, or one that did not come together
    Left(usize),
    /// So many paths to a neighbour carry data
    Paths(usize, usize),
    /// None has for as long as the sessions of the neighbour may be silent
    CutOff(usize),
    /// Nothing more happens on a stream of ends
    Silent,
}

impl<D: Device> Survivor<D> {
    /// Rank `own` of those that were in the group, with its sessions
    pub(super) fn new(
        own: usize,
        founding: Founding,
        sessions: BTreeMap<usize, Session<D>>,
        options: GroupOptions,
    ) -> Self {
        let group: Ranks = founding.ranks.iter().copied().collect();
        let survivor = Self {
            own,
            options,
            groups: vec![group.clone()],
            attempt: founding.epoch + 1,
            views: Views::new(own, group, founding.epoch, sessions.keys().copied().collect()),
            founding,
            sessions,
            bundles: BTreeMap::new(),
            given_up: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            opening: BTreeSet::new(),
            events: FuturesUnordered::new(),
            failure: None,
        };
        // Never empty: its end would be an event at once, again and again.
        survivor.events.push(Box::pin(pending()));
        survivor
    }

    /// The streams to a neighbour, unless the one with this number belongs to earlier ones
    pub(super) fn bundle(&mut self, rank: usize, statements: StreamId) -> Option<&mut Bundle<D>> {
        self.bundles.get_mut(&rank).filter(|bundle| bundle.statements.id() == statements)
    }

    /// Goes on without a neighbour, which learns of it as soon as a path reaches it
    pub(super) fn reset(&mut self, rank: usize) {
        if let Some(session) = self.sessions.get(&rank) {
            session.reset(0);
        }
        self.lose(rank);
    }

    /// The session with a neighbour is over
    pub(super) fn lose(&mut self, rank: usize) {
        self.views.lose(rank);
        self.bundles.remove(&rank);
        self.sessions.remove(&rank);
        self.given_up.remove(&rank);
    }

    pub(super) fn apply(&mut self, event: Event<D>) {
        match event {
            Event::Silent => (),
            Event::Paths(rank, up) => {
                self.views.reach(rank, up > 0);
                self.cut_off.remove(&rank);
                self.watch_paths(rank, up);
            }
            Event::CutOff(rank) => {
                self.cut_off.insert(rank);
                self.watch_paths(rank, 0);
            }
            Event::Left(rank) => self.views.leave(rank),
            Event::Sent(rank, stream, sent) => {
                // Receiving says why, if the neighbour takes none any more.
                if let Err(SendError::TooLong { len, max }) = sent {
                    self.failure = Some(JoinError::Statement { rank, max, len });
                }
                if let Some(bundle) = self.bundle(rank, stream) {
                    bundle.is_sending = false;
                }
            }
            Event::Opened(rank, None) => {
                self.opening.remove(&rank);
                self.lose(rank);
            }
            Event::Opened(rank, Some(bundle)) => {
                self.opening.remove(&rank);
                if self.sessions.contains_key(&rank) && !self.given_up.contains(&rank) {
                    self.receive(rank, &bundle.statements);
                    self.bundles.insert(rank, bundle);
                }
            }
            Event::Received(rank, stream, received) => {
                let Some(bundle) = self.bundle(rank, stream) else { return };
                match received {
                    Ok(Some(Some(statement))) => {
                        let statements = Arc::clone(&bundle.statements);
                        bundle.known.note(&statement.views);
                        self.views.merge(&statement.views);
                        if statement.attempt > self.attempt {
                            self.attempt = statement.attempt;
                            self.bundles.values_mut().for_each(|bundle| bundle.decided = 0);
                        }
                        if statement.attempt == self.attempt
                            && let Some(bundle) = self.bundle(rank, stream)
                        {
                            bundle.decided = statement.decided;
                        }
                        self.receive(rank, &statements);
                    }
                    // The neighbour begins again, or has joined a group that did not come together here.
                    Ok(None) => drop(self.bundles.remove(&rank)),
                    // It runs another protocol, and goes on with no rank of this group.
                    Ok(Some(None)) => self.reset(rank),
                    Err(_) => self.lose(rank),
                }
            }
        }
    }

    /// Waits until a neighbour leaves the group of these streams of ends, by founding rank
    pub(super) fn watch(&self, ends: Vec<(usize, Arc<Stream<D>>)>) {
        for (rank, end) in ends {
            self.events.push(Box::pin(async move {
                loop {
                    match end.recv().await {
                        Ok(Some(message)) if *message == LEAVING => return Event::Left(rank),
                        // Why the group is over.
                        Ok(Some(_)) => (),
                        // The session is over, which other streams say, or the neighbour has joined another group.
                        Ok(None) | Err(_) => return Event::Silent,
                    }
                }
            }));
        }
    }

    /// Waits until another number of paths than `up` carries data to a neighbour, or none has for too long
    fn watch_paths(&self, rank: usize, up: usize) {
        let Some(session) = self.sessions.get(&rank) else { return };
        let change = session.path_change(up);
        if up > 0 || self.cut_off.contains(&rank) {
            return self.events.push(Box::pin(async move { Event::Paths(rank, change.await) }));
        }
        let (runtime, limit) = (Arc::clone(session.runtime()), session.peer_timeout());
        self.events.push(Box::pin(async move {
            timeout(&*runtime, limit, change).await.map_or(Event::CutOff(rank), |up| Event::Paths(rank, up))
        }));
    }

    fn receive(&self, rank: usize, stream: &Stream<D>) {
        let (id, receiving) = (stream.id(), stream.recv());
        self.events.push(Box::pin(async move {
            let received = receiving.await;
            Event::Received(
                rank,
                id,
                received.map(|message| message.map(|message| Statement::decode(&message))),
            )
        }));
    }
}

/// Opens streams to a neighbour: one for statements, and those of a link
pub(super) async fn open<D: Device>(rank: usize, session: Session<D>) -> Event<D> {
    // Waits for places, which the streams of the group before have until both ranks are here.
    let streams = join::streams(rank, &session, Waiting::ForEarlierGroup).await;
    let Ok([statements, data, credit, end, relay]) = streams else { return Event::Opened(rank, None) };
    let link = Some(Streams { data, credit, end: Arc::new(end), relay });
    let statements = Arc::new(statements);
    Event::Opened(
        rank,
        Some(Bundle {
            statements,
            link,
            decided: 0,
            sent: None,
            known: Versions::default(),
            is_sending: false,
        }),
    )
}

#[cfg(test)]
mod tests {
    use rdma_sim::SimDevice;

    use super::*;
    use crate::Cabling;

    /// Regression: a statement that was too long for a neighbour was lost, and all ranks waited for it for ever.
    #[test]
    fn a_statement_that_is_not_sent_is_an_error() {
        let founding = Founding::new(&Cabling::line(2, 1), 0);
        let mut survivor = Survivor::<SimDevice>::new(0, founding, BTreeMap::new(), GroupOptions::new());
        // It waits for what rank 1 says.
        survivor.views = Views::new(0, Ranks::from_iter([0, 1]), 0, Ranks::from_iter([1]));
        let mut after = |sent| {
            survivor.apply(Event::Sent(1, StreamId(0), sent));
            survivor.decision()
        };
        for sent in
            [Ok(()), Err(SendError::PeerClosed), Err(SendError::StreamDropped), Err(SendError::Closed)]
        {
            assert_eq!(after(sent), Ok(None));
        }
        let error = JoinError::Statement { rank: 1, max: 4096, len: 5000 };
        assert_eq!(after(Err(SendError::TooLong { len: 5000, max: 4096 })), Err(error.into()));
    }
}
