//! The side that sends

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::carriers::{Carried, Carriers};
use super::request::Request;
use super::sides::{Outcome, PATIENCE, explain, options, part, runtime, unless_interrupted};
use crate::args::{Carrier, Copy};
use crate::copy::entry::{Entry, Kind};
use crate::copy::send::{Sender, Sent, Sources};
use crate::progress;
use crate::remote_path::{RemotePath, require_below};
use crate::report::{Output, Wall, bytes};
use crate::signals::Interrupt;

/// Copies what `args` name
pub(crate) fn send(args: &Copy, to: &RemotePath, output: Output) -> Result<()> {
    require_below(&to.path)?;
    let interrupt = Interrupt::listen()?;
    let source = args.source()?;
    let sources = Sources::open(source, args.recursive)?;
    let options = options(args.machines.key.as_deref())?;
    let carriers = Carriers::find(args.machines.carrier.unwrap_or(Carrier::Auto))?;
    let request = Request { source: root(&sources, source)?, path: to.path.clone(), bytes: sources.len() };
    let progress = progress::bytes(sources.len(), output);
    let wall = Wall::start();
    let (sent, carried) = runtime()?.block_on(async {
        let stream = unless_interrupted(&interrupt, connect(&to.host, args.machines.port())).await?;
        let peer = stream.peer_addr()?;
        let node = carriers.node(stream.local_addr()?, options)?;
        let connected = async { Ok(node.connect(stream).await?) };
        let session = unless_interrupted(&interrupt, connected)
            .await
            .with_context(|| format!("{peer} was reached, but no session could be made"))?;
        output.announce(&format!("carrier: {}", carriers.describe(&session)))?;
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
        ("copied", format!("{} to {}:{}", source.display(), to.host, to.path.display())),
        ("size", format!("{} ({sent} bytes)", bytes(sent))),
    ];
    let earlier = (resumed > 0).then(|| ("resumed", format!("{} were there already", bytes(resumed))));
    output.outcome(&report, rows.into_iter().chain(report.rows()).chain(earlier))
}

/// The source itself, for the receiver
fn root(sources: &Sources, path: &std::path::Path) -> Result<Entry> {
    let (kind, mode) = match sources {
        Sources::File(source) => (Kind::File(source.len()), source.mode()),
        Sources::Directory { .. } => (Kind::Directory, 0o777),
    };
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    Ok(Entry { path: name, mode, kind })
}

async fn connect(host: &str, port: u16) -> Result<TcpStream> {
    let remedy = || format!("{host}, port {port}: run `tb5 copy --listen DIR` there first");
    match timeout(PATIENCE, TcpStream::connect((host, port))).await {
        Ok(connected) => connected.with_context(remedy),
        Err(_) => bail!("{}: nothing answered for {PATIENCE:?}", remedy()),
    }
}
