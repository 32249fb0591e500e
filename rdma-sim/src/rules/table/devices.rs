//! Devices, ports and addresses

use super::Rule;
use super::RuleStatus::{Disputed, Documented, Measured, Reported};

pub(super) const RULES: [Rule; 17] = [
    Rule {
        name: "device-per-port",
        says: "Each Thunderbolt port of a Mac is a device with one port, named after its interface: \
            `rdma_en2` goes with `en2`. Macs have three to six of them.",
        source: "Apple TN3205; MLX documentation, distributed.rst",
        status: Documented,
        default: "–",
        switch: "–",
        test: "models_have_their_published_ports_and_rates",
    },
    Rule {
        name: "device-guids",
        says: "The GUIDs of a Mac's devices differ in the first byte, which counts up by port.",
        source: "Apple TN3205; MLX documentation, distributed.rst",
        status: Documented,
        default: "–",
        switch: "–",
        test: "an_ultra_lists_its_devices_as_the_mlx_documentation_does",
    },
    Rule {
        name: "device-names",
        says: "The names of devices are not stable: after a restart or a change of the network settings \
            another port may have them.",
        source: "mlx#3207; mlx#4180",
        status: Reported,
        default: "–",
        switch: "fault renumber",
        test: "devices_trade_names_after_a_restart",
    },
    Rule {
        name: "port-state",
        says: "A port is active if and only if a Mac with RDMA enabled is at the other end of its cable, \
            and it is enabled here.",
        source: "Apple TN3205",
        status: Documented,
        default: "–",
        switch: "fault rdma-off",
        test: "a_port_is_active_while_rdma_is_enabled_at_both_ends",
    },
    Rule {
        name: "down-port",
        says: "The state and the GID table of a port that is down can be read; protection domains and \
            completion queues cannot be had. That the number is 22 is assumed.",
        source: "Verbifrost notes; mlx PR 4530",
        status: Measured,
        default: "–",
        switch: "–",
        test: "a_down_port_can_be_queried_and_nothing_can_be_created_on_it",
    },
    Rule {
        name: "link-rate",
        says: "A link runs at the rate of its slowest part: 80 Gb/s each way for Thunderbolt 5, 40 Gb/s if \
            a port or the cable is older.",
        source: "Apple TN3205; Thunderbolt specifications",
        status: Documented,
        default: "–",
        switch: "–",
        test: "the_slowest_of_cable_and_ports_sets_the_rate",
    },
    Rule {
        name: "tb4-devices",
        says: "Ports of 40 Gb/s have devices as well (exo#1813, exo#1636, mlx#4485), or none (mlx#3777, \
            omlx#3037).",
        source: "exo#1813; mlx#3777",
        status: Disputed,
        default: "true",
        switch: "Rules::tb4_devices",
        test: "ports_of_40_gbps_have_devices_or_none",
    },
    Rule {
        name: "interface-down",
        says: "Setting the interface of a port down does not stop what is connected. New connections find \
            no neighbour.",
        source: "mlx#3910; mlx#4278",
        status: Measured,
        default: "–",
        switch: "fault interface-down",
        test: "an_interface_that_is_down_stops_only_new_connections",
    },
    Rule {
        name: "gid-table",
        says: "The GID table mirrors the addresses of the interface: the link-local one first, IPv4 \
            addresses mapped into IPv6 after it.",
        source: "Apple TN3205",
        status: Documented,
        default: "–",
        switch: "–",
        test: "gid_tables_mirror_addresses",
    },
    Rule {
        name: "gid-index",
        says: "The IPv4 entry may be at any index of the GID table, and entries between may be unset.",
        source: "mlx#3389",
        status: Reported,
        default: "–",
        switch: "fault gid-at",
        test: "the_ipv4_entry_may_be_anywhere",
    },
    Rule {
        name: "no-ipv4",
        says: "A port without an IPv4 address has link-local entries only, and no usable source.",
        source: "mlx#3467; mlx#3468",
        status: Reported,
        default: "–",
        switch: "fault link-local-gids",
        test: "a_port_without_an_address_has_no_usable_gid",
    },
    Rule {
        name: "bridge-capture",
        says: "A port that the Thunderbolt Bridge has captured has an empty GID table. Others report that \
            its link-local entry is left, which is the fault `link-local-gids`.",
        source: "mlx-jaccl-cluster, docs/from-scratch.md; exo#1390",
        status: Measured,
        default: "–",
        switch: "fault no-gids",
        test: "a_captured_port_has_no_gids",
    },
    Rule {
        name: "bridge-storm",
        says: "Cables in a loop of bridged ports carry frames for ever, which leaves less of each cable.",
        source: "Apple TN3205",
        status: Documented,
        default: "–",
        switch: "fault storm",
        test: "a_slow_cable_carries_less",
    },
    Rule {
        name: "boot-link",
        says: "After a restart a link may look connected and yet give no protection domain, until it is \
            plugged in again.",
        source: "exo PR 1467",
        status: Reported,
        default: "–",
        switch: "fault no-pds",
        test: "a_link_that_looks_up_may_have_no_protection_domains",
    },
    Rule {
        name: "one-hop",
        says: "Nothing is routed: a device reaches the Mac at the other end of its own cable and no other.",
        source: "Apple TN3205",
        status: Documented,
        default: "–",
        switch: "–",
        test: "a_device_reaches_only_the_mac_at_its_cable",
    },
    Rule {
        name: "no-loopback",
        says: "A queue pair cannot connect to its own device.",
        source: "gojaccl",
        status: Measured,
        default: "–",
        switch: "–",
        test: "a_queue_pair_cannot_reach_its_own_device",
    },
    Rule {
        name: "sleep",
        says: "A Mac that sleeps takes its links down, and processes stop.",
        source: "Apple TN3205; mlx#3933",
        status: Documented,
        default: "–",
        switch: "fault sleep",
        test: "a_sleeping_mac_takes_its_ports_along",
    },
];
