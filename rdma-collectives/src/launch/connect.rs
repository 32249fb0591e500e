//! The sessions of a rank with its neighbours

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select, try_join, try_join_all};
use rdma_async::{BlockingStream, ConnectError, Device, Node, Session};

use super::clock::now;
use super::rendezvous::{Neighbour, Rendezvous};
use super::{Launch, LaunchError, fingerprint};

/// Ends the threads that work for a future when that is dropped
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How long neighbours that are connected may take for a session
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at whether a thread still has to wait
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Launch {
    /// Registers at rank 0 and makes a session with each neighbour; all ranks have to call it
    ///
    /// `node` has the devices of this rank, as that of [`node`](Self::node). It is new, and has no other peers meanwhile. Rank 0 listens at the
    /// address that the launcher has set, and every rank at a port that the system chooses, for its neighbours: firewalls have to allow
    /// that. The byte streams carry what [`Node::connect`] and [`Node::serve`] need later, and no data. There is no authentication: any
    /// process that reaches rank 0 can register as a rank.
    ///
    /// The future may be polled by any executor; threads of its own wait for the others.
    ///
    /// # Errors
    ///
    /// * [`LaunchError::Missing`] if ranks have not registered within the [timeout](Self::start_timeout), on all that have; with
    ///   [`LaunchError::Unreachable`] it is rank 0;
    /// * [`LaunchError::OtherMatrix`] and [`LaunchError::Duplicate`] if a rank has another device matrix, or two processes have the same rank, on
    ///   all that have registered, or do within two seconds;
    /// * [`LaunchError::CoordinatorGone`], [`LaunchError::NeighbourUnreachable`] or, on its neighbours, [`LaunchError::Missing`] if a rank has
    ///   ended since;
    /// * [`LaunchError::Coordinator`], [`LaunchError::Listen`] or [`LaunchError::Thread`] if the system refuses what this rank needs;
    /// * [`LaunchError::Neighbour`] if a cable or a device does not work; [`LaunchError::Closed`] if the node is closed.
    ///
    /// A second process of a rank that starts when all have registered gets [`LaunchError::Unreachable`], and disturbs no other one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up; others get an error, as when this rank ends. What a thread waits for from the system may take it some
    /// seconds more.
    pub async fn connect<D: Device>(&self, node: &Node<D>) -> Result<Vec<(usize, Session<D>)>, LaunchError> {
        let dropped = Dropped(Arc::default());
        let rendezvous = Rendezvous {
            rank: self.rank,
            size: self.size(),
            neighbours: self.neighbours().collect(),
            matrix: fingerprint(&self.matrix),
            node: node.id().to_string(),
            coordinator: self.coordinator.clone(),
            timeout: self.start_timeout,
            is_dropped: Arc::clone(&dropped.0),
        };
        let neighbours = on_thread(move || rendezvous.run())?.await.expect("the thread does not panic")?;
        let (mut accepting, mut made) = (BTreeMap::new(), Vec::new());
        for Neighbour { rank, stream, node: peer } in neighbours {
            let failed = move |reason| match reason {
                ConnectError::Closed => LaunchError::Closed,
                reason => LaunchError::Neighbour { rank, reason },
            };
            let stream = BlockingStream::new(stream).map_err(|error| failed(ConnectError::Stream(error)))?;
            let is_accepting = peer.is_some();
            accepting.extend(peer.map(|peer| (peer, rank)));
            made.push(async move {
                if is_accepting {
                    node.serve(stream).await.map_err(failed)?;
                    Ok(None)
                } else {
                    let session = node.connect(stream).await.map_err(failed)?;
                    Ok::<_, LaunchError>(Some((rank, session)))
                }
            });
        }
        let mut accepted = Vec::with_capacity(accepting.len());
        let accept = async {
            while !accepting.is_empty() {
                let session = node.accept().await.ok_or(LaunchError::Closed)?;
                // One that is over was of an attempt that was given up.
                if session.close_reason().is_none()
                    && let Some(rank) = accepting.remove(&session.peer().to_string())
                {
                    accepted.push((rank, session));
                }
            }
            Ok(())
        };
        let is_dropped = Arc::clone(&dropped.0);
        let late = on_thread(move || wait(SESSION_TIMEOUT, &is_dropped))?;
        let all = Box::pin(try_join(try_join_all(made), accept));
        let connected = match select(all, late).await {
            Either::Left((connected, _)) => Some(connected?.0),
            Either::Right(_) => None,
        };
        let Some(connected) = connected else {
            // A neighbour has ended between its last packet and its session.
            let ranks = accepting.into_values().collect();
            return Err(LaunchError::Missing { ranks, timeout: SESSION_TIMEOUT });
        };
        accepted.extend(connected.into_iter().flatten());
        accepted.sort_by_key(|(rank, _)| *rank);
        Ok(accepted)
    }
}

/// What `run` returns on a thread of its own
fn on_thread<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, LaunchError> {
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        // The future was dropped if that fails.
        let _is_dropped = sender.send(run());
    };
    let started = thread::Builder::new().name("rdma-launch".to_owned()).spawn(run);
    started.map_err(|reason| LaunchError::Thread { reason })?;
    Ok(receiver)
}

fn wait(time: Duration, is_dropped: &AtomicBool) {
    let until = now() + time;
    while now() < until && !is_dropped.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
}
