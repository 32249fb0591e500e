//! The side that receives

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use anyhow::{Context as _, Result, ensure};
use futures::future::select_all;
use rdma_async::{AnyDevice, ConnectError, Node, NodeOptions, Session};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::carriers::{Carried, Carriers};
use super::request::Request;
use super::sides::{
    CHECK_INTERVAL, FAILED, Outcome, PATIENCE, explain, options, part, runtime, unless_interrupted,
};
use crate::args::{Carrier, Copy};
use crate::copy::agreed::next;
use crate::copy::destination::Destination;
use crate::copy::receive::{Received, Receiver};
use crate::copy::words::{earlier, size};
use crate::failure::at;
use crate::file::Replacement;
use crate::progress;
use crate::report::{Output, Wall, note, plain};
use crate::signals::Interrupt;

/// Connections that have not become a session; for a further one, the oldest is dropped.
const MAX_ATTEMPTS: usize = 16;

/// A sender, and what it asks for
struct Accepted {
    node: Node<AnyDevice>,
    session: Session<AnyDevice>,
    peer: SocketAddr,
    request: Request,
    place: PathBuf,
    destination: Destination,
}

/// Receives one copy into `root`
pub(crate) fn listen(args: &Copy, root: &Path, output: Output) -> Result<()> {
    ensure!(root.is_dir(), at(root, "is not a directory"));
    let interrupt = Interrupt::listen()?;
    let options = options(args.machines.key.as_deref())?;
    if args.machines.key.is_none() {
        note("without --key, every machine that reaches this port can write into the directory");
    }
    let carriers = Carriers::find(args.machines.carrier.unwrap_or(Carrier::Auto))?;
    runtime()?.block_on(async {
        let address =
            SocketAddr::new(args.bind.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), args.machines.port());
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        output.announce(&format!("listening on {}", listener.local_addr()?))?;
        let door = Door { root, carriers: &carriers, options, nodes: Vec::new() };
        let accepted = unless_interrupted(&interrupt, door.accept(&listener)).await?;
        drop(listener);
        receive(accepted, &carriers, &interrupt, output).await
    })
}

/// Where connections become senders
struct Door<'a> {
    root: &'a Path,
    carriers: &'a Carriers,
    options: NodeOptions,
    /// For each address of this machine that was connected to.
    nodes: Vec<(IpAddr, Node<AnyDevice>)>,
}

/// A connection that may become a sender
type Attempt<'a> = Pin<Box<dyn Future<Output = Result<Accepted, Refused>> + 'a>>;

/// A connection that did not become a sender
struct Refused {
    peer: SocketAddr,
    error: anyhow::Error,
    /// The node that has a peering with it.
    node: Option<Node<AnyDevice>>,
}

impl<'a> Door<'a> {
    /// Waits for the first sender whose request can be met
    async fn accept(mut self, listener: &TcpListener) -> Result<Accepted> {
        let mut attempts: Vec<Attempt<'a>> = Vec::new();
        loop {
            tokio::select! {
                arrived = listener.accept() => match arrived.map_err(Into::into).and_then(|(stream, peer)| self.admit(stream, peer)) {
                    Ok(attempt) => {
                        if attempts.len() == MAX_ATTEMPTS {
                            // The oldest one has had the most time.
                            drop(attempts.remove(0));
                        }
                        attempts.push(attempt);
                    }
                    // The connection is gone already, or too many files are open.
                    Err(error) => {
                        note(&format!("{error:#}"));
                        sleep(CHECK_INTERVAL).await;
                    }
                },
                (admitted, index) = next_of(&mut attempts) => {
                    drop(attempts.remove(index));
                    match admitted {
                        Ok(accepted) => return Ok(accepted),
                        Err(refused) => self.refuse(refused),
                    }
                }
            }
        }
    }

    /// Begins to make a connection a sender
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) -> Result<Attempt<'a>> {
        let local = stream.local_addr()?;
        let known = self.nodes.iter().find(|(address, _)| *address == local.ip());
        let node = match known {
            Some((_, node)) => node.clone(),
            None => {
                let node = self.carriers.node(local, self.options.clone())?;
                self.nodes.push((local.ip(), node.clone()));
                node
            }
        };
        Ok(Box::pin(admit(self.root, node, stream, peer)))
    }

    fn refuse(&mut self, Refused { peer, error, node }: Refused) {
        note(&format!("{peer}: {error:#}"));
        // A node has a place for one peer, which would keep it as long as it likes.
        if let Some(node) = node {
            self.nodes.retain(|(_, other)| other.id() != node.id());
            node.close();
        }
    }
}

/// What the first attempt that is over has come to, and which one it is
async fn next_of(attempts: &mut [Attempt<'_>]) -> (Result<Accepted, Refused>, usize) {
    if attempts.is_empty() {
        return std::future::pending().await;
    }
    let (admitted, index, _) = select_all(attempts).await;
    (admitted, index)
}

/// Makes a connection a sender with a request that can be met
async fn admit(
    root: &Path,
    node: Node<AnyDevice>,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<Accepted, Refused> {
    if let Err(error) = node.serve(stream).await {
        return Err(Refused { peer, error: error.into(), node: None });
    }
    let asked = async {
        let session = node.accept().await.ok_or(ConnectError::Closed)?;
        let request = next(&session).await;
        anyhow::Ok((session, request))
    };
    let asked = timeout(PATIENCE, asked).await.context("it asked for nothing").flatten();
    let met = asked.and_then(|(session, request)| {
        let met = request.and_then(|request| {
            let request = Request::from_bytes(&request)?;
            let place = request.place(root)?;
            let destination = request.destination(&place)?;
            Ok((request, place, destination))
        });
        if met.is_err() {
            session.reset(FAILED);
        }
        met.map(|met| (session, met))
    });
    match met {
        Ok((session, (request, place, destination))) => {
            Ok(Accepted { node, session, peer, request, place, destination })
        }
        Err(error) => Err(Refused { peer, error, node: Some(node) }),
    }
}

/// A name that the peer chose, for people
fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

async fn receive(
    accepted: Accepted,
    carriers: &Carriers,
    interrupt: &Interrupt,
    output: Output,
) -> Result<()> {
    let Accepted { node, session, peer, request, place, destination } = accepted;
    output.announce(&format!("{peer} copies to {}", shown(&place)))?;
    output.announce(&format!("carrier: {}", carriers.describe(&session)))?;
    let progress = progress::bytes(request.bytes, output);
    let wall = Wall::start();
    let incomplete = RefCell::new(None);
    let receiver = Receiver::new(&session, destination, &progress, interrupt, &incomplete);
    let done = unless_interrupted(interrupt, receiver.receive()).await;
    let wall_seconds = wall.seconds();
    let carried = Carried::over(&session);
    part(node, session, &done).await;
    progress.finish_and_clear();
    let kept = incomplete.take().map(Replacement::keep).transpose()?.flatten();
    let received: Received = done.map_err(|error| {
        let rest = kept.map_or(String::new(), |kept| format!("; what has arrived is in {}", shown(&kept)));
        explain(error)
            .context(format!("{}: the copy is not complete: copy again to continue{rest}", shown(&place)))
    })?;
    let goodput = (received.bytes - received.resumed) as f64 / wall_seconds;
    let report = Outcome {
        backend: carried.backend(),
        role: "receiver",
        peer: peer.to_string(),
        path: shown(&place),
        bytes: received.bytes,
        resumed_bytes: received.resumed,
        blake3: received.hash.to_string(),
        wall_seconds,
        goodput_bytes_per_second: goodput,
        carried,
    };
    let rows = [("received", shown(&place)), ("size", size(&received))];
    output.outcome(&report, rows.into_iter().chain(report.rows()).chain(earlier(&received)))
}
