//! The far end of the conformance body between two hosts
//!
//! Serves the device that `RDMA_CONFORMANCE_DEVICE` names at `RDMA_CONFORMANCE_LISTEN`, one peer after the other, until one says
//! that it was the last. Whoever reaches that address may use the device. See rdma-tb5/MACS.md.

use std::env;
use std::net::TcpListener;

use rdma_tests::remote::{Ended, LISTEN_VARIABLE, LocalDevice, serve};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "it is run by hand, too")]
fn main() -> Result<(), String> {
    let address = env::var(LISTEN_VARIABLE).map_err(|_| {
        format!("{LISTEN_VARIABLE} is the address and port to listen at, such as 192.168.30.2:7474")
    })?;
    let device = LocalDevice::from_environment()?;
    // Whether there is such a device should be said here rather than there.
    drop(device.open().map_err(|error| format!("{}: {error}: {}", device.name(), error.remedy()))?);
    let listener = TcpListener::bind(&address).map_err(|error| format!("{address}: {error}"))?;
    println!("listening on {}", listener.local_addr().map_err(|error| error.to_string())?);
    loop {
        let (stream, peer) = listener.accept().map_err(|error| error.to_string())?;
        match serve(stream, || device.open()) {
            Ok(Ended::Left) => {}
            Ok(Ended::Finished) => return Ok(()),
            Err(error) => eprintln!("{peer}: {error}"),
        }
    }
}
