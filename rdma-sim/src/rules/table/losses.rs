//! Losses

use super::Rule;
use super::RuleStatus::{Measured, Reported};

pub(super) const RULES: [Rule; 10] = [
    Rule {
        name: "peer-death",
        says: "Nobody is told that a peer has died: no completion, no event, and the port stays active.",
        source: "mlx#4278; mlx#3910; mlx PR 4530",
        status: Measured,
        default: "–",
        switch: "fault kill",
        test: "nobody_is_told_that_a_peer_died",
    },
    Rule {
        name: "peer-stop",
        says: "A peer that is stopped is silent, and goes on without damage.",
        source: "mlx#4278",
        status: Measured,
        default: "–",
        switch: "fault pause",
        test: "a_stopped_peer_goes_on_without_damage",
    },
    Rule {
        name: "process-end",
        says: "When a process ends, the kernel takes back what it had. Sometimes it does not.",
        source: "nix-ai, rdma-protection-domains.md; mlx#3207",
        status: Measured,
        default: "–",
        switch: "fault leak-pds",
        test: "what_a_process_had_is_reclaimed",
    },
    Rule {
        name: "unplug",
        says: "After the cable was pulled, everything on the old objects is refused (6, which is assumed). \
            The provider of a Mac crashes the process instead.",
        source: "mlx#4192",
        status: Measured,
        default: "–",
        switch: "fault unplug",
        test: "after_unplugging_everything_is_refused",
    },
    Rule {
        name: "unplug-silence",
        says: "What was posted before the cable was pulled never completes.",
        source: "mlx#4278",
        status: Measured,
        default: "–",
        switch: "fault unplug",
        test: "an_unplugged_cable_completes_nothing",
    },
    Rule {
        name: "replug-stale",
        says: "When the cable is back the port is active again, and the old objects are useless for ever.",
        source: "asmi",
        status: Measured,
        default: "–",
        switch: "fault replug",
        test: "old_objects_are_useless_after_a_replug",
    },
    Rule {
        name: "replug-leaks-pd",
        says: "Each time a link comes up again costs either end a protection domain.",
        source: "asmi",
        status: Measured,
        default: "1",
        switch: "Rules::replug_leaks_pds",
        test: "each_replug_costs_a_protection_domain",
    },
    Rule {
        name: "idle-death",
        says: "A queue pair that rests for 23 minutes is dead: it takes posts and does nothing, and nobody \
            is told. A message a minute keeps it alive.",
        source: "gojaccl; exo#1847",
        status: Measured,
        default: "Some(1380s)",
        switch: "Rules::idle_death",
        test: "a_queue_pair_that_rests_too_long_is_dead",
    },
    Rule {
        name: "wedge",
        says: "A wedged driver gives nothing any more. That it says 16, and that what is connected goes \
            on, is assumed: on a Mac the tools hang.",
        source: "exo#1711; exo#1712; gojaccl",
        status: Reported,
        default: "–",
        switch: "fault wedge",
        test: "a_wedged_driver_creates_nothing",
    },
    Rule {
        name: "reboot",
        says: "Only a reboot frees what the kernel kept. It takes as long as the fault says; names and \
            addresses stay.",
        source: "mlx#3207; tmc/apple rdma",
        status: Reported,
        default: "–",
        switch: "fault reboot",
        test: "a_reboot_frees_what_nothing_else_does",
    },
];
