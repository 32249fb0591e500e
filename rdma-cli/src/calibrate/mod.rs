//! `tb5 calibrate`: finds out how the device behaves, as a profile that the simulator loads and a page that people read,
//! or whether it has the behaviours that programs rely on

mod args;
mod conformance;
mod machines;
mod outcome;
mod record;
mod simulated;

use anyhow::Result;

pub(crate) use self::args::{Arguments, HELP};
use crate::file::reserve_standard_output;
use crate::report::Output;

pub(crate) fn run(args: &Arguments, output: Output) -> Result<()> {
    reserve_standard_output([&args.out], output)?;
    match &args.host {
        _ if args.listen => machines::listen(args, output),
        Some(host) => machines::ask(args, host, output),
        None => simulated::run(args, output),
    }
}
