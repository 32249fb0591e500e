//! Devices, ports and addresses

use super::rule::rules;

rules! {
    /// Each Thunderbolt port of a Mac is a device with one port, named after its interface: `rdma_en2` belongs to
    /// `en2`. Macs have three to six of them, numbered from 2, and MacBook Pros otherwise (mlx#3162).
    "device-per-port", Documented by "Apple TN3205; MLX documentation, distributed.rst", uncounted as "every topology has it",
        shown by models_have_their_published_ports_and_rates;

    /// The GUIDs of a Mac's devices differ in the first byte, which counts up by port.
    "device-guids", Documented by "Apple TN3205; MLX documentation, distributed.rst", uncounted as "every topology has it",
        shown by an_ultra_lists_its_devices_as_the_mlx_documentation_does;

    /// The names of devices are not stable: after a restart or a change of the network settings a name may belong to
    /// another port.
    "device-names", Reported by "mlx#3207; mlx#4180", caused by "renumber",
        shown by devices_trade_names_after_a_restart;

    /// A port is active if and only if RDMA is enabled on this Mac and on the Mac at the other end of its cable.
    "port-state", Documented by "Apple TN3205", caused by "rdma-off",
        shown by a_port_is_active_while_rdma_is_enabled_at_both_ends;

    /// The state and the GID table of a port that is down can be read; protection domains and completion queues cannot
    /// be created. The error number 22 is assumed.
    "down-port", Measured by "Verbifrost notes; mlx PR 4530",
        shown by a_down_port_can_be_queried_and_nothing_can_be_created_on_it;

    /// A link runs at the rate of its slowest part: 80 Gb/s each way for Thunderbolt 5, 40 Gb/s if a port or the cable
    /// is older.
    "link-rate", Documented by "Apple TN3205; Thunderbolt specifications", uncounted as "every topology has it",
        shown by the_slowest_of_cable_and_ports_sets_the_rate;

    /// Ports of 40 Gb/s have devices as well (exo#1813, exo#1636, mlx#4485), or none (mlx#3777, omlx#3037).
    "tb4-devices", Disputed by "exo#1813; mlx#3777", set by Rules::tb4_devices,
        shown by ports_of_40_gbps_have_devices_or_none;

    /// Setting the interface of a port down does not stop connected queue pairs. New connections find no neighbour.
    "interface-down", Measured by "mlx#3910; mlx#4278", caused by "interface-down",
        shown by an_interface_that_is_down_stops_only_new_connections;

    /// The GID table of a configured port has three entries. The first is the EUI-64 of the hardware address; after it come the
    /// IPv4 address, mapped into IPv6, and a secured link-local address.
    "gid-table", Documented by "Apple TN3205, revision of 2026-04-13", uncounted as "every topology has it",
        shown by gid_tables_mirror_addresses;

    /// The IPv4 entry of a port with the addresses that it has by itself stands at index 1 (the listing in Apple TN3205), or at
    /// index 2 (mlx#3389).
    "ipv4-gid-index", Disputed by "Apple TN3205; mlx#3389", set by Rules::ipv4_gid_index, uncounted as "every topology has it",
        shown by the_ipv4_entry_begins_at_either_index;

    /// The IPv4 entry may be at any index of the GID table, and entries between may be unset.
    "gid-index", Reported by "mlx#3389", caused by "gid-at",
        shown by the_ipv4_entry_may_be_anywhere;

    /// A program in C sees a GID table of 16 entries, of which unset ones are zeros, or one of 1024, of which unset ones cannot be
    /// read: programs that look for an entry are written for both. 16 and 1024 are assumed.
    "gid-table-length", Disputed by "MLX source, jaccl/rdma.cpp; gojaccl", set by Rules::large_gid_table,
        uncounted as "only programs in C observe it",
        shown by unset_entries_of_the_gid_table_are_zeros_or_cannot_be_read;

    /// Each time a link comes up again the entries after the first move by one and leave a hole, or move back. A program that
    /// takes index 1 for granted fails then. That the next time moves them back is assumed.
    "gid-moves", Measured by "ds4 rig notes", set by Rules::gids_move,
        applies if |model| model.rules.gids_move,
        shown by the_ipv4_entry_moves_when_a_link_comes_up_again;

    /// A port without an IPv4 address has link-local entries only, and no usable source.
    "no-ipv4", Reported by "mlx#3467; mlx#3468", caused by "link-local-gids",
        shown by a_port_without_an_address_has_no_usable_gid;

    /// A port that the Thunderbolt Bridge has captured has an empty GID table, or keeps its first entry alone, which is the fault
    /// `captured`.
    "bridge-capture", Measured by "mlx-jaccl-cluster, docs/from-scratch.md; exo#1390", caused by "no-gids",
        shown by a_captured_port_has_no_gids;

    /// Cables in a loop of bridged ports carry frames for ever. That a share of each cable is left is assumed.
    "bridge-storm", Documented by "Apple TN3205", caused by "storm",
        shown by a_slow_cable_carries_less;

    /// After a restart a link may look connected and yet allocate no protection domain until its cable is plugged in
    /// again.
    "boot-link", Reported by "exo PR 1467", caused by "no-pds",
        shown by a_link_that_looks_up_may_have_no_protection_domains;

    /// Nothing is routed: a device reaches only the Mac at the other end of its own cable.
    "one-hop", Documented by "Apple TN3205",
        shown by a_device_reaches_only_the_mac_at_its_cable;

    /// A queue pair cannot connect to its own device.
    "no-loopback", Measured by "gojaccl",
        shown by a_queue_pair_cannot_reach_its_own_device;

    /// A Mac that sleeps takes its links down, and its processes stop.
    "sleep", Reported by "mlx#3933; Apple TN3205 advises against sleep", caused by "sleep",
        shown by a_sleeping_mac_takes_its_ports_along;
}
