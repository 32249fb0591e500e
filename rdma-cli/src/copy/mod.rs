//! `tb5 copy`: copies files from one Mac to another

mod agreed;
mod destination;
mod digest;
mod entry;
mod faults;
mod receive;
pub(crate) mod remote;
mod send;
mod simulate;
mod source;
mod transfer;
mod tree;
mod words;

use std::path::Path;

use self::destination::{place, prepare};
use self::faults::Faults;
pub(crate) use self::send::Sources;
pub(crate) use self::simulate::{CopyResult, Simulation};
use crate::args::Copy;
use crate::failure::{Failure, written};
use crate::file::reserve_standard_output;
use crate::machines::RemotePath;
use crate::report::{Output, simulated};
use crate::signals::Interrupt;
use crate::{mac, progress, serve};

pub(crate) fn run(args: &Copy, output: Output) -> anyhow::Result<()> {
    if let Some(root) = &args.listen {
        return serve::one_copy(&args.machines, args.bind, root, output);
    }
    let (src, dst) = (args.source()?, args.destination()?);
    args.require_valid_pipes(src, dst)?;
    require_places(src, dst)?;
    reserve_standard_output([dst], output)?;
    match args.remote() {
        Some(path) => {
            args.require_effect(true)?;
            remote::send(args, &path, output)
        }
        None => {
            args.require_effect(false)?;
            simulate(args, src, dst, output)
        }
    }
}

/// Fails if `src` is on another machine, or `dst` on one without a name
fn require_places(src: &Path, dst: &Path) -> Result<(), Failure> {
    if let Some(RemotePath { host, .. }) = RemotePath::parse(src).filter(|_| !src.exists()) {
        return Err(Failure::Usage(format!(
            "{}: files are copied to another machine, and not from it: run `tb5 copy` on {host}",
            src.display()
        )));
    }
    if [":", "[]:"].iter().any(|nowhere| dst.as_os_str().as_encoded_bytes().starts_with(nowhere.as_bytes())) {
        let why = format!(
            "{0}: the name of the machine is missing: write HOST:NAME, or ./{0} for a file",
            dst.display()
        );
        return Err(Failure::Usage(why));
    }
    Ok(())
}

/// Copies between two simulated Macs
fn simulate(args: &Copy, src: &Path, dst: &Path, output: Output) -> anyhow::Result<()> {
    let (cables, seed) = (args.cables.unwrap_or(1), args.seed.unwrap_or(0));
    let faults = Faults::parse(&args.fault, cables)?;
    let sources = Sources::open(src, args.recursive)?;
    let interrupt = Interrupt::listen()?;
    let dst = &place(&sources, dst);
    let destination = prepare(&sources, dst)?;
    output.announce(&simulated(cables))?;
    let progress = progress::bytes(sources.len());
    let simulation = Simulation {
        sources,
        destination,
        path: written(dst).into(),
        topology: mac::topology(cables),
        cables,
        faults,
        seed,
        keeps_records: false,
    };
    let copied = simulation.run(&progress, &interrupt)?;
    let faults = (!copied.faults.is_empty()).then(|| ("faults", copied.faults.clone()));
    let earlier = words::earlier(&copied.received);
    output.outcome(&copied.result, copied.rows(src, dst).into_iter().chain(faults).chain(earlier))
}
