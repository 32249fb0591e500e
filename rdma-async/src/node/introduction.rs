//! How two processes become a peering, over any byte stream

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rdma_core::session::{ControlMessage, Hello, HelloError, Integrity, Peering, PeeringConfig, Side};
use rdma_core::{Device, Time};
use tracing::{Instrument as _, Span};

use super::control::Control;
use super::inner::{Attempt, NodeGuard, NodeInner};
use super::options::{PART, TRANSMIT};
#[cfg(feature = "shared-key")]
use super::sealed::SealedStream;
use super::wire::ControlStream;
use crate::bootstrap_stream::{BootstrapStream, BoxedStream, read_exact, write_all};
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
    let limit = node.options.connect_timeout;
    let introduced = introduce(node, Attempt::new(node), Box::new(stream), side, node.runtime.now() + limit);
    let (mut closed, mut attempt) = (pin!(node.closed()), pin!(timeout(&*node.runtime, limit, introduced)));
    poll_fn(|cx| match closed.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(Err(ConnectError::Closed)),
        Poll::Pending => {
            attempt.as_mut().poll(cx).map(|made| made.unwrap_or(Err(ConnectError::Timeout(limit))))
        }
    })
    .await
}

async fn introduce<D: Device>(
    node: &Arc<NodeInner<D>>,
    attempt: Attempt<D>,
    stream: BoxedStream,
    side: Side,
    until: Time,
) -> Result<Arc<PeeringShared<D>>, ConnectError> {
    #[cfg(feature = "shared-key")]
    if let Some(key) = &node.options.shared_key {
        let stream = SealedStream::new(stream, key, side).await?;
        return introduce_over(node, attempt, Box::new(stream), side, until).await;
    }
    introduce_over(node, attempt, stream, side, until).await
}

/// As [`introduce`], over a stream that is as safe as it has to be
async fn introduce_over<D: Device>(
    node: &Arc<NodeInner<D>>,
    attempt: Attempt<D>,
    mut stream: BoxedStream,
    side: Side,
    until: Time,
) -> Result<Arc<PeeringShared<D>>, ConnectError> {
    let ours = hello(node);
    let theirs = exchange_hellos(&mut stream, &ours, side).await?;
    let mut stream = ControlStream::new(stream);
    confirm(&mut stream, &ours, &theirs).await?;
    let peer_timeout = ours.peer_timeout.min(theirs.peer_timeout);
    let span = tracing::info_span!(parent: None, "peer", node = %NodeId(ours.incarnation), peer = %NodeId(theirs.incarnation));
    let peering = make_peering(node, side, peer_timeout, &ours, &theirs, span.clone())?;
    let mut control = Control::new(attempt, Arc::clone(&peering), stream, side, peer_timeout, theirs.ports);
    let guard = NodeGuard::new(Arc::clone(node));
    // A device may take long for one path: the reactor drives those that are made before.
    node.joining.push(Arc::clone(&peering)).map_err(|_| SessionError::RuntimeGone)?;
    node.wake_reactor();
    control.make_first_paths().instrument(span.clone()).await?;
    if node.is_closed() {
        return Err(ConnectError::Closed);
    }
    // Ends before the attempt does, so that the caller learns for what it has waited.
    let left = until - node.runtime.now();
    let proven = timeout(&*node.runtime, left, control.prove_path()).instrument(span.clone()).await;
    proven.unwrap_or_else(|| Err(control.unproven(node.options.connect_timeout)))?;
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
    }
}

async fn exchange_hellos(stream: &mut BoxedStream, ours: &Hello, side: Side) -> Result<Hello, ConnectError> {
    if side == Side::Connecting {
        write_all(stream, &ours.to_bytes()).await?;
    }
    let theirs = read_hello(stream).await;
    // A peer that is refused learns why from this hello.
    if side == Side::Accepting && matches!(theirs, Ok(_) | Err(ConnectError::Peer(_))) {
        write_all(stream, &ours.to_bytes()).await?;
    }
    let theirs = theirs?;
    if theirs.group_epoch != ours.group_epoch {
        let (ours, theirs) = (ours.group_epoch, theirs.group_epoch);
        return Err(HelloError::Epoch { ours, theirs }.into());
    }
    Ok(theirs)
}

async fn read_hello(stream: &mut BoxedStream) -> Result<Hello, ConnectError> {
    let mut bytes = [0; Hello::LEN];
    // A peer of another version may send a shorter hello and wait: its head is checked before the rest is read.
    let (head, rest) = bytes.split_at_mut(Hello::HEAD_LEN);
    read_exact(stream, head).await?;
    let checked = Hello::check_head((&*head).try_into().expect("the slice has this length"));
    if checked == Err(HelloError::KeyRequired) {
        // It reads nothing before it has written the rest of its proof.
        read_exact(stream, &mut [0; Hello::PROOF_LEN]).await?;
    }
    checked?;
    read_exact(stream, rest).await?;
    Ok(Hello::from_bytes(&bytes)?)
}

/// Sees that the peer answers now: a recording cannot send back a new nonce
async fn confirm(stream: &mut ControlStream, ours: &Hello, theirs: &Hello) -> Result<(), ConnectError> {
    stream.push(ControlMessage::Confirm(theirs.nonce));
    match stream.next().await? {
        ControlMessage::Confirm(nonce) if nonce == ours.nonce => Ok(()),
        ControlMessage::Confirm(_) => Err(HelloError::Replayed.into()),
        _ => Err(HelloError::Unexpected.into()),
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
