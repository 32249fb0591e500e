//! Network adapters that speak RoCE

use super::Rule;
use super::RuleStatus::{Assumed, Reported};

pub(super) const RULES: [Rule; 8] = [
    Rule {
        name: "roce-drops",
        says: "An unreliable queue pair drops a SEND that finds no receive.",
        source: "ds4 PR 1024",
        status: Reported,
        default: "true",
        switch: "Caps::send_waits_for_receive",
        test: "roce_drops_a_send_without_a_receive",
    },
    Rule {
        name: "roce-reliable",
        says: "Reliable queue pairs wait for a receive and complete when the acknowledgement is back.",
        source: "InfiniBand specification",
        status: Assumed,
        default: "false",
        switch: "Caps::one_sided",
        test: "roce_waits_on_reliable_queue_pairs",
    },
    Rule {
        name: "roce-write",
        says: "WRITE works on both kinds of queue pair and needs no receive.",
        source: "InfiniBand specification",
        status: Assumed,
        default: "false",
        switch: "Caps::one_sided",
        test: "roce_writes_without_a_receive",
    },
    Rule {
        name: "roce-read-atomic",
        says: "READ and atomics work on reliable queue pairs. Requests complete in their order, and later \
            ones wait for a READ.",
        source: "InfiniBand specification",
        status: Assumed,
        default: "false",
        switch: "Caps::one_sided",
        test: "a_read_takes_as_long_as_its_bytes_and_those_behind_it_wait",
    },
    Rule {
        name: "roce-remote-access",
        says: "An operation on memory that is not there, or not for this, ends with status 10 and with it \
            the queue pair.",
        source: "InfiniBand specification",
        status: Assumed,
        default: "false",
        switch: "Caps::one_sided",
        test: "memory_of_a_peer_needs_its_key_and_its_right",
    },
    Rule {
        name: "roce-give-up",
        says: "A reliable queue pair whose peer is gone gives up after 3.5 s with status 12.",
        source: "seven retries of half a second, as adapters do",
        status: Assumed,
        default: "false",
        switch: "Caps::one_sided",
        test: "a_peer_that_is_gone_makes_a_reliable_queue_pair_give_up",
    },
    Rule {
        name: "roce-flush",
        says: "A failed queue pair flushes its requests with status 5.",
        source: "InfiniBand specification",
        status: Assumed,
        default: "false",
        switch: "Caps::flush_on_error",
        test: "roce_flushes_on_error",
    },
    Rule {
        name: "roce-room",
        says: "Hundreds of objects, memory that begins anywhere and is registered at any time, and \
            receives that are longer than their message.",
        source: "common adapters",
        status: Assumed,
        default: "–",
        switch: "–",
        test: "roce_is_roomy_and_not_particular",
    },
];
