//! How two processes become a peering, over any byte stream

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rdma_core::session::{
    ByeReason, ControlMessage, Features, Hello, HelloError, Integrity, Peering, PeeringConfig, Side,
};
use rdma_core::{Device, Runtime, Time};
use tracing::{Instrument as _, Span};

use super::control::Control;
use super::goodbye::refusal;
use super::half_open::HalfOpenPlace;
use super::inner::{Attempt, NodeGuard, NodeInner};
use super::options::{PART, TRANSMIT};
#[cfg(feature = "shared-key")]
use super::sealed::SealedStream;
use super::wire::ControlStream;
use crate::bootstrap_stream::{BootstrapStream, BoxedStream};
use crate::connect_stage::ConnectStage;
use crate::error::{ConnectError, SessionError};
use crate::node_id::NodeId;
use crate::peering::shared::PeeringShared;
use crate::peering::state::{Parts, State};
use crate::pool::Zone;
use crate::time::timeout;

/// Makes a peering with the process at the other end of `stream`, and its first paths
pub(super) async fn establish<D: Device, S: BootstrapStream + Send + 'static>(
    node: &Arc<NodeInner<D>>,
    stream: S,
    side: Side,
) -> Result<Arc<PeeringShared<D>>, ConnectError> {
    let attempt = Attempt::new(node);
    let stages = Stages {
        node,
        until: node.runtime.now() + node.options.connect_timeout,
        // Attempts of the application's own are not limited.
        place: (side == Side::Accepting).then(|| node.half_open.enter()),
    };
    let stream: BoxedStream = Box::new(stream);
    #[cfg(feature = "shared-key")]
    if let Some(key) = &node.options.shared_key {
        let sealed = SealedStream::new(stream, key, side);
        let stream = stages.pass(ConnectStage::Key, sealed).await?;
        return introduce(stages, attempt, Box::new(stream), side).await;
    }
    introduce(stages, attempt, stream, side).await
}

/// What ends an attempt between two stages of it
struct Stages<'a, D: Device> {
    node: &'a NodeInner<D>,
    /// When the attempt ends at the latest.
    until: Time,
    /// Among the peers that have not introduced themselves, or have offered no path yet.
    place: Option<HalfOpenPlace<'a>>,
}

impl<D: Device> Stages<'_, D> {
    /// Runs a stage until it fails, takes too long, or has no place any more, or the node is closed
    async fn pass<T>(
        &self,
        stage: ConnectStage,
        run: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        let options = &self.node.options;
        let left = self.until - self.node.runtime.now();
        let (limit, waited) = match stage {
            ConnectStage::Path => (left, options.connect_timeout),
            _ if options.hello_timeout < left => (options.hello_timeout, options.hello_timeout),
            _ => (left, options.connect_timeout),
        };
        let mut closed = pin!(self.node.closed());
        let mut evicted = pin!(async {
            match &self.place {
                Some(place) => place.evicted().await,
                None => pending().await,
            }
        });
        let mut run = pin!(timeout(&*self.node.runtime, limit, run));
        poll_fn(|cx| {
            if closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(ConnectError::Closed));
            }
            if let Poll::Ready(max) = evicted.as_mut().poll(cx) {
                return Poll::Ready(Err(ConnectError::Crowded { max }));
            }
            let made = run.as_mut().poll(cx);
            made.map(|made| made.unwrap_or(Err(ConnectError::Timeout { stage, waited })))
        })
        .await
    }
}

/// As [`establish`], over a stream that is as safe as it has to be
async fn introduce<D: Device>(
    mut stages: Stages<'_, D>,
    attempt: Attempt<D>,
    stream: BoxedStream,
    side: Side,
) -> Result<Arc<PeeringShared<D>>, ConnectError> {
    let node = Arc::clone(attempt.node());
    let ours = hello(&node);
    let mut stream = ControlStream::new(stream);
    let exchanged = stages.pass(ConnectStage::Hello, exchange_hellos(&mut stream, &ours, side)).await;
    let refused = |stream: &mut ControlStream, error: ConnectError| {
        if let Some(reason) = refusal(&error) {
            // The peer waits for a hello first.
            stream.push_hello(&ours);
            stream.say_goodbye(reason);
        }
        error
    };
    let theirs = exchanged.map_err(|error| refused(&mut stream, error))?;
    let confirmed = stages.pass(ConnectStage::Answer, confirm(&mut stream, &ours, &theirs)).await;
    confirmed.map_err(|error| refused(&mut stream, error))?;
    if side == Side::Accepting {
        stages.place = Some(stages.node.introduced.enter());
        let offered = wait_for_offer(&stages, &mut stream).await;
        offered.map_err(|error| refused(&mut stream, error))?;
    }
    stages.place = None;
    let peer_timeout = ours.peer_timeout.min(theirs.peer_timeout);
    let span = tracing::info_span!(parent: None, "peer", node = %NodeId(ours.incarnation), peer = %NodeId(theirs.incarnation));
    let peering = make_peering(&node, side, peer_timeout, &ours, &theirs, span.clone());
    let peering = peering.map_err(|error| refused(&mut stream, error))?;
    let peer = (theirs.ports, ours.features.common(theirs.features));
    let mut control = Control::new(attempt, Arc::clone(&peering), stream, side, peer_timeout, peer);
    let guard = NodeGuard::new(Arc::clone(&node));
    // A device may take long for one path: the reactor drives those that are made before.
    node.joining.push(Arc::clone(&peering)).map_err(|_| SessionError::RuntimeGone)?;
    node.wake_reactor();
    let made = stages.pass(ConnectStage::Path, control.make_first_paths().instrument(span.clone())).await;
    made.inspect_err(|_| control.on_no_path())?;
    let proven = stages.pass(ConnectStage::Path, control.prove_path().instrument(span.clone())).await;
    proven.map_err(|error| match error {
        ConnectError::Timeout { waited, .. } => control.unproven(waited),
        error => error,
    })?;
    node.runtime.spawn(Box::pin(async move {
        control.run().instrument(span).await;
        drop(guard);
    }));
    Ok(peering)
}

fn hello<D: Device>(node: &NodeInner<D>) -> Hello {
    let mut nonce = [0; Hello::NONCE_LEN];
    nonce.chunks_mut(8).for_each(|part| part.copy_from_slice(&node.runtime.random().to_le_bytes()));
    Hello {
        incarnation: node.incarnation,
        nonce,
        group_epoch: node.options.group_epoch,
        limits: node.options.limits(),
        bulk_fragment: node.bulk_fragment(),
        integrity: node.options.integrity,
        peer_timeout: node.options.peer_timeout,
        ports: node.ports.len() as u32,
        features: Features::SUPPORTED,
    }
}

async fn exchange_hellos(
    stream: &mut ControlStream,
    ours: &Hello,
    side: Side,
) -> Result<Hello, ConnectError> {
    if side == Side::Connecting {
        stream.push_hello(ours);
        stream.flush().await?;
    }
    let theirs = read_hello(stream).await;
    // A peer that is refused learns why from this hello.
    if side == Side::Accepting && matches!(theirs, Ok(_) | Err(ConnectError::Peer(_))) {
        stream.push_hello(ours);
        stream.flush().await?;
    }
    let theirs = theirs?;
    if theirs.group_epoch != ours.group_epoch {
        let (ours, theirs) = (ours.group_epoch, theirs.group_epoch);
        return Err(HelloError::Epoch { ours, theirs }.into());
    }
    Ok(theirs)
}

async fn read_hello(stream: &mut ControlStream) -> Result<Hello, ConnectError> {
    let mut bytes = [0; Hello::LEN];
    // A peer of another version may send a shorter hello and wait: its head is checked before the rest is read.
    let (head, rest) = bytes.split_at_mut(Hello::HEAD_LEN);
    stream.read_exact(head).await?;
    let checked = Hello::check_head((&*head).try_into().expect("the slice has this length"));
    if checked == Err(HelloError::KeyRequired) {
        // It reads nothing before it has written the rest of its proof.
        stream.read_exact(&mut [0; Hello::PROOF_LEN]).await?;
    }
    checked?;
    stream.read_exact(rest).await?;
    Ok(Hello::from_bytes(&bytes)?)
}

/// Sees that the peer answers now: a recording cannot send back a new nonce
async fn confirm(stream: &mut ControlStream, ours: &Hello, theirs: &Hello) -> Result<(), ConnectError> {
    stream.push(ControlMessage::Confirm(theirs.nonce));
    match stream.next().await? {
        ControlMessage::Confirm(nonce) if nonce == ours.nonce => Ok(()),
        ControlMessage::Confirm(_) => Err(HelloError::Replayed.into()),
        // The peer refuses this side.
        ControlMessage::Bye(reason) => Err(SessionError::PeerGone(reason).into()),
        _ => Err(HelloError::Unexpected.into()),
    }
}

/// Waits for the first path that the peer offers, before this side takes memory for it; says goodbye if the attempt is dropped meanwhile
async fn wait_for_offer<D: Device>(
    stages: &Stages<'_, D>,
    stream: &mut ControlStream,
) -> Result<(), ConnectError> {
    let mut waiting = PendingOffer { stream, runtime: &*stages.node.runtime, is_over: false };
    let offered = stages.pass(ConnectStage::Path, waiting.stream.wait_for_offer()).await;
    waiting.is_over = true;
    offered
}

/// The stream of an attempt until the peer offers a path; dropping it before says goodbye
struct PendingOffer<'a> {
    stream: &'a mut ControlStream,
    runtime: &'a dyn Runtime,
    is_over: bool,
}

impl Drop for PendingOffer<'_> {
    fn drop(&mut self) {
        if !self.is_over && !self.runtime.is_killed() {
            self.stream.say_goodbye(ByeReason::Cancelled);
        }
    }
}

fn make_peering<D: Device>(
    node: &NodeInner<D>,
    side: Side,
    peer_timeout: Duration,
    ours: &Hello,
    theirs: &Hello,
    span: Span,
) -> Result<Arc<PeeringShared<D>>, ConnectError> {
    let integrity = match (ours.integrity, theirs.integrity) {
        (one, other) if one == other => one,
        _ => Integrity::Crc32,
    };
    let config = PeeringConfig {
        side,
        integrity,
        bulk_fragment: ours.bulk_fragment.min(theirs.bulk_fragment),
        local: ours.limits,
        peer: theirs.limits,
    };
    let scratch = node.pool.try_lease(Zone::Transmit, PART);
    let transmit = node.pool.try_leases(Zone::Transmit, TRANSMIT);
    let parts = Parts {
        pool: node.pool.clone(),
        core: Peering::new(config),
        integrity,
        scratch: scratch.ok_or(ConnectError::Memory)?,
        transmit: transmit.ok_or(ConnectError::Memory)?,
        max_in_flight: node.options.max_in_flight_sends,
        max_unaccepted: node.options.max_sessions,
        longest: node.options.max_message,
        other_peers: node.options.max_peers - 1,
        peer_timeout,
    };
    let (reactor, runtime) = (node.reactor_waker(), Arc::clone(&node.runtime));
    let (peer, pool) = (NodeId(theirs.incarnation), node.pool.clone());
    Ok(PeeringShared::new(peer, pool, reactor, runtime, State::new(parts), span))
}
