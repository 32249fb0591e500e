//! The conformance body on devices that break something

use rdma_calibrate::{BEHAVIOURS, Behaviour, Findings, Verdict};
use rdma_sim::Model;
use rdma_sim::rules::{QueueUnit, RingOverflow};

use crate::deviant::{STRAY_WRITE, found};

/// Behaviours that a calibration leaves out, because of what they leave behind
const LEFT_OUT: [&str; 2] = ["an_unknown_peer_is_not_found", "the_error_state_is_seen"];

/// No device of a profile lacks a behaviour, as long as what is expected follows from its rules
#[track_caller]
pub(crate) fn assert_behaves(seed: u64, model: &Model, found: &Findings) {
    let names: Vec<_> = found.behaviours.iter().map(|behaviour| behaviour.name).collect();
    assert_eq!(names, BEHAVIOURS, "seed {seed}");
    for Behaviour { name, verdict, .. } in &found.behaviours {
        let may_be_left = match verdict {
            Verdict::Passed => !LEFT_OUT.contains(name),
            Verdict::Skipped(why) => {
                LEFT_OUT.contains(name)
                    || match *why {
                        "the messages of the device are shorter" | "every message is one frame" => {
                            model.caps.max_message < 200_000
                        }
                        "a full queue accepts more, and damages data" => {
                            model.rules.ring_overflow == RingOverflow::Corrupts
                        }
                        "the device counts requests, however long" => {
                            model.rules.queue_unit == QueueUnit::Requests
                        }
                        _ => false,
                    }
            }
            _ => false,
        };
        assert!(may_be_left, "seed {seed}: {name}: {verdict:?}");
    }
}

/// What the device breaks, and the behaviours that it lacks by that
const BROKEN: &[(&str, &[&str])] = &[
    ("transports", &["reliable_queue_pairs_are_for_others", "datagram_queue_pairs_are_refused"]),
    ("unsignaled", &["an_unsignaled_send_is_silent"]),
    ("steps", &["steps_cannot_be_skipped"]),
    (
        "reset",
        &[
            "a_destroyed_queue_pair_refuses_everything",
            "steps_cannot_be_skipped",
            "a_queue_pair_can_begin_anew_after_reset",
        ],
    ),
    ("send-at-rts", &["a_send_before_ready_is_refused"]),
    ("unregistered", &["an_unknown_key_is_an_error"]),
];

/// Catches a behaviour that passes on a device that lacks it, and a failed behaviour that ends the calibration.
#[test]
fn behaviours_that_a_device_lacks_are_named_in_the_page() {
    for (broken, lacking) in BROKEN {
        let found = found(broken);
        let is_failed = |verdict: &Verdict| matches!(verdict, Verdict::Failed(_));
        let failed = found.behaviours.iter().filter(|behaviour| is_failed(&behaviour.verdict));
        assert_eq!(failed.map(|behaviour| behaviour.name).collect::<Vec<_>>(), *lacking, "{broken}");
        let page = found.page();
        let contradicted = page.split("## What it confirms").next().unwrap();
        for name in *lacking {
            assert!(contradicted.contains(&format!("| behaviour `{name}` | ")), "{page}");
            assert!(found.contradictions().contains(name), "{:?}", found.contradictions());
        }
    }
}

/// Catches a body that looks only at the bytes of messages.
#[test]
fn a_write_where_nothing_was_posted_is_found() {
    let found = found(STRAY_WRITE);
    let failed = found.behaviours.iter().filter_map(|behaviour| match &behaviour.verdict {
        Verdict::Failed(why) => Some((behaviour.name, why)),
        _ => None,
    });
    let failed: Vec<_> = failed.collect();
    assert!(failed.len() >= 4, "{failed:?}");
    for (name, why) in failed {
        assert!(why.contains("the device wrote at "), "{name}: {why}");
    }
}
