//! How the ranks of a group come together

use std::collections::BTreeMap;

use rdma_async::{Device, Priority, Session, Stream};

use super::error::JoinError;
use super::link::{Link, MAX_MESSAGES};
use super::options::GroupOptions;
use super::plans::Plans;
use super::wire::{Control, Greeting};
use crate::Cabling;
use crate::cabling::hash;

/// Changes when ranks of this version cannot work with those of another one.
const VERSION: u64 = 1;

/// What this rank tells its neighbours
pub(super) fn greeting(rank: usize, plans: &Plans, options: &GroupOptions) -> Greeting {
    let cables = plans.cabling.cables().iter().map(|cable| (cable.ends, cable.latency_ns));
    let latencies = cables.fold(String::new(), |text, cable| text + &format!("{cable:?}"));
    let plan = plans.all_reduce.as_ref().map_or_else(String::new, |[trees, _]| trees.plan.to_string());
    Greeting {
        rank: rank as u64,
        values: [
            VERSION,
            plans.cabling.hosts().len() as u64,
            plans.cabling.fingerprint().0 ^ hash(latencies.as_bytes()),
            hash(plan.as_bytes()),
            options.block_bytes as u64,
            options.receive_bytes as u64,
        ],
    }
}

/// One session for each neighbour of a rank, by neighbour
pub(super) fn sessions<D: Device>(
    rank: usize,
    cabling: &Cabling,
    sessions: impl IntoIterator<Item = (usize, Session<D>)>,
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
        counts.entry(neighbour).or_default()[1] += 1;
        by_neighbour.insert(neighbour, session);
    }
    match counts.into_iter().find(|(_, [expected, found])| expected != found) {
        Some((neighbour, [expected, found])) => Err(JoinError::Sessions { rank, neighbour, expected, found }),
        None => Ok(by_neighbour),
    }
}

/// Opens the streams to a neighbour, and compares what both sides have
pub(super) async fn link<D: Device>(
    own: Greeting,
    neighbour: usize,
    session: Session<D>,
    options: GroupOptions,
) -> Result<Link<D>, JoinError> {
    let rank = own.rank as usize;
    let streams = match rank < neighbour {
        true => opened(neighbour, &session).await?,
        false => accepted(neighbour, &session).await?,
    };
    let [data, control] = &streams;
    control.set_priority(Priority::High);
    let failed = |error| JoinError::of_send(neighbour, error);
    data.send_bytes(&own.encode()).await.map_err(failed)?;
    let received = data.recv().await.map_err(|error| JoinError::of_recv(neighbour, error))?;
    let other = received.as_deref().and_then(Greeting::decode);
    let other = other.ok_or(JoinError::Greeting { rank: neighbour })?;
    let names = Greeting::NAMES.into_iter().zip(own.values.into_iter().zip(other.values));
    let rank_of_neighbour = [("rank of the neighbour", (neighbour as u64, other.rank))];
    for (what, (mine, theirs)) in names.chain(rank_of_neighbour) {
        if mine != theirs {
            return Err(JoinError::Disagreement { ranks: [rank, neighbour], what, values: [mine, theirs] });
        }
    }
    let (len, max) = (options.block_bytes, session.max_message());
    if len > max {
        return Err(JoinError::MaxMessage { rank: neighbour, max, len });
    }
    let memory = |reason| JoinError::Memory { rank: neighbour, reason };
    let mut spare = Vec::with_capacity(MAX_MESSAGES);
    for _ in 0..MAX_MESSAGES {
        spare.push(session.alloc(len).await.map_err(memory)?);
    }
    let spare_control = session.alloc(Control::LEN).await.map_err(memory)?;
    Ok(Link::new(neighbour, session, streams, spare, spare_control))
}

async fn opened<D: Device>(neighbour: usize, session: &Session<D>) -> Result<[Stream<D>; 2], JoinError> {
    let failed = |error| JoinError::of_open(neighbour, error);
    let data = session.open_stream(Priority::Normal).await.map_err(failed)?;
    Ok([data, session.open_stream(Priority::High).await.map_err(failed)?])
}

async fn accepted<D: Device>(neighbour: usize, session: &Session<D>) -> Result<[Stream<D>; 2], JoinError> {
    let accept = async || {
        let accepted = session.accept_stream().await.map_err(|error| JoinError::of_recv(neighbour, error))?;
        accepted.ok_or(JoinError::Greeting { rank: neighbour })
    };
    let (first, second) = (accept().await?, accept().await?);
    // Streams are numbered in the order in which they are opened.
    Ok(if first.id().0 < second.id().0 { [first, second] } else { [second, first] })
}
