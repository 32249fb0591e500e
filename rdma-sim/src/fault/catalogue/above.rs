//! Failures of control planes and of later reports: F65 to F83

use super::Entry;
use super::Modelled::{Fault, No, Rule};

pub(super) const ENTRIES: [Entry; 19] = [
    Entry {
        number: 65,
        title: "Nodes that have left block placement",
        source: "exo#2194",
        modelled: No("above the device"),
    },
    Entry {
        number: 66,
        title: "Nodes without RDMA are chosen",
        source: "exo#2014",
        modelled: Fault(&["rdma-off"]),
    },
    Entry {
        number: 67,
        title: "Churn of runners deadlocks",
        source: "exo#1934",
        modelled: No("above the device"),
    },
    Entry {
        number: 68,
        title: "A peer's disconnection breaks a resource",
        source: "exo#2101",
        modelled: No("above the device"),
    },
    Entry {
        number: 69,
        title: "An unreachable host is dropped for ever after waking",
        source: "exo#2191",
        modelled: Fault(&["sleep", "wake"]),
    },
    Entry {
        number: 70,
        title: "Many requests at once deadlock",
        source: "exo#2108",
        modelled: No("above the device"),
    },
    Entry {
        number: 71,
        title: "A broadcast of hundreds of gigabytes stalls unless after a reboot",
        source: "field log of a 4-node broadcast tool",
        modelled: No("nothing is known of the cause"),
    },
    Entry {
        number: 72,
        title: "RDMA fails at random in the preparation",
        source: "exo#1711",
        modelled: Fault(&["busy"]),
    },
    Entry {
        number: 73,
        title: "A device is named that has no cable",
        source: "mlx-jaccl-cluster, docs/from-scratch.md",
        modelled: Rule(&["port-state", "down-port"]),
    },
    Entry {
        number: 74,
        title: "The bridge captures the port again after each restart",
        source: "mlx-jaccl-cluster, docs/from-scratch.md",
        modelled: Fault(&["no-gids"]),
    },
    Entry {
        number: 75,
        title: "The port has only an address of 169.254.0.0/16",
        source: "pytorch PR 189856",
        modelled: Rule(&["link-local-source"]),
    },
    Entry {
        number: 76,
        title: "A path MTU of 4096",
        source: "pytorch PR 189856",
        modelled: Rule(&["large-mtu"]),
    },
    Entry {
        number: 77,
        title: "Ranks disagree on wires, layout or incarnation",
        source: "pytorch PR 189856",
        modelled: No("the protocol's: its greeting has a version and an epoch"),
    },
    Entry {
        number: 78,
        title: "A slow consumer starves a collective",
        source: "pytorch PR 189856",
        modelled: Fault(&["delay", "slow"]),
    },
    Entry {
        number: 79,
        title: "A rank sends before its peer is ready",
        source: "pytorch PR 189856",
        modelled: Rule(&["peer-readiness"]),
    },
    Entry {
        number: 80,
        title: "The library is there and lists no device",
        source: "pytorch PR 189856",
        modelled: No("a matter of loading: rdma-tb5 tells these apart"),
    },
    Entry {
        number: 81,
        title: "A failed post leaves `bad_wr` alone",
        source: "mesh-flow field notes",
        modelled: No("the traits post one request at a time and have no `bad_wr`"),
    },
    Entry {
        number: 82,
        title: "The program meets a real network adapter",
        source: "ds4 PR 1024",
        modelled: Rule(&["roce-drops"]),
    },
    Entry {
        number: 83,
        title: "A node restarts without a reason",
        source: "mesh-flow field notes",
        modelled: Fault(&["reboot"]),
    },
];
