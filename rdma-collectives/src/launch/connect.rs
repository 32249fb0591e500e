//! The sessions of a rank with its neighbours

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use futures::channel::oneshot;
use futures::future::{try_join, try_join_all};
use rdma_async::{BlockingStream, ConnectError, Device, Node, Session};

use super::meeting::{Meeting, Neighbour};
use super::{Launch, LaunchError};
use crate::cabling::hash;

/// Tells the thread that looks for the others when nobody waits for it any more
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Launch {
    /// Meets the other ranks and makes a session with each neighbour; all ranks have to call it
    ///
    /// `node` has the devices of this rank, as that of [`node`](Self::node). Rank 0 listens at the address that the launcher has given. The
    /// others come there, from any address; each also listens at a port that the system chooses, for its neighbours. They meet over
    /// TCP, which carries what [`Node::connect`] and [`Node::serve`] need later, and no data. Nothing but the cabling is proven: whoever
    /// reaches rank 0 from its network can take part.
    ///
    /// The future may be polled by any executor; a thread of its own waits for the others.
    ///
    /// # Errors
    ///
    /// * [`LaunchError::Missing`] on all ranks that have come if others have not within the [timeout](Self::timeout), and
    ///   [`LaunchError::Unreachable`] on all of them if that is rank 0;
    /// * [`LaunchError::OtherMatrix`] and [`LaunchError::Duplicate`] on all ranks that have come if one has another device matrix, or two
    ///   have the same number;
    /// * [`LaunchError::Coordinator`], [`LaunchError::CoordinatorGone`], [`LaunchError::Listen`] or [`LaunchError::NeighbourUnreachable`] if the
    ///   network does not let them meet;
    /// * [`LaunchError::Neighbour`] if a cable or a device does not work; [`LaunchError::Closed`] if the node is closed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up; others may get an error, as when this rank ends.
    pub async fn connect<D: Device>(&self, node: &Node<D>) -> Result<Vec<(usize, Session<D>)>, LaunchError> {
        let dropped = Dropped(Arc::default());
        let meeting = Meeting {
            rank: self.rank,
            size: self.size(),
            neighbours: self.neighbours().collect(),
            matrix: hash(format!("{:?}", self.matrix).as_bytes()),
            node: node.id().to_string(),
            coordinator: self.coordinator.clone(),
            timeout: self.timeout,
            is_dropped: Arc::clone(&dropped.0),
        };
        let (sender, receiver) = oneshot::channel();
        let meet = move || {
            // The future is gone if that fails.
            let _is_dropped = sender.send(meeting.meet());
        };
        let thread = thread::Builder::new().name("rdma-launch".to_owned()).spawn(meet);
        thread.map_err(|reason| LaunchError::Listen { reason })?;
        let neighbours = receiver.await.expect("the thread does not panic")?;
        let mut accepting = Vec::new();
        let mut made = Vec::new();
        for Neighbour { rank, stream, node: peer } in neighbours {
            let failed = move |reason| LaunchError::Neighbour { rank, reason };
            let stream = BlockingStream::new(stream).map_err(|error| failed(ConnectError::Stream(error)))?;
            let is_accepting = peer.is_some();
            accepting.extend(peer.map(|peer| (peer, rank)));
            made.push(async move {
                if is_accepting {
                    node.serve(stream).await.map_err(failed)?;
                    Ok::<_, LaunchError>(None)
                } else {
                    let session = node.connect(stream).await.map_err(failed)?;
                    Ok(Some((rank, session)))
                }
            });
        }
        let accept = async {
            let mut accepted = Vec::with_capacity(accepting.len());
            while accepted.len() < accepting.len() {
                let session = node.accept().await.ok_or(LaunchError::Closed)?;
                let peer = session.peer().to_string();
                // One of a peer that is no rank is refused.
                accepted
                    .extend(accepting.iter().find(|(id, _)| *id == peer).map(|(_, rank)| (*rank, session)));
            }
            Ok(accepted)
        };
        let (connected, mut sessions) = try_join(try_join_all(made), accept).await?;
        sessions.extend(connected.into_iter().flatten());
        sessions.sort_by_key(|(rank, _)| *rank);
        Ok(sessions)
    }
}
