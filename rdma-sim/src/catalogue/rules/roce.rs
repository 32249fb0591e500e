//! Network adapters that speak RoCE

use super::rule::rules;

rules! {
    /// An unreliable queue pair drops a SEND that finds no receive.
    "roce-drops", Reported by "ds4 PR 1024", set by Caps::send_waits_for_receive,
        applies if |model| !model.caps.send_waits_for_receive,
        shown by roce_drops_a_send_without_a_receive;

    /// Reliable queue pairs wait for a receive and complete when the acknowledgement is back.
    "roce-reliable", Assumed by "InfiniBand specification", set by Caps::one_sided,
        applies if |model| model.caps.one_sided,
        shown by roce_waits_on_reliable_queue_pairs;

    /// WRITE works on both kinds of queue pair and needs no receive.
    "roce-write", Assumed by "InfiniBand specification", set by Caps::one_sided,
        applies if |model| model.caps.one_sided,
        shown by roce_writes_without_a_receive;

    /// READ and atomics work on reliable queue pairs. Requests complete in order, and later ones wait for a READ.
    "roce-read-atomic", Assumed by "InfiniBand specification", set by Caps::one_sided,
        applies if |model| model.caps.one_sided,
        shown by a_read_takes_as_long_as_its_bytes_and_those_behind_it_wait;

    /// An operation on memory that does not exist, or that does not permit it, completes with status 10 and ends its
    /// queue pair.
    "roce-remote-access", Assumed by "InfiniBand specification", set by Caps::one_sided,
        applies if |model| model.caps.one_sided,
        shown by memory_of_a_peer_needs_its_key_and_its_right;

    /// A reliable queue pair whose peer is gone gives up after 3.5 s with status 12.
    "roce-give-up", Assumed by "seven retries of half a second, as adapters do", set by Caps::one_sided,
        applies if |model| model.caps.one_sided,
        shown by a_peer_that_is_gone_makes_a_reliable_queue_pair_give_up;

    /// A failed queue pair flushes its requests with status 5.
    "roce-flush", Assumed by "InfiniBand specification", set by Caps::flush_on_error,
        applies if |model| model.caps.flush_on_error,
        shown by roce_flushes_on_error;

    /// Hundreds of objects, memory that begins anywhere and is registered at any time, and receives that are longer
    /// than their message.
    "roce-room", Assumed by "common adapters", uncounted as "nothing depends on it",
        applies if |model| model.caps.one_sided,
        shown by roce_is_roomy_and_not_particular;
}
