//! The two simulated Macs that the commands use

use std::path::Path;

use anyhow::{Context as _, Result};
use futures::future::try_join;
use rdma_async::{AnyDevice, Node, NodeBuilder, NodeOptions, Session};
use rdma_sim::profile::{Profile, ProfileError};
use rdma_sim::{LineRate, Model, Net, OpenError, SimDevice, Timing, Topology};

use crate::failure::{Failure, is_standard};
use crate::input::read_named;

/// Ports of each Mac, which are the most cables between them.
pub(crate) const PORTS: u8 = 3;

/// Both Macs, called `a` and `b`, with these cables between ports of the same number
pub(crate) fn topology(cables: u8) -> Topology {
    let ports = usize::from(PORTS);
    let macs = Topology::new().host("a", ports).host("b", ports);
    (0..usize::from(cables)).fold(macs, |macs, port| macs.cable(("a", port), ("b", port), LineRate::TB5))
}

/// The payload in bytes per second that a cable between two Macs of `model` could carry; `None` if bytes take no time
pub(crate) fn ceiling(model: &Model) -> Option<f64> {
    let Timing { line_rate, frame_ns, ip_percent, .. } = model.timing;
    let of_usual = Timing::DEFAULT_FRAME_NS as f64 / frame_ns.max(1) as f64;
    let payload = f64::from(100_u32.saturating_sub(ip_percent)) / 100.0;
    line_rate.then(|| LineRate::TB5.ceiling_bytes_per_second() * of_usual * payload)
}

/// The device model of `--profile`
pub(crate) fn model(profile: &str) -> Result<Model> {
    self::profile(profile).map(|profile| profile.model)
}

/// The profile of `--profile`: one of the simulator, or that of a file, or of standard input
pub(crate) fn profile(profile: &str) -> Result<Profile> {
    if !is_standard(profile) {
        return Profile::find(profile).map_err(explain);
    }
    let text = read_named(Path::new(profile), Profile::MAX_LEN)?;
    Profile::parse("standard input", &text).map_err(explain)
}

/// An unknown name is a usage error; an invalid profile file is a failure
fn explain(error: ProfileError) -> anyhow::Error {
    match error {
        ProfileError::Unknown(_) => Failure::usage(error).into(),
        _ => error.into(),
    }
}

/// The device at a cable, on both Macs
pub(crate) fn device(cable: u8) -> String {
    format!("rdma_en{}", cable + 2)
}

/// Opens the device at the first cable of both Macs
pub(crate) fn devices(net: &Net) -> Result<[SimDevice; 2]> {
    Ok([net.open("a", &device(0))?, net.open("b", &device(0))?])
}

/// A function that opens a simulated device, for a node
///
/// Sessions of simulated and of real devices have the same type: they are compiled once.
pub(crate) fn opener(
    net: &Net,
    host: &str,
    device: &str,
) -> impl Fn() -> Result<AnyDevice, OpenError> + Send + Sync + use<> {
    let open = net.opener(host, device);
    move || open().map(AnyDevice::new)
}

/// Names the cable of the device that was added last to `builder`
pub(crate) fn named(
    net: &Net,
    host: &str,
    device: &str,
    builder: NodeBuilder<AnyDevice>,
) -> NodeBuilder<AnyDevice> {
    let (net, host, device) = (net.clone(), host.to_owned(), device.to_owned());
    builder.link(move || net.link(&host, &device))
}

/// Opens a session between both Macs, over these cables
pub(crate) async fn connect(net: &Net, options: &NodeOptions, cables: u8) -> Result<[Session<AnyDevice>; 2]> {
    let node = |host| {
        let first = Node::builder(opener(net, host, &device(0)));
        let builder =
            (1..cables).fold(first, |builder, cable| builder.device(opener(net, host, &device(cable))));
        builder.runtime(net.runtime()).options(options.clone()).build()
    };
    let (a, b) = (node("a")?, node("b")?);
    let (to_b, to_a) = tokio::io::duplex(64 << 10);
    let (ab, ()) = try_join(a.connect(to_b), b.serve(to_a)).await?;
    let ba = b.accept().await.context("the node is closed")?;
    Ok([ab, ba])
}
