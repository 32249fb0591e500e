//! What faults do

use super::FaultInfo;

pub(super) const KINDS: [FaultInfo; 36] = [
    FaultInfo {
        name: "boundary",
        argument: "–",
        says: "The next region that is registered at the port lies across a 4 GiB boundary.",
        test: "data_beyond_a_4_gib_boundary_is_lost_or_not",
    },
    FaultInfo {
        name: "busy",
        argument: "–",
        says: "The receive queue of the port is taken: the step to RTR fails with 16 until a reboot.",
        test: "a_taken_receive_queue_refuses_the_step",
    },
    FaultInfo {
        name: "corrupt",
        argument: "N",
        says: "The next N frames that the port sends into receives arrive damaged.",
        test: "a_damaged_frame_fails_its_receive",
    },
    FaultInfo {
        name: "cross",
        argument: "DEVICE",
        says: "The far ends of this cable and of that in DEVICE of the same host trade places. What was \
            connected is over.",
        test: "crossed_cables_lead_elsewhere",
    },
    FaultInfo {
        name: "delay",
        argument: "TIME",
        says: "Completions at the port come later by TIME from now on.",
        test: "a_late_port_reports_later",
    },
    FaultInfo {
        name: "flap",
        argument: "TIME",
        says: "The cable is pulled and, after TIME, plugged in again.",
        test: "old_objects_are_useless_after_a_replug",
    },
    FaultInfo {
        name: "gid-at",
        argument: "N",
        says: "The IPv4 entry of the port moves to index N.",
        test: "the_ipv4_entry_may_be_anywhere",
    },
    FaultInfo {
        name: "idle-death",
        argument: "–",
        says: "The queue pairs of both ends die as if they had rested for too long.",
        test: "a_dead_queue_pair_takes_posts_and_says_nothing",
    },
    FaultInfo {
        name: "interface-down",
        argument: "–",
        says: "Neither end can resolve the other. What is connected goes on.",
        test: "an_interface_that_is_down_stops_only_new_connections",
    },
    FaultInfo {
        name: "kill",
        argument: "–",
        says: "The processes of the host die, and what they had is taken back.",
        test: "a_killed_host_is_silent_until_its_processes_start_anew",
    },
    FaultInfo {
        name: "leak-cqs",
        argument: "N",
        says: "N completion queues of the port are held by nobody until a reboot.",
        test: "every_failing_verb_has_its_errno",
    },
    FaultInfo {
        name: "leak-mrs",
        argument: "N",
        says: "N memory regions of the port are held by nobody until a reboot.",
        test: "every_failing_verb_has_its_errno",
    },
    FaultInfo {
        name: "leak-pds",
        argument: "N",
        says: "N protection domains of the port are held by nobody until a reboot.",
        test: "every_failing_verb_has_its_errno",
    },
    FaultInfo {
        name: "leak-qps",
        argument: "N",
        says: "N queue pairs of the port are held by nobody until a reboot.",
        test: "every_failing_verb_has_its_errno",
    },
    FaultInfo {
        name: "link-local-gids",
        argument: "–",
        says: "The IPv4 entries of the port are gone.",
        test: "a_port_without_an_address_has_no_usable_gid",
    },
    FaultInfo {
        name: "lose",
        argument: "N",
        says: "The next messages that the port sends vanish, up to N frames; the sender is not told.",
        test: "lost_messages_take_no_receive",
    },
    FaultInfo {
        name: "no-gids",
        argument: "–",
        says: "The GID table of the port is empty.",
        test: "a_captured_port_has_no_gids",
    },
    FaultInfo {
        name: "no-pds",
        argument: "–",
        says: "The port gives no protection domain until it is plugged in again or the host reboots.",
        test: "a_link_that_looks_up_may_have_no_protection_domains",
    },
    FaultInfo {
        name: "overflow",
        argument: "–",
        says: "The receive queues of the port take more than they hold, and what exceeds them is damaged.",
        test: "an_overflowing_ring_damages_what_exceeds_it",
    },
    FaultInfo {
        name: "pause",
        argument: "–",
        says: "The processes of the host stop; the hardware goes on.",
        test: "a_stopped_peer_goes_on_without_damage",
    },
    FaultInfo {
        name: "rdma-off",
        argument: "–",
        says: "RDMA is disabled on the host: both ends of its cables go down.",
        test: "a_port_is_active_while_rdma_is_enabled_at_both_ends",
    },
    FaultInfo {
        name: "rdma-on",
        argument: "–",
        says: "RDMA is enabled on the host.",
        test: "a_port_is_active_while_rdma_is_enabled_at_both_ends",
    },
    FaultInfo {
        name: "reboot",
        argument: "TIME",
        says: "The host goes down and is back after TIME: what its kernel kept is free, and its processes \
            start anew.",
        test: "a_reboot_frees_what_nothing_else_does",
    },
    FaultInfo {
        name: "renumber",
        argument: "–",
        says: "The devices of the host trade names.",
        test: "devices_trade_names_after_a_restart",
    },
    FaultInfo {
        name: "replug",
        argument: "–",
        says: "The cable is plugged in again.",
        test: "a_port_is_active_while_rdma_is_enabled_at_both_ends",
    },
    FaultInfo {
        name: "resolvable",
        argument: "–",
        says: "Both ends can resolve each other again.",
        test: "an_interface_that_is_down_stops_only_new_connections",
    },
    FaultInfo {
        name: "restart",
        argument: "–",
        says: "The processes of the host die, if they live, and start anew.",
        test: "a_killed_host_is_silent_until_its_processes_start_anew",
    },
    FaultInfo {
        name: "resume",
        argument: "–",
        says: "The processes of the host go on.",
        test: "a_stopped_peer_goes_on_without_damage",
    },
    FaultInfo {
        name: "sleep",
        argument: "–",
        says: "The host sleeps: its processes stop, and both ends of its cables go down.",
        test: "a_sleeping_mac_takes_its_ports_along",
    },
    FaultInfo {
        name: "slow",
        argument: "PERCENT",
        says: "The cable carries PERCENT of its rate from now on.",
        test: "a_slow_cable_carries_less",
    },
    FaultInfo {
        name: "slow-receive",
        argument: "–",
        says: "The port looks at what has completed once a second.",
        test: "a_slow_receiver_looks_once_a_second",
    },
    FaultInfo {
        name: "storm",
        argument: "PERCENT",
        says: "Frames circle through a bridge and leave PERCENT of the cable.",
        test: "a_slow_cable_carries_less",
    },
    FaultInfo {
        name: "unplug",
        argument: "–",
        says: "The cable is pulled.",
        test: "after_unplugging_everything_is_refused",
    },
    FaultInfo {
        name: "unresolvable",
        argument: "–",
        says: "Neither end can resolve the other.",
        test: "a_failed_step_cannot_be_repeated",
    },
    FaultInfo {
        name: "wake",
        argument: "–",
        says: "The host wakes: its ports come up, and its processes go on.",
        test: "a_sleeping_mac_takes_its_ports_along",
    },
    FaultInfo {
        name: "wedge",
        argument: "–",
        says: "The driver of the port gives nothing any more until a reboot.",
        test: "a_wedged_driver_creates_nothing",
    },
];
