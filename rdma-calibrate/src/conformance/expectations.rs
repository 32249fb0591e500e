//! Expectations of kinds of devices, and the experiments that are permitted

use rdma_sim::Model;
use rdma_sim::rules::{EarlyReceives, FrameMatch, QueueUnit, RingOverflow};

use crate::options::Options;
use crate::plan::NOT_RISKED;

/// Differences between kinds of devices, with their reasons
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Expectations {
    /// A message and its receive span the same frames (Apple's device); else the message is just not longer (the verbs)
    pub frames_match: bool,
    /// Queues count the frames of requests (Apple's device), and not the requests
    pub queues_count_frames: bool,
    /// A full queue refuses more (the verbs); else it accepts it and damages data
    pub full_queues_refuse: bool,
    /// Receives are accepted from INIT on (the verbs)
    pub receives_at_init: bool,
    /// The transition to RTR checks that the peer is reachable (Apple's device)
    pub peer_checked_by_connect: bool,
    /// A SEND waits for its receive (Apple's device); else it is lost (network adapters)
    pub send_waits: bool,
    /// Limits are few enough to be reached (Apple's device)
    pub limits_are_small: bool,
    /// There are no reliable queue pairs (Apple's device)
    pub is_unreliable_only: bool,
    /// A post of memory that is not registered is refused (Apple's device); else it may be accepted and complete with an error
    pub posts_check_memory: bool,
    /// The name, the GID table and the numbers of queue pairs are those of a Thunderbolt port, and messages pass only between queue
    /// pairs that name each other (Apple's device)
    pub is_thunderbolt: bool,
}

impl Expectations {
    /// Apple's device, as simulated by default
    pub const TB5: Self = Self {
        frames_match: true,
        queues_count_frames: true,
        full_queues_refuse: true,
        receives_at_init: true,
        peer_checked_by_connect: true,
        send_waits: true,
        limits_are_small: true,
        is_unreliable_only: true,
        posts_check_memory: true,
        is_thunderbolt: true,
    };

    /// A network adapter
    pub const ADAPTER: Self = Self {
        frames_match: false,
        queues_count_frames: false,
        full_queues_refuse: true,
        receives_at_init: true,
        peer_checked_by_connect: false,
        send_waits: false,
        limits_are_small: false,
        is_unreliable_only: false,
        posts_check_memory: false,
        is_thunderbolt: false,
    };

    /// The verbs of Linux through `rdma-tb5`, which counts frames itself
    pub const LINUX: Self = Self { queues_count_frames: true, ..Self::ADAPTER };

    /// TCP under the verbs, without reliable queue pairs
    pub const TCP: Self = Self { is_unreliable_only: true, ..Self::LINUX };

    /// Apple's device with the rules of `model`, as far as they are known
    pub(crate) fn of(model: &Model) -> Self {
        Self {
            frames_match: model.rules.frame_match == FrameMatch::Exact,
            queues_count_frames: model.rules.queue_unit == QueueUnit::Frames,
            full_queues_refuse: model.rules.ring_overflow == RingOverflow::Refused,
            receives_at_init: model.rules.early_receives == EarlyReceives::FromInit,
            send_waits: model.caps.send_waits_for_receive,
            ..Self::TB5
        }
    }
}

/// The reasons for which behaviours that leave something behind are left out, if they are
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    /// Those of which a transition to RTR fails
    pub(crate) failing_transitions: Result<(), &'static str>,
    /// That of the error state
    pub(crate) error_state: Result<(), &'static str>,
    /// The behaviours that use up protection domains and memory regions
    pub(crate) exhaustion: Result<(), &'static str>,
}

impl Mode {
    /// The body as a stage of a calibration
    pub(crate) fn stage(options: &Options) -> Self {
        Self {
            failing_transitions: Err(
                "two transitions to RTR fail by it: tb5 calibrate --conformance --risk-reboot tries it",
            ),
            error_state: Err("the stage of the error state has it"),
            ..Self::alone(options)
        }
    }

    /// The body alone
    pub(crate) fn alone(options: &Options) -> Self {
        let risks = if options.risk_reboot { Ok(()) } else { Err(NOT_RISKED) };
        Self { failing_transitions: risks, error_state: risks, exhaustion: risks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: `send_waits` was always that of Apple's device, and ignored the rules that had been found.
    #[test]
    fn expectations_follow_the_rules_of_the_model() {
        let mut model = Model::tb5();
        assert_eq!(Expectations::of(&model), Expectations::TB5);
        model.caps.send_waits_for_receive = false;
        assert_eq!(Expectations::of(&model), Expectations { send_waits: false, ..Expectations::TB5 });
    }
}
