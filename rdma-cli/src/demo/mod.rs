//! `tb5 demo`: a ping, a copy, an all_reduce and an outage in the middle of both, each result beside its limit

mod beside;
mod between;
mod chart;
mod files;
mod page;
mod simulated;

use anyhow::{Result, bail};

use crate::args::Demo;
use crate::failure::Failure;
use crate::report::Output;

pub(crate) fn run(args: &Demo, is_simulated: bool, output: Output) -> Result<()> {
    match &args.host {
        Some(_) if is_simulated => {
            bail!(Failure::usage("--sim: simulated Macs need no other machine; leave HOST: out"))
        }
        Some(host) => between::run(args, host, output),
        None => {
            args.machines.require_host()?;
            simulated::run(args, is_simulated, output)
        }
    }
}
