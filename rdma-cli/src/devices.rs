//! `tb5 devices`: devices, ports, cables and peers

use std::path::Path;

use rdma_doctor::report::{DeviceSummary, Peer, Platform, Port};
use rdma_doctor::{Host, HostReport};
use serde::Serialize;

use crate::args::Devices;
use crate::recorded;
use crate::report::{Output, or_dash, plain, table};

#[derive(Debug, Serialize)]
pub(crate) struct DeviceList {
    pub(crate) source: String,
    platform: Platform,
    /// Whether there are devices; `null` if they could not be listed.
    pub(crate) rdma: Option<bool>,
    devices: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    device: DeviceSummary,
    interface: Option<String>,
    receptacle: Option<u32>,
    speed: Option<String>,
    peers: Vec<Peer>,
}

/// The columns of the table.
pub(crate) const COLUMNS: [&str; 7] =
    ["device", "state", "width × rate", "receptacle", "link", "connected to", "GIDs"];

impl Listed {
    fn new(host: &HostReport, device: &DeviceSummary) -> Self {
        let bus = host.bus_of(device);
        Self {
            device: device.clone(),
            interface: device.interface().map(Into::into),
            receptacle: bus.and_then(|bus| bus.receptacle),
            speed: bus.and_then(|bus| bus.speed.clone()),
            peers: bus.map_or_else(Vec::new, |bus| bus.peers.clone()),
        }
    }
}

pub(crate) fn run(args: &Devices, output: Output) -> anyhow::Result<()> {
    let mut host = match &args.from {
        Some(path) => recorded::read(path)?,
        None => recorded::this_machine()?,
    };
    let report = list(&host);
    recorded::shorten(std::slice::from_mut(&mut host));
    output.print(&report, || text(&host, &report, args.from.as_deref()))
}

/// The devices of a host
pub(crate) fn list(host: &Host) -> DeviceList {
    let listed = host.report.devices.as_deref();
    let devices = listed.unwrap_or_default().iter();
    DeviceList {
        source: host.label.clone(),
        platform: host.report.platform,
        rdma: listed.map(|devices| !devices.is_empty()),
        devices: devices.map(|device| Listed::new(&host.report, device)).collect(),
    }
}

impl DeviceList {
    /// The cells of the table: a row for each port
    pub(crate) fn cells(&self) -> impl Iterator<Item = [String; 7]> {
        self.devices.iter().flat_map(rows)
    }

    /// The rate of the cable at a device, in bits per second, if the machine states it
    pub(crate) fn bits_per_second(&self, device: &str) -> Option<u64> {
        let listed = self.devices.iter().find(|listed| listed.device.name == device)?;
        bits_per_second(listed.speed.as_deref()?)
    }
}

/// The rate in words such as `Up to 80 Gb/s`, in bits per second
fn bits_per_second(words: &str) -> Option<u64> {
    let (before, _) = words.split_once("Gb/s")?;
    let gigabits: u64 = before.split_whitespace().next_back()?.parse().ok()?;
    gigabits.checked_mul(1_000_000_000)
}

/// The devices as a table; `from` is the file of the report
pub(crate) fn text(host: &Host, report: &DeviceList, from: Option<&Path>) -> String {
    let heading = plain(&recorded::summary(host));
    match report.rdma {
        None => {
            let file = from.map(|path| format!(" --from {}", path.display())).unwrap_or_default();
            let remedy = plain(&format!("try `tb5 doctor{file}`"));
            format!("{heading}\nthe RDMA devices could not be listed: {remedy}")
        }
        Some(false) => format!("{heading}\nno RDMA devices"),
        Some(true) => {
            let head = std::iter::once(COLUMNS.map(Into::into));
            format!("{heading}\n{}", table(head.chain(report.cells())))
        }
    }
}

fn rows(listed: &Listed) -> Vec<[String; 7]> {
    let unknown = Port::default();
    let ports =
        if listed.device.ports.is_empty() { std::slice::from_ref(&unknown) } else { &listed.device.ports };
    ports.iter().map(|port| row(listed, port).map(|cell| plain(&cell))).collect()
}

fn row(listed: &Listed, port: &Port) -> [String; 7] {
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
        or_dash(listed.speed.clone()),
        or_dash((!peers.is_empty()).then(|| peers.join(", "))),
        or_dash(gids),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_cable_is_read_from_words() {
        for (words, rate) in [
            ("Up to 80 Gb/s", Some(80_000_000_000)),
            ("Up to 40 Gb/s x1", Some(40_000_000_000)),
            ("80 Gb/s", Some(80_000_000_000)),
            ("Up to 80", None),
            ("Gb/s", None),
            ("fast Gb/s", None),
        ] {
            assert_eq!(bits_per_second(words), rate, "{words}");
        }
    }
}
