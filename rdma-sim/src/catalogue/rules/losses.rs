//! Losses

use super::rule::rules;

rules! {
    /// The death of a peer is silent: no completion, no event, and the port stays active.
    "peer-death", Measured by "mlx#4278; mlx#3910; mlx PR 4530", caused by "kill",
        shown by the_death_of_a_peer_is_silent;

    /// A peer that is stopped is silent, and continues later without damage.
    "peer-stop", Measured by "mlx#4278", caused by "pause",
        shown by a_stopped_peer_continues_without_damage;

    /// When a process ends, the kernel reclaims its objects. Sometimes it does not.
    "process-end", Measured by "nix-ai, rdma-protection-domains.md; mlx#3207", caused by "leak-pds",
        shown by the_kernel_reclaims_the_objects_of_a_dead_process;

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

    /// A wedged driver creates no object. That it returns 16, and that connected queue pairs keep working, is assumed:
    /// on a Mac the tools hang.
    "wedge", Reported by "exo#1711; exo#1712; gojaccl", caused by "wedge",
        shown by a_wedged_driver_creates_nothing;

    /// Only a reboot frees leaked objects of the kernel. It takes as long as the fault says; names and addresses stay.
    "reboot", Reported by "mlx#3207; tmc/apple rdma", caused by "reboot",
        shown by only_a_reboot_frees_leaked_objects;
}
