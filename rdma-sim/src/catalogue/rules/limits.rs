//! Limits, queues and operations

use super::rule::rules;
use crate::rules::QueueUnit;

rules! {
    /// A device has ten queue pairs for all processes together; an eleventh is refused (16).
    "max-qp", Measured by "mlx#3162; mlx#4209; the number also in Apple TN3205", set by Caps::max_qp,
        shown by an_eleventh_queue_pair_is_refused;

    /// A device has eleven protection domains; a twelfth is refused. The error number 12 is assumed.
    "max-pd", Measured by "nix-ai, rdma-protection-domains.md", set by Caps::max_pd,
        shown by a_twelfth_protection_domain_is_refused;

    /// A device has eleven completion queues; a twelfth is refused. The error number 12 is assumed.
    "max-cq", Measured by "nix-ai, rdma-protection-domains.md", set by Caps::max_cq,
        shown by a_twelfth_completion_queue_is_refused;

    /// A device has a hundred memory regions for all processes together; the next is refused (12).
    "max-mr", Measured by "mlx#3162", set by Caps::max_mr,
        shown by a_hundred_and_first_memory_region_is_refused;

    /// A completion queue has at most 4096 entries, as many as the sample of Apple TN3205 asks for: one more than requests can
    /// be in flight. That more are refused (22) is assumed.
    "max-cqe", Assumed by "this project, from Apple TN3205", set by Caps::max_cqe,
        shown by a_completion_queue_has_at_most_4096_entries;

    /// Each direction of a queue pair holds at most 4095 frames.
    "max-queue", Documented by "Apple TN3205", set by Caps::max_queue_frames,
        shown by a_queue_has_at_most_4095_frames;

    /// A message has at most 4095 frames, which is 16,773,120 bytes.
    "max-message", Documented by "Apple TN3205", set by Caps::max_message,
        applies if |model| model.caps.max_message != model.caps.frame,
        shown by a_message_of_4095_frames_is_the_longest;

    /// Under macOS 26.2 messages of more than 4 KiB do not work: MLX sends longer ones only from 26.3 on.
    /// `Model::tb5_macos_26_2` has that limit.
    "macos-26-2", Reported by "MLX source, jaccl/rdma.h; mlx#3094", set by Caps::max_message,
        applies if |model| model.caps.max_message == model.caps.frame,
        shown by under_macos_26_2_a_message_is_one_frame;

    /// Queues are counted in frames of 4 KiB, not in requests: a message of 8 KiB takes two slots, and so do two
    /// messages of one byte.
    "queue-frames", Documented by "Apple TN3205; hellas thunderbolt-ibverbs PR 35", set by Rules::queue_unit,
        applies if |model| model.rules.queue_unit == QueueUnit::Frames,
        shown by queues_are_counted_in_frames;

    /// A queue accepts a power of two less one, at least the requested depth and at least 1023 frames: MLX keeps 256 frames
    /// in each queue of a queue pair for which it asked 32, a request for depth 1 took messages of 256 frames (PR 44), and
    /// requests for 64, 128 and 256 all ended at 1023 (PR 35). That there is no such least depth, or one depth for all
    /// requests, fits some of these.
    "queue-grant", Disputed by "MLX source, jaccl/rdma.cpp; hellas thunderbolt-ibverbs PR 35, PR 41, PR 44",
        set by Rules::queue_grant,
        shown by a_queue_accepts_what_its_rule_says;

    /// A queue pair reports the depth that it accepts, as Apple TN3205 lets programs read it back; the depth that was asked
    /// for; or more than it accepts (PR 41).
    "queue-read-back", Disputed by "Apple TN3205; hellas thunderbolt-ibverbs PR 41", set by Rules::queue_read_back,
        shown by the_reported_depth_is_not_always_the_accepted_one;

    /// The depth of a queue bounds the message: a message that spans more frames than the queue has is refused. The
    /// error number 22 is assumed.
    "queue-depth", Documented by "Apple TN3205",
        applies if |model| model.rules.queue_unit == QueueUnit::Frames && model.caps.max_message != model.caps.frame,
        shown by a_message_fits_the_queue_or_is_refused;

    /// A request frees its slots when it completes, whether or not the completion was polled.
    "queue-space", Assumed by "this project", uncounted as "every completion has it",
        shown by space_returns_with_the_completion;

    /// A receive beyond the capacity of the receive queue is refused with −12 (hellas thunderbolt-ibverbs PR 35), or
    /// accepted and damaged later (mesh-flow).
    "ring-overflow", Disputed by "hellas thunderbolt-ibverbs PR 35; mesh-flow field notes", set by Rules::ring_overflow,
        shown by a_full_ring_refuses_or_corrupts;

    /// Queue pairs are of the unreliable connected kind; others are not supported (102).
    "transports", Measured by "tmc/apple rdma; mlx PR 4530", set by Caps::one_sided,
        applies if |model| !model.caps.one_sided,
        shown by only_unreliable_connected_queue_pairs_exist;

    /// SEND is the only operation; reads and atomics are not supported (102).
    "operations", Measured by "tmc/apple rdma; that there is no other operation also in Apple TN3205", set by Caps::one_sided,
        applies if |model| !model.caps.one_sided,
        shown by reads_and_atomics_are_not_supported;

    /// An RDMA WRITE travels like a SEND and places nothing (hellas thunderbolt-ibverbs), or is refused (tmc/apple
    /// rdma).
    "uc-write", Disputed by "hellas thunderbolt-ibverbs; tmc/apple rdma", set by Rules::uc_write,
        applies if |model| !model.caps.one_sided,
        shown by a_write_travels_like_a_send_or_is_refused;

    /// A request has one element (Apple TN3205). A send with more is refused, or each element becomes a message of its
    /// own (mesh-flow, from the provider's code).
    "multi-sge", Disputed by "Apple TN3205; mesh-flow field notes", set by Rules::multi_sge,
        shown by several_elements_are_refused_or_split;

    /// The number of a queue pair is its hop times 256, from hop 9. That hops are taken in turn, and those of destroyed queue pairs last, is assumed.
    "qp-numbers", Measured by "hellas thunderbolt-ibverbs",
        shown by queue_pair_numbers_are_hops;

    /// Local identifiers and packet sequence numbers are required and have no effect.
    "lid-psn", Measured by "hellas thunderbolt-ibverbs", uncounted as "nothing depends on it",
        shown by lids_and_sequence_numbers_do_not_matter;

    /// An unsignaled send that succeeds makes no completion.
    "unsignaled", Assumed by "libibverbs manual, ibv_post_send",
        shown by an_unsignaled_send_completes_in_silence;

    /// A completion queue that overran is lost: polling it fails from then on.
    "cq-overrun", Assumed by "libibverbs manual, ibv_create_cq",
        shown by an_overrun_completion_queue_is_lost;

    /// Several queue pairs may complete to one queue; each completion names its queue pair.
    "shared-cq", Assumed by "libibverbs manual, ibv_create_qp",
        shown by completions_of_several_queue_pairs_share_a_queue;
}
