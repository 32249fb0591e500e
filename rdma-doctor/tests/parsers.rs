//! The parsers on composed outputs, whole and broken

mod support;

use std::fs;

use proptest::prelude::*;
use rdma_doctor::discover::Tool;
use rdma_doctor::parse::{self, MAX_INPUT, MAX_ITEMS, ParseError};
use rdma_doctor::report::Bus;
use support::{fixture, folder, outputs};

/// Feeds every parser; returns the length of the longest list
fn parse_all(text: &str) -> usize {
    let buses = parse::system_profiler(text).map_or(0, |buses| buses.len());
    let lists = [
        buses,
        parse::services(text).len(),
        parse::networksetup(text).len(),
        parse::ifconfig(text).len(),
        parse::ibv_devices(text).len(),
        parse::ibv_devinfo(text).len(),
        parse::arp(text).len(),
        parse::ndp(text).len(),
        parse::ps(text).len(),
        parse::port_owners(text).len(),
        parse::kernel_log(text).links_down.len(),
        parse::network_settings(text).map_or(0, |settings| settings.services.len()),
    ];
    let _ = parse::incident(text);
    let _ = parse::route_get(text);
    let _ = parse::launchctl(text);
    let _ = parse::firewall(text);
    let _ = parse::uptime(text);
    let _ = parse::vm_stat(text);
    let _ = parse::rdma_ctl(text);
    let _ = parse::sw_vers(text);
    let _ = parse::ioclasscount(text);
    let _ = parse::pmset(text);
    lists.into_iter().max().unwrap()
}

fn buses(name: &str) -> Vec<Bus> {
    parse::system_profiler(&fixture(name)).unwrap()
}

#[test]
fn buses_have_receptacles_speeds_and_peers() {
    let buses = buses("left/system_profiler.json");
    let receptacles: Vec<_> = buses.iter().map(|bus| bus.receptacle).collect();
    assert_eq!(receptacles, [Some(3), Some(2), Some(1)]);
    let cabled = &buses[0];
    assert_eq!(cabled.domain_uuid.as_deref(), Some("7A1B0C2D-0000-4000-8000-000000000001"));
    assert_eq!(cabled.link_speed().unwrap().to_string(), "80 Gb/s");
    assert_eq!(cabled.peers[0].domain_uuid.as_deref(), Some("7A1B0C2D-0000-4000-8000-000000000011"));
    assert_eq!(cabled.peers[0].rdma_service, None);
    assert!(buses[1].link_speed().unwrap().is_limit && buses[1].peers.is_empty());
}

#[test]
fn order_other_tags_and_new_keys_of_json_do_not_matter() {
    let [bus] = &buses("odd/system_profiler-new_keys_and_services.json")[..] else { panic!() };
    assert_eq!((bus.receptacle, bus.speed.as_deref()), (Some(3), Some("80 Gb/s")));
    assert_eq!(bus.peers[0].rdma_service, Some(true));
}

#[test]
fn docks_are_not_hosts_and_internal_buses_are_left_out() {
    let [bus] = &buses("odd/system_profiler-dock_and_internal_bus.json")[..] else { panic!() };
    assert_eq!(bus.peers.len(), 2, "the dock and the display behind it");
    assert_eq!(bus.hosts().count(), 0);
    assert!(buses("odd/system_profiler-no_buses.json").is_empty());
}

#[test]
fn json_that_is_broken_as_a_whole_is_an_error() {
    for name in ["truncated", "empty", "not_json", "too_deep"] {
        let result = parse::system_profiler(&fixture(&format!("broken/system_profiler-{name}.json")));
        assert!(matches!(result, Err(ParseError::NotJson(_))), "{name}: {result:?}");
    }
    let no_list = parse::system_profiler(&fixture("broken/system_profiler-no_list.json"));
    assert_eq!(no_list, Err(ParseError::Missing("SPThunderboltDataType")));
    let long = " ".repeat(MAX_INPUT + 1);
    assert_eq!(parse::system_profiler(&long), Err(ParseError::TooLong));
}

#[test]
fn json_values_of_the_wrong_type_are_left_out() {
    let [bus] = &buses("broken/system_profiler-wrong_types.json")[..] else { panic!() };
    assert_eq!((bus.receptacle, bus.domain_uuid.as_deref(), bus.peers.len()), (None, None, 1));
}

#[test]
fn services_belong_to_the_peer_above_them() {
    let found = parse::services(&fixture("left/system_profiler.txt"));
    let [peer] = &found[..] else { panic!("{found:?}") };
    assert_eq!(peer.domain_uuid, "7A1B0C2D-0000-4000-8000-000000000011");
    assert!(peer.rdma);
    let without = parse::services(&fixture("odd/system_profiler-peer_without_rdma.txt"));
    assert!(!without[0].rdma);
    let dock = "Domain UUID: bus\nDock:\nVendor Name: Dock Inc.\nServices:\nService Key: rdma\n";
    assert!(parse::services(dock).is_empty(), "a dock has no domain");
    assert!(parse::services("Services:\n Service Key: rdma\n").is_empty());
}

#[test]
fn only_hardware_ports_called_thunderbolt_and_a_number_count() {
    let ports = |name: &str| -> Vec<_> {
        let ports = parse::networksetup(&fixture(name));
        ports.into_iter().map(|port| (port.receptacle, port.interface)).collect()
    };
    let named = |list: &[(u32, &str)]| -> Vec<_> {
        list.iter().map(|&(receptacle, interface)| (receptacle, interface.to_owned())).collect()
    };
    assert_eq!(ports("left/networksetup.txt"), named(&[(1, "en2"), (2, "en3"), (3, "en4")]));
    assert_eq!(ports("odd/networksetup-localised.txt"), named(&[(2, "en3")]));
    assert_eq!(ports("broken/networksetup-garbage.txt"), named(&[]));
}

#[test]
fn interfaces_have_addresses_states_and_members() {
    let interfaces = parse::ifconfig(&fixture("odd/ifconfig-bridged.txt"));
    let [en3, bridge] = &interfaces[..] else { panic!("{interfaces:?}") };
    assert!(en3.is_up() && en3.is_active() && !en3.is_bridge());
    assert_eq!(en3.ether.as_deref(), Some("02:00:00:00:00:84"));
    assert_eq!((en3.ipv4[0].address.to_string(), en3.ipv4[0].prefix_len), ("169.254.12.7".into(), 16));
    assert_eq!(en3.ipv6, ["fe80::1c5:79ff:fe8f:ac05".parse::<std::net::Ipv6Addr>().unwrap()]);
    assert!(bridge.is_bridge() && bridge.is_up() && !bridge.is_active());
    assert_eq!(bridge.members, ["en3", "en4"]);
}

#[test]
fn the_readable_part_of_a_broken_interface_is_kept() {
    assert!(parse::ifconfig(&fixture("broken/ifconfig-truncated.txt")).is_empty());
    let interfaces = parse::ifconfig(&fixture("broken/ifconfig-garbage.txt"));
    let [en5] = &interfaces[..] else { panic!("{interfaces:?}") };
    assert_eq!(en5.flags, ["UP"]);
    let found: Vec<_> = en5.ipv4.iter().map(|net| (net.address.octets(), net.prefix_len)).collect();
    assert_eq!(found, [([1, 2, 3, 4], 32), ([1, 2, 3, 5], 32)]);
}

#[test]
fn devices_are_listed_by_name() {
    let names = parse::ibv_devices(&fixture("left/ibv_devices.txt"));
    assert_eq!(names, ["rdma_en4", "rdma_en3", "rdma_en2"]);
    assert!(parse::ibv_devices(&fixture("odd/ibv_devices-none.txt")).is_empty());
}

#[test]
fn devices_have_limits_ports_and_gids() {
    let devices = parse::ibv_devinfo(&fixture("left/ibv_devinfo.txt"));
    assert_eq!(devices.len(), 3);
    let device = &devices[2];
    assert_eq!((device.name.as_str(), device.transport.as_deref()), ("rdma_en4", Some("Thunderbolt (100)")));
    assert_eq!((device.max_pd, device.max_qp, device.max_mr_size), (Some(11), Some(11), Some(0xfa_0000)));
    let port = &device.ports[0];
    assert!(port.is_active() && !devices[0].ports[0].is_active());
    assert_eq!((port.active_mtu, port.max_msg_sz), (Some(4096), Some(1 << 24)));
    let gids = port.gids.as_deref().unwrap();
    assert_eq!(gids[0].ether().as_deref(), Some("02:00:00:00:01:84"));
    assert_eq!((gids[1].index, gids[1].ipv4()), (1, Some([192, 168, 30, 1].into())));
    assert_eq!(devices[0].ports[0].gids.as_deref(), Some(&[][..]), "looked at, and empty");
}

#[test]
fn without_verbose_output_nothing_is_known_of_gids() {
    let devices = parse::ibv_devinfo(&fixture("odd/ibv_devinfo-not_verbose.txt"));
    assert!(devices.iter().flat_map(|device| &device.ports).all(|port| port.gids.is_none()));
    assert!(parse::ibv_devinfo(&fixture("odd/ibv_devinfo-none.txt")).is_empty());
}

#[test]
fn a_device_with_unreadable_fields_is_still_listed() {
    let devices = parse::ibv_devinfo(&fixture("broken/ibv_devinfo-garbage.txt"));
    let [device] = &devices[..] else { panic!("{devices:?}") };
    assert_eq!((device.max_qp, device.ports.len()), (None, 1));
    assert_eq!(device.ports[0].gids.as_deref(), Some(&[][..]));
    assert_eq!(device.ports[0].active_mtu, None);
    let cut = parse::ibv_devinfo(&fixture("broken/ibv_devinfo-truncated.txt"));
    assert_eq!(cut.len(), 1);
}

#[test]
fn every_fixture_goes_through_every_parser_at_every_length() {
    let mut folders = vec![folder()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            for end in (0..text.len()).step_by(37).filter(|&end| text.is_char_boundary(end)) {
                parse_all(&text[..end]);
                parse_all(&text[end..]);
            }
        }
    }
}

#[test]
fn huge_outputs_are_read_in_part_and_lists_are_bounded() {
    let repeated = [
        "en1: flags=1<UP>\n",
        "hca_id: rdma_en1\n",
        "x 0123456789abcdef\n",
        "Hardware Port: Thunderbolt 1\nDevice: en1\n",
        "Domain UUID: 1\nServices:\n",
        "hca_id: x\nport: 1\n GID[0]: ::1\n",
        "? (10.0.0.1) at 1:2:3:4:5:6 on en1\n",
        "fe80::1%en1 1:2:3:4:5:6 en1 1s R\n",
        "1 U 00:01 program\n",
        "+-o x\n\"BSD Name\" = \"en1\"\n",
    ];
    for line in repeated {
        let text = line.repeat(2 * MAX_INPUT / line.len());
        assert_eq!(parse_all(&text), MAX_ITEMS, "{line:?}");
    }
    let last = "en1: flags=1<UP>\n".repeat(MAX_ITEMS) + "bridge0: flags=1<UP>\n\tmember: en1\n";
    assert!(parse::ifconfig(&last)[MAX_ITEMS - 1].members.is_empty());
    let last = "hca_id: rdma_en1\n".repeat(MAX_ITEMS) + "hca_id: rdma_en2\n\tmax_qp: 1\n";
    assert_eq!(parse::ibv_devinfo(&last)[MAX_ITEMS - 1].max_qp, None);
    let element = r#"{"receptacle_1_tag":{}},"#.repeat(10_000);
    let many = format!(r#"{{"SPThunderboltDataType":[{element}null]}}"#);
    assert_eq!(parse::system_profiler(&many).unwrap().len(), MAX_ITEMS);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC*") {
        parse_all(&text);
    }

    #[test]
    fn no_damage_to_an_output_makes_a_parser_panic(
        host in prop::sample::select(vec!["left", "right"]),
        tool in prop::sample::select(Tool::ALL.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..20),
    ) {
        let mut text: Vec<char> = outputs(host).tools[&tool].stdout.chars().collect();
        for (place, to) in changes {
            let place = place.index(text.len());
            text[place] = to;
        }
        parse_all(&text.into_iter().collect::<String>());
    }
}
