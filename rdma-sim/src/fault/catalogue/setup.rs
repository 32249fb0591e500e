//! Failures of discovery, of addresses and of limits: F1 to F35

use super::Entry;
use super::Modelled::{Fault, No, Rule};

pub(super) const ENTRIES: [Entry; 35] = [
    Entry {
        number: 1,
        title: "RDMA is not enabled, or on one side only",
        source: "Apple TN3205",
        modelled: Fault(&["rdma-off"]),
    },
    Entry {
        number: 2,
        title: "A port or a cable of Thunderbolt 4",
        source: "mlx#3777; mlx#4485; exo#1881",
        modelled: Rule(&["tb4-devices", "link-rate"]),
    },
    Entry {
        number: 3,
        title: "Different versions of macOS do not find each other",
        source: "exo README",
        modelled: Fault(&["rdma-off"]),
    },
    Entry {
        number: 4,
        title: "Devices have other names after a restart",
        source: "mlx#3207; mlx#4180",
        modelled: Fault(&["renumber"]),
    },
    Entry {
        number: 5,
        title: "The port beside Ethernet of a Mac Studio is unreliable",
        source: "exo README; tb5-jaccl-toolkit",
        modelled: Fault(&["corrupt", "flap"]),
    },
    Entry {
        number: 6,
        title: "The library is not there, and programs linked to it do not start",
        source: "unsloth#9874",
        modelled: No("a matter of loading: rdma-tb5 loads at run time"),
    },
    Entry {
        number: 7,
        title: "The link is up after a restart, and there are no protection domains",
        source: "exo PR 1467",
        modelled: Fault(&["no-pds"]),
    },
    Entry {
        number: 8,
        title: "A Mac falls asleep",
        source: "Apple TN3205; mlx#3933",
        modelled: Fault(&["sleep", "wake"]),
    },
    Entry {
        number: 9,
        title: "The peer is listed and does not offer RDMA",
        source: "exo#1390",
        modelled: Fault(&["rdma-off"]),
    },
    Entry {
        number: 10,
        title: "The configuration tool of MLX fails",
        source: "mlx#2944",
        modelled: No("a bug of that tool"),
    },
    Entry {
        number: 11,
        title: "No IPv4 address, so only link-local GIDs",
        source: "mlx#3467; mlx#3468; mlx#4191",
        modelled: Fault(&["link-local-gids"]),
    },
    Entry {
        number: 12,
        title: "The IPv4 GID is not at index 1",
        source: "mlx#3389",
        modelled: Fault(&["gid-at"]),
    },
    Entry {
        number: 13,
        title: "The Thunderbolt Bridge has the port, or frames circle in it",
        source: "exo#1390; Apple TN3205",
        modelled: Fault(&["no-gids", "storm"]),
    },
    Entry {
        number: 14,
        title: "The peer's address cannot be resolved",
        source: "exo#1847",
        modelled: Fault(&["unresolvable", "resolvable"]),
    },
    Entry {
        number: 15,
        title: "A crashed process still holds the port",
        source: "mlx#3207",
        modelled: Fault(&["busy", "leak-qps"]),
    },
    Entry {
        number: 16,
        title: "The receive queues of the controller are used up",
        source: "mesh-flow field notes",
        modelled: Fault(&["busy"]),
    },
    Entry {
        number: 17,
        title: "The step to RTR is repeated on the same queue pair",
        source: "mesh-flow field notes",
        modelled: Rule(&["half-connected"]),
    },
    Entry {
        number: 18,
        title: "Repeated failures of the step to RTR wedge the port",
        source: "tmc/apple rdma",
        modelled: Rule(&["failed-rtr-wedges"]),
    },
    Entry {
        number: 19,
        title: "After some launches, or a night, the step to RTR fails with 96",
        source: "exo#1973; nix-ai, rdma-protection-domains.md",
        modelled: Fault(&["leak-pds", "leak-qps", "no-gids"]),
    },
    Entry {
        number: 20,
        title: "Two cables between two Macs are taken for each other",
        source: "exo#2160; exo#2195",
        modelled: Fault(&["cross"]),
    },
    Entry {
        number: 21,
        title: "The coordinator does not answer",
        source: "MLX source, tcp.cpp; exo#1847",
        modelled: No("the side channel is the program's: rdma-async takes any stream, and tests give it \
            broken ones"),
    },
    Entry {
        number: 22,
        title: "Late ranks are refused by the coordinator",
        source: "MLX source",
        modelled: No("the side channel is the program's: rdma-async takes any stream, and tests give it \
            broken ones"),
    },
    Entry {
        number: 23,
        title: "A firewall or the local network permission is in the way",
        source: "exo#1035",
        modelled: No("the side channel is the program's: rdma-async takes any stream, and tests give it \
            broken ones"),
    },
    Entry {
        number: 24,
        title: "The coordinator is found over another network",
        source: "exo#1203; exo#1723",
        modelled: No("the side channel is the program's: rdma-async takes any stream, and tests give it \
            broken ones"),
    },
    Entry {
        number: 25,
        title: "The device matrix is malformed",
        source: "MLX source",
        modelled: No("an input of the program"),
    },
    Entry {
        number: 26,
        title: "An eleventh queue pair",
        source: "mlx#3162; mlx#4209",
        modelled: Rule(&["max-qp"]),
    },
    Entry {
        number: 27,
        title: "A hundred and first memory region",
        source: "mlx#3162",
        modelled: Rule(&["max-mr"]),
    },
    Entry {
        number: 28,
        title: "A twelfth protection domain, or leaked ones",
        source: "asmi; nix-ai, rdma-protection-domains.md",
        modelled: Fault(&["leak-pds", "leak-cqs", "flap"]),
    },
    Entry {
        number: 29,
        title: "A missing protection domain is used",
        source: "mlx#3777; mlx#4485",
        modelled: No("no verb of the traits takes one"),
    },
    Entry {
        number: 30,
        title: "A message exceeds the queue, or 16,773,120 bytes",
        source: "Apple TN3205",
        modelled: Rule(&["max-message", "queue-depth"]),
    },
    Entry {
        number: 31,
        title: "More is posted than the ring holds",
        source: "hellas thunderbolt-ibverbs PR 35; mesh-flow field notes",
        modelled: Fault(&["overflow"]),
    },
    Entry {
        number: 32,
        title: "Two requests at once use one group",
        source: "mlx-lm#1737",
        modelled: No("above the device; the device's part is the rule `post-failure`"),
    },
    Entry {
        number: 33,
        title: "A region crosses a 4 GiB boundary",
        source: "mesh-flow field notes",
        modelled: Fault(&["boundary"]),
    },
    Entry {
        number: 34,
        title: "A request with several elements completes early",
        source: "mesh-flow field notes",
        modelled: Rule(&["multi-sge"]),
    },
    Entry {
        number: 35,
        title: "Memory does not begin at a page",
        source: "openclawradar, 2026-05-06; Verbifrost notes",
        modelled: Rule(&["registration-alignment"]),
    },
];
