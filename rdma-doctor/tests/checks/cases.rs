//! A change to two healthy Macs for each verdict of each check

use rdma_doctor::report::{
    Address, Bus, DeviceSummary, Firewall, Incident, IpLink, LiveLinks, Outcome, Peer, ProviderStatus,
    RdmaCtl, VirtualBridge,
};
use rdma_doctor::{CHECKS, Check, Finding, Host, Verdict};

use crate::support::outputs;

/// Two Macs with one cable between them and nothing wrong
pub(crate) fn pair() -> [Host; 2] {
    ["left", "right"].map(|name| Host::new(name, outputs(name).report()))
}

pub(crate) type Change = fn(&mut [Host; 2]);

pub(crate) fn findings(id: &str, change: Change) -> Vec<Finding> {
    let mut hosts = pair();
    change(&mut hosts);
    check(id).run(&hosts)
}

fn check(id: &str) -> &'static Check {
    CHECKS.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no check {id}"))
}

/// A change to the two hosts, and the worst verdict of the check after it; without a change, all checks pass
pub(crate) const CASES: &[(&str, Verdict, Change)] = &[
    ("macos_version", Verdict::Ok, |h| version(h, "26.2")),
    ("macos_version", Verdict::Ok, |h| version(h, "27.0")),
    ("macos_version", Verdict::Fail, |h| version(h, "26.1.4")),
    ("macos_version", Verdict::Fail, |h| version(h, "15.7")),
    ("macos_version", Verdict::Unknown, |h| h[0].report.macos_version = None),
    ("macos_version", Verdict::Unknown, |h| version(h, "Tahoe")),
    ("message_limit", Verdict::Warn, |h| version(h, "26.2.1")),
    ("message_limit", Verdict::Unknown, |h| h[0].report.macos_version = None),
    ("rdma_enabled", Verdict::Fail, |h| h[0].report.rdma_ctl = RdmaCtl::Disabled),
    ("rdma_enabled", Verdict::Fail, |h| h[1].report.rdma_ctl = RdmaCtl::Absent),
    ("rdma_enabled", Verdict::Fail, |h| h[0].report.rdma_ctl = RdmaCtl::Hung),
    ("rdma_enabled", Verdict::Unknown, |h| h[0].report.rdma_ctl = RdmaCtl::Unknown),
    ("driver", Verdict::Fail, |h| tool(h, "ibv_devinfo -v", Outcome::Hung)),
    ("driver", Verdict::Fail, |h| tool(h, "ibv_devices", Outcome::Hung)),
    ("driver", Verdict::Unknown, |h| h[0].report.tools.clear()),
    ("provider", Verdict::Ok, |h| ran(h, "verbs_provider", Outcome::Done)),
    ("provider", Verdict::Warn, |h| ran(h, "verbs_provider", Outcome::Failed)),
    ("provider", Verdict::Unknown, |h| ran(h, "verbs_provider", Outcome::Hung)),
    ("verbs_devices", Verdict::Fail, |h| h[0].report.provider = ProviderStatus::Unusable),
    ("verbs_devices", Verdict::Fail, |h| h[0].report.devices = Some(Vec::new())),
    ("verbs_devices", Verdict::Fail, |h| h[0].report.provider = ProviderStatus::Absent),
    ("verbs_devices", Verdict::Fail, |h| h[0].report.provider = ProviderStatus::ListFailed),
    ("verbs_devices", Verdict::Fail, |h| {
        h[0].report.devices = None;
        tool(h, "ibv_devices", Outcome::Absent);
    }),
    ("verbs_devices", Verdict::Unknown, |h| h[0].report.devices = None),
    ("thunderbolt_5", Verdict::Warn, |h| speeds(h, "40 Gb/s", "Up to 40 Gb/s")),
    ("thunderbolt_5", Verdict::Fail, |h| h[0].report.thunderbolt = Some(Vec::new())),
    ("thunderbolt_5", Verdict::Unknown, |h| speeds(h, "40 Gb/s", "40 Gb/s")),
    ("thunderbolt_5", Verdict::Unknown, |h| h[0].report.thunderbolt = None),
    ("idle_sleep", Verdict::Warn, |h| h[0].report.idle_sleep_minutes = Some(1)),
    ("idle_sleep", Verdict::Unknown, |h| h[0].report.idle_sleep_minutes = None),
    ("cable", Verdict::Fail, |h| bus(h).peers.clear()),
    ("cable", Verdict::Fail, |h| bus(h).peers[0].domain_uuid = None),
    ("cable", Verdict::Unknown, |h| h[0].report.thunderbolt = None),
    ("link_speed", Verdict::Warn, |h| bus(h).speed = Some("40 Gb/s".into())),
    ("link_speed", Verdict::Fail, |h| bus(h).speed = Some("20 Gb/s".into())),
    ("link_speed", Verdict::Unknown, |h| bus(h).speed = None),
    ("studio_port", Verdict::Warn, |h| {
        for port in h[1].report.hardware_ports.as_mut().unwrap() {
            port.interface =
                if port.receptacle == 2 { "en2".into() } else { format!("en{}", 10 + port.receptacle) };
        }
    }),
    ("studio_port", Verdict::Unknown, |h| h[1].report.hardware_ports = None),
    ("rdma_service", Verdict::Fail, |h| bus(h).peers[0].rdma_service = Some(false)),
    ("rdma_service", Verdict::Unknown, |h| bus(h).peers[0].rdma_service = None),
    ("rdma_service", Verdict::Fail, |h| live_services(h, 0)),
    ("rdma_service", Verdict::Ok, |h| live_services(h, 1)),
    ("thunderbolt_ip", Verdict::Ok, |h| ip_link(h, 3)),
    ("thunderbolt_ip", Verdict::Fail, |h| ip_link(h, 1)),
    ("thunderbolt_ip", Verdict::Ok, |h| ip_link(h, 0)),
    ("thunderbolt_ip", Verdict::Fail, |h| interface(h).status = Some("inactive".into())),
    ("thunderbolt_ip", Verdict::Unknown, |h| interface(h).status = None),
    ("thunderbolt_ip", Verdict::Unknown, |h| h[0].report.hardware_ports = None),
    ("interface_mapping", Verdict::Warn, |h| device(h).name = "rdma_en9".into()),
    ("interface_mapping", Verdict::Warn, |h| {
        h[0].report.interfaces.as_mut().unwrap().retain(|i| i.name != "en4")
    }),
    ("interface_mapping", Verdict::Warn, |h| gids(h)[0].gid = "fe80::ff:fe00:183".parse().unwrap()),
    ("interface_mapping", Verdict::Ok, |h| {
        let ether = interface(h).ether.replace("02:00:00:00:00:99".into());
        bridge(&mut h[0], &["en4"]);
        h[0].report.interfaces.as_mut().unwrap().last_mut().unwrap().ether = ether;
    }),
    ("interface_mapping", Verdict::Unknown, |h| device(h).name = "mlx5_0".into()),
    ("interface_mapping", Verdict::Unknown, |h| {
        h[0].report.hardware_ports = None;
        gids(h).clear();
    }),
    ("port_state", Verdict::Fail, |h| device(h).ports[0].state = Some("PORT_DOWN".into())),
    ("port_state", Verdict::Fail, |h| {
        device(h).ports[0].state = Some("PORT_DOWN".into());
        bus(h).peers.clear();
    }),
    ("port_state", Verdict::Unknown, |h| device(h).ports[0].state = None),
    ("port_state", Verdict::Unknown, |h| device(h).ports.clear()),
    ("device_limits", Verdict::Warn, |h| device(h).max_qp = Some(3)),
    ("device_limits", Verdict::Warn, |h| device(h).max_mr = Some(64)),
    ("device_limits", Verdict::Warn, |h| device(h).ports[0].max_msg_sz = Some(4096)),
    ("device_limits", Verdict::Unknown, |h| *device(h) = DeviceSummary::named("rdma_en4")),
    ("path_mtu", Verdict::Warn, |h| device(h).ports[0].active_mtu = Some(512)),
    ("path_mtu", Verdict::Unknown, |h| device(h).ports[0].active_mtu = None),
    ("bridge", Verdict::Warn, |h| bridge(&mut h[0], &["en4"])),
    ("bridge", Verdict::Fail, |h| bridge(&mut h[0], &["en2", "en3", "en4"])),
    ("bridge", Verdict::Unknown, |h| h[0].report.interfaces = None),
    ("bridge_loop", Verdict::Ok, |h| bridge(&mut h[0], &["en2", "en3", "en4"])),
    ("bridge_loop", Verdict::Warn, |h| {
        second_cable(h, 2, 3);
        bridge(&mut h[0], &["en3", "en4"]);
    }),
    ("gid_table", Verdict::Fail, |h| gids(h).clear()),
    ("gid_table", Verdict::Unknown, |h| device(h).ports[0].gids = None),
    ("ipv4_gid", Verdict::Fail, |h| gids(h).truncate(1)),
    ("ipv4_gid", Verdict::Fail, |h| gids(h).clear()),
    ("ipv4_gid", Verdict::Unknown, |h| device(h).ports[0].gids = None),
    ("ipv4_gid_index", Verdict::Warn, |h| gids(h)[1].index = 2),
    ("ipv4_gid_index", Verdict::Unknown, |h| device(h).ports[0].gids = None),
    ("gid_holes", Verdict::Warn, |h| gids(h)[1].index = 2),
    ("gid_holes", Verdict::Warn, |h| gids(h)[1].index = u32::MAX),
    ("gid_holes", Verdict::Unknown, |h| device(h).ports[0].gids = None),
    ("link_local", Verdict::Warn, |h| gids(h)[1].gid = "::ffff:169.254.12.7".parse().unwrap()),
    ("link_local", Verdict::Unknown, |h| device(h).ports[0].gids = None),
    ("subnets", Verdict::Warn, |h| {
        let same = interface(h).ipv4.clone();
        h[0].report.interfaces.as_mut().unwrap().iter_mut().find(|i| i.name == "en3").unwrap().ipv4 = same;
    }),
    ("subnets", Verdict::Ok, |h| {
        let twice = interface(h).ipv4[0];
        interface(h).ipv4.push(twice);
    }),
    ("subnets", Verdict::Ok, |h| {
        let everywhere = Address { address: [169, 254, 12, 7].into(), prefix_len: 16 };
        h[0].report.interfaces.as_mut().unwrap().iter_mut().for_each(|i| i.ipv4 = vec![everywhere]);
    }),
    ("subnets", Verdict::Unknown, |h| h[0].report.interfaces = None),
    ("protection_domains", Verdict::Ok, |h| objects(h, 5, 5, Some(vec!["pid 412, python3".into()]))),
    ("protection_domains", Verdict::Ok, |h| objects(h, 5, 5, None)),
    ("protection_domains", Verdict::Warn, |h| objects(h, 5, 0, Some(Vec::new()))),
    ("protection_domains", Verdict::Fail, |h| objects(h, 33, 0, None)),
    ("protection_domains", Verdict::Unknown, |h| h[0].report.kernel_objects.protection_domains = None),
    ("queue_pairs", Verdict::Ok, |h| objects(h, 0, 29, None)),
    ("queue_pairs", Verdict::Warn, |h| objects(h, 0, 1, Some(Vec::new()))),
    ("queue_pairs", Verdict::Fail, |h| objects(h, 0, 30, Some(vec!["pid 412, python3".into()]))),
    ("queue_pairs", Verdict::Unknown, |h| h[0].report.kernel_objects.queue_pairs = None),
    ("firewall", Verdict::Warn, |h| h[0].report.firewall = Some(Firewall::BlocksAll)),
    ("firewall", Verdict::Ok, |h| h[0].report.firewall = Some(Firewall::On)),
    ("firewall", Verdict::Unknown, |h| h[0].report.firewall = Some(Firewall::Unknown)),
    ("firewall", Verdict::Unknown, |h| h[0].report.firewall = None),
    ("exo_daemon", Verdict::Warn, |h| h[0].report.exo_daemon.as_mut().unwrap().is_loaded = true),
    ("exo_daemon", Verdict::Warn, |h| settings(h).location = Some("exo".into())),
    ("exo_daemon", Verdict::Unknown, |h| h[0].report.exo_daemon = None),
    ("lasting_addresses", Verdict::Warn, |h| settings(h).services.clear()),
    ("lasting_addresses", Verdict::Warn, |h| interface(h).ipv4[0].address = [10, 9, 8, 7].into()),
    ("lasting_addresses", Verdict::Ok, |h| interface(h).ipv4[0].address = [169, 254, 8, 7].into()),
    ("lasting_addresses", Verdict::Unknown, |h| h[0].report.network_settings = None),
    ("lasting_bridge", Verdict::Ok, |h| settings_bridge(h, "en0")),
    ("lasting_bridge", Verdict::Warn, |h| settings_bridge(h, "en4")),
    ("lasting_bridge", Verdict::Unknown, |h| h[0].report.network_settings = None),
    ("neighbours", Verdict::Fail, |h| neighbour(h).ether = None),
    ("neighbours", Verdict::Fail, |h| {
        neighbour(h).ether = None;
        h[0].report.ipv6_neighbours = None;
    }),
    // Breaks if an old entry without an answer fails a port whose peer is resolved.
    ("neighbours", Verdict::Ok, |h| {
        interface(h).ipv4[0].prefix_len = 24;
        let mut old = neighbour(h).clone();
        (old.address, old.ether) = (std::net::Ipv4Addr::new(192, 168, 30, 77).into(), None);
        h[0].report.ipv4_neighbours.as_mut().unwrap().push(old);
    }),
    ("neighbours", Verdict::Unknown, |h| h[0].report.ipv4_neighbours = Some(Vec::new())),
    ("neighbours", Verdict::Unknown, |h| {
        h[0].report.ipv4_neighbours = Some(Vec::new());
        interface(h).ipv4.clear();
    }),
    ("neighbours", Verdict::Unknown, |h| h[0].report.ipv4_neighbours = None),
    ("routes", Verdict::Fail, |h| route(h).interface = Some("en0".into())),
    ("routes", Verdict::Fail, |h| route(h).interface = None),
    ("routes", Verdict::Unknown, |h| h[0].report.routes = Some(Vec::new())),
    ("routes", Verdict::Unknown, |h| h[0].report.routes = None),
    ("local_network", Verdict::Ok, |h| probe(h, "answered", "unknown", "unknown", None)),
    ("local_network", Verdict::Fail, |h| probe(h, "unreachable", "answered", "unknown", None)),
    ("local_network", Verdict::Fail, |h| probe(h, "unreachable", "silent", "unknown", None)),
    ("local_network", Verdict::Warn, |h| probe(h, "silent", "silent", "unknown", None)),
    ("local_network", Verdict::Unknown, |h| ran(h, "peer_probe", Outcome::Done)),
    ("local_network", Verdict::Warn, |h| probe(h, "silent", "answered", "unknown", None)),
    ("local_network", Verdict::Unknown, |h| probe(h, "silent", "unknown", "unknown", None)),
    ("local_network", Verdict::Unknown, |h| probe(h, "unreachable", "unknown", "unknown", None)),
    // Breaks if the answer of a host that is reached over another interface counts for the cable.
    ("local_network", Verdict::Unknown, |h| {
        probe(h, "answered", "answered", "unknown", None);
        route(h).interface = Some("en0".into());
    }),
    ("local_network", Verdict::Unknown, |h| {
        probe(h, "unreachable", "answered", "unknown", None);
        h[0].report.routes = None;
    }),
    ("queue_pair_probe", Verdict::Ok, |h| probe(h, "unknown", "unknown", "ready_to_receive", None)),
    ("queue_pair_probe", Verdict::Fail, |h| probe(h, "answered", "answered", "ready_to_receive", Some(60))),
    ("queue_pair_probe", Verdict::Fail, |h| probe(h, "answered", "answered", "ready_to_receive", Some(5))),
    ("queue_pair_probe", Verdict::Fail, |h| probe(h, "answered", "answered", "create", None)),
    ("queue_pair_probe", Verdict::Fail, |h| probe(h, "answered", "answered", "open", Some(19))),
    ("queue_pair_probe", Verdict::Fail, |h| probe(h, "answered", "answered", "hung", None)),
    ("queue_pair_probe", Verdict::Unknown, |h| probe(h, "answered", "answered", "later step", None)),
    ("port_owners", Verdict::Ok, |h| owners(h, &["pid 412, python3"])),
    ("port_owners", Verdict::Warn, |h| owners(h, &["pid 412, python3", "pid 413, python3"])),
    ("port_owners", Verdict::Unknown, |h| h[0].report.port_owners = None),
    // Breaks if a port without an owner passes although the class of the owners was not seen.
    ("port_owners", Verdict::Unknown, |h| h[0].report.kernel_objects.owners = None),
    ("port_owners", Verdict::Unknown, |h| {
        h[0].report.kernel_objects.owners = Some(vec!["pid 412, python3".into()]);
    }),
    ("stuck_processes", Verdict::Fail, |h| waiting(h, 412, "UE", "python3")),
    ("stuck_processes", Verdict::Warn, |h| waiting(h, 412, "U+", "ibv_devinfo")),
    ("stuck_processes", Verdict::Ok, |h| waiting(h, 412, "U", "python3")),
    // Breaks if one sample of a process at work in the driver condemns it.
    ("stuck_processes", Verdict::Warn, |h| {
        waiting(h, 412, "U", "python3");
        owners(h, &["pid 412, python3"]);
    }),
    ("stuck_processes", Verdict::Ok, |h| {
        waiting(h, 41, "U", "python3");
        owners(h, &["pid 412, python3"]);
    }),
    ("stuck_processes", Verdict::Unknown, |h| h[0].report.waiting_processes = None),
    ("incidents", Verdict::Warn, |h| incident(h, true, "IORDMAFamily")),
    ("incidents", Verdict::Warn, |h| incident(h, true, "IOGPUFamily")),
    ("incidents", Verdict::Warn, |h| incident(h, false, "tbt_post_recv")),
    ("incidents", Verdict::Warn, |h| incident(h, false, "ibv_reg_mr_iova2")),
    ("incidents", Verdict::Unknown, |h| h[0].report.incidents = None),
    ("wired_memory", Verdict::Warn, |h| h[0].report.uptime.wired_bytes = Some(40 << 30)),
    ("wired_memory", Verdict::Ok, |h| {
        h[0].report.uptime.wired_bytes = Some(40 << 30);
        h[0].report.kernel_objects.owners = Some(vec!["pid 412, python3".into()]);
    }),
    ("wired_memory", Verdict::Unknown, |h| {
        h[0].report.uptime.wired_bytes = Some(40 << 30);
        h[0].report.kernel_objects.owners = None;
    }),
    ("wired_memory", Verdict::Unknown, |h| h[0].report.uptime.memory_bytes = None),
    ("link_flaps", Verdict::Warn, |h| {
        h[0].report.kernel_log.as_mut().unwrap().links_down.insert("en4".into(), 3);
    }),
    ("link_flaps", Verdict::Ok, |h| {
        h[0].report.kernel_log.as_mut().unwrap().links_down.insert("en0".into(), 3);
    }),
    ("link_flaps", Verdict::Unknown, |h| h[0].report.kernel_log = None),
    ("failed_connects", Verdict::Warn, |h| h[0].report.kernel_log.as_mut().unwrap().invalid_dma = 1),
    ("failed_connects", Verdict::Warn, |h| h[0].report.kernel_log.as_mut().unwrap().arp_lookup_failed = 1),
    ("failed_connects", Verdict::Warn, |h| h[0].report.kernel_log.as_mut().unwrap().tx_already_started = 1),
    ("failed_connects", Verdict::Unknown, |h| h[0].report.kernel_log = None),
    ("uptime", Verdict::Warn, |h| h[0].report.uptime.uptime_seconds = Some(7 * 86_400)),
    ("uptime", Verdict::Unknown, |h| h[0].report.uptime.uptime_seconds = None),
    ("common_network", Verdict::Fail, |h| interface(h).ipv4[0].address = [10, 9, 8, 7].into()),
    ("common_network", Verdict::Fail, |h| interface(h).ipv4[0].address = [192, 168, 30, 2].into()),
    ("neighbour_identity", Verdict::Fail, |h| neighbour(h).ether = Some("02:00:00:00:09:99".into())),
    ("same_macos", Verdict::Warn, |h| version(h, "26.4")),
    ("same_macos", Verdict::Warn, |h| h[1].report.macos_build = Some("25F80b".into())),
    ("same_macos", Verdict::Unknown, |h| h[1].report.macos_version = None),
    ("cable_ends", Verdict::Ok, |h| second_cable(h, 2, 3)),
    ("cable_ends", Verdict::Fail, |h| {
        let peers =
            h[1].report.thunderbolt.as_mut().unwrap().iter_mut().find(|bus| !bus.peers.is_empty()).unwrap();
        peers.peers[0].domain_uuid = Some("7A1B0C2D-0000-4000-8000-000000000002".into());
    }),
    ("cable_ends", Verdict::Fail, |h| bus(h).peers[0].domain_uuid = Some("another domain".into())),
    ("cable_ends", Verdict::Unknown, |h| h[1].report.thunderbolt = None),
    ("cable_ends", Verdict::Unknown, |h| bus(h).domain_uuid = None),
    ("parallel_cables", Verdict::Ok, |h| second_cable(h, 2, 1)),
    ("parallel_cables", Verdict::Warn, |h| second_cable(h, 2, 3)),
    ("bridged_ring", Verdict::Ok, bridge_both),
    ("bridged_ring", Verdict::Fail, |h| {
        second_cable(h, 2, 3);
        bridge_both(h);
    }),
];

fn version(hosts: &mut [Host; 2], version: &str) {
    hosts[0].report.macos_version = Some(version.into());
}

fn ran(hosts: &mut [Host; 2], name: &str, outcome: Outcome) {
    let run = serde_json::json!({"tool": name, "outcome": outcome, "detail": "what it said"});
    hosts[0].report.tools.push(serde_json::from_value(run).unwrap());
}

fn tool(hosts: &mut [Host; 2], name: &str, outcome: Outcome) {
    let run = hosts[0].report.tools.iter_mut().find(|run| run.tool == name).unwrap();
    run.outcome = outcome;
}

pub(crate) fn speeds(hosts: &mut [Host; 2], cabled: &str, free: &str) {
    for bus in hosts[0].report.thunderbolt.as_mut().unwrap() {
        bus.speed = Some(if bus.peers.is_empty() { free } else { cabled }.into());
    }
}

/// The bus of the left host that has the cable: receptacle 3, en4
fn bus(hosts: &mut [Host; 2]) -> &mut Bus {
    hosts[0].report.thunderbolt.as_mut().unwrap().iter_mut().find(|bus| bus.receptacle == Some(3)).unwrap()
}

/// A cable from a receptacle of the left host to one of the right
fn second_cable(hosts: &mut [Host; 2], left: u32, right: u32) {
    let at = |host: &Host, receptacle| {
        let mut buses = host.report.thunderbolt.iter().flatten();
        buses.position(|bus: &Bus| bus.receptacle == Some(receptacle)).unwrap()
    };
    let places = [at(&hosts[0], left), at(&hosts[1], right)];
    let domains =
        [0, 1].map(|i| hosts[i].report.thunderbolt.as_ref().unwrap()[places[i]].domain_uuid.clone());
    for i in [0, 1] {
        let mut peer = Peer::default();
        peer.domain_uuid = domains[1 - i].as_ref().map(|domain| domain.to_ascii_lowercase());
        hosts[i].report.thunderbolt.as_mut().unwrap()[places[i]].peers.push(peer);
    }
}

fn live_services(hosts: &mut [Host; 2], count: u32) {
    bus(hosts).peers[0].rdma_service = None;
    let mut links = LiveLinks::default();
    links.rdma_services = Some(count);
    hosts[0].report.live_links = Some(links);
}

fn ip_link(hosts: &mut [Host; 2], status: u64) {
    let mut link = IpLink::default();
    link.interface = Some("en4".into());
    link.link_status = Some(status);
    let mut links = LiveLinks::default();
    links.ip_links.push(link);
    hosts[0].report.live_links = Some(links);
}

fn interface(hosts: &mut [Host; 2]) -> &mut rdma_doctor::report::Interface {
    hosts[0].report.interfaces.as_mut().unwrap().iter_mut().find(|interface| interface.name == "en4").unwrap()
}

fn device(hosts: &mut [Host; 2]) -> &mut DeviceSummary {
    hosts[0].report.devices.as_mut().unwrap().iter_mut().find(|device| device.name == "rdma_en4").unwrap()
}

fn gids(hosts: &mut [Host; 2]) -> &mut Vec<rdma_doctor::report::GidEntry> {
    device(hosts).ports[0].gids.as_mut().unwrap()
}

fn bridge(host: &mut Host, members: &[&str]) {
    let mut bridge = rdma_doctor::report::Interface::default();
    bridge.name = "bridge0".into();
    bridge.flags = vec!["UP".into()];
    bridge.members = members.iter().map(|&member| member.into()).collect();
    host.report.interfaces.as_mut().unwrap().push(bridge);
}

fn bridge_both(hosts: &mut [Host; 2]) {
    bridge(&mut hosts[0], &["en2", "en3", "en4"]);
    bridge(&mut hosts[1], &["en2", "en3", "en4", "en5"]);
}

fn objects(hosts: &mut [Host; 2], domains: u64, pairs: u64, owners: Option<Vec<String>>) {
    let objects = &mut hosts[0].report.kernel_objects;
    objects.protection_domains = Some(domains);
    objects.queue_pairs = Some(pairs);
    objects.owners = owners;
}

pub(crate) fn settings(hosts: &mut [Host; 2]) -> &mut rdma_doctor::report::NetworkSettings {
    hosts[0].report.network_settings.as_mut().unwrap()
}

fn settings_bridge(hosts: &mut [Host; 2], member: &str) {
    let mut bridge = VirtualBridge::default();
    bridge.members.push(member.into());
    settings(hosts).bridges.push(bridge);
}

/// The entry of the right host in the ARP table of the left one
fn neighbour(hosts: &mut [Host; 2]) -> &mut rdma_doctor::report::Neighbour {
    let peer = std::net::Ipv4Addr::new(192, 168, 30, 2);
    hosts[0].report.ipv4_neighbours.as_mut().unwrap().iter_mut().find(|it| it.address == peer).unwrap()
}

pub(crate) fn route(hosts: &mut [Host; 2]) -> &mut rdma_doctor::report::Route {
    &mut hosts[0].report.routes.as_mut().unwrap()[0]
}

fn probe(hosts: &mut [Host; 2], socket: &str, ping: &str, step: &str, errno: Option<i32>) {
    let probe = serde_json::json!({"device": "rdma_en4", "address": "192.168.30.2", "socket": socket, "ping": ping,
        "queue_pair": {"step": step, "errno": errno}});
    hosts[0].report.peer_probes.push(serde_json::from_value(probe).unwrap());
}

fn owners(hosts: &mut [Host; 2], owners: &[&str]) {
    let ports = hosts[0].report.port_owners.as_mut().unwrap();
    ports[0].owners = owners.iter().map(|&owner| owner.into()).collect();
}

pub(crate) fn waiting(hosts: &mut [Host; 2], pid: u32, state: &str, program: &str) {
    let process = serde_json::json!({"pid": pid, "state": state, "elapsed": "00:10", "program": program});
    hosts[0].report.waiting_processes = Some(vec![serde_json::from_value(process).unwrap()]);
}

fn incident(hosts: &mut [Host; 2], is_panic: bool, name: &str) {
    let mut incident = Incident::default();
    incident.is_panic = is_panic;
    incident.names.push(name.into());
    hosts[0].report.incidents = Some(vec![incident]);
}
