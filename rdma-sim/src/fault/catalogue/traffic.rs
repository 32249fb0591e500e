//! Failures of traffic, links and hosts: F36 to F64

use super::Entry;
use super::Modelled::{Fault, No, Rule};

pub(super) const ENTRIES: [Entry; 29] = [
    Entry {
        number: 36,
        title: "Message and receive differ in frames",
        source: "Apple TN3205",
        modelled: Rule(&["frame-match"]),
    },
    Entry {
        number: 37,
        title: "The sender is earlier than the receiver",
        source: "Apple TN3205",
        modelled: Rule(&["credits"]),
    },
    Entry {
        number: 38,
        title: "Both sides wait for receives, which have all the memory",
        source: "mesh-flow field notes",
        modelled: Rule(&["credits"]),
    },
    Entry {
        number: 39,
        title: "Nobody looks at the status, and damaged data is used",
        source: "mlx#3152",
        modelled: Fault(&["corrupt"]),
    },
    Entry {
        number: 40,
        title: "A protection error, and then the port is busy",
        source: "mesh-flow field notes",
        modelled: Rule(&["late-registration", "error-state-keeps-mappings"]),
    },
    Entry {
        number: 41,
        title: "Wrong results for long prompts",
        source: "mlx#4342; exo#2270",
        modelled: No("above the device, and the cause is not known"),
    },
    Entry {
        number: 42,
        title: "Races in MLX that are fixed",
        source: "mlx#3451; mlx#3654; mlx#4193",
        modelled: No("above the device"),
    },
    Entry {
        number: 43,
        title: "Offsets of 32 bits overflow in MLX",
        source: "MLX source, mesh_impl.h",
        modelled: No("above the device"),
    },
    Entry {
        number: 44,
        title: "A completion is lost, and nothing goes on",
        source: "mlx#4403",
        modelled: Fault(&["lose"]),
    },
    Entry {
        number: 45,
        title: "A Linux peer sends without credits",
        source: "hellas thunderbolt-ibverbs PR 30 and 44",
        modelled: Fault(&["lose"]),
    },
    Entry {
        number: 46,
        title: "WRITE, READ or a reliable queue pair is tried",
        source: "tmc/apple rdma; hellas thunderbolt-ibverbs",
        modelled: Rule(&["transports", "operations", "uc-write"]),
    },
    Entry {
        number: 47,
        title: "The peer is killed or stopped",
        source: "mlx#4278; mlx#3910",
        modelled: Fault(&["kill", "pause", "resume"]),
    },
    Entry {
        number: 48,
        title: "The cable is pulled in the middle of work",
        source: "mlx#4192",
        modelled: Fault(&["unplug"]),
    },
    Entry {
        number: 49,
        title: "The process crashes in the provider without a reason",
        source: "mlx#4319",
        modelled: Fault(&["kill", "restart"]),
    },
    Entry {
        number: 50,
        title: "Setting the interface down stops nothing",
        source: "mlx#3910",
        modelled: Fault(&["interface-down"]),
    },
    Entry {
        number: 51,
        title: "The cable is plugged in again",
        source: "asmi; exo#1712",
        modelled: Fault(&["replug", "flap"]),
    },
    Entry {
        number: 52,
        title: "A queue pair has rested for 23 minutes",
        source: "exo#1847; gojaccl",
        modelled: Fault(&["idle-death"]),
    },
    Entry {
        number: 53,
        title: "The driver is wedged",
        source: "exo#1711; exo#1712",
        modelled: Fault(&["wedge", "reboot"]),
    },
    Entry {
        number: 54,
        title: "Thunderbolt networking is dead and the link is up",
        source: "hellas thunderbolt-ibverbs",
        modelled: Fault(&["slow-receive", "unresolvable"]),
    },
    Entry {
        number: 55,
        title: "One direction works and the other does not",
        source: "exo#1826",
        modelled: Fault(&["lose"]),
    },
    Entry {
        number: 56,
        title: "The kernel panics",
        source: "mesh-flow field notes; asmi",
        modelled: Fault(&["reboot"]),
    },
    Entry {
        number: 57,
        title: "Shutting down hangs until the watchdog resets",
        source: "mesh-flow field notes",
        modelled: Fault(&["reboot"]),
    },
    Entry {
        number: 58,
        title: "A killed process leaves its memory wired",
        source: "mlx#4403; mlx#3910",
        modelled: Fault(&["leak-mrs", "reboot"]),
    },
    Entry {
        number: 59,
        title: "The launcher reports success although a rank failed",
        source: "mlx#4319",
        modelled: No("above the device"),
    },
    Entry {
        number: 60,
        title: "The GPU's watchdog ends a rank that waits",
        source: "mlx#1804; mlx#4475; exo#2173",
        modelled: No("there is no GPU; a late peer is the fault `delay` or `pause`"),
    },
    Entry {
        number: 61,
        title: "The GPU driver panics",
        source: "mlx#3346; exo#1972",
        modelled: Fault(&["reboot"]),
    },
    Entry {
        number: 62,
        title: "The watchdog panics under memory pressure",
        source: "exo#1939",
        modelled: Fault(&["reboot"]),
    },
    Entry {
        number: 63,
        title: "A rewritten executable is refused",
        source: "mesh-flow field notes",
        modelled: No("a matter of code signing"),
    },
    Entry {
        number: 64,
        title: "Two processes at one port disturb each other",
        source: "gojaccl",
        modelled: Fault(&["wedge"]),
    },
];
