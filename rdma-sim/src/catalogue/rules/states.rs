//! Connecting

use super::rule::rules;

rules! {
    /// The transitions to INIT, RTR and RTS need the attributes 0x39, 0x101181 and 0x10001, which the sample of Apple TN3205
    /// passes. That a transition which lacks one of them is refused (22) is assumed.
    "masks", Assumed by "this project, from Apple TN3205; libibverbs manual, ibv_modify_qp",
        shown by every_step_needs_its_mask;

    /// Transitions lead from RESET to INIT, RTR and RTS, and from every state to RESET and ERROR; all others are
    /// refused (22).
    "steps", Assumed by "libibverbs manual, ibv_modify_qp",
        shown by steps_out_of_order_are_refused;

    /// The transition to INIT accepts any access flags.
    "init-access", Measured by "MLX source; mesh-flow source; llama.cpp source", uncounted as "nothing depends on it",
        shown by every_access_is_accepted_at_init;

    /// The port is 1 and the partition key 0, as Apple TN3205 has them. That other values are refused (22) is assumed.
    "port-and-pkey", Assumed by "this project, from Apple TN3205",
        shown by the_port_is_1_and_the_partition_key_0;

    /// The transition to RTR fails with 22 if the entry at the source index is not usable.
    "rtr-source", Reported by "mlx#3467; mlx#3389; exo#1390",
        shown by every_failing_step_has_its_errno;

    /// Only entries that map an IPv4 address are valid as the source (mlx#3467), or any entry that is set (mesh-flow
    /// connects from index 0).
    "source-gid", Disputed by "mlx#3467; mesh-flow source", set by Rules::source_gid,
        shown by a_source_without_ipv4_is_refused_or_not;

    /// An address of 169.254.0.0/16 is valid as the source (Apple TN3205, mlx#4191), or the transition to RTR fails
    /// with 60 (pytorch PR 189856). Where it fails, simulated ports have an address of 192.168.0.0/16 instead, unless the topology
    /// sets another one.
    "link-local-source", Disputed by "Apple TN3205; pytorch PR 189856", set by Rules::link_local_source,
        shown by a_169_254_address_will_do_or_not;

    /// A path MTU of 4096 works (Apple TN3205, mesh-flow), or the transition to RTR fails with 60 (pytorch PR 189856).
    /// It changes nothing on the wire.
    "large-mtu", Disputed by "Apple TN3205; pytorch PR 189856", set by Rules::large_mtu,
        shown by a_large_mtu_works_or_not;

    /// The transition to RTR looks up the peer's GID among the neighbours on this cable, and fails with 60 if it is not
    /// there.
    "rtr-neighbour", Measured by "hellas thunderbolt-ibverbs; tmc/apple rdma", caused by "unresolvable",
        shown by a_step_needs_the_gid_of_the_neighbour;

    /// If the peer is not there the transition to RTR fails with 60 (hellas, tmc/apple), or with 1 (ds4). Either takes a second.
    "rtr-unresolved", Disputed by "hellas thunderbolt-ibverbs; tmc/apple rdma; ds4 rig notes", set by Rules::unresolved,
        shown by an_unresolved_neighbour_is_a_timeout_or_not_permitted;

    /// A transition to RTR that finds no neighbour takes a second. In programs in C the calling thread waits for it. A simulated
    /// task that has called it does not run for so long if `Timing::verbs_block_tasks` says so.
    "rtr-second", Measured by "hellas thunderbolt-ibverbs; tmc/apple rdma", set by Timing::unresolved_rtr_ns,
        applies if |model| model.timing.unresolved_rtr_ns > 0,
        shown by an_unresolved_neighbour_takes_a_second;

    /// With an empty GID table the transition to RTR fails with 96.
    "rtr-no-gids", Measured by "mlx-jaccl-cluster, docs/from-scratch.md", caused by "no-gids",
        shown by every_failing_step_has_its_errno;

    /// While the receive queue of the port is taken, the transition to RTR fails with 16.
    "rtr-busy", Reported by "mlx#3207; mesh-flow field notes", caused by "busy",
        shown by a_taken_receive_queue_refuses_the_step;

    /// A queue pair whose transition to RTR failed never becomes ready (16); a new queue pair does.
    "half-connected", Measured by "mesh-flow field notes",
        shown by a_failed_step_cannot_be_repeated;

    /// A number of failed transitions to RTR wedges the port until the Mac reboots. The number is not known, so this is
    /// off.
    "failed-rtr-wedges", Reported by "tmc/apple rdma", set by Rules::failed_rtr_wedges,
        applies if |model| model.rules.failed_rtr_wedges.is_some(),
        shown by repeated_failures_wedge_the_port_or_not;

    /// Receives can be posted from INIT on (hellas), from RTR on (mesh-flow), or from RTS on (llama.cpp).
    "receives-before-rts", Disputed by "hellas thunderbolt-ibverbs; mesh-flow field notes; llama.cpp source, transport-apple.cpp",
        set by Rules::early_receives,
        shown by receives_are_taken_from_a_state_on;

    /// Sends can be posted in RTS only. The error number before, 22, is assumed.
    "send-at-rts", Documented by "Apple TN3205",
        shown by nothing_is_sent_before_ready_to_send;

    /// The receives of a peer count from its RTR on: a message for a peer that is not ready yet waits.
    "peer-readiness", Reported by "pytorch PR 189856, against its comment on lost messages; Apple TN3205 on credits",
        shown by a_sender_waits_for_a_peer_that_is_not_ready;

    /// Messages pass between queue pairs that name each other. The transition to RTR does not notice a queue pair
    /// number that does not exist.
    "pairing", Assumed by "this project, from hellas thunderbolt-ibverbs",
        shown by a_queue_pair_that_is_not_named_back_is_alone;

    /// A queue pair that went back to RESET can be connected again; its posted requests are gone.
    "reset", Assumed by "libibverbs manual, ibv_modify_qp",
        shown by a_reset_queue_pair_can_connect_again;

    /// In the ERROR state nothing completes and no post is accepted; a flush was never observed.
    "error-state", Assumed by "tmc/apple rdma, unproven", set by Caps::flush_on_error,
        applies if |model| !model.caps.flush_on_error,
        shown by a_failed_queue_pair_does_not_flush;

    /// Once a queue pair of a device was set to ERROR, the regions of the device stay counted after they are
    /// deregistered.
    "error-state-keeps-mappings", Measured by "llama.cpp issue 27908", set by Rules::error_keeps_mappings,
        applies if |model| model.rules.error_keeps_mappings,
        shown by the_error_state_keeps_mappings_or_not;

    /// When destroying a queue pair returns, the device no longer accesses any posted memory. Other programs wait a
    /// second first, which is not needed here.
    "destroy", Assumed by "this project; hellas thunderbolt-ibverbs",
        shown by memory_is_free_after_destroy;
}
