//! The two simulated Macs that the commands use

use futures::future::try_join;
use rdma_async::{ConnectError, Connection, Endpoint, EndpointError, EndpointOptions};
use rdma_sim::{Net, SimDevice};

/// The device with the cable, on both Macs.
const DEVICE: &str = "rdma_en2";

/// The Macs could not be connected
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Device(#[from] rdma_core::Error),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// Opens the device of both Macs
pub(crate) fn devices(net: &Net) -> Result<[SimDevice; 2], SetupError> {
    Ok([net.open("a", DEVICE)?, net.open("b", DEVICE)?])
}

/// Connects both Macs
pub(crate) async fn connect(
    net: &Net,
    options: &EndpointOptions,
) -> Result<[Connection<SimDevice>; 2], SetupError> {
    let [a, b] = devices(net)?;
    let a = Endpoint::builder(a).runtime(net.runtime()).options(options.clone()).build()?;
    let b = Endpoint::builder(b).runtime(net.runtime()).options(options.clone()).build()?;
    let (to_b, to_a) = tokio::io::duplex(256);
    let (ab, ba) = try_join(a.connect(to_b), b.accept(to_a)).await?;
    Ok([ab, ba])
}
