//! Delivery

use super::rule::rules;
use crate::rules::FrameMatch;

rules! {
    /// A send is transmitted only into a receive that the peer has posted, and waits for one for ever. That unreliable
    /// queue pairs drop such a send here, too, is a comment in pytorch PR 189856 that no measurement supports.
    "credits", Documented by "Apple TN3205; hellas thunderbolt-ibverbs PR 44", set by Caps::send_waits_for_receive,
        applies if |model| model.caps.send_waits_for_receive,
        shown by a_send_waits_for_its_receive_or_is_dropped;

    /// The sender learns of a receive one propagation time after it was posted.
    "credit-delay", Assumed by "this project", set by Timing::propagation_ns,
        shown by a_credit_takes_as_long_as_the_cable;

    /// A message costs a credit for each of its frames, however short, and no more bytes on the wire than it has.
    "frame-credits", Measured by "mesh-flow field notes", uncounted as "every message has it",
        applies if |model| model.caps.send_waits_for_receive,
        shown by a_short_message_costs_a_whole_frame_of_credit_and_few_bytes;

    /// A message and its receive must span the same number of frames, or the receive completes with status 1. The bytes
    /// in the last frame may differ, and the completion reports how many arrived.
    "frame-match", Documented by "Apple TN3205", set by Rules::frame_match,
        applies if |model| model.rules.frame_match == FrameMatch::Exact,
        shown by messages_and_receives_span_the_same_frames;

    /// The part of a message that does not fit its receive continues in the next receive, which fails as well; the send
    /// completes successfully.
    "frame-mismatch-spill", Assumed by "this project, from hellas thunderbolt-ibverbs", set by Rules::frame_match,
        applies if |model| model.rules.frame_match == FrameMatch::Exact,
        shown by the_excess_of_a_message_spoils_the_next_receive;

    /// Messages of a queue pair arrive, and its requests complete, in the order of their posts.
    "order", Measured by "mesh-flow field notes; hellas thunderbolt-ibverbs PR 44", uncounted as "every message has it",
        shown by messages_keep_their_order;

    /// No message is lost between Macs without a fault.
    "no-loss", Measured by "hellas thunderbolt-ibverbs PR 44", caused by "lose", uncounted as "every message has it",
        shown by lost_messages_take_no_receive;

    /// A send completes when its last byte has left (Apple TN3205), or when the controller takes it over (hellas, whose
    /// senders report more than the link carries). Either way its memory is read until it has left, and the sanitizer
    /// reports programs that write there before.
    "send-completion", Disputed by "Apple TN3205; hellas thunderbolt-ibverbs", set by Rules::send_completion,
        shown by a_send_completes_at_departure_or_at_hand_off;

    /// A completed send has not necessarily arrived: there are no acknowledgements.
    "no-delivery-receipt", Documented by "Apple TN3205",
        shown by a_send_completes_at_departure_or_at_hand_off;

    /// A damaged frame shows in the status of the receive. That this is status 7 is assumed: it was never observed.
    "corruption", Documented by "Apple TN3205", caused by "corrupt",
        shown by a_damaged_frame_fails_its_receive;

    /// A refused post uses no slot, and later posts work (12 for lack of space). The provider returns −12 and leaves
    /// `bad_wr` untouched: post one request at a time.
    "post-failure", Measured by "hellas thunderbolt-ibverbs PR 39; mlx-lm#1737",
        shown by a_refused_post_takes_nothing;

    /// A queue pair that waits for a receive does not delay other queue pairs.
    "own-pace", Assumed by "this project", uncounted as "every send that waits has it",
        shown by a_waiting_queue_pair_does_not_hold_up_others;

    /// Queue pairs with something to send take turns at the transmitter, frame by frame.
    "turns", Assumed by "this project",
        shown by queue_pairs_take_turns;

    /// Both directions of a cable carry at their full rate at once.
    "full-duplex", Documented by "Thunderbolt specifications; pytorch PR 181087", uncounted as "every message has it",
        shown by both_directions_carry_at_once;

    /// A full frame occupies a Thunderbolt 5 link for 445 ns, which is 9.2 GB/s of payload: calibrated with the highest rate that was
    /// measured through MLX.
    "throughput", Assumed by "pytorch PR 181087", set by Timing::frame_ns, uncounted as "every message has it",
        shown by a_tb5_cable_carries_9_2_gb_per_second;

    /// A ping of 8 bytes takes 12 µs: calibrated, between the published 10 µs and 13 µs; how it divides into parts is not known.
    "latency", Assumed by "mesh-flow field notes", set by Timing::doorbell_ns, uncounted as "every message has it",
        shown by a_ping_takes_twelve_microseconds;

    /// With Thunderbolt networking dead, the receiver looks for frames once a second.
    "timer-path", Measured by "hellas thunderbolt-ibverbs", caused by "slow-receive",
        shown by a_slow_receiver_looks_once_a_second;

    /// Completion channels report completions, as the manual says, or never: they are exported, and no program was reported to
    /// use them.
    "completion-channels", Disputed by "libibverbs manual, ibv_get_cq_event; MLX, llama.cpp and mesh-flow source, which only poll",
        set by Rules::completion_events, uncounted as "only programs in C observe it",
        shown by completion_channels_fire_or_never_do;
}
