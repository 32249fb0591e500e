//! The side that receives

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::outcome::Outcome;
use super::request::Request;
use crate::copy::destination::Destination;
use crate::copy::receive::{Arrived, Received, Receiver};
use crate::copy::words::{NOT_KEPT, earlier, ended_early, remedy};
use crate::failure::shown;
use crate::file::Replacement;
use crate::machines::{Accepted, end_session, explain, in_session, lacks_room};
use crate::progress;
use crate::report::{Output, Wall, with_sources};
use crate::signals::Interrupt;

/// A copy that a peer asks for, and that can be made
pub(crate) struct Incoming {
    bytes: u64,
    place: PathBuf,
    /// The place below the directory of this side, for the sender
    name: PathBuf,
    destination: Destination,
}

impl Incoming {
    /// Whether the first message of a session asks for a copy
    pub(crate) fn is_requested(message: &[u8]) -> bool {
        Request::is_one(message)
    }

    /// Prepares what the first message of a session asks for
    pub(crate) fn prepare(message: &[u8], root: &Path) -> Result<Self> {
        let request = Request::from_bytes(message)?;
        let place = request.place(root)?;
        let destination = request.destination(&place)?;
        let name = match place.strip_prefix(root)? {
            name if name.as_os_str().is_empty() => Path::new("."),
            name => name,
        };
        Ok(Self { bytes: request.bytes, name: name.to_owned(), place, destination })
    }
}

/// Makes a copy that a peer asks for
pub(crate) async fn receive(
    accepted: Accepted<Incoming>,
    carrier: &str,
    interrupt: &Interrupt,
    output: Output,
) -> Result<()> {
    let Accepted { node, session, peer, request } = accepted;
    let Incoming { bytes, place, name, mut destination } = request;
    output.announce(&format!("{peer} copies to {}", shown(&place)))?;
    output.announce_carrier(carrier)?;
    let progress = progress::bytes(bytes);
    let wall = Wall::start();
    let arrived = Arrived::default();
    let receiver = Receiver::new(&session, &mut destination, &progress, interrupt, &arrived);
    let copying = async {
        session.send_bytes(name.as_os_str().as_encoded_bytes()).await?;
        receiver.receive().await
    };
    let (done, carried) = in_session(&session, peer, interrupt, copying).await;
    let wall_seconds = wall.seconds();
    // Before the peer is told, which takes seconds while no path works: this process may be killed meanwhile.
    let remedy = match (&done, arrived.incomplete.take()) {
        (Ok(_), _) => String::new(),
        // The received bytes would keep the disk full.
        (Err(error), _) if lacks_room(error) => NOT_KEPT.to_owned(),
        (Err(_), rest) => remedy(rest.map_or(Ok(None), Replacement::keep)),
    };
    end_session(node, session, &done).await;
    progress.finish_and_clear();
    let received: Received = done.map_err(|error| {
        let error = explain(error);
        let why = with_sources(&error);
        let what = format!("{}: {}", shown(&place), ended_early(&arrived, &why, &remedy));
        error.context(what)
    })?;
    let goodput = (received.bytes - received.resumed) as f64 / wall_seconds;
    let report = Outcome {
        backend: carried.backend(),
        role: "receiver",
        peer: peer.to_string(),
        path: place.display().to_string(),
        bytes: received.bytes,
        files: received.files,
        directories: received.directories,
        links: received.links,
        resumed_bytes: received.resumed,
        discarded_bytes: Some(received.discarded),
        blake3: received.hash.to_string(),
        wall_seconds,
        goodput_bytes_per_second: goodput,
        carried,
    };
    let rows = [("received", shown(&place)), ("size", report.size())];
    output.outcome(&report, rows.into_iter().chain(report.rows()).chain(earlier(&received)))
}
