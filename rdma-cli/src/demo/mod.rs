//! `tb5 demo`: a ping, a copy, an all_reduce and an outage in the middle of both, each result beside its limit

mod chart;
mod comparison;
mod files;
mod page;
mod simulated;
mod two_machines;

use anyhow::Result;

use crate::args::Demo;
use crate::report::Output;

pub(crate) fn run(args: &Demo, output: Output) -> Result<()> {
    match &args.host {
        Some(host) => two_machines::run(args, host, output),
        None => {
            args.machines.require_host()?;
            simulated::run(args, output)
        }
    }
}
