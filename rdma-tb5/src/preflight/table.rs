use super::check::{Check, Look, Note};
use super::{Host, addresses, cables, enablement, hosts, kernel, ports};
use crate::discover::HostReport;

/// All checks, from the ground up: a finding often explains those that follow it
pub const CHECKS: &[Check] = &[
    each("macos_version", "macOS is 26.2 or later", &[6], enablement::macos_version),
    each("message_limit", "macOS is not 26.2, which has a limit of 4 KiB", &[30], enablement::message_limit),
    each("rdma_enabled", "rdma_ctl says that RDMA is enabled", &[1], enablement::rdma_enabled),
    each("driver", "ibv_devinfo answers", &[53], ports::driver),
    each("provider", "the verbs provider answers", &[53], ports::provider),
    each("verbs_devices", "there are verbs devices", &[1, 2, 6, 80], enablement::verbs_devices),
    each("thunderbolt_5", "the host has Thunderbolt 5 receptacles", &[2], enablement::thunderbolt_5),
    each("idle_sleep", "the host does not sleep by itself", &[8], enablement::idle_sleep),
    each("cable", "another host is connected", &[1, 73], cables::cable),
    each("link_speed", "links run at 80 Gb/s", &[2], cables::link_speed),
    each("studio_port", "the port next to Ethernet of a Mac Studio is free", &[5], cables::studio_port),
    each("rdma_service", "connected hosts advertise rdma", &[1, 9], cables::rdma_service),
    each("thunderbolt_ip", "Thunderbolt IP is up on connected ports", &[7, 54], cables::thunderbolt_ip),
    each(
        "interface_mapping",
        "devices ride on the interfaces of their names",
        &[4],
        ports::interface_mapping,
    ),
    each("port_state", "ports with a cable are active", &[1, 7, 9, 73], ports::port_state),
    each(
        "device_limits",
        "devices grant what the library counts on",
        &[26, 27, 28, 30, 34],
        ports::device_limits,
    ),
    each("path_mtu", "the path MTU is one that works everywhere", &[76], ports::path_mtu),
    each("bridge", "Thunderbolt ports are not members of a bridge", &[13, 74], addresses::bridge),
    each("bridge_loop", "a bridge has no two cables", &[13], addresses::bridge_loop),
    each("gid_table", "GID tables are not empty", &[13, 19, 74], addresses::gid_table),
    each("ipv4_gid", "ports have an IPv4 GID", &[11, 13], addresses::ipv4_gid),
    each("ipv4_gid_index", "the IPv4 GID is entry 1", &[12], addresses::ipv4_gid_index),
    each("link_local", "ports have more than a 169.254 address", &[75], addresses::link_local),
    each("subnets", "each port has a network of its own", &[14], addresses::subnets),
    each(
        "protection_domains",
        "protection domains are not leaked",
        &[15, 19, 28],
        kernel::protection_domains,
    ),
    each("queue_pairs", "queue pairs are not leaked", &[15, 16, 19, 26], kernel::queue_pairs),
    together("same_macos", "all hosts run the same macOS", &[3], hosts::same_macos),
    together("cable_ends", "both ends of a cable name each other", &[4, 20, 73, 77], hosts::cable_ends),
    together("parallel_cables", "parallel cables are not crossed", &[20, 77], hosts::parallel_cables),
    together("bridged_ring", "bridged cables form no ring", &[13], hosts::bridged_ring),
];

/// Failures of the same sections that cannot be seen before connecting, and why
pub const NOT_VISIBLE: &[(u8, &str)] = &[
    (10, "a bug of another project's setup tool"),
    (17, "happens while a queue pair is brought up"),
    (18, "happens while queue pairs are brought up, and shows only in the next attempt"),
    (21, "about the side channel, which is not chosen yet"),
    (22, "about the side channel, which is not chosen yet"),
    (23, "macOS tells nobody about the permission before it is used"),
    (24, "about the side channel, which is not chosen yet"),
    (25, "about the configuration of another project"),
    (29, "a bug of programs that use what alloc_pd did not return"),
    (31, "about requests in flight"),
    (32, "about programs that share a connection"),
    (33, "about memory that is not registered yet"),
    (35, "about memory that is not registered yet"),
];

const fn each(
    id: &'static str,
    looks_at: &'static str,
    faults: &'static [u8],
    look: fn(&HostReport) -> Vec<Note>,
) -> Check {
    Check { id, looks_at, faults, look: Look::Each(look) }
}

const fn together(
    id: &'static str,
    looks_at: &'static str,
    faults: &'static [u8],
    look: fn(&[Host]) -> Vec<Note>,
) -> Check {
    Check { id, looks_at, faults, look: Look::Together(look) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_failure_of_the_sections_is_seen_or_explained_but_not_both() {
        let seen: BTreeSet<u8> = CHECKS.iter().flat_map(|check| check.faults).copied().collect();
        let not_seen: BTreeSet<u8> = NOT_VISIBLE.iter().map(|(fault, _)| *fault).collect();
        assert_eq!(seen.intersection(&not_seen).count(), 0);
        for fault in (1..=35).chain(73..=77).chain([80]) {
            assert!(seen.contains(&fault) || not_seen.contains(&fault), "F{fault}");
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(names.len(), CHECKS.len());
    }
}
