//! Published figures that the model does not have, each with the reason

use super::rows::{Add, Basis};

const LINUX: &str = "one end is a Linux driver with costs of its own, which are not published";
const DISKS: &str = "disks take part, whose rates are not published";

/// Setup, source, unit, published range, and why the model has no such figure
type Entry = (&'static str, &'static str, &'static str, [f64; 2], &'static str);

const ENTRIES: [Entry; 17] = [
    (
        "what perftest reports from a Mac to Linux, on a link of 40 Gb/s",
        "hellas thunderbolt-ibverbs",
        "Gb/s",
        [57.0, 90.0],
        "more than the link carries: sends complete before their bytes have left, as the rule send-completion may have it",
    ),
    ("1000 messages of 4 KiB from a Mac to Linux", "hellas thunderbolt-ibverbs", "Gb/s", [6.45; 2], LINUX),
    ("1000 messages of 4 KiB from Linux to a Mac", "hellas thunderbolt-ibverbs", "Gb/s", [1.76; 2], LINUX),
    (
        "63 messages of 64 KiB in flight from a Mac to Linux",
        "hellas thunderbolt-ibverbs",
        "Gb/s",
        [14.7; 2],
        LINUX,
    ),
    (
        "four links between two Linux machines, each way",
        "hellas thunderbolt-ibverbs",
        "Gb/s",
        [48.0; 2],
        "no Mac takes part",
    ),
    (
        "write of 64 bytes between two Linux machines",
        "hellas thunderbolt-ibverbs",
        "µs",
        [7.41; 2],
        "no Mac takes part, and a Mac has no such operation",
    ),
    (
        "read between two Linux machines",
        "hellas thunderbolt-ibverbs",
        "µs",
        [15.37; 2],
        "no Mac takes part, and a Mac has no such operation",
    ),
    (
        "send_lat between two Linux machines",
        "hellas thunderbolt-ibverbs",
        "µs",
        [8.34; 2],
        "no Mac takes part",
    ),
    (
        "Soft-RoCE over Thunderbolt networking",
        "hellas thunderbolt-ibverbs",
        "µs",
        [65.0; 2],
        "the driver of Linux takes part alone",
    ),
    (
        "Soft-RoCE over Ethernet of 2.5 Gb/s",
        "hellas thunderbolt-ibverbs",
        "µs",
        [28.0; 2],
        "neither Thunderbolt nor a Mac takes part",
    ),
    (
        "latency of RDMA, at most",
        "jeffgeerling.com; adwaitx",
        "µs",
        [50.0; 2],
        "a bound without a setup, far above the 11.9 µs of the first row",
    ),
    ("copy of a file of 49.63 GB with JACCL", "mlx#3207", "GB/s", [3.5, 3.8], DISKS),
    ("copies of files of 1.1 and 250 GB", "tb5-jaccl-toolkit", "GB/s", [2.09, 3.3], DISKS),
    ("copy of a file with rsync, over Thunderbolt networking", "mlx#3207", "GB/s", [0.3, 0.5], DISKS),
    (
        "broadcast of 614 GB to 4 nodes, after a restart of all",
        "field log of a 4-node broadcast tool",
        "GB/s",
        [5.2; 2],
        "the schedule of the tool is not published",
    ),
    (
        "how many times faster than over TCP short messages are",
        "pytorch PR 189856",
        "",
        [56.0; 2],
        "the lengths and the time over TCP are not published",
    ),
    (
        "the best length of four for the messages of llama.cpp: 32, 64, 128 and 256 KiB",
        "llama.cpp PR 26421",
        "KiB",
        [128.0; 2],
        "what a message costs that program is not published",
    ),
];

pub(super) fn add_all(add: Add<'_>) {
    for (setup, source, unit, published, why) in ENTRIES {
        add(setup, source, unit, published, Basis::None(why), None, false);
    }
}
