//! Lists the RDMA devices of this machine and opens one
//!
//! `cargo run --example open_device -- --device` opens the first, `-- --device NAME` that one; without arguments, a simulated one.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::process::ExitCode;

use rdma_async::{AnyDevice, Device as _};
use rdma_sim::Sim;
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match &*args.iter().map(String::as_str).collect::<Vec<_>>() {
        [] | ["--sim"] => Sim::new().run(async |net| show(&AnyDevice::new(net.open("a", "rdma_en2")?))).value,
        ["--device"] => open(None).and_then(|device| show(&device)),
        ["--device", name] => open(Some(name)).and_then(|device| show(&device)),
        _ => {
            eprintln!("usage: open_device [--sim | --device [NAME]]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the device called `name`, or the first, through the system's verbs provider
fn open(name: Option<&str>) -> Result<AnyDevice, Box<dyn Error>> {
    // `/usr/lib/librdma.dylib` of macOS 26.2 and later, `libibverbs.so.1` of Linux, or the library that RDMA_PROVIDER names.
    let provider = Provider::load()?;
    let names = provider.devices()?;
    println!("devices: {}", names.join(", "));
    let first = names.first().map(String::as_str);
    let name =
        name.or(first).ok_or("this machine has no RDMA device; `tb5 doctor` explains what is missing")?;
    Ok(AnyDevice::new(VerbsDevice::open(&provider, name, OpenOptions::new())?))
}

fn show(device: &AnyDevice) -> Result<(), Box<dyn Error>> {
    let (port, caps) = (device.port()?, device.caps());
    println!("{}: {:?}, {} Gbit/s", device.name(), port.state, port.bits_per_second / 1_000_000_000);
    println!("messages of up to {} bytes, {} queue pairs", caps.max_message, caps.max_qp);
    for gid in device.gids()? {
        println!("gid {gid}");
    }
    Ok(())
}
