//! The side that receives

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use futures::stream::{FuturesUnordered, StreamExt as _};
use rdma_async::{AnyDevice, ConnectError, Node, NodeOptions, Session};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::carriers::{Carried, Carriers};
use super::request::Request;
use super::sides::{FAILED, Outcome, PATIENCE, explain, options, part, runtime, unless_interrupted};
use crate::args::{Carrier, Copy};
use crate::copy::agreed::next;
use crate::copy::destination::Destination;
use crate::copy::receive::{Received, Receiver};
use crate::copy::words::{earlier, progress, rate, size};
use crate::failure::at;
use crate::file::Replacement;
use crate::report::{Output, Wall, note};
use crate::signals::Interrupt;

/// Connections that have not become a session; further ones wait in the queue of the system.
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
        let doorway = Doorway { root, carriers: &carriers, options, nodes: Vec::new() };
        let accepted = unless_interrupted(&interrupt, doorway.accept(&listener)).await?;
        drop(listener);
        receive(accepted, &carriers, &interrupt, output).await
    })
}

/// Where connections become senders
struct Doorway<'a> {
    root: &'a Path,
    carriers: &'a Carriers,
    options: NodeOptions,
    /// For each address of this machine that was connected to.
    nodes: Vec<(IpAddr, Node<AnyDevice>)>,
}

impl Doorway<'_> {
    /// Waits for the first sender whose request can be met
    async fn accept(mut self, listener: &TcpListener) -> Result<Accepted> {
        let mut attempts = FuturesUnordered::new();
        loop {
            let has_room = attempts.len() < MAX_ATTEMPTS;
            tokio::select! {
                arrived = listener.accept(), if has_room => {
                    let (stream, peer) = arrived.context("cannot accept connections")?;
                    let node = self.node(&stream)?;
                    attempts.push(admit(self.root, node, stream, peer));
                }
                Some((peer, admitted)) = attempts.next() => match admitted {
                    Ok(accepted) => return Ok(accepted),
                    Err(error) => note(&format!("{peer}: {error:#}")),
                },
            }
        }
    }

    fn node(&mut self, stream: &TcpStream) -> Result<Node<AnyDevice>> {
        let local = stream.local_addr()?;
        if let Some((_, node)) = self.nodes.iter().find(|(address, _)| *address == local.ip()) {
            return Ok(node.clone());
        }
        let node = self.carriers.node(local, self.options.clone())?;
        self.nodes.push((local.ip(), node.clone()));
        Ok(node)
    }
}

/// Makes a connection a sender with a request that can be met
async fn admit(
    root: &Path,
    node: Node<AnyDevice>,
    stream: TcpStream,
    peer: SocketAddr,
) -> (SocketAddr, Result<Accepted>) {
    let admitted = async {
        let asked = async {
            node.serve(stream).await?;
            let session = node.accept().await.ok_or(ConnectError::Closed)?;
            let request = next(&session).await;
            anyhow::Ok((session, request))
        };
        let (session, request) = timeout(PATIENCE, asked).await.context("it asked for nothing")??;
        let met = request.and_then(|request| {
            let request = Request::from_bytes(&request)?;
            let place = request.place(root)?;
            let destination = request.destination(&place)?;
            Ok((request, place, destination))
        });
        match met {
            Ok((request, place, destination)) => {
                Ok(Accepted { node, session, peer, request, place, destination })
            }
            Err(error) => {
                session.reset(FAILED);
                Err(error)
            }
        }
    };
    (peer, admitted.await)
}

async fn receive(
    accepted: Accepted,
    carriers: &Carriers,
    interrupt: &Interrupt,
    output: Output,
) -> Result<()> {
    let Accepted { node, session, peer, request, place, destination } = accepted;
    output.announce(&format!("{peer} copies to {}", place.display()))?;
    output.announce(&format!("carrier: {}", carriers.describe(&session)))?;
    let progress = progress(request.bytes, output);
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
        let rest = kept.map_or(String::new(), |kept| format!("; what has arrived is in {}", kept.display()));
        explain(error).context(at(&place, format!("the copy is not complete: copy again to continue{rest}")))
    })?;
    let goodput = (received.bytes - received.resumed) as f64 / wall_seconds;
    let report = Outcome {
        backend: "machines",
        role: "receiver",
        peer: peer.to_string(),
        path: &place,
        bytes: received.bytes,
        resumed_bytes: received.resumed,
        blake3: received.hash.to_string(),
        wall_seconds,
        goodput_bytes_per_second: goodput,
        carried,
    };
    let rows = [
        ("received", place.display().to_string()),
        ("size", size(&received)),
        ("blake3", format!("{} (verified at both ends)", report.blake3)),
        ("wall", format!("{wall_seconds:.3} s, {}", rate(goodput))),
        ("repairs", report.carried.describe()),
    ];
    output.outcome(&report, rows.into_iter().chain(earlier(&received)))
}
