//! The devices of the simulated Macs, as `tb5 devices` shows those of a machine

use std::net::Ipv6Addr;

use anyhow::Result;
use rdma_core::{PortState, PortStatus};
use rdma_doctor::report::{Bus, DeviceSummary, GidEntry, HardwarePort, Peer, Port};
use rdma_doctor::{Host, HostReport};
use rdma_sim::topology::{Host as Mac, Topology};
use rdma_sim::{Net, Sim};

use crate::devices::{self, DeviceList};
use crate::report::table;

/// Reports of the devices of each Mac
pub(super) fn devices(topology: &Topology) -> Result<Vec<DeviceList>> {
    let run = Sim::new().topology(topology.clone()).run(async |net| {
        let reports = topology.hosts().iter().map(|mac| report(&net, topology, mac));
        reports.collect::<Result<Vec<_>>>()
    });
    let hosts = run.value?.into_iter().zip(topology.hosts());
    Ok(hosts.map(|(report, mac)| devices::list(&Host::new(mac.name(), report))).collect())
}

/// All devices in one table, with the name of their Mac
pub(super) fn text(lists: &[DeviceList]) -> String {
    let head = std::iter::once("Mac").chain(devices::COLUMNS).map(str::to_owned).collect();
    table(std::iter::once(head).chain(rows(lists)).map(|cells: Vec<String>| {
        // The last column, of GIDs, is too wide beside a name.
        std::array::from_fn::<_, 7, _>(|column| cells[column].clone())
    }))
}

/// A row for each device
pub(super) fn rows(lists: &[DeviceList]) -> impl Iterator<Item = Vec<String>> {
    lists.iter().flat_map(|list| {
        list.cells().map(|cells| std::iter::once(list.source.clone()).chain(cells).collect())
    })
}

fn report(net: &Net, topology: &Topology, mac: &Mac) -> Result<HostReport> {
    let mut report = HostReport::default();
    let (mut devices, mut buses, mut hardware_ports) = (Vec::new(), Vec::new(), Vec::new());
    for (port, receptacle) in mac.ports().iter().zip(1..) {
        let PortStatus { state, bits_per_second, .. } = net.port(mac.name(), port.device())?;
        let gids = net.gids(mac.name(), port.device())?.into_iter().zip(0..);
        let mut found = Port::default();
        found.number = 1;
        found.state = Some(if state == PortState::Active { "PORT_ACTIVE" } else { "PORT_DOWN" }.to_owned());
        found.gids = Some(gids.map(|(gid, index)| GidEntry { index, gid: Ipv6Addr::from(gid.0) }).collect());
        let mut device = DeviceSummary::named(port.device());
        device.ports.push(found);
        devices.push(device);

        let mut bus = Bus::default();
        bus.receptacle = Some(receptacle);
        let link = topology.links().find_map(|link| {
            let [left, right] = link.ends;
            let is_here = |host: &str, device: &str| host == mac.name() && device == port.device();
            if is_here(left.host, left.device) {
                Some(right)
            } else {
                is_here(right.host, right.device).then_some(left)
            }
        });
        if let Some(end) = link {
            bus.speed = Some(format!("{} Gb/s", bits_per_second / 1_000_000_000));
            let mut peer = Peer::default();
            peer.name = format!("{}:{}", end.host, end.device);
            bus.peers.push(peer);
        }
        buses.push(bus);
        let mut hardware = HardwarePort::default();
        hardware.receptacle = receptacle;
        hardware.interface = port.interface().to_owned();
        hardware_ports.push(hardware);
    }
    report.devices = Some(devices);
    report.thunderbolt = Some(buses);
    report.hardware_ports = Some(hardware_ports);
    Ok(report)
}
