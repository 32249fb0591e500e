//! `tb5 devices`: devices, ports, cables and peers

use rdma_doctor::report::{DeviceSummary, Peer, Platform, Port};
use rdma_doctor::{Host, HostReport};
use serde::Serialize;

use crate::args::Devices;
use crate::recorded;
use crate::report::{Output, plain, table};

#[derive(Debug, Serialize)]
struct DeviceList<'a> {
    source: &'a str,
    platform: Platform,
    /// Whether there are devices; `null` if they could not be listed.
    rdma: Option<bool>,
    devices: Vec<Listed<'a>>,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    device: &'a DeviceSummary,
    interface: Option<&'a str>,
    receptacle: Option<u32>,
    speed: Option<&'a str>,
    peers: &'a [Peer],
}

impl<'a> Listed<'a> {
    fn new(host: &'a HostReport, device: &'a DeviceSummary) -> Self {
        let bus = host.bus_of(device);
        Self {
            device,
            interface: device.interface(),
            receptacle: bus.and_then(|bus| bus.receptacle),
            speed: bus.and_then(|bus| bus.speed.as_deref()),
            peers: bus.map_or(&[], |bus| &bus.peers),
        }
    }
}

pub(crate) fn run(args: &Devices, output: Output) -> anyhow::Result<()> {
    let host = match &args.from {
        Some(path) => recorded::read(path)?,
        None => recorded::this_machine(),
    };
    let listed = host.report.devices.as_deref();
    let devices = listed.unwrap_or_default().iter();
    let report = DeviceList {
        source: &host.label,
        platform: host.report.platform,
        rdma: listed.map(|devices| !devices.is_empty()),
        devices: devices.map(|device| Listed::new(&host.report, device)).collect(),
    };
    output.print(&report, || text(&host, &report))
}

fn text(host: &Host, report: &DeviceList<'_>) -> String {
    let heading = plain(&recorded::summary(host));
    match report.rdma {
        None => format!("{heading}\nthe RDMA devices could not be listed: try `tb5 doctor`"),
        Some(false) => format!("{heading}\nno RDMA devices"),
        Some(true) => {
            let columns = ["device", "state", "width × rate", "receptacle", "link", "connected to", "GIDs"];
            let rows = report.devices.iter().flat_map(rows);
            format!("{heading}\n{}", table(std::iter::once(columns.map(Into::into)).chain(rows)))
        }
    }
}

fn rows(listed: &Listed<'_>) -> Vec<[String; 7]> {
    let unknown = Port::default();
    let ports =
        if listed.device.ports.is_empty() { std::slice::from_ref(&unknown) } else { &listed.device.ports };
    ports.iter().map(|port| row(listed, port).map(|cell| plain(&cell))).collect()
}

fn row(listed: &Listed<'_>, port: &Port) -> [String; 7] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let words = [port.active_width.as_deref(), port.active_speed.as_deref()];
    let rate: Vec<_> = words.into_iter().flatten().collect();
    let peers: Vec<_> = listed.peers.iter().map(|peer| peer.name.as_str()).collect();
    let gids = port.gids.as_deref().map(|gids| {
        let listed: Vec<_> = gids.iter().map(|gid| format!("[{}] {}", gid.index, gid.gid)).collect();
        if listed.is_empty() { "none".to_owned() } else { listed.join(", ") }
    });
    [
        listed.device.label(port),
        or_dash(port.state.clone()),
        or_dash((!rate.is_empty()).then(|| rate.join(" × "))),
        or_dash(listed.receptacle.map(|number| number.to_string())),
        or_dash(listed.speed.map(Into::into)),
        or_dash((!peers.is_empty()).then(|| peers.join(", "))),
        or_dash(gids),
    ]
}
