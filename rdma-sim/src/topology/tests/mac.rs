use std::collections::BTreeSet;

use super::two_minis;
use crate::LineRate;
use crate::topology::{Host, MacModel, Port, Topology, TopologyError};

/// Source of each row: the table of [`MacModel`]
#[test]
fn models_have_their_published_ports_and_rates() {
    let table = [
        (MacModel::MacMiniM4, "mac-mini-m4", 3, LineRate::TB4),
        (MacModel::MacMiniM4Pro, "mac-mini-m4-pro", 3, LineRate::TB5),
        (MacModel::MacBookProM4Pro, "macbook-pro-m4-pro", 3, LineRate::TB5),
        (MacModel::MacBookProM4Max, "macbook-pro-m4-max", 3, LineRate::TB5),
        (MacModel::MacBookProM5Pro, "macbook-pro-m5-pro", 3, LineRate::TB5),
        (MacModel::MacBookProM5Max, "macbook-pro-m5-max", 3, LineRate::TB5),
        (MacModel::MacStudioM4Max, "mac-studio-m4-max", 4, LineRate::TB5),
        (MacModel::MacStudioM3Ultra, "mac-studio-m3-ultra", 6, LineRate::TB5),
    ];
    assert_eq!(table.map(|(model, ..)| model), MacModel::ALL);
    for (model, name, ports, rate) in table {
        assert_eq!((model.to_string().as_str(), model.ports(), model.line_rate()), (name, ports, rate));
        assert_eq!(name.parse(), Ok(model));
        assert_eq!(Topology::new().host("mac", model).hosts()[0].ports().len(), ports);
    }
    assert_eq!("generic-9".parse(), Ok(MacModel::from(9)));
}

#[test]
fn an_ultra_lists_its_devices_as_the_mlx_documentation_does() {
    let topology = Topology::new().host("ultra", MacModel::MacStudioM3Ultra);
    let ports = topology.find_host("ultra").unwrap().ports();
    let devices: Vec<_> = ports.iter().map(Port::device).collect();
    assert_eq!(devices, ["rdma_en2", "rdma_en3", "rdma_en4", "rdma_en5", "rdma_en6", "rdma_en7"]);
    let guids: Vec<_> = ports.iter().map(|port| port.guid().to_string()).collect();
    assert!(guids.iter().all(|guid| guid.ends_with("ac05") && guid[2..] == guids[0][2..]), "{guids:?}");
    let first_bytes: Vec<_> = ports.iter().map(|port| port.guid().0[0]).collect();
    assert_eq!(first_bytes, [0x80, 0x81, 0x82, 0x83, 0x84, 0x85]);
    assert_eq!(format!("{:#}", ports[1].guid()), "8196:a9d9:0000:ac05");
    assert_eq!(ports[3].interface(), "en5");
}

#[test]
fn the_gid_table_mirrors_the_addresses() {
    let mut topology = two_minis();
    let port = &topology.hosts()[1].ports()[2];
    assert_eq!(port.mac_address().to_string(), "36:96:00:01:00:08");
    let gids: Vec<_> = port.gids().iter().map(ToString::to_string).collect();
    assert_eq!(gids, ["fe80::3496:ff:fe01:8", "::ffff:169.254.2.3", "fe80::1c5e:5ec0:1:3"]);

    let [link_local, ipv4] = [port.addresses()[0], port.addresses()[1]];
    let secured = "fe80::c0de".parse().unwrap();
    let unset = "::".parse().unwrap();
    topology.set_addresses(("right", 2), [link_local, secured, unset, unset, ipv4]).unwrap();
    let gids = topology.hosts()[1].ports()[2].gids();
    assert!(gids[2].is_zero() && gids[3].is_zero());
    assert_eq!(gids.iter().position(|gid| gid.ipv4().is_some()), Some(4));
    topology.set_addresses(("right", "rdma_en4"), []).unwrap();
    assert_eq!(topology.hosts()[1].ports()[2].gids(), []);
}

#[test]
fn numbers_are_different_for_each_port_of_the_largest_topology() {
    let mut topology = Topology::new();
    for host in 0..Topology::MAX_HOSTS {
        topology.add_host(&format!("h{host}"), MacModel::MAX_PORTS).unwrap();
    }
    let ports: Vec<_> = topology.hosts().iter().flat_map(Host::ports).collect();
    let guids: BTreeSet<_> = ports.iter().map(|port| port.guid()).collect();
    let macs: BTreeSet<_> = ports.iter().map(|port| port.mac_address()).collect();
    let addresses: BTreeSet<_> = ports.iter().flat_map(|port| port.addresses()).collect();
    assert_eq!((guids.len(), macs.len(), addresses.len()), (ports.len(), ports.len(), 3 * ports.len()));
    let error = topology.add_host("late", 3).unwrap_err();
    assert_eq!(error, TopologyError::TooManyHosts { host: "late".to_owned() });
    assert_eq!(error.to_string(), "late is one host too many: the simulator has room for 1778");
}

/// Source: mlx#3162 lists `rdma_en1` and `rdma_en6` on some MacBook Pros.
#[test]
fn devices_of_macbooks_are_numbered_otherwise() {
    let topology =
        Topology::new().host("book", MacModel::MacBookProM4Max).host("mini", MacModel::MacMiniM4Pro);
    let devices =
        |host| topology.find_host(host).unwrap().ports().iter().map(Port::device).collect::<Vec<_>>();
    assert_eq!(devices("book"), ["rdma_en1", "rdma_en2", "rdma_en6"]);
    assert_eq!(devices("mini"), ["rdma_en2", "rdma_en3", "rdma_en4"]);
    assert_eq!(Topology::from_toml(&topology.to_toml()).unwrap(), topology);
}
