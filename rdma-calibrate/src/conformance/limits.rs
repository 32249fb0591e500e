//! The limits of the device, and what a behaviour needs of them

use rdma_core::{Caps, Device as _, Resource};
use rdma_sim::profile::Decided;
use rdma_sim::rules::QueueGrant;

use super::verdict::{Outcome, Stop, skip};
use crate::lab::Lab;

/// Objects that a behaviour has at once at one of both sides, with those of the calibration
struct Needs {
    domains: u32,
    queue_pairs: u32,
    completion_queues: u32,
    regions: u32,
}

impl Needs {
    /// A queue pair of either side
    const PAIR: Self = Self { domains: 1, queue_pairs: 1, completion_queues: 1, regions: 1 };
    const TWO_PAIRS: Self = Self { domains: 1, queue_pairs: 2, completion_queues: 2, regions: 2 };

    fn of(behaviour: &str) -> Self {
        match behaviour {
            "a_device_opens_twice" => Self { domains: 3, ..Self::PAIR },
            "objects_can_be_made_again_and_again" | "protection_domains_are_limited" => {
                Self { domains: 2, ..Self::PAIR }
            }
            "queue_pairs_have_different_numbers" | "queue_pair_numbers_are_hops" => {
                Self { queue_pairs: 2, ..Self::PAIR }
            }
            "regions_have_different_keys"
            | "an_unknown_key_is_an_error"
            | "memory_beyond_the_region_is_an_error"
            | "memory_before_the_region_is_an_error"
            | "a_refused_post_takes_no_space"
            | "reads_are_for_others"
            | "a_receive_without_the_right_to_write_fails"
            | "an_unsignaled_send_is_silent" => Self { regions: 2, ..Self::PAIR },
            "messages_pass_only_between_queue_pairs_that_name_each_other"
            | "a_waiting_send_does_not_delay_other_queue_pairs"
            | "two_queue_pairs_do_not_mix"
            | "one_queue_serves_two_queue_pairs" => Self::TWO_PAIRS,
            _ => Self::PAIR,
        }
    }
}

/// Leaves a behaviour out that needs more objects at once than the device has
pub(super) fn require_objects(behaviour: &str, lab: &Lab<'_>) -> Outcome {
    let Needs { domains, queue_pairs, completion_queues, regions } = Needs::of(behaviour);
    let Caps { max_pd, max_qp, max_cq, max_mr, .. } = *lab.device.caps();
    let found = &lab.findings.profile.model.caps;
    for (needed, resource, stated, field, found) in [
        (domains, Resource::ProtectionDomains, max_pd, "caps.max_pd", found.max_pd),
        (queue_pairs, Resource::QueuePairs, max_qp, "caps.max_qp", found.max_qp),
        (completion_queues, Resource::CompletionQueues, max_cq, "caps.max_cq", found.max_cq),
        (regions, Resource::MemoryRegions, max_mr, "caps.max_mr", found.max_mr),
    ] {
        let is_found = lab.findings.profile.decided(field) == Some(Decided::Measured);
        let has = if is_found { stated.min(found) } else { stated };
        if needed > has {
            return skip(format!("it needs {needed} {resource} at once, and the device has {has}"));
        }
    }
    Ok(())
}

/// The frames that each queue of a queue pair is known to hold at most
pub(super) fn queue_frames(lab: &Lab<'_>) -> usize {
    let stated = lab.device.caps().max_queue_frames;
    let profile = &lab.findings.profile;
    let is_found = profile.decided("rules.queue_grant") == Some(Decided::Measured);
    let frames = match profile.model.rules.queue_grant {
        QueueGrant::Fixed(frames) if is_found => frames.min(stated),
        _ => stated,
    };
    frames as usize
}

/// The number of requests of a frame, at most `most`, that a queue of the device holds and that its completion queue has entries for
///
/// # Errors
///
/// [`Stop::Skipped`] if they are fewer than `least`.
pub(super) fn requests(lab: &Lab<'_>, least: usize, most: usize) -> Result<usize, Stop> {
    let fit = queue_frames(lab).min(lab.device.caps().max_cqe as usize);
    if fit < least {
        return skip(format!("it needs {least} requests at once, and the device has room for {fit}"));
    }
    Ok(fit.min(most))
}
