//! The side that sends

use std::path::PathBuf;

use anyhow::Result;

use super::outcome::Outcome;
use super::request::Request;
use crate::args::Copy;
use crate::copy::agreed::{PIECE, PIECES};
use crate::copy::entry::{Entry, Kind};
use crate::copy::send::{Sender, Sent, Sources};
use crate::copy::words;
use crate::machines::{
    Carried, Meeting, Peer, RemotePath, explain, key_options, part, require_below, room, runtime,
    unless_interrupted,
};
use crate::progress;
use crate::report::{Output, Wall, bytes};
use crate::signals::Interrupt;

/// Copies what `args` name
pub(crate) fn send(args: &Copy, to: &RemotePath, output: Output) -> Result<()> {
    require_below(&to.path)?;
    let source = args.source()?;
    let sources = Sources::open(source, args.recursive)?;
    let interrupt = Interrupt::listen()?;
    let options = room(key_options(args.machines.key.as_deref())?, PIECE, PIECES);
    let request = Request { source: root(&sources), path: to.path.clone(), bytes: sources.len() };
    let progress = progress::bytes(sources.len(), output);
    let wall = Wall::start();
    let (sent, carried) = runtime()?.block_on(async {
        let peer = Peer { host: &to.host, machines: &args.machines, command: "tb5 copy --listen DIR" };
        let Meeting { node, session } = Meeting::with(peer, options, &interrupt, output).await?;
        let copied = unless_interrupted(&interrupt, async {
            session.send_bytes(&request.to_bytes()).await?;
            Sender::new(&session, &progress, &interrupt).send(sources).await
        });
        let done = copied.await;
        let carried = Carried::over(&session);
        part(node, session, &done).await;
        anyhow::Ok((done.map_err(explain)?, carried))
    })?;
    progress.finish_and_clear();
    let Sent { hash, resumed, bytes: sent } = sent;
    let wall_seconds = wall.seconds();
    let goodput = (sent - resumed) as f64 / wall_seconds;
    let report = Outcome {
        backend: carried.backend(),
        role: "sender",
        peer: to.host.clone(),
        path: to.path.display().to_string(),
        bytes: sent,
        resumed_bytes: resumed,
        blake3: hash.to_string(),
        wall_seconds,
        goodput_bytes_per_second: goodput,
        carried,
    };
    let rows = [
        ("copied", format!("{} to {}:{}", words::source(source), to.host, to.path.display())),
        ("size", format!("{} ({sent} bytes)", bytes(sent))),
    ];
    let earlier = (resumed > 0).then(|| ("resumed", format!("{} were there already", bytes(resumed))));
    output.outcome(&report, rows.into_iter().chain(report.rows()).chain(earlier))
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
