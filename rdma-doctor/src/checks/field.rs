//! Failures that users met, each with a recorded description, and the check that explains it

/// A failure of the field
///
/// Its description is composed from public reports: the outputs of the tools of a Mac with this failure are in
/// `tests/fixtures/composed/field/ID`, and beside them is the report that `tb5 doctor --from` reads. Evidence and remedy are those
/// of the finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FieldFailure {
    /// Its name
    pub id: &'static str,
    /// How a user notices it
    pub symptom: &'static str,
    /// [`Check::id`](crate::Check::id) of the check that explains it
    pub check: &'static str,
    /// Where it was reported
    pub source: &'static str,
}

/// All recorded failures, in the order of their causes from the ground up
pub const FIELD_FAILURES: &[FieldFailure] = &[
    failure(
        "rdma-disabled",
        "no device is listed; `rdma_ctl status` says disabled",
        "rdma_enabled",
        "Apple TN3205",
    ),
    failure(
        "restart-missing",
        "no device is listed although RDMA was enabled in Recovery",
        "verbs_devices",
        "Apple TN3205; pytorch#189856",
    ),
    failure(
        "macos-too-old",
        "a program does not start: librdma.dylib is not found",
        "macos_version",
        "unsloth#9874; Apple TN3205",
    ),
    failure("macos-26-2", "low bandwidth, and messages above 4 KiB fail", "message_limit", "mlx#3094"),
    failure(
        "thunderbolt-4-mac",
        "RDMA is enabled on a Mac with Thunderbolt 4, and no device is listed",
        "verbs_devices",
        "mlx#3777; omlx#3037",
    ),
    failure(
        "cable-40-gigabits",
        "a link runs at 40 Gb/s: slow, or `no valid config`",
        "link_speed",
        "hellas (M4 Max over 40 Gb/s); mlx#4485; exo#1881",
    ),
    failure("driver-wedged", "`ibv_devinfo` does not return", "driver", "exo#1711; exo#1712"),
    failure(
        "idle-sleep",
        "a peer stalls over night and its port goes down",
        "idle_sleep",
        "Apple TN3205; mlx#3933",
    ),
    failure(
        "nothing-connected",
        "all ports are down and nothing is wrong with the settings",
        "cable",
        "Apple TN3205",
    ),
    failure(
        "studio-port",
        "unreliable RDMA on one port of a Mac Studio",
        "studio_port",
        "README of exo; exo#1551",
    ),
    failure("peer-rdma-off", "the cable works for IP, and the port is down", "rdma_service", "exo#1390"),
    failure(
        "link-not-set-up",
        "the cable is connected, and no protection domain is given (NULL)",
        "thunderbolt_ip",
        "exo#1467",
    ),
    failure(
        "port-down",
        "`Couldn't allocate protection domain`",
        "port_state",
        "mlx-jaccl-cluster; mlx#4530",
    ),
    failure(
        "device-renumbered",
        "`Could not find device rdma_enX` after a restart",
        "interface_mapping",
        "mlx#3207; mlx#4180",
    ),
    failure("bridge-captured-port", "connecting fails with error number 22", "bridge", "exo#1390; mlx#3207"),
    failure("gid-table-empty", "connecting fails with error number 96", "gid_table", "mlx-jaccl-cluster"),
    failure("no-ipv4-gid", "`No IPv4-mapped GID`, or error number 22", "ipv4_gid", "mlx#3467; mlx#4191"),
    failure(
        "ipv4-gid-at-2",
        "error number 22 in programs that take GID 1 without looking",
        "ipv4_gid_index",
        "mlx#3389",
    ),
    failure("gid-hole", "error number 22 after a cable was replugged", "gid_holes", "ds4 rig (antirez/ds4)"),
    failure(
        "link-local-only",
        "connecting fails with error number 60 although both ends have a 169.254 address",
        "link_local",
        "pytorch#189856; against it Apple TN3205",
    ),
    failure("ports-share-network", "connections take the wrong cable", "subnets", "pytorch#189856"),
    failure(
        "leaked-protection-domains",
        "a protection domain is refused after many replugs",
        "protection_domains",
        "apple-smi; mlx#3207",
    ),
    failure(
        "queue-pairs-exhausted",
        "`Creating the queue pair failed`, error number 16",
        "queue_pairs",
        "mlx#4209; mlx#3162",
    ),
    failure(
        "two-programs-one-port",
        "a second program on a port disturbs the first one",
        "port_owners",
        "gojaccl",
    ),
    failure(
        "stuck-process",
        "a program cannot be killed, not even by `kill -9`",
        "stuck_processes",
        "exo#1711; mesh-flow",
    ),
    failure(
        "exo-daemon",
        "fixed addresses vanish twice an hour",
        "exo_daemon",
        "exo, NetworkSetupHelper.swift",
    ),
    failure(
        "address-not-saved",
        "error number 22 after a restart; the address is gone",
        "lasting_addresses",
        "mlx#3207",
    ),
    failure(
        "bridge-returns",
        "error number 96 after a restart: the deleted bridge is back",
        "lasting_bridge",
        "mlx-jaccl-cluster",
    ),
    failure(
        "neighbour-incomplete",
        "connecting fails with error number 60 after a second",
        "neighbours",
        "exo#1847; hellas",
    ),
    failure(
        "neighbour-stale",
        "error number 60 after a cable was moved to another Mac",
        "neighbour_identity",
        "exo#1847",
    ),
    failure(
        "route-over-wifi",
        "error number 60; the other address is reached over Wi-Fi",
        "routes",
        "pytorch#189856; exo#1203",
    ),
    failure(
        "no-common-network",
        "error number 60; the two ends were set up at different times",
        "common_network",
        "exo#1847",
    ),
    failure("firewall-blocks-all", "the side channel times out", "firewall", "exo#1035"),
    failure("local-network-denied", "`No route to host`, while ping works", "local_network", "exo#1035"),
    failure(
        "connect-error-60",
        "connecting fails with error number 60",
        "queue_pair_probe",
        "exo#1847; hellas",
    ),
    failure(
        "connect-error-96",
        "connecting fails with error number 96 after a night without traffic",
        "queue_pair_probe",
        "exo#1973",
    ),
    failure("verb-does-not-return", "a program hangs while it connects", "queue_pair_probe", "hellas"),
    failure(
        "kernel-panic-driver",
        "the Mac restarts by itself while cables are pulled",
        "incidents",
        "mesh-flow; apple-smi",
    ),
    failure("crash-cable-pulled", "segmentation fault in `tbt_post_recv`", "incidents", "mlx#4192; mlx#4319"),
    failure(
        "crash-null-protection-domain",
        "segmentation fault in `ibv_reg_mr_iova2`",
        "incidents",
        "mlx#3777; exo#2186",
    ),
    failure(
        "gpu-memory-panic",
        "the Mac panics with `prepare count underflow`",
        "incidents",
        "mlx#3346; exo#1972",
    ),
    failure(
        "wired-memory",
        "memory stays used after a program was killed",
        "wired_memory",
        "mlx#4403; mlx#3910",
    ),
    failure(
        "link-flaps",
        "connections die again and again on one cable",
        "link_flaps",
        "exo#1712; apple-smi",
    ),
    failure(
        "queue-pair-started-twice",
        "each new attempt to connect fails, until a restart",
        "failed_connects",
        "mesh-flow; tmc/apple",
    ),
    failure(
        "connect-error-1",
        "connecting fails with error number 1",
        "failed_connects",
        "ds4 rig (antirez/ds4)",
    ),
    failure(
        "long-uptime",
        "large transfers stall that worked after the last restart",
        "uptime",
        "mlx#3207; a 4-node broadcast tool",
    ),
    failure("versions-differ", "ports do not discover each other", "same_macos", "README of exo"),
    failure(
        "cables-moved",
        "everything connects, and then nothing moves",
        "cable_ends",
        "exo#2160; exo#2195",
    ),
];

const fn failure(
    id: &'static str,
    symptom: &'static str,
    check: &'static str,
    source: &'static str,
) -> FieldFailure {
    FieldFailure { id, symptom, check, source }
}
