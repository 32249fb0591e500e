//! The conformance body on devices that break something

use std::collections::BTreeSet;

use rdma_calibrate::{BEHAVIOURS, Behaviour, Findings, Options, Verdict, checked_rules};
use rdma_sim::profile::Decided;
use rdma_sim::rules::{FrameMatch, QueueUnit, RingOverflow};
use rdma_sim::{Model, catalogue};

use crate::deviant::{NO_KINDS, NO_MEMORY, STRAY_WRITE, conformed, conformed_with, found, try_conformed};
use crate::mac::calibrated;

/// Behaviours that a calibration leaves out, because of what they leave behind
const LEFT_OUT: [&str; 2] = ["an_unknown_peer_is_not_found", "the_error_state_is_seen"];

/// No device of a profile lacks a behaviour, as long as what is expected follows from its rules
#[track_caller]
pub(crate) fn assert_behaves(seed: u64, model: &Model, found: &Findings, risks: bool) {
    let names: Vec<_> = found.behaviours.iter().map(|behaviour| behaviour.name).collect();
    assert_eq!(names, BEHAVIOURS, "seed {seed}");
    for Behaviour { name, verdict, .. } in &found.behaviours {
        let may_be_left = match verdict {
            Verdict::Passed => !LEFT_OUT.contains(name),
            Verdict::Skipped(why) if !risks && why == "not asked for: --risk-reboot" => {
                ["regions_are_limited", "protection_domains_are_limited"].contains(name)
            }
            Verdict::Skipped(why) => {
                LEFT_OUT.contains(name)
                    || match &**why {
                        "the messages of the device are shorter" | "every message is one frame" => {
                            model.caps.max_message < 200_000
                        }
                        "a full queue accepts more, and damages data" => {
                            model.rules.ring_overflow == RingOverflow::Corrupts
                        }
                        "the device counts requests, however long" => {
                            model.rules.queue_unit == QueueUnit::Requests
                        }
                        "a message need not span the frames of its receive" => {
                            model.rules.frame_match == FrameMatch::Fits
                        }
                        // Queues have more frames than were asked for.
                        "a queue holds the longest message" => model.caps.max_message < 16 << 20,
                        "sends leave whether or not there is a receive"
                        | "a queue pair that is not connected takes no receive, and no send of the device waits"
                        | "no send of the device waits" => !model.caps.send_waits_for_receive,
                        "rules.queue_unit is not known: a message of the device is one frame" => {
                            model.caps.max_message < 8192
                        }
                        why => {
                            *name == "a_receive_without_the_right_to_write_fails"
                                && why.contains("is refused")
                        }
                    }
            }
            Verdict::Failed(_) => false,
        };
        assert!(may_be_left, "seed {seed}: {name}: {verdict:?}");
    }
}

/// A rule or a promise that a device breaks, and all behaviours that it lacks by that
const BROKEN: &[(&str, &[&str])] = &[
    ("no name", &["a_device_has_a_name_and_caps", "a_device_is_named_after_its_interface"]),
    ("no elements", &["a_device_has_a_name_and_caps"]),
    ("device-per-port", &["a_device_is_named_after_its_interface"]),
    ("peer: the port goes down", &["a_port_with_a_cable_is_active"]),
    ("gid-table", &["the_first_of_three_gids_is_an_eui_64"]),
    (
        "no IPv4 entry",
        &[
            "the_gid_table_has_an_ipv4_entry",
            "the_first_of_three_gids_is_an_eui_64",
            "an_address_is_in_the_gid_table",
        ],
    ),
    (
        "a device opens once",
        &["a_device_opens_twice", "objects_can_be_made_again_and_again", "protection_domains_are_limited"],
    ),
    ("depth one is refused", &["a_completion_queue_of_depth_one_works"]),
    ("depth zero is accepted", &["a_completion_queue_without_depth_is_refused"]),
    ("any depth is accepted", &["a_completion_queue_too_deep_is_refused"]),
    ("qp-numbers", &["queue_pair_numbers_are_hops"]),
    ("a destroyed queue pair changes", &["a_destroyed_queue_pair_refuses_everything"]),
    ("destroying twice", &["destroying_twice_says_the_same"]),
    ("fewer queue pairs", &["queue_pairs_are_limited"]),
    ("fewer completion queues", &["completion_queues_are_limited"]),
    ("fewer regions", &["regions_are_limited"]),
    ("fewer domains", &["protection_domains_are_limited"]),
    ("transports", &["reliable_queue_pairs_are_for_others", "datagram_queue_pairs_are_refused"]),
    ("keys", &["regions_have_different_keys"]),
    ("regions fail at times", &["regions_come_and_go"]),
    ("one byte", &["a_region_of_one_byte_works"]),
    ("long regions", &["a_region_longer_than_16_mb_works"]),
    ("remote keys", &["remote_keys_are_for_others"]),
    (
        "unregistered",
        &[
            "an_unknown_key_is_an_error",
            "memory_beyond_the_region_is_an_error",
            "memory_before_the_region_is_an_error",
        ],
    ),
    (
        "post-failure",
        &["a_refused_post_takes_no_space", "a_send_before_ready_is_refused", "a_send_queue_fills_up"],
    ),
    ("a refused post takes space", &["a_refused_post_takes_no_space"]),
    ("operations", &["reads_are_for_others"]),
    ("receive-access", &["a_receive_without_the_right_to_write_fails"]),
    ("RTR is not seen", &["connecting_goes_through_all_states"]),
    ("steps", &["steps_cannot_be_skipped"]),
    ("steps backwards", &["steps_cannot_be_repeated_backwards"]),
    ("send-at-rts", &["a_send_before_ready_is_refused"]),
    ("receives from RTR on", &["a_receive_after_init_is_kept", "a_queue_pair_without_peer_sends_nothing"]),
    (
        "reset",
        &[
            "a_destroyed_queue_pair_refuses_everything",
            "steps_cannot_be_skipped",
            "a_queue_pair_can_begin_anew_after_reset",
        ],
    ),
    ("reset keeps receives", &["a_queue_pair_can_begin_anew_after_reset"]),
    ("rtr-neighbour", &["an_unknown_peer_is_not_found"]),
    ("the error state is not seen", &["the_error_state_is_seen"]),
    (
        "sends do not wait",
        &[
            "a_queue_pair_without_peer_sends_nothing",
            "a_message_waits_until_its_peer_is_connected",
            "a_waiting_send_does_not_delay_other_queue_pairs",
            "a_send_queue_fills_up",
            "a_send_before_its_receive",
        ],
    ),
    ("pairing", &["messages_pass_only_between_queue_pairs_that_name_each_other"]),
    (
        "own-pace",
        &[
            "messages_pass_only_between_queue_pairs_that_name_each_other",
            "a_waiting_send_does_not_delay_other_queue_pairs",
            "two_queue_pairs_do_not_mix",
        ],
    ),
    ("no capacity", &["what_was_asked_for_or_reported_fits", "messages_around_every_boundary_arrive"]),
    ("any queue is accepted", &["queues_deeper_than_the_device_are_refused"]),
    (
        "queues count requests",
        &[
            "long_and_short_receives_share_the_queue",
            "a_receive_longer_than_the_queue_is_refused",
            "a_send_longer_than_the_queue_is_refused",
        ],
    ),
    (
        "full queues accept",
        &[
            "long_and_short_receives_share_the_queue",
            "a_receive_longer_than_the_queue_is_refused",
            "a_send_longer_than_the_queue_is_refused",
            "a_full_queue_takes_more_after_a_completion",
        ],
    ),
    ("long sends", &["a_send_longer_than_the_queue_is_refused"]),
    ("long receives", &["a_receive_longer_than_the_queue_is_refused"]),
    ("full send queues accept", &["a_send_queue_fills_up"]),
    (
        "full receive queues accept",
        &[
            "long_and_short_receives_share_the_queue",
            "a_receive_longer_than_the_queue_is_refused",
            "a_send_longer_than_the_queue_is_refused",
            "a_full_queue_takes_more_after_a_completion",
        ],
    ),
    (
        "a full queue stays full",
        &[
            "long_and_short_receives_share_the_queue",
            "a_full_queue_takes_more_after_a_completion",
            "space_returns_before_its_completion_is_polled",
        ],
    ),
    (
        "messages of one byte",
        &[
            "a_region_has_the_length_of_its_memory",
            "messages_around_every_boundary_arrive",
            "sizes_may_change_from_message_to_message",
            "a_second_send_does_not_overtake",
            "sends_complete_in_order",
        ],
    ),
    ("empty messages", &["nothing_arrives_as_nothing"]),
    ("one way at a time", &["a_queue_pair_can_begin_anew_after_reset", "both_directions_work_at_once"]),
    (
        "order",
        &[
            "a_send_queue_fills_up",
            "a_hundred_messages_keep_their_order",
            "an_unsignaled_send_is_silent",
            "sends_complete_in_order",
        ],
    ),
    ("no-loss", &["a_hundred_messages_keep_their_order", "no_message_of_a_batch_is_lost"]),
    ("peer: order of receives", &["a_hundred_messages_keep_their_order", "receives_are_used_in_order"]),
    ("names of sends are short", &["a_send_completes_under_its_name"]),
    ("peer: names of receives are short", &["a_receive_completes_with_name_length_and_number"]),
    ("unsignaled", &["an_unsignaled_send_is_silent"]),
    ("more than fits", &["polling_returns_at_most_what_fits"]),
    ("what does not fit is lost", &["polling_returns_at_most_what_fits"]),
    ("an empty queue completes", &["an_empty_queue_returns_nothing"]),
    (
        "names differ",
        &[
            "a_full_queue_takes_more_after_a_completion",
            "a_send_queue_fills_up",
            "space_returns_before_its_completion_is_polled",
            "receives_are_used_in_order",
            "names_may_repeat",
        ],
    ),
    (
        "peer: parts of messages",
        &[
            "a_receive_that_is_too_short_fails",
            "the_excess_of_a_message_spoils_the_next_receive",
            "a_receive_that_is_too_long",
        ],
    ),
    ("peer: the excess is lost", &["the_excess_of_a_message_spoils_the_next_receive"]),
    ("space returns with the poll", &["space_returns_before_its_completion_is_polled"]),
    (
        "receives may be longer",
        &["the_excess_of_a_message_spoils_the_next_receive", "a_receive_that_is_too_long"],
    ),
    ("shared-cq", &["one_queue_serves_two_queue_pairs"]),
    ("a destroyed queue pair receives", &["posted_receives_go_with_their_queue_pair"]),
    ("a destroyed queue pair sends", &["sends_under_way_go_with_their_queue_pair"]),
];

/// A rule or a promise that a device breaks and many messages show, and the behaviours that are about it
const SHOWN_BY_MANY: &[(&str, &[&str])] = &[
    (
        "one number",
        &[
            "queue_pairs_have_different_numbers",
            "a_peer_that_goes_is_silence",
            "many_pairs_come_and_go_under_load",
        ],
    ),
    ("peer: bytes behind", &["bytes_behind_a_message_stay"]),
    ("the memory of sends", &["the_memory_of_a_send_stays"]),
    (
        "peer: data",
        &[
            "messages_around_every_boundary_arrive",
            "both_directions_work_at_once",
            "two_queue_pairs_do_not_mix",
        ],
    ),
    (
        "peer: lengths",
        &[
            "a_region_has_the_length_of_its_memory",
            "a_receive_completes_with_name_length_and_number",
            "nothing_arrives_as_nothing",
        ],
    ),
];

fn failed(behaviours: &[Behaviour]) -> Vec<&Behaviour> {
    behaviours.iter().filter(|behaviour| matches!(behaviour.verdict, Verdict::Failed(_))).collect()
}

/// Catches a behaviour that passes on a device that lacks it, one that fails for another reason, one that no device lacks, and so cannot
/// fail, and a rule that no device breaks.
#[test]
fn behaviours_that_a_device_lacks_are_named() {
    assert_eq!(failed(&conformed("")), Vec::<&Behaviour>::new());
    // The stages beside the behaviours have tests of their own.
    let (mut rules, mut names) = (BTreeSet::from(["full-duplex", "rtr-neighbour", "turns"]), BTreeSet::new());
    let mut wrong = Vec::new();
    for (broken, lacking) in BROKEN.iter().chain(SHOWN_BY_MANY) {
        let behaviours = conformed(broken);
        let failed = failed(&behaviours);
        let found: Vec<_> = failed.iter().map(|behaviour| behaviour.name).collect();
        let is_exact = BROKEN.iter().any(|(exact, _)| exact == broken);
        if !lacking.iter().all(|name| found.contains(name)) || (is_exact && found != *lacking) {
            let failed = failed.iter().map(|one| format!("{}: {:?}", one.name, one.verdict));
            wrong.push((broken, failed.collect::<Vec<_>>()));
        }
        rules.extend(failed.iter().filter_map(|behaviour| behaviour.rule));
        names.extend(found);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(rules, checked_rules());
    assert_eq!(names, BEHAVIOURS.iter().copied().collect());
}

/// Devices that break a rule and do not disturb the measurements
const CALIBRATED: [&str; 11] = [
    "device-per-port",
    "gid-table",
    "operations",
    "post-failure",
    "receive-access",
    "reset",
    "rtr-neighbour",
    "send-at-rts",
    "steps",
    "transports",
    "unsignaled",
];

/// Catches a rule that is said to hold although a behaviour failed, and a behaviour that is named beside its rule.
#[test]
fn a_rule_that_a_device_breaks_is_named_in_the_page_once() {
    let rules = found("").rules;
    assert!(rules.iter().all(|found| found.instead.is_none()), "{rules:?}");
    for broken in CALIBRATED {
        assert!(catalogue::rules().any(|rule| rule.name == broken), "{broken} is in the catalogue");
        let found = found(broken);
        assert!(found.contradictions().contains(&broken), "{broken}: {:?}", found.rules);
        let page = found.page();
        let contradicted = page.split("## What it confirms").next().unwrap();
        assert!(contradicted.contains(&format!("| rule {broken} | ")), "{page}");
        for Behaviour { name, rule, .. } in failed(&found.behaviours) {
            let is_contradiction = found.contradictions().contains(name);
            let has_row = page.contains(&format!("| behaviour `{name}` | "));
            let is_in_rule = contradicted.contains(&format!("{name}: "));
            let shown = (is_contradiction, has_row, is_in_rule);
            assert_eq!(shown, (rule.is_none(), rule.is_none(), rule.is_some()), "{broken}: {name}: {page}");
        }
    }
}

/// Catches a rule of behaviours that were left out and that is said to hold.
#[test]
fn a_rule_whose_behaviours_are_left_out_is_not_tested() {
    let mut model = Model::tb5();
    model.caps.send_waits_for_receive = false;
    let found = calibrated(model, 1, Options::default()).asked.unwrap();
    assert_eq!(failed(&found.behaviours), Vec::<&Behaviour>::new());
    for rule in ["own-pace", "peer-readiness"] {
        assert!(found.untested_rules.contains(&(rule, "no send of the device waits".to_owned())));
        assert!(!found.rules.iter().any(|found| found.rule == rule));
    }
}

/// Regression: a machine without enough memory that a process may lock was said to break the rule.
///
/// Catches a refusal of another cause than the length that counts as one for it, and a rule that is said to hold, or not mentioned.
#[test]
fn a_registration_that_is_refused_for_lack_of_memory_does_not_test_the_rule() {
    let found = found(NO_MEMORY);
    let is_it = |rule: &str| rule == "registration-length";
    assert!(!found.rules.iter().any(|found| is_it(found.rule)), "{:?}", found.rules);
    assert!(found.contradictions().is_empty(), "{:?}", found.contradictions());
    let (_, why) = found.untested_rules.iter().find(|(rule, _)| is_it(rule)).unwrap();
    assert!(why.contains("16777217 bytes") && why.contains("RLIMIT_MEMLOCK"), "{why}");
    let page = found.page();
    let undecided = page.split("## What was not decided").nth(1).unwrap();
    assert!(undecided.contains("| rule registration-length | not tested | 16777217 bytes: "), "{page}");
    assert!(!page.contains("a_region_longer_than_16_mb_works"), "{page}");
}

/// The manual of `ibv_poll_cq` promises the kind of a request for those alone that succeed.
///
/// Catches a side that waits for the completion of a receive which has come with an error.
#[test]
fn a_receive_that_fails_is_known_by_its_name() {
    let (usual, found) = (found(""), found(NO_KINDS));
    assert_eq!(found.stopped, []);
    assert_eq!(found.contradictions(), usual.contradictions());
    let fields = ["rules.frame_match", "rules.send_completion", "rules.multi_sge"];
    for field in fields {
        assert_eq!(found.profile.decided(field), Some(Decided::Measured), "{field}");
    }
    assert_eq!(failed(&found.behaviours), Vec::<&Behaviour>::new());
}

/// Catches a body that looks only at the bytes of messages.
#[test]
fn a_write_where_nothing_was_posted_is_found() {
    let behaviours = conformed(STRAY_WRITE);
    let failed = failed(&behaviours);
    assert!(failed.len() >= 4, "{failed:?}");
    for Behaviour { name, verdict, .. } in failed {
        let Verdict::Failed(why) = verdict else { continue };
        assert!(why.contains("the device wrote at "), "{name}: {why}");
    }
}

/// Regression: transitions that fail on the side that asks were not counted, so that the body made dozens of them.
///
/// Catches a body that goes on when nothing connects, behaviours that count as lacking because none was tried, verdicts that are lost with the
/// others, and a reason that the later failure replaces.
#[test]
fn the_body_ends_when_nothing_connects() {
    for broken in ["nothing connects", "peer: nothing connects"] {
        let ended = try_conformed(broken, &Options::default().with_risk_reboot(true));
        let (behaviours, error) = (ended.behaviours, ended.ended.unwrap().to_string());
        assert!(error.contains("modify_qp: the device is busy"), "{broken}: {error}");
        assert_eq!(behaviours.iter().map(|found| found.name).collect::<Vec<_>>(), BEHAVIOURS, "{broken}");
        assert_eq!(failed(&behaviours), Vec::<&Behaviour>::new(), "{broken}");
        let passed = behaviours.iter().take_while(|found| found.verdict == Verdict::Passed).count();
        assert!(passed > 3, "{broken}: {behaviours:?}");
        let Verdict::Skipped(why) = &behaviours[passed].verdict else { unreachable!("none has failed") };
        let (own, later) = why.split_once("; then nothing connected: ").unwrap();
        assert!(own.contains("modify_qp") && later.contains("modify_qp"), "{broken}: {why}");
    }
}

/// Regression: the body opened protection domains until there were no more, although no option asked for that, and registered a region too
/// many, at which a provider under macOS 26.2 ends the process.
#[test]
fn neither_domains_nor_regions_are_used_up_unless_asked_for() {
    let behaviours = conformed_with("", &Options::default());
    let left: Vec<_> = behaviours.iter().filter(|found| found.verdict != Verdict::Passed).collect();
    let names: Vec<_> = left.iter().map(|found| found.name).collect();
    assert_eq!(
        names,
        [
            "regions_are_limited",
            "protection_domains_are_limited",
            "an_unknown_peer_is_not_found",
            "the_error_state_is_seen"
        ]
    );
    let is_option = |found: &&&Behaviour| matches!(&found.verdict, Verdict::Skipped(why) if why.contains("--risk-reboot"));
    assert_eq!(left.iter().filter(is_option).count(), 4, "{left:?}");
}

/// Regression: streams from the other side alone were not measured, so that a device which sends more slowly was found nowhere.
///
/// Catches a direction that is not measured, or measured as the other one.
#[test]
fn a_side_that_sends_more_slowly_is_named() {
    for (broken, is_slower_back) in [("one send at a time", false), ("peer: one send at a time", true)] {
        let found = found(broken);
        let row = found.goodput.iter().find(|row| row.bytes == 65_536 && row.depth > 1).unwrap();
        let [slow, fast] = if is_slower_back { [row.back, row.one_way] } else { [row.one_way, row.back] };
        assert!(slow < 0.9 * fast && (9.0..9.4).contains(&fast), "{broken}: {row:?}");
        assert!(found.contradictions().contains(&"full-duplex"), "{broken}: {:?}", found.rules);
        let rates = format!("at {:.2} GB/s to the other side, and at {:.2} back", row.one_way, row.back);
        assert!(found.page().contains(&rates), "{broken}: {rates}: {}", found.page());
    }
}

/// Catches a limit that is taken from what the device states although it refuses less.
#[test]
fn a_device_that_accepts_less_than_it_states_is_found() {
    let limits = [
        ("fewer completions", "caps.max_cqe", "8192", "4096"),
        ("fewer frames", "caps.max_queue_frames", "5095", "4095"),
        ("shorter messages", "caps.max_message", "16773120", "1048576"),
    ];
    for (broken, field, stated, accepted) in limits {
        let found = found(broken);
        assert_eq!(found.profile.value(field).as_deref(), Some(accepted), "{broken}");
        assert_eq!(found.profile.decided(field), Some(Decided::Measured), "{broken}");
        let why = found.profile.why(field).unwrap();
        assert!(why.contains(&format!("states {stated}, and refuses more than {accepted}")), "{why}");
    }
    let found = found("");
    for (_, field, ..) in limits {
        assert!(found.profile.why(field).unwrap().contains("accepts as much"), "{field}");
    }
}

/// Regression: eleven frames in a row and more counted as no turns at all, which contradicted the rule that they follow.
///
/// Catches a number that streams cannot show and that is decided, or left without the bound that they do show.
#[test]
fn unequal_turns_are_measured_or_bounded() {
    for (turns, is_decided) in
        [(1, true), (3, true), (8, true), (11, true), (16, true), (64, true), (65_536, false)]
    {
        let mut model = Model::tb5();
        model.timing.turns = turns;
        let found = calibrated(model, 1, Options::default()).asked.unwrap();
        assert!(!found.contradictions().contains(&"turns"), "{turns}: {:?}", found.rules);
        let decided = found.profile.decided("timing.turns");
        let why = found.profile.why("timing.turns");
        assert_eq!(decided == Some(Decided::Measured), is_decided, "{turns}: {why:?}");
        if is_decided {
            assert_eq!(found.profile.model.timing.turns, turns);
            continue;
        }
        let number = |word: &str| word.trim_end_matches(':').parse::<u32>().ok();
        let bounds: Vec<_> = why.unwrap().split(' ').filter_map(number).collect();
        assert!((100..turns).contains(&bounds[0]), "{why:?}");
        let untested = found.untested_rules.iter().find(|(rule, _)| *rule == "turns");
        assert_eq!(untested.map(|(_, why)| why.as_str()), why);
    }
}
