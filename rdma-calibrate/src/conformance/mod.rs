//! Behaviours that programs rely on, of every device with verbs: one body for all backends
//!
//! A behaviour is a function over the two ends of a cable: this side's device, and that of the peer, which does what it is asked. Where
//! kinds of devices differ for a documented reason, [`Expectations`](expectations::Expectations) say how.

/// Stops a behaviour unless a condition holds
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::conformance::verdict::Stop::Unexpected(format!($($text)+)));
        }
    };
}

/// Stops a behaviour unless what was found is as it should be
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) => {
                ensure!(found == expected, "{}: {found:?} instead of {expected:?}", format!($($what)+))
            }
        }
    };
}

pub(crate) mod acts;
mod body;
mod capacity;
mod completions;
mod data;
pub(crate) mod expectations;
mod lifecycle;
mod limits;
mod memory;
mod peers;
mod raw;
mod requests;
pub(crate) mod rules;
mod states;
mod teardown;
pub(crate) mod verdict;

use std::fmt::Display;

use self::body::Body;
use self::expectations::Mode;
use self::verdict::{Behaviour, Outcome, Stop, Verdict};
use crate::error::CalibrateError;
use crate::lab::Lab;

/// Behaviours by their module, in the order in which they are tried; each may show a rule of the simulator's catalogue
macro_rules! behaviours {
    ($($module:ident: $($name:ident $(= $rule:literal)?),+ $(,)?;)+) => {
        /// The names of all behaviours, in the order in which they are tried
        pub const BEHAVIOURS: &[&str] = &[$($(stringify!($name)),+),+];

        /// Each rule that has no field in a profile, with a behaviour that shows it
        pub(crate) const RULES: &[(&str, &str)] = &[$($($(($rule, stringify!($name)),)?)+)+];

        async fn run_one(name: &str, body: &mut Body<'_, '_>) -> Outcome {
            match name {
                // In a box each: their states together would be large.
                $($(stringify!($name) => Box::pin($module::$name(body)).await,)+)+
                _ => unreachable!("only the names above are run"),
            }
        }
    };
}

behaviours! {
    lifecycle: a_device_has_a_name_and_caps, a_device_is_named_after_its_interface = "device-per-port",
        a_port_with_a_cable_is_active, the_gid_table_has_an_ipv4_entry = "gid-table",
        the_first_of_three_gids_is_an_eui_64 = "gid-table", a_device_opens_twice,
        a_completion_queue_of_depth_one_works, a_completion_queue_without_depth_is_refused,
        a_completion_queue_too_deep_is_refused, queue_pairs_have_different_numbers = "qp-numbers",
        queue_pair_numbers_are_hops = "qp-numbers", an_address_is_in_the_gid_table,
        objects_can_be_made_again_and_again, a_destroyed_queue_pair_refuses_everything,
        destroying_twice_says_the_same, queue_pairs_are_limited, completion_queues_are_limited, regions_are_limited,
        protection_domains_are_limited, reliable_queue_pairs_are_for_others = "transports",
        datagram_queue_pairs_are_refused = "transports";
    memory: a_region_has_the_length_of_its_memory, regions_have_different_keys = "keys", regions_come_and_go,
        a_region_of_one_byte_works = "registration-length", a_region_longer_than_16_mb_works = "registration-length",
        remote_keys_are_for_others, bytes_behind_a_message_stay, the_memory_of_a_send_stays;
    requests: an_unknown_key_is_an_error = "unregistered", memory_beyond_the_region_is_an_error = "unregistered",
        memory_before_the_region_is_an_error = "unregistered", a_refused_post_takes_no_space = "post-failure",
        reads_are_for_others = "operations", a_receive_without_the_right_to_write_fails = "receive-access";
    states: connecting_goes_through_all_states, steps_cannot_be_skipped = "steps",
        steps_cannot_be_repeated_backwards = "steps", a_send_before_ready_is_refused = "send-at-rts",
        a_receive_after_init_is_kept, a_queue_pair_can_begin_anew_after_reset = "reset", an_unknown_peer_is_not_found;
    peers: a_queue_pair_without_peer_sends_nothing, a_message_waits_until_its_peer_is_connected = "peer-readiness",
        messages_pass_only_between_queue_pairs_that_name_each_other = "pairing",
        a_waiting_send_does_not_delay_other_queue_pairs = "own-pace";
    capacity: what_was_asked_for_or_reported_fits, queues_deeper_than_the_device_are_refused,
        long_and_short_receives_share_the_queue, a_receive_longer_than_the_queue_is_refused = "queue-depth",
        a_send_longer_than_the_queue_is_refused = "queue-depth", a_full_queue_takes_more_after_a_completion,
        a_send_queue_fills_up, space_returns_before_its_completion_is_polled = "queue-space";
    data: messages_around_every_boundary_arrive, nothing_arrives_as_nothing, both_directions_work_at_once,
        a_hundred_messages_keep_their_order = "order", no_message_of_a_batch_is_lost = "no-loss",
        sizes_may_change_from_message_to_message, two_queue_pairs_do_not_mix, receives_are_used_in_order,
        a_send_before_its_receive, a_second_send_does_not_overtake;
    completions: a_send_completes_under_its_name, a_receive_completes_with_name_length_and_number,
        an_unsignaled_send_is_silent = "unsignaled", sends_complete_in_order = "order",
        polling_returns_at_most_what_fits, an_empty_queue_returns_nothing, names_may_repeat,
        a_receive_that_is_too_short_fails, the_excess_of_a_message_spoils_the_next_receive = "frame-mismatch-spill",
        a_receive_that_is_too_long, one_queue_serves_two_queue_pairs = "shared-cq";
    teardown: posted_receives_go_with_their_queue_pair, sends_under_way_go_with_their_queue_pair,
        a_peer_that_goes_is_silence, many_pairs_come_and_go_under_load;
    // The last one, because Apple's device keeps the mappings of all that is deregistered later (llama.cpp pull request 27908).
    states: the_error_state_is_seen;
}

/// The verdict on a behaviour that ended by `why`, after which nothing connects because of `error`
fn after(why: impl Display, error: &CalibrateError) -> Verdict {
    Verdict::Skipped(format!("{why}; then nothing connected: {error}").into())
}

/// Tries every behaviour, and notes its verdict; once too many transitions to RTR of this side have failed, or nothing connects any more, the
/// others are skipped
///
/// None is tried if `broken` is the reason for which nothing may be tried any more. The error beside them is the reason for which no more
/// experiments may connect; `None` if they may.
pub(crate) async fn run(
    lab: &mut Lab<'_>,
    mode: Mode,
    mut broken: Option<CalibrateError>,
) -> (Vec<Behaviour>, Option<CalibrateError>) {
    let mut found = Vec::with_capacity(BEHAVIOURS.len());
    let mut body = Body::new(lab, mode);
    for name in BEHAVIOURS.iter().copied() {
        broken = broken.or_else(|| body.lab.transitions.require().err());
        if let Some(error) = &broken {
            let verdict = Verdict::Skipped(error.to_string().into());
            found.push(Behaviour { name, rule: rules::of(name), verdict });
            continue;
        }
        let ended = match body.needs_objects(name) {
            Ok(()) => run_one(name, &mut body).await,
            left_out => left_out,
        };
        let closed = body.close_all().await;
        let ended = ended.and(closed);
        if matches!(ended, Err(Stop::Verb(_) | Stop::Unexpected(_))) {
            // A cable that was pulled is no behaviour of the device.
            broken = match body.lab.require_port() {
                // A wedged port is no behaviour of the device either.
                Ok(()) => body.lab.require_connections().await.err(),
                Err(error) => Some(error),
            };
        }
        let verdict = match ended {
            // It may have wedged the port, or have been the first one on a port that was wedged meanwhile.
            Err(Stop::Verb(why)) if let Some(error) = &broken => after(why, error),
            Err(Stop::Unexpected(why)) if let Some(error) = &broken => after(why, error),
            Ok(()) => Verdict::Passed,
            Err(Stop::Skipped(why)) => Verdict::Skipped(why),
            Err(Stop::Verb(error)) => Verdict::Failed(error.to_string()),
            Err(Stop::Unexpected(why)) => Verdict::Failed(why),
            Err(Stop::End(error)) => Verdict::Skipped(broken.insert(error).to_string().into()),
        };
        found.push(Behaviour { name, rule: rules::of(name), verdict });
    }
    (found, broken.or_else(|| body.lab.transitions.require().err()))
}
