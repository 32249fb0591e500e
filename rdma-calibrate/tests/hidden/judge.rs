//! Whether a calibration has found the truth

use rdma_calibrate::{Findings, PLAN};
use rdma_sim::Model;
use rdma_sim::profile::{Decided, Profile};

/// Which value of a field programs see on a device, if they see it; of several that they cannot tell apart, the one that is reported
fn visible(field: &str, model: &Model) -> Option<String> {
    let truth = of(model);
    let is = |field: &str, word: &str| truth.value(field).as_deref() == Some(word);
    let own = truth.value(field).unwrap();
    let (short, overflows) = (is("caps.max_message", "4096"), is("rules.ring_overflow", "corrupts"));
    let is_timed = is("timing.line_rate", "true");
    match field {
        // Not visible to programs at all, or not without harm.
        "rules.boundary"
        | "rules.completion_events"
        | "rules.crashes"
        | "rules.failed_rtr_wedges"
        | "rules.gids_move"
        | "rules.process_end_leaks_pds"
        | "rules.reboot_readdresses"
        | "rules.replug_leaks_pds"
        | "rules.tb4_devices"
        | "rules.idle_death"
        | "rules.idle_death_spoils"
        | "rules.spoiled_rtr"
        | "rules.error_keeps_mappings"
        | "timing.verbs_block_tasks" => None,
        "rules.frame_match" => (!short).then_some(own),
        "rules.send_completion" => is_timed.then_some(own),
        "rules.queue_unit" if overflows => shows_capacity(&truth).then_some(own),
        "rules.queue_unit" => (!short).then_some(own),
        "rules.queue_grant" if overflows && !shows_capacity(&truth) => None,
        "rules.queue_read_back" if is("rules.queue_grant", "exact") && own == "asked" => {
            // The queue accepts the capacity that was asked for; where that does not show, only the report is visible.
            Some(if overflows && !shows_capacity(&truth) { "asked" } else { "accepted" }.to_owned())
        }
        "rules.queue_read_back"
            if own == "accepted"
                && is("rules.queue_grant", "exact")
                && overflows
                && !shows_capacity(&truth) =>
        {
            Some("asked".to_owned())
        }
        _ => Some(own),
    }
}

/// Whether the capacity of a queue that refuses nothing shows in the longest receive
fn shows_capacity(truth: &Profile) -> bool {
    let is = |field: &str, word: &str| truth.value(field).as_deref() == Some(word);
    is("rules.queue_unit", "frames") && is("caps.max_message", "16773120")
}

/// The profile of a device
pub(crate) fn of(model: &Model) -> Profile {
    let mut profile = Profile::named("tb5").unwrap();
    profile.model = model.clone();
    profile
}

/// The sums of constants that programs see on a device
fn sums(model: &Model, hands_off: bool) -> Vec<(&'static str, u64)> {
    let t = &model.timing;
    let way = t.doorbell_ns + t.propagation_ns + t.delivery_ns;
    let mut sums = vec![
        ("per message", t.per_message_ns),
        ("jitter", u64::from(t.jitter_ns)),
        ("one way", way),
        ("unresolved RTR", t.unresolved_rtr_ns),
    ];
    if t.verbs_take_time {
        sums.extend([
            ("opening", t.open_ns),
            ("creation", t.create_ns),
            ("registration", t.register_ns),
            ("registration of a page", t.register_page_ns),
            ("transition", t.modify_ns),
            ("teardown", t.teardown_ns),
        ]);
    }
    if hands_off {
        sums.extend([
            ("doorbell", t.doorbell_ns),
            ("propagation", t.propagation_ns),
            ("delivery", t.delivery_ns),
        ]);
    } else {
        sums.extend([
            ("send", t.doorbell_ns + t.send_completion_ns),
            ("credit and send", t.propagation_ns + t.send_completion_ns),
            ("credit and message", 2 * t.propagation_ns + t.delivery_ns),
        ]);
    }
    sums
}

/// Fails unless `found` says of each rule of `secret` what programs see, and of those that they do not see, and of the `hidden` ones, that
/// it is undecided; and of each sum of constants what it is, within 5 %
#[track_caller]
pub(crate) fn assert_found(seed: u64, secret: &Model, found: &Profile, hidden: &[&str]) {
    let text = found.to_toml();
    for plan in
        PLAN.iter().filter(|plan| !plan.field.starts_with("timing.") && !plan.field.starts_with("caps."))
    {
        let decided = found.decided(plan.field);
        match visible(plan.field, secret).filter(|_| !hidden.contains(&plan.field)) {
            Some(value) => {
                assert_eq!(decided, Some(Decided::Measured), "seed {seed}: {}\n{text}", plan.field);
                assert_eq!(found.value(plan.field), Some(value), "seed {seed}: {}\n{text}", plan.field);
            }
            None => {
                assert_eq!(decided, Some(Decided::Undecided), "seed {seed}: {}\n{text}", plan.field);
                assert!(found.why(plan.field).is_some_and(|why| !why.is_empty()), "{}", plan.field);
            }
        }
    }
    for field in ["caps.max_qp", "caps.max_cq", "caps.max_mr"] {
        assert_eq!(found.decided(field), Some(Decided::Measured), "seed {seed}: {field}");
        assert_eq!(found.value(field), of(secret).value(field), "seed {seed}: {field}");
    }
    assert_eq!(found.model.timing.line_rate, secret.timing.line_rate, "seed {seed}");
    assert_eq!(found.model.timing.verbs_take_time, secret.timing.verbs_take_time, "seed {seed}");
    let hands_off =
        secret.timing.line_rate && of(secret).value("rules.send_completion").as_deref() == Some("hand-off");
    if !secret.timing.line_rate && of(secret).value("rules.send_completion").as_deref() == Some("hand-off") {
        // Nothing tells then that sends complete early: only the way of a message is what it seems.
        return;
    }
    for ((what, truth), (_, found)) in sums(secret, hands_off).into_iter().zip(sums(&found.model, hands_off))
    {
        let error = (found as f64 - truth as f64).abs();
        // A nanosecond is the resolution of the clock.
        assert!(
            error <= (truth as f64 * 0.05).max(1.0),
            "seed {seed}: {what} is {truth}, found {found}\n{text}"
        );
    }
}

/// Fails unless the device was found to follow each rule that no field switches
#[track_caller]
pub(crate) fn assert_rules_hold(found: &Findings) {
    assert!(found.rules.len() >= 11, "{:?}", found.rules);
    let broken: Vec<_> = found.rules.iter().filter(|rule| rule.instead.is_some()).collect();
    assert!(broken.is_empty(), "{broken:?}");
}
