//! How the ranks of a group come together

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use rdma_async::{Device, Priority, Session, Side, Stream};

use super::cause::Cause;
use super::error::JoinError;
use super::link::{Leases, MAX_MESSAGES, Parts, Streams};
use super::options::GroupOptions;
use super::plans::Plans;
use super::ranks::Ranks;
use super::relay::packet_bytes;
use super::shrink::Statement;
use super::wire::{Credit, End, Greeting, LEAVING};
use crate::Cabling;
use crate::cabling::hash;

/// Changes when ranks of this version cannot work with those of another one, also because they divide vectors into other blocks.
const VERSION: u64 = 13;

/// Whether joining waits for memory and places of streams
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Waiting {
    /// Another group of the same ranks gives them back
    ForEarlierGroup,
    /// The application may have them for ever
    Never,
}

/// What the links of a rank are made of
pub(super) struct Linked<D: Device> {
    pub(super) reset: Reset<D>,
    pub(super) links: Vec<Parts<D>>,
    pub(super) plans: Plans,
}

/// Joins the neighbours
///
/// Resets the sessions if that fails, or if the future is dropped: the neighbours would wait for ever.
pub(super) async fn join<D: Device>(
    rank: usize,
    options: GroupOptions,
    cabling: &Cabling,
    waiting: Waiting,
    reset: Reset<D>,
) -> Result<Linked<D>, JoinError> {
    // Dropped behind the reset: neighbours should learn of that before they see the ends of streams.
    let (mut links, mut linking) = (Vec::new(), FuturesUnordered::new());
    let mut reset = reset;
    let joined = async {
        let sessions = by_neighbour(rank, cabling, &reset.sessions)?;
        let plans = Plans::new(cabling.clone())?;
        let own = greeting(rank, &plans, &options);
        // All at once: a failure is found whichever neighbour it is with.
        let cabled = || Arc::clone(&plans.over.cabled);
        let link = |(neighbour, session)| link(own, neighbour, session, cabled(), options, waiting);
        linking.extend(sessions.into_iter().map(link));
        while let Some(link) = linking.try_next().await? {
            links.push(link);
        }
        Ok(plans)
    }
    .await;
    match joined {
        Ok(plans) => Ok(Linked { links, plans, reset }),
        Err(error) => {
            reset.now(JoinError::cause(&error, rank));
            Err(error)
        }
    }
}

/// Makes what a link is made of
async fn link<D: Device>(
    own: Greeting,
    neighbour: usize,
    session: Session<D>,
    cabled: Arc<[Ranks]>,
    options: GroupOptions,
    waiting: Waiting,
) -> Result<Parts<D>, JoinError> {
    let (len, max) = (Statement::max_len(&cabled), session.max_message());
    if len > max {
        return Err(JoinError::Statement { rank: neighbour, max, len });
    }
    let leases = Leases::new(&session, neighbour, &cabled, options, waiting).await?;
    let [data, credit, end, relay] = streams(neighbour, &session, waiting).await?;
    data.set_priority(options.priority);
    let streams = Streams { data, credit, end: Arc::new(end), relay };
    greet(own, neighbour, session.max_message(), streams, leases).await
}

/// Opens or accepts streams to a neighbour; they have the same order at both ends
pub(super) async fn streams<D: Device, const N: usize>(
    neighbour: usize,
    session: &Session<D>,
    waiting: Waiting,
) -> Result<[Stream<D>; N], JoinError> {
    let mut streams = Vec::with_capacity(N);
    while streams.len() < N {
        // By sides and not by ranks, which the greeting compares: neighbours that take each other for another rank find that out.
        streams.push(match session.side() {
            Side::Connecting => opened(neighbour, session, waiting, N).await?,
            Side::Accepting => accepted(neighbour, session).await?,
        });
    }
    // Streams are numbered in the order in which they are opened.
    streams.sort_by_key(|stream| stream.id().0);
    streams.try_into().map_err(|_| unreachable!("there are as many as were asked for"))
}

/// Agrees with a neighbour whose node takes messages of up to `max` bytes, over the streams of a link
pub(super) async fn greet<D: Device>(
    own: Greeting,
    neighbour: usize,
    max: usize,
    streams: Streams<D>,
    mut leases: Leases,
) -> Result<Parts<D>, JoinError> {
    for urgent in [&streams.credit, &*streams.end, &streams.relay] {
        urgent.set_priority(Priority::High);
    }
    leases.end.extend_from_slice(&Greeting { max_message: max as u64, ..own }.encode());
    // Delivered before anything is compared: a rank that finds a difference resets the session, and the neighbour should find it, too.
    let sent = streams.data.send(leases.end).delivered().await;
    leases.end = sent.map_err(|failed| JoinError::of_send(neighbour, failed.error))?;
    let received = streams.data.recv().await.map_err(|error| JoinError::of_recv(neighbour, error))?;
    let other = received.as_deref().and_then(Greeting::decode);
    let other = other.ok_or(JoinError::Greeting { rank: neighbour })?;
    let names = Greeting::NAMES.into_iter().zip(own.values.into_iter().zip(other.values));
    let rank_of_neighbour = [("rank of the neighbour", (neighbour as u64, other.rank))];
    let ranks = [own.rank as usize, neighbour];
    for (what, (mine, theirs)) in names.chain(rank_of_neighbour) {
        if mine != theirs {
            return Err(JoinError::Disagreement { ranks, what, values: [mine, theirs] });
        }
    }
    let max_message = usize::try_from(other.max_message).unwrap_or(usize::MAX);
    Ok(Parts { rank: neighbour, streams, leases, max_message })
}

/// Resets the sessions of a rank that does not join when it is dropped
pub(super) struct Reset<D: Device> {
    pub(super) sessions: Vec<(usize, Session<D>)>,
    /// The rank that does not join, as its neighbours number it
    pub(super) rank: usize,
}

impl<D: Device> Reset<D> {
    /// Resets them at once
    pub(super) fn now(&mut self, cause: Cause) {
        let code = cause.reset_code();
        self.sessions.drain(..).for_each(|(_, session)| session.reset(code));
    }
}

impl<D: Device> Drop for Reset<D> {
    fn drop(&mut self) {
        self.now(Cause { rank: self.rank, is_lost: false });
    }
}

/// The first message to each neighbour
pub(super) fn greeting(rank: usize, plans: &Plans, options: &GroupOptions) -> Greeting {
    let cables = plans.over.cabling.cables().iter().map(|cable| (cable.ends, cable.latency_ns));
    let latencies = cables.fold(String::new(), |text, cable| text + &format!("{cable:?}"));
    let plan = plans.over.trees.as_ref().map_or_else(String::new, ToString::to_string);
    Greeting {
        rank: rank as u64,
        max_message: 0,
        values: [
            VERSION,
            plans.over.cabling.hosts().len() as u64,
            plans.over.cabling.fingerprint().0 ^ hash(latencies.as_bytes()),
            hash(plan.as_bytes()),
            options.block_bytes as u64,
            options.receive_bytes as u64,
            u64::from(options.keeps_plan),
        ],
    }
}

/// One session for each neighbour of a rank, by neighbour
fn by_neighbour<D: Device>(
    rank: usize,
    cabling: &Cabling,
    sessions: &[(usize, Session<D>)],
) -> Result<BTreeMap<usize, Session<D>>, JoinError> {
    let size = cabling.hosts().len();
    if rank >= size {
        return Err(JoinError::Rank { rank, size });
    }
    let mut counts: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
    for cable in cabling.cables() {
        match cable.ends {
            [left, right] if left == rank => counts.entry(right).or_default()[0] = 1,
            [left, right] if right == rank => counts.entry(left).or_default()[0] = 1,
            _ => (),
        }
    }
    let mut by_neighbour = BTreeMap::new();
    for (neighbour, session) in sessions {
        counts.entry(*neighbour).or_default()[1] += 1;
        by_neighbour.insert(*neighbour, session.clone());
    }
    match counts.into_iter().find(|(_, [expected, found])| expected != found) {
        Some((neighbour, [expected, found])) => Err(JoinError::Sessions { rank, neighbour, expected, found }),
        None => Ok(by_neighbour),
    }
}

impl Leases {
    /// Memory for all that is under way to a neighbour at once
    pub(super) async fn new<D: Device>(
        session: &Session<D>,
        neighbour: usize,
        cabled: &[Ranks],
        options: GroupOptions,
        waiting: Waiting,
    ) -> Result<Self, JoinError> {
        let (block, max) = (options.block_bytes, session.max_message());
        if block > max {
            return Err(JoinError::MaxMessage { rank: neighbour, max, len: block });
        }
        let lease = async |len| {
            let leased = match waiting {
                Waiting::ForEarlierGroup => session.alloc(len).await,
                Waiting::Never => session.try_alloc(len),
            };
            leased.map_err(|reason| JoinError::Memory { rank: neighbour, reason })
        };
        let mut data = Vec::with_capacity(MAX_MESSAGES);
        while data.len() < MAX_MESSAGES {
            data.push(lease(block).await?);
        }
        let (credit, end) = (lease(Credit::LEN).await?, lease(Greeting::LEN.max(End::LEN)).await?);
        Ok(Self {
            data,
            credit,
            end,
            leaving: lease(LEAVING.len()).await?,
            relay: lease(packet_bytes(block, cabled)).await?,
        })
    }
}

async fn opened<D: Device>(
    neighbour: usize,
    session: &Session<D>,
    waiting: Waiting,
    needed: usize,
) -> Result<Stream<D>, JoinError> {
    let mut opening = pin!(session.open_stream(Priority::Normal));
    // Ready at once, unless the peer takes no more streams.
    let opened = match poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx))).await {
        Poll::Ready(opened) => opened,
        Poll::Pending if waiting == Waiting::ForEarlierGroup => opening.await,
        Poll::Pending => return Err(JoinError::Streams { rank: neighbour, needed }),
    };
    opened.map_err(|error| JoinError::of_open(neighbour, error))
}

async fn accepted<D: Device>(neighbour: usize, session: &Session<D>) -> Result<Stream<D>, JoinError> {
    let accepted = session.accept_stream().await.map_err(|error| JoinError::of_recv(neighbour, error))?;
    accepted.ok_or(JoinError::Greeting { rank: neighbour })
}

#[cfg(test)]
mod tests {
    use futures::future::try_join;
    use rdma_async::{Node, NodeOptions};
    use rdma_sim::Sim;

    use super::*;
    use crate::Group;

    /// Regression: ranks whose nodes take only short messages joined, and waited for ever when they went on without another rank.
    #[test]
    fn a_group_whose_statements_do_not_fit_is_refused() {
        let long = Cabling::line(200, 9_200_000_000);
        let join = |max: usize| {
            let joined = Sim::new().run(async |net| {
                let node = |host| {
                    let builder = Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime());
                    builder.options(NodeOptions::new().max_message(max)).build().unwrap()
                };
                let (a, b) = (node("a"), node("b"));
                let (to_b, to_a) = tokio::io::duplex(1024);
                let (session, ()) = try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
                // The other rank does not join.
                b.accept().await.unwrap().reset(0);
                let options = GroupOptions::new().block_bytes(4096);
                Group::join_with(0, &long, [(1, session)], options).await.map(drop)
            });
            joined.value
        };
        // 24 bytes, and of each rank 16 and six for each neighbour.
        let len = 24 + 200 * 16 + 398 * 6;
        assert_eq!(join(len - 1), Err(JoinError::Statement { rank: 1, max: len - 1, len }));
        assert!(!matches!(join(len), Ok(()) | Err(JoinError::Statement { .. })));
    }
}
