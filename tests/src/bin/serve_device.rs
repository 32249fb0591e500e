//! Serves a device of this host for the conformance body between two hosts
//!
//! Serves the device `RDMA_CONFORMANCE_DEVICE` at the address `RDMA_CONFORMANCE_LISTEN`, to one client after the other, until a
//! client ends the server. Every process that reaches the address may use the device. See rdma-tb5/MACS.md.

use std::env;
use std::net::TcpListener;

use rdma_tests::remote::{Ended, LISTEN_VARIABLE, LocalDevice, serve};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for the command line")]
fn main() -> Result<(), String> {
    let address = env::var(LISTEN_VARIABLE).map_err(|_| {
        format!("set {LISTEN_VARIABLE} to the address and port to listen at, such as 192.168.30.2:7474")
    })?;
    let device = LocalDevice::from_environment()?;
    // A missing device is reported here at the start, not at the client.
    drop(device.open().map_err(|error| format!("{}: {error}: {}", device.name(), error.remedy()))?);
    let listener = TcpListener::bind(&address).map_err(|error| format!("{address}: {error}"))?;
    println!("listening on {}", listener.local_addr().map_err(|error| error.to_string())?);
    loop {
        let (stream, peer) = listener.accept().map_err(|error| error.to_string())?;
        match serve(stream, || device.open()) {
            Ok(Ended::Closed) => {}
            Ok(Ended::Finished) => return Ok(()),
            Err(error) => eprintln!("{peer}: {error}"),
        }
    }
}
