//! Delivery

use super::Rule;
use super::RuleStatus::{Assumed, Disputed, Documented, Measured};

pub(super) const RULES: [Rule; 17] = [
    Rule {
        name: "credits",
        says: "A send is transmitted only into a receive that the peer has posted, and waits for it for \
            ever. That unreliable queue pairs drop such a send here, too, is a comment in pytorch PR \
            189856 that no measurement supports.",
        source: "Apple TN3205; hellas thunderbolt-ibverbs PR 44",
        status: Documented,
        default: "true",
        switch: "Caps::send_waits_for_receive",
        test: "a_send_waits_for_its_receive_or_is_dropped",
    },
    Rule {
        name: "credit-delay",
        says: "The sender knows of a receive one propagation time after it was posted.",
        source: "this project",
        status: Assumed,
        default: "2900",
        switch: "Timing::propagation_ns",
        test: "a_credit_takes_as_long_as_the_cable",
    },
    Rule {
        name: "frame-credits",
        says: "A message costs a credit for each of its frames, however short, and no more bytes on the \
            wire than it has.",
        source: "mesh-flow field notes",
        status: Measured,
        default: "–",
        switch: "–",
        test: "a_short_message_costs_a_whole_frame_of_credit_and_few_bytes",
    },
    Rule {
        name: "frame-match",
        says: "A message and its receive must span the same number of frames, or the receive ends with \
            status 1. The bytes in the last frame may differ, and the completion tells how many came.",
        source: "Apple TN3205",
        status: Documented,
        default: "Exact",
        switch: "Rules::frame_match",
        test: "messages_and_receives_span_the_same_frames",
    },
    Rule {
        name: "frame-mismatch-spill",
        says: "What a receive has no room for goes on into the next, which fails as well; the sender is \
            not told.",
        source: "this project, from hellas thunderbolt-ibverbs",
        status: Assumed,
        default: "Exact",
        switch: "Rules::frame_match",
        test: "what_does_not_fit_one_receive_spoils_the_next",
    },
    Rule {
        name: "order",
        says: "Messages of a queue pair arrive, and its requests complete, in the order of their posts.",
        source: "mesh-flow field notes; hellas thunderbolt-ibverbs PR 44",
        status: Measured,
        default: "–",
        switch: "–",
        test: "messages_keep_their_order",
    },
    Rule {
        name: "no-loss",
        says: "Nothing is lost between Macs unless a fault says so.",
        source: "hellas thunderbolt-ibverbs PR 44",
        status: Measured,
        default: "–",
        switch: "fault lose",
        test: "lost_messages_take_no_receive",
    },
    Rule {
        name: "send-completion",
        says: "A send completes when its last byte has left (Apple TN3205), or when the controller takes \
            it over (hellas, whose senders report more than the link carries). Either way its memory is \
            read until it has left, and the sanitizer tells of programs that write there before.",
        source: "Apple TN3205; hellas thunderbolt-ibverbs",
        status: Disputed,
        default: "Departure",
        switch: "Rules::send_completion",
        test: "a_send_completes_at_departure_or_at_hand_off",
    },
    Rule {
        name: "no-delivery-receipt",
        says: "A completed send has not necessarily arrived: there are no acknowledgements.",
        source: "Apple TN3205",
        status: Documented,
        default: "–",
        switch: "–",
        test: "a_send_completes_at_departure_or_at_hand_off",
    },
    Rule {
        name: "corruption",
        says: "A damaged frame shows in the status of the receive. That this is status 7 is assumed: it \
            was never seen.",
        source: "Apple TN3205",
        status: Documented,
        default: "–",
        switch: "fault corrupt",
        test: "a_damaged_frame_fails_its_receive",
    },
    Rule {
        name: "post-failure",
        says: "A post that fails takes nothing, and later posts go on (12 for want of space). The provider \
            says −12 and leaves bad_wr alone: post one request at a time.",
        source: "hellas thunderbolt-ibverbs PR 39; mlx-lm#1737",
        status: Measured,
        default: "–",
        switch: "–",
        test: "a_refused_post_takes_nothing",
    },
    Rule {
        name: "own-pace",
        says: "A queue pair that waits for a receive does not hold up others.",
        source: "this project",
        status: Assumed,
        default: "–",
        switch: "–",
        test: "a_waiting_queue_pair_does_not_hold_up_others",
    },
    Rule {
        name: "turns",
        says: "Queue pairs with something to send take turns at the transmitter, frame by frame.",
        source: "this project",
        status: Assumed,
        default: "–",
        switch: "–",
        test: "queue_pairs_take_turns",
    },
    Rule {
        name: "full-duplex",
        says: "Both directions of a cable carry at their full rate at once.",
        source: "Thunderbolt specifications; pytorch PR 181087",
        status: Documented,
        default: "–",
        switch: "–",
        test: "both_directions_carry_at_once",
    },
    Rule {
        name: "throughput",
        says: "A Thunderbolt 5 link carries 9.2 GB/s of payload in full frames, from the highest rate that \
            was measured through MLX.",
        source: "pytorch PR 181087",
        status: Assumed,
        default: "–",
        switch: "–",
        test: "a_tb5_cable_carries_9_2_gb_per_second",
    },
    Rule {
        name: "latency",
        says: "A ping of 8 bytes takes 12 µs, between the published 10 µs and 13 µs; how that divides into \
            steps is not known.",
        source: "mesh-flow field notes",
        status: Assumed,
        default: "1400",
        switch: "Timing::doorbell_ns",
        test: "a_ping_takes_twelve_microseconds",
    },
    Rule {
        name: "timer-path",
        says: "With Thunderbolt networking dead, the receiver looks once a second.",
        source: "hellas thunderbolt-ibverbs",
        status: Measured,
        default: "–",
        switch: "fault slow-receive",
        test: "a_slow_receiver_looks_once_a_second",
    },
];
