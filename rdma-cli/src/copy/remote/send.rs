//! The side that sends

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use tokio::time::sleep;

use super::outcome::Outcome;
use super::request::Request;
use crate::args::Copy;
use crate::copy::agreed::{PIECE, PIECES, next};
use crate::copy::entry::{Entry, Kind};
use crate::copy::send::{Sender, Sent, Sources};
use crate::copy::words::NOT_KEPT;
use crate::failure::shown;
use crate::machines::{Peer, RemotePath, lacks_room, require_below};
use crate::progress;
use crate::report::{Output, Wall, bytes, note, with_sources};
use crate::signals::Interrupt;

/// Interval between checks whether half of a copy is sent.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Copies what `args` name
pub(crate) fn send(args: &Copy, to: &RemotePath, output: Output) -> Result<()> {
    require_below(&to.path)?;
    if let Some(port) = to.path.to_str().and_then(|path| path.parse::<u16>().ok()) {
        note(&format!("the copy will be called {port}; a port is written as --port {port}"));
    }
    let source = args.source()?;
    let sources = Sources::open(source, args.recursive)?;
    let interrupt = Interrupt::listen()?;
    let peer = Peer {
        host: &to.host,
        machines: &args.machines,
        command: "tb5 copy --listen DIR",
        interrupt: &interrupt,
    };
    let (progress, files, hashes) = (progress::bytes(sources.len()), sources.files(), Cell::new(0));
    let sending = Sending { sources, to: &to.path, is_drill: false, hashes: &hashes };
    let sent = sending.send_to(peer, &progress, |carrier| output.announce_carrier(carrier));
    let report = sent.map_err(|error| {
        let why = with_sources(&error);
        let what = match progress.position() {
            0 => return error,
            _ if lacks_room(&error) => format!("the copy is not complete ({why}); {NOT_KEPT}"),
            // The other side may have it.
            _ if hashes.get() == files => format!("the copy is not confirmed ({why}); copy again to be sure"),
            _ => format!("the copy is not complete ({why}); copy again, and what the other side has kept is not sent again"),
        };
        error.context(what)
    })?;
    progress.finish_and_clear();
    let rows =
        [("copied", format!("{} to {}:{}", shown(source), to.host, report.path)), ("size", report.size())];
    let resumed = report.resumed_bytes;
    let earlier = (resumed > 0).then(|| ("resumed", format!("{} were there already", bytes(resumed))));
    output.outcome(&report, rows.into_iter().chain(report.rows()).chain(earlier))
}

/// A copy to another machine
pub(crate) struct Sending<'a> {
    pub(crate) sources: Sources,
    /// Below the directory of the receiver
    pub(crate) to: &'a Path,
    /// Whether all paths are broken in the middle
    pub(crate) is_drill: bool,
    /// The number of files that the receiver may have
    pub(crate) hashes: &'a Cell<u64>,
}

impl Sending<'_> {
    /// Copies, and returns what both sides report once the receiver has verified it
    pub(crate) fn send_to(
        self,
        peer: Peer<'_>,
        progress: &ProgressBar,
        on_carrier: impl FnOnce(&str) -> Result<()>,
    ) -> Result<Outcome> {
        let Self { sources, to, is_drill, hashes } = self;
        let half = sources.len() / 2;
        let request = Request { source: root(&sources), path: to.to_owned(), bytes: sources.len() };
        let ((sent, name, wall_seconds), mut carried) =
            peer.in_session(PIECE, PIECES, on_carrier, async |session| {
                let wall = Wall::start();
                session.send_bytes(&request.to_bytes()).await?;
                let name = Entry::path_of(&next(session).await?)?;
                let sent = Sender::new(session, progress, peer.interrupt, hashes).send(sources);
                let drill = async {
                    while progress.position() < half {
                        sleep(LOOK_INTERVAL).await;
                    }
                    session.break_paths();
                    std::future::pending().await
                };
                let sent = tokio::select! {
                    sent = sent => sent?,
                    never = drill, if is_drill => never,
                };
                Ok((sent, name, wall.seconds()))
            })?;
        let Sent { hash, resumed, bytes, files, directories, links, asked_again } = sent;
        carried.retransmitted_bytes += asked_again;
        Ok(Outcome {
            backend: carried.backend(),
            role: "sender",
            peer: peer.host.name().to_owned(),
            path: name.display().to_string(),
            bytes,
            files,
            directories,
            links,
            resumed_bytes: resumed,
            discarded_bytes: None,
            blake3: hash.to_string(),
            wall_seconds,
            goodput_bytes_per_second: (bytes - resumed) as f64 / wall_seconds,
            carried,
        })
    }
}

/// The source itself, for the receiver
fn root(sources: &Sources) -> Entry {
    match sources {
        Sources::File(source) => {
            Entry { path: source.name().into(), mode: source.mode(), kind: Kind::File(source.len()) }
        }
        Sources::Directory { .. } => Entry { path: PathBuf::new(), mode: 0o777, kind: Kind::Directory },
    }
}
