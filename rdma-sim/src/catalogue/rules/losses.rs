//! Losses

use super::rule::rules;

rules! {
    /// The death of a peer is silent: no completion, no event, and the port stays active.
    "peer-death", Measured by "mlx#4278; mlx#3910; mlx PR 4530", caused by "kill",
        shown by the_death_of_a_peer_is_silent;

    /// A peer that is stopped is silent, and continues later without damage.
    "peer-stop", Measured by "mlx#4278", caused by "pause",
        shown by a_stopped_peer_continues_without_damage;

    /// When a process ends, the kernel reclaims its objects. Sometimes it does not, and what it keeps adds up until a reboot; how
    /// much at each end is not known, so this is off. The fault `leak-pds` takes some at once.
    "process-end", Measured by "nix-ai, rdma-protection-domains.md; mlx#3207", set by Rules::process_end_leaks_pds,
        shown by the_kernel_reclaims_the_objects_of_a_dead_process;

    /// What the kernel keeps of a process that has ended may be queue pairs as well, which add up until a reboot. How many at each
    /// end is not known, so this is off. The fault `leak-qps` takes some at once.
    "process-end-qps", Reported by "mlx#3207; nix-ai, rdma-protection-domains.md", set by Rules::process_end_leaks_qps,
        applies if |model| model.rules.process_end_leaks_qps > 0,
        shown by queue_pairs_that_ends_of_processes_leak_add_up_until_a_reboot;

    /// After the cable was pulled, every operation on the old objects is refused (6, which is assumed). The provider of
    /// a Mac crashes the process instead.
    "unplug", Measured by "mlx#4192", caused by "unplug",
        shown by after_unplugging_everything_is_refused;

    /// Requests that were posted before the cable was pulled never complete.
    "unplug-silence", Measured by "mlx#4278", caused by "unplug",
        shown by an_unplugged_cable_completes_nothing;

    /// When the cable is back the port is active again, and the old objects stay useless.
    "replug-stale", Measured by "asmi", caused by "replug",
        shown by old_objects_are_useless_after_a_replug;

    /// Each time a link comes up again either end loses a protection domain.
    "replug-leaks-pd", Measured by "asmi", set by Rules::replug_leaks_pds,
        applies if |model| model.rules.replug_leaks_pds > 0,
        shown by each_replug_costs_a_protection_domain;

    /// A queue pair that is idle for 23 minutes is dead: it accepts posts, completes none, and reports nothing. A
    /// message a minute keeps it alive.
    "idle-death", Measured by "gojaccl; exo#1847", set by Rules::idle_death,
        shown by a_queue_pair_that_rests_too_long_is_dead;

    /// After a queue pair has died of idleness, its port connects no other until a reboot. Not every report says so, so this is
    /// off.
    "idle-death-spoils", Disputed by "gojaccl; exo#1847; exo#1973", set by Rules::idle_death_spoils,
        applies if |model| model.rules.idle_death_spoils,
        shown by idle_death_spoils_the_port_or_not;

    /// On a port that idle death has spoiled, the transition to RTR fails with 22 (exo#1847), or with 96 (exo#1973).
    "spoiled-rtr", Disputed by "exo#1847; exo#1973", set by Rules::spoiled_rtr,
        applies if |model| model.rules.idle_death_spoils,
        shown by a_spoiled_port_fails_with_either_error_number;

    /// A wedged driver creates no object. That it returns 16, and that connected queue pairs keep working, is assumed:
    /// on a Mac the tools hang.
    "wedge", Reported by "exo#1711; exo#1712; gojaccl", caused by "wedge",
        shown by a_wedged_driver_creates_nothing;

    /// Only a reboot frees leaked objects of the kernel. It takes as long as the fault says; names stay.
    "reboot", Reported by "mlx#3207; tmc/apple rdma", caused by "reboot",
        shown by only_a_reboot_frees_leaked_objects;

    /// After a reboot a Mac has the IPv4 addresses that it had, or its ports have others, unless the topology sets them. That the
    /// IPv6 addresses stay is assumed: the reports do not tell of them.
    "reboot-addresses", Disputed by "mlx#3207; mlx#4180", set by Rules::reboot_readdresses,
        applies if |model| model.rules.reboot_readdresses,
        shown by addresses_survive_a_reboot_or_not;

    /// Apple's provider takes the process with it where it gets a NULL protection domain to register memory with, and where a
    /// program posts after the cable was pulled. The simulated provider returns an error, or names the call and ends the process.
    "provider-crashes", Measured by "mlx#3777; mlx#4485; exo#2186; mlx#4192", set by Rules::crashes,
        uncounted as "only programs in C observe it",
        shown by a_crashing_provider_names_the_call;

    /// Before macOS 26.3 a memory region too many crashes the provider, too. It was seen at about 128 regions; that it is the one after
    /// the hundredth is assumed.
    "surplus-region", Measured by "mlx#3162", set by Rules::surplus_region_crashes, uncounted as "only programs in C observe it",
        shown by a_crashing_provider_names_the_call;
}
