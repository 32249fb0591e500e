//! `tb5 serve`: answers `tb5 ping`, `tb5 bw`, `tb5 demo` and `tb5 copy` of other machines

mod report;

use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{FuturesUnordered, StreamExt as _};
use rustix::fs::{Access, access};

use self::report::Served;
use crate::args::{Carrier, Machines, Serve};
use crate::copy::remote::{Incoming, receive};
use crate::failure::at;
use crate::machines::{
    Accepted, Acceptor, Carriers, Declined, MAX_PEERS, end_session, explain, in_session, interrupted,
    key_options, listen, runtime, unless_interrupted, with_memory_for,
};
use crate::measure::{FOREIGN, MAX_MESSAGE, Measurement};
use crate::report::{Output, Wall, note, with_sources};
use crate::signals::{Interrupt, Interrupted};

/// Of the longest messages, how many there is memory for; for each peer
const MESSAGES: usize = 8;

/// Request of a peer
enum Request {
    Measurement(Measurement),
    Copy(Incoming),
}

/// The sessions to serve, and their number
struct Service<'a> {
    machines: &'a Machines,
    bind: Option<IpAddr>,
    /// The directory for copies
    into: Option<&'a Path>,
    /// Whether one copy is all
    is_one_copy: bool,
}

/// Serves until the user asks to stop
pub(crate) fn run(args: &Serve, output: Output) -> Result<()> {
    let Serve { into, bind, machines } = args;
    let service = Service { machines, bind: *bind, into: into.as_deref(), is_one_copy: false };
    service.run(output)
}

/// Receives one copy into `root`
pub(crate) fn one_copy(machines: &Machines, bind: Option<IpAddr>, root: &Path, output: Output) -> Result<()> {
    Service { machines, bind, into: Some(root), is_one_copy: true }.run(output)
}

impl Service<'_> {
    fn run(&self, output: Output) -> Result<()> {
        if let Some(root) = self.into {
            let is_directory = match fs::metadata(root) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    bail!(at(root, "there is no such directory: create it first"))
                }
                found => found.with_context(|| at(root, "cannot be read"))?.is_dir(),
            };
            ensure!(is_directory, at(root, "is not a directory"));
            let writable = access(root, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from);
            writable.with_context(|| at(root, "cannot be written"))?;
        }
        let interrupt = Interrupt::listen()?;
        let options = with_memory_for(key_options(self.machines.key.as_deref())?, MAX_MESSAGE, MESSAGES);
        if self.machines.key.is_none() && self.into.is_some() {
            note("without --key, every machine that reaches this port can write into the directory");
        }
        let carriers = match Carriers::find(self.machines.carrier.unwrap_or(Carrier::Auto)) {
            Err(error) if error.is::<Interrupted>() && !self.is_one_copy => return Ok(()),
            found => found?,
        };
        runtime()?.block_on(async {
            let listener = listen(self.bind, self.machines.port(), output).await?;
            let served = Cell::new(0);
            let read_request = |message: &[u8]| {
                ensure!(served.get() < MAX_PEERS, Declined::Peer);
                self.read_request(message)
            };
            let mut acceptor = Acceptor::new(&carriers, options, &read_request);
            if self.is_one_copy {
                let accepted =
                    unless_interrupted(&interrupt, async { Ok(acceptor.accept(&listener).await) }).await?;
                drop((acceptor, listener));
                return serve(accepted, &carriers, &interrupt, output).await;
            }
            let mut peers = FuturesUnordered::new();
            while !interrupt.is_requested() {
                tokio::select! {
                    accepted = acceptor.accept(&listener) => {
                        peers.push(async {
                            let peer = accepted.peer;
                            (peer, serve(accepted, &carriers, &interrupt, output).await)
                        });
                    }
                    Some((peer, done)) = peers.next() => report_failure(peer, done),
                    _ = interrupted(&interrupt) => (),
                }
                served.set(peers.len());
            }
            // Each of them notices the interrupt, too.
            while let Some((peer, done)) = peers.next().await {
                report_failure(peer, done);
            }
            Ok(())
        })
    }

    /// Reads the first message of a session
    fn read_request(&self, message: &[u8]) -> Result<Request> {
        if let Some(measurement) = Measurement::requested(message) {
            ensure!(!self.is_one_copy, Declined::Measurement);
            return Ok(Request::Measurement(measurement));
        }
        match self.into {
            Some(root) => Ok(Request::Copy(Incoming::prepare(message, root)?)),
            None if Incoming::is_requested(message) => bail!(Declined::Copy),
            None => bail!(FOREIGN),
        }
    }
}

/// One peer that fails is no reason to leave the others
fn report_failure(peer: SocketAddr, done: Result<()>) {
    let Err(error) = done else { return };
    // After Ctrl-C, only an error that names the kept part of a copy is printed.
    if !error.is::<Interrupted>() || error.chain().count() > 1 {
        note(&format!("{peer}: {}", with_sources(&error)));
    }
}

/// Does what a peer asks for
async fn serve(
    accepted: Accepted<Request>,
    carriers: &Carriers,
    interrupt: &Interrupt,
    output: Output,
) -> Result<()> {
    let Accepted { node, session, peer, request } = accepted;
    let carrier = carriers.describe(&session).await;
    let measurement = match request {
        Request::Measurement(measurement) => measurement,
        Request::Copy(request) => {
            let accepted = Accepted { node, session, peer, request };
            return receive(accepted, &carrier, interrupt, output).await;
        }
    };
    let command = measurement.name();
    output.announce(&format!("{peer} measures: {command}"))?;
    output.announce_carrier(&carrier)?;
    let wall = Wall::start();
    let (done, carried) = in_session(&session, peer, interrupt, measurement.answer(&session)).await;
    let wall_seconds = wall.seconds();
    end_session(node, session, &done).await;
    Served::new(command, peer, done.map_err(explain)?, wall_seconds, carried).print(output)
}
