//! The two simulated Macs that the commands use

use anyhow::Result;
use futures::future::try_join;
use rdma_async::{Connection, Endpoint, EndpointOptions};
use rdma_sim::{Net, SimDevice};

/// The device with the cable, on both Macs.
const DEVICE: &str = "rdma_en2";

/// Opens the device of both Macs
pub(crate) fn devices(net: &Net) -> Result<[SimDevice; 2]> {
    Ok([net.open("a", DEVICE)?, net.open("b", DEVICE)?])
}

/// Connects both Macs
pub(crate) async fn connect(net: &Net, options: &EndpointOptions) -> Result<[Connection<SimDevice>; 2]> {
    let [a, b] = devices(net)?;
    let a = Endpoint::builder(a).runtime(net.runtime()).options(options.clone()).build()?;
    let b = Endpoint::builder(b).runtime(net.runtime()).options(options.clone()).build()?;
    let (to_b, to_a) = tokio::io::duplex(256);
    let (ab, ba) = try_join(a.connect(to_b), b.accept(to_a)).await?;
    Ok([ab, ba])
}
