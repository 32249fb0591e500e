//! The table of all checks

use super::check::Scope::{self, Each, EachMac, OncePerMac, Together};
use super::check::{Check, Diagnosis, Host};
use super::{addresses, cables, enablement, hosts, kernel, neighbours, peers, ports, settings, wear};

/// All checks, from the ground up: a finding often explains those that follow it
pub const CHECKS: &[Check] = &[
    check("macos_version", "macOS is 26.2 or later", &[6], OncePerMac(enablement::macos_version)),
    check(
        "message_limit",
        "macOS is not 26.2, which has a limit of 4 KiB",
        &[30],
        OncePerMac(enablement::message_limit),
    ),
    check("rdma_enabled", "rdma_ctl says that RDMA is enabled", &[1], OncePerMac(enablement::rdma_enabled)),
    check("driver", "ibv_devinfo answers", &[53], Each(ports::driver)),
    check("provider", "the verbs provider answers", &[53], Each(ports::provider)),
    check("verbs_devices", "there are verbs devices", &[1, 2, 6, 80], Each(enablement::verbs_devices)),
    check(
        "thunderbolt_5",
        "the host has Thunderbolt 5 receptacles",
        &[2],
        OncePerMac(enablement::thunderbolt_5),
    ),
    check("idle_sleep", "the host does not sleep when idle", &[8], OncePerMac(enablement::idle_sleep)),
    check("cable", "another host is connected", &[1, 73], OncePerMac(cables::cable)),
    check("firewall", "the firewall lets programs listen", &[23], OncePerMac(settings::firewall)),
    check(
        "exo_daemon",
        "no daemon of EXO edits the network settings",
        &[4, 75],
        OncePerMac(settings::exo_daemon),
    ),
    check("link_speed", "links run at 80 Gb/s", &[2], EachMac(cables::link_speed)),
    check(
        "studio_port",
        "the port next to Ethernet of a Mac Studio is free",
        &[5],
        EachMac(cables::studio_port),
    ),
    check("rdma_service", "connected hosts advertise rdma", &[1, 9], EachMac(cables::rdma_service)),
    check(
        "thunderbolt_ip",
        "Thunderbolt IP is up on connected ports",
        &[7, 54],
        EachMac(cables::thunderbolt_ip),
    ),
    check(
        "interface_mapping",
        "each device uses the interface in its name",
        &[4],
        EachMac(ports::interface_mapping),
    ),
    check("port_state", "ports with a cable are active", &[1, 7, 9, 73], Each(ports::port_state)),
    check(
        "device_limits",
        "devices have the limits that the library expects",
        &[26, 27, 28, 30, 34],
        EachMac(ports::device_limits),
    ),
    check("path_mtu", "the path MTU is one that works everywhere", &[76], EachMac(ports::path_mtu)),
    check("bridge", "Thunderbolt ports are not members of a bridge", &[13, 74], EachMac(addresses::bridge)),
    check("bridge_loop", "no bridge has two cables", &[13], EachMac(addresses::bridge_loop)),
    check("gid_table", "GID tables are not empty", &[13, 19, 74], Each(addresses::gid_table)),
    check("ipv4_gid", "ports have an IPv4 GID", &[11, 13], EachMac(addresses::ipv4_gid)),
    check("ipv4_gid_index", "the IPv4 GID is entry 1", &[12], EachMac(addresses::ipv4_gid_index)),
    check("gid_holes", "GID tables have no hole", &[12, 51], EachMac(addresses::gid_holes)),
    check("link_local", "ports have more than a 169.254 address", &[75], EachMac(addresses::link_local)),
    check("subnets", "each port has a network of its own", &[14], EachMac(addresses::subnets)),
    check("lasting_addresses", "addresses survive a restart", &[4, 11], EachMac(settings::lasting_addresses)),
    check("lasting_bridge", "no bridge comes back at a restart", &[74], EachMac(settings::lasting_bridge)),
    check("neighbours", "the other end of each cable is resolved", &[14], EachMac(neighbours::neighbours)),
    check("routes", "the other end of each cable is reached over it", &[14], EachMac(neighbours::routes)),
    check("local_network", "this program may use the local network", &[23], Each(peers::local_network)),
    check(
        "queue_pair_probe",
        "a queue pair gets ready to receive",
        &[11, 14, 15, 19, 53, 74],
        Each(peers::queue_pair_probe),
    ),
    check(
        "protection_domains",
        "no protection domains are leaked",
        &[15, 19, 28],
        EachMac(kernel::protection_domains),
    ),
    check("queue_pairs", "no queue pairs are leaked", &[15, 16, 19, 26], EachMac(kernel::queue_pairs)),
    check("port_owners", "one program uses each port", &[15, 64], EachMac(kernel::port_owners)),
    check(
        "stuck_processes",
        "no process is stuck in the driver",
        &[53, 57],
        EachMac(kernel::stuck_processes),
    ),
    check("incidents", "no panic and no crash names RDMA", &[29, 48, 49, 56, 61], EachMac(wear::incidents)),
    check("wired_memory", "less than half of the memory is wired", &[58], OncePerMac(wear::wired_memory)),
    check("link_flaps", "no link went down lately", &[51], EachMac(wear::link_flaps)),
    check(
        "failed_connects",
        "the kernel logged no failed connection lately",
        &[14, 17, 18],
        EachMac(wear::failed_connects),
    ),
    check("uptime", "the host was started less than a week ago", &[19, 71], OncePerMac(wear::uptime)),
    check("same_macos", "all hosts run the same macOS", &[3], Together(hosts::same_macos)),
    check(
        "cable_ends",
        "both ends of a cable name each other",
        &[4, 20, 73, 77],
        Together(hosts::cable_ends),
    ),
    check("parallel_cables", "parallel cables are not crossed", &[20, 77], Together(hosts::parallel_cables)),
    check("common_network", "both ends of a cable share a network", &[14], Together(hosts::common_network)),
    check(
        "neighbour_identity",
        "neighbours are the hosts at the other end",
        &[14],
        Together(hosts::neighbour_identity),
    ),
    check("bridged_ring", "bridged cables form no ring", &[13], Together(hosts::bridged_ring)),
];

/// Failures of the same sections of the catalogue that no report shows, and why
pub const NOT_VISIBLE: &[(u8, &str)] = &[
    (10, "a bug of another project's setup tool"),
    (21, "about the side channel, which belongs to the program"),
    (22, "about the side channel, which belongs to the program"),
    (24, "about the side channel, which belongs to the program"),
    (25, "about the configuration of another project"),
    (31, "about requests in flight"),
    (32, "about programs that share a connection"),
    (33, "about memory that is not registered yet"),
    (35, "about memory that is not registered yet"),
];

/// Runs all [`CHECKS`] on the reports of one host or of several
///
/// ```
/// use rdma_doctor::{Host, HostReport, Verdict, diagnose};
///
/// let diagnosis = diagnose(&[Host::new("blank", HostReport::default())]);
/// assert_eq!(diagnosis.verdict(), Verdict::Unknown);
/// ```
pub fn diagnose(hosts: &[Host]) -> Diagnosis {
    Diagnosis { findings: CHECKS.iter().flat_map(|check| check.run(hosts)).collect() }
}

const fn check(id: &'static str, expectation: &'static str, faults: &'static [u8], scope: Scope) -> Check {
    Check { id, expectation, faults, scope }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_failure_of_the_sections_is_detected_or_explained_but_not_both() {
        let seen: BTreeSet<u8> = CHECKS.iter().flat_map(|check| check.faults).copied().collect();
        let not_seen: BTreeSet<u8> = NOT_VISIBLE.iter().map(|(fault, _)| *fault).collect();
        assert_eq!(seen.intersection(&not_seen).count(), 0);
        for fault in (1..=35).chain([48, 49, 51, 53, 56, 57, 58, 61, 64, 71]).chain(73..=77).chain([80]) {
            assert!(seen.contains(&fault) || not_seen.contains(&fault), "F{fault}");
        }
    }

    #[test]
    fn ids_of_checks_are_unique() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(names.len(), CHECKS.len());
    }
}
