//! The two simulated Macs that the commands use

use anyhow::{Context as _, Result};
use futures::future::try_join;
use rdma_async::session::{Node, NodeOptions, Session};
use rdma_sim::{Net, SimDevice};

/// The device with the cable, on both Macs.
const DEVICE: &str = "rdma_en2";

/// Opens the device of both Macs
pub(crate) fn devices(net: &Net) -> Result<[SimDevice; 2]> {
    Ok([net.open("a", DEVICE)?, net.open("b", DEVICE)?])
}

/// Opens a session between both Macs
pub(crate) async fn connect(net: &Net, options: &NodeOptions) -> Result<[Session<SimDevice>; 2]> {
    let node = |host| {
        Node::builder(net.opener(host, DEVICE)).runtime(net.runtime()).options(options.clone()).build()
    };
    let (a, b) = (node("a")?, node("b")?);
    let (to_b, to_a) = tokio::io::duplex(256);
    let (ab, ()) = try_join(a.connect(to_b), b.serve(to_a)).await?;
    let ba = b.accept().await.context("the node is closed")?;
    Ok([ab, ba])
}
