//! Behaviours of every device, real or simulated: one body, several arms
//!
//! An [`Arm`] is a pair of devices at the two ends of a cable, over some backend. The behaviours are functions over any of
//! them; where backends differ for a documented reason, [`Expectations`] says how.

mod capacity;
mod completions;
mod data;
mod lifecycle;
mod memory;
mod states;
mod teardown;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{Completion, Device, Opcode, QpInit, Status};

/// Two devices at the two ends of a cable
pub trait Arm {
    /// The device at either end
    type Device: Device;

    /// Opens the device at end 0 or 1
    ///
    /// # Errors
    ///
    /// The error of the backend.
    fn open(&self, end: usize) -> Result<Self::Device, rdma_core::Error>;

    /// Lets time pass, on the wall by default
    fn rest(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// How this backend differs from others, by default as Apple's does
    fn expectations(&self) -> Expectations {
        Expectations::TB5
    }
}

/// Where backends differ, and why
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Expectations {
    /// A message and its receive span the same frames (Apple's device); else the message is just not longer (the verbs)
    pub frames_match: bool,
    /// Memory keys are checked by the post (Apple's device, as modelled); else by the completion (Soft-RoCE)
    pub keys_checked_by_post: bool,
    /// The transition to RTR checks that the peer is reachable (Apple's device)
    pub peer_checked_by_connect: bool,
    /// A SEND waits for its receive (Apple's device); else it is lost (network adapters)
    pub send_waits: bool,
    /// Limits are few enough to be reached (Apple's device)
    pub limits_are_small: bool,
    /// There are no reliable queue pairs (Apple's device)
    pub is_unreliable_only: bool,
}

impl Expectations {
    /// Apple's device, as simulated
    pub const TB5: Self = Self {
        frames_match: true,
        keys_checked_by_post: true,
        peer_checked_by_connect: true,
        send_waits: true,
        limits_are_small: true,
        is_unreliable_only: true,
    };

    /// Soft-RoCE of Linux
    pub const RXE: Self = Self {
        frames_match: false,
        keys_checked_by_post: false,
        peer_checked_by_connect: false,
        send_waits: false,
        limits_are_small: false,
        is_unreliable_only: false,
    };

    /// A network adapter, as simulated
    pub const ADAPTER: Self = Self { keys_checked_by_post: true, ..Self::RXE };
}

/// What came of a behaviour
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// As expected
    Passed,
    /// The backend does not have it, for this reason
    Skipped(&'static str),
    /// Otherwise
    Failed(String),
}

/// A reason if the backend does not have the behaviour
type Outcome = Result<(), &'static str>;

/// What a behaviour returns: an [`Outcome`], or nothing if every backend has it
trait IntoOutcome {
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Ok(())
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

macro_rules! behaviours {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        /// The names of all behaviours
        pub const BEHAVIOURS: &[&str] = &[$($(stringify!($name)),+),+];

        fn run_one<A: Arm>(name: &str, arm: &A) -> Outcome {
            match name {
                $($(stringify!($name) => $module::$name(arm).into_outcome(),)+)+
                _ => unreachable!("only the names above are run"),
            }
        }
    };
}

behaviours! {
    lifecycle: a_device_has_a_name_and_caps, a_port_with_a_cable_is_active, the_gid_table_has_an_ipv4_entry,
        a_device_opens_twice, a_completion_queue_of_depth_one_works, a_completion_queue_without_depth_is_refused,
        a_completion_queue_too_deep_is_refused, queue_pairs_have_different_numbers,
        an_address_is_in_the_gid_table, objects_can_be_made_again_and_again, a_destroyed_queue_pair_refuses_everything,
        destroying_twice_says_the_same, queue_pairs_are_limited, completion_queues_are_limited, regions_are_limited,
        protection_domains_are_limited, reliable_queue_pairs_are_for_others, datagram_queue_pairs_are_refused;
    memory: a_region_has_the_length_of_its_memory, regions_have_different_keys, regions_come_and_go,
        a_region_of_one_byte_works, an_unknown_key_is_an_error, memory_beyond_the_region_is_an_error,
        memory_before_the_region_is_an_error, remote_keys_are_for_others, bytes_behind_a_message_stay,
        the_memory_of_a_send_stays;
    states: connecting_goes_through_all_states, steps_cannot_be_skipped, steps_cannot_be_repeated_backwards,
        a_send_before_ready_is_refused, a_receive_after_init_is_kept, a_queue_pair_can_begin_anew_after_reset,
        an_unknown_peer_is_not_found, a_queue_pair_without_peer_sends_nothing;
    capacity: what_was_asked_for_or_reported_fits, queues_deeper_than_the_device_are_refused,
        long_and_short_receives_share_the_queue, a_receive_longer_than_the_queue_is_refused,
        a_send_longer_than_the_queue_is_refused, a_full_queue_takes_more_after_a_completion, a_send_queue_fills_up;
    data: messages_around_every_boundary_arrive, nothing_arrives_as_nothing, both_directions_work_at_once, a_hundred_messages_keep_their_order,
        sizes_may_change_from_message_to_message, two_queue_pairs_do_not_mix, receives_are_used_in_order,
        a_send_before_its_receive, a_second_send_does_not_overtake;
    completions: a_send_completes_under_its_name, a_receive_completes_with_name_length_and_number,
        an_unsignaled_send_is_silent, sends_complete_in_order, polling_returns_at_most_what_fits,
        an_empty_queue_returns_nothing, names_may_repeat, a_receive_that_is_too_short_fails,
        a_receive_that_is_too_long, one_queue_serves_two_queue_pairs;
    teardown: posted_receives_go_with_their_queue_pair, sends_under_way_go_with_their_queue_pair,
        a_peer_that_goes_is_silence, many_pairs_come_and_go_under_load;
    // The last one, because Apple's device keeps the mappings of all that is deregistered later (llama.cpp pull request 27908).
    states: the_error_state_is_seen;
}

/// Runs every behaviour on a fresh arm
pub fn run<A: Arm>(fresh: impl Fn() -> A) -> Vec<(&'static str, Verdict)> {
    let judge = |name: &&'static str| {
        let arm = fresh();
        let verdict = match catch_unwind(AssertUnwindSafe(|| run_one(name, &arm))) {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(reason)) => Verdict::Skipped(reason),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                Verdict::Failed(text.unwrap_or_default())
            }
        };
        (*name, verdict)
    };
    BEHAVIOURS.iter().map(judge).collect()
}

/// How long anything may take that has to happen.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(20);

/// Two connected queue pairs with queues of `frames` frames and arenas of `len` bytes
fn pair_of<A: Arm>(arm: &A, frames: u32, len: usize) -> [BareQp<A::Device>; 2] {
    let open = |end| arm.open(end).expect("the cable is plugged in");
    BareQp::pair_of(open(0), open(1), &QpInit::with_frames(frames), len).expect("the devices are fresh")
}

/// As [`pair_of`], with queues for every behaviour that does not look at their depth: each of those keeps at most 64 frames posted
fn pair<A: Arm>(arm: &A) -> [BareQp<A::Device>; 2] {
    pair_of(arm, 511, 64 << 12)
}

/// The next completion, which must come
fn completion<A: Arm>(arm: &A, qp: &mut BareQp<A::Device>) -> Completion {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(completion) = qp.poll().expect("polling works") {
            return completion;
        }
        assert!(waited < TIMEOUT, "nothing completed in {TIMEOUT:?}");
        arm.rest(PAUSE);
        waited += PAUSE;
    }
}

/// The next completion of a receive
fn received<A: Arm>(arm: &A, qp: &mut BareQp<A::Device>) -> Completion {
    loop {
        let completion = completion(arm, qp);
        if completion.opcode == Opcode::Recv {
            return completion;
        }
        assert_eq!(completion.status, Status::Success);
    }
}

/// Nothing completes for a while
fn assert_silent<A: Arm>(arm: &A, qp: &mut BareQp<A::Device>) {
    for _ in 0..10 {
        arm.rest(Duration::from_millis(1));
        assert_eq!(qp.poll().expect("polling works"), None);
    }
}
