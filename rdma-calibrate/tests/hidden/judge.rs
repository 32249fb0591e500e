//! Judge of a calibration: it has found the truth

use rdma_calibrate::{Findings, Goodput, How, PLAN, UNCHECKED_RULES, checked_rules};
use rdma_core::FRAME;
use rdma_sim::profile::{Decided, Profile};
use rdma_sim::rules::{QueueGrant, QueueUnit, SendCompletion, SourceGid};
use rdma_sim::{LineRate, Model, Timing};

use crate::devices::{Cables, cables};
use crate::transmitter::{frame_and_message, occupied, takes_time};

/// The value of a field that programs see on a device, if they see it; of several that they cannot tell apart, the one that is reported
///
/// `risks` as [`Options::risk_reboot`](rdma_calibrate::Options::risk_reboot).
fn visible(field: &str, rate: LineRate, model: &Model, risks: bool) -> Option<String> {
    let truth = of(model);
    let is = |field: &str, word: &str| truth.value(field).as_deref() == Some(word);
    let own = truth.value(field).unwrap();
    let (short, overflows) = (is("caps.max_message", "4096"), is("rules.ring_overflow", "corrupts"));
    let shows_capacity = shows_capacity(model);
    // Whatever is asked for, queues have the limit of the device.
    let is_always_limit = accepts_least(model) == model.caps.max_queue_frames;
    let is_timed = takes_time(model);
    match field {
        // Not visible to programs at all, or not without harm.
        "caps.frame"
        | "caps.max_sge"
        | "caps.one_sided"
        | "rules.boundary"
        | "rules.crashes"
        | "rules.gids_move"
        | "rules.process_end_leaks_pds"
        | "rules.process_end_leaks_qps"
        | "rules.reboot_readdresses"
        | "rules.replug_leaks_pds"
        | "rules.surplus_region_crashes"
        | "rules.idle_death"
        | "rules.idle_death_spoils"
        | "rules.spoiled_rtr" => None,
        _ if field.starts_with("timing.") => None,
        // Without the option, the one transition that may fail has failed.
        "rules.failed_rtr_wedges" if !risks => {
            (!model.rules.large_mtu && model.rules.failed_rtr_wedges == Some(1)).then(|| "1".to_owned())
        }
        // The device states this one.
        "caps.max_pd" => Some(own),
        _ if !risks && is_optional(field) => None,
        // Where such an address is refused, the port of a pair has none.
        "rules.link_local_source" => is(field, "true").then_some(own),
        // A port that is wedged connects no queue pair that would take a receive.
        "caps.flush_on_error" if !is("rules.early_receives", "from-init") && is_wedged_before(model, 3) => {
            None
        }
        "rules.tb4_devices" => (rate == LineRate::TB4).then_some(own),
        "rules.failed_rtr_wedges" => wedges_at(model).map(|(failed, _)| failed.to_string()),
        "rules.source_gid" if is_wedged_before(model, 1) => None,
        "rules.unresolved" if is_wedged_before(model, 2) => None,
        "rules.frame_match" => (!short).then_some(own),
        // Where bytes take no time, a completion shows only that it came before the message had left.
        "rules.send_completion" => (is_timed || shows_hand_off(rate, model)).then_some(own),
        "rules.queue_unit" if overflows => shows_capacity.then_some(own),
        "rules.queue_unit" => (!short).then_some(own),
        "rules.queue_grant" if overflows && !shows_capacity => None,
        "rules.queue_grant" if is_always_limit => Some(format!("fixed {}", model.caps.max_queue_frames)),
        "rules.queue_read_back" if overflows && !shows_capacity => Some(match &*own {
            // Only the report is visible.
            "accepted" if is("rules.queue_grant", "exact") => "asked".to_owned(),
            "accepted" if is_always_limit => "limit".to_owned(),
            _ => own,
        }),
        // The queue accepts what it reports.
        "rules.queue_read_back" if own == "asked" && is("rules.queue_grant", "exact") => {
            Some("accepted".to_owned())
        }
        "rules.queue_read_back" if own == "limit" && is_always_limit => Some("accepted".to_owned()),
        _ => Some(own),
    }
}

/// True if [`Options::risk_reboot`](rdma_calibrate::Options::risk_reboot) has to ask for the experiment of a field
fn is_optional(field: &str) -> bool {
    PLAN.iter().any(|plan| plan.field == field && plan.how == How::Optional("--risk-reboot"))
}

/// After how many failed transitions the port is wedged, and which of the transitions that may fail is the last one
fn wedges_at(model: &Model) -> Option<(u32, usize)> {
    let fails = [!model.rules.large_mtu, model.rules.source_gid == SourceGid::Ipv4, true];
    let mut failed = 0;
    fails.into_iter().enumerate().find_map(|(attempt, has_failed)| {
        failed += u32::from(has_failed);
        (has_failed && model.rules.failed_rtr_wedges == Some(failed)).then_some((failed, attempt))
    })
}

/// True if the port is wedged before this of the transitions that may fail
fn is_wedged_before(model: &Model, attempt: usize) -> bool {
    wedges_at(model).is_some_and(|(_, last)| last < attempt)
}

/// The frames of a queue for which one was asked
fn accepts_least(model: &Model) -> u32 {
    let least = match model.rules.queue_grant {
        QueueGrant::AtLeast(frames) => frames.max(1),
        QueueGrant::Fixed(frames) => frames,
        _ => 1,
    };
    least.min(model.caps.max_queue_frames)
}

/// True if programs see a time of a device
fn is_time_visible(field: &str, rate: LineRate, model: &Model, risks: bool) -> bool {
    match field.trim_start_matches("timing.") {
        "frame_ns" => takes_time(model),
        "per_message_ns" => shows_message(rate, model),
        // Streams of long messages compete.
        "turns" => takes_time(model) && model.caps.max_message > FRAME as u32,
        "send_completion_ns" => !is_hand_off(rate, model),
        "unresolved_rtr_ns" => risks && !is_wedged_before(model, 2),
        "open_ns" | "create_ns" | "register_ns" | "register_page_ns" | "modify_ns" | "teardown_ns" => {
            takes_verb_time(model)
        }
        "post_ns"
        | "poll_ns"
        | "wake_ns"
        | "wake_tail_one_in"
        | "copy_bytes_per_us"
        | "reduce_bytes_per_us"
        | "cores" => model.timing.cpu,
        "wake_tail_ns" => model.timing.cpu && model.timing.wake_tail_one_in > 0,
        "doorbell_ns" | "propagation_ns" | "delivery_ns" | "jitter_ns" | "line_rate" | "verbs_take_time"
        | "cpu" => true,
        _ => false,
    }
}

/// True if programs see that sends complete before their messages have left
fn is_hand_off(rate: LineRate, model: &Model) -> bool {
    visible("rules.send_completion", rate, model, true).as_deref() == Some("hand-off")
}

/// The fields of which programs see sums only, unless sends complete before their messages have left
const ONLY_IN_SUMS: [&str; 4] =
    ["timing.doorbell_ns", "timing.propagation_ns", "timing.delivery_ns", "timing.send_completion_ns"];

/// True if programs see one of [`ONLY_IN_SUMS`] alone
fn is_alone(field: &str, rate: LineRate, model: &Model) -> bool {
    let is_way = !matches!(field, "timing.doorbell_ns" | "timing.send_completion_ns");
    is_hand_off(rate, model) && (model.caps.send_waits_for_receive || !is_way)
}

/// True if a message of a frame takes longer than a post, or if longer messages keep the cable busy while others are posted
fn shows_message(rate: LineRate, model: &Model) -> bool {
    let post = if model.timing.cpu { model.timing.post_ns } else { 0 };
    model.caps.max_message > FRAME as u32 || occupied(rate, model, FRAME) as f64 > post as f64 * 1.02
}

/// True if the capacity of a queue that refuses nothing shows in the longest receive
fn shows_capacity(model: &Model) -> bool {
    let longest = (model.caps.max_message / 4096).min(model.caps.max_queue_frames);
    model.rules.queue_unit == QueueUnit::Frames && accepts_least(model) < longest
}

/// True if verbs of set-up and teardown take time
fn takes_verb_time(model: &Model) -> bool {
    model.timing.verbs_take_time || model.timing.cpu
}

/// The profile of a device
pub(crate) fn of(model: &Model) -> Profile {
    let mut profile = Profile::named("tb5").unwrap();
    profile.model = model.clone();
    profile
}

/// True if sends complete so early that their messages cannot have left, however short those are
fn shows_hand_off(rate: LineRate, model: &Model) -> bool {
    let (t, message) = (&model.timing, occupied(rate, model, 8));
    let credit = if model.caps.send_waits_for_receive { t.propagation_ns } else { u64::MAX };
    model.rules.send_completion == SendCompletion::HandOff && t.doorbell_ns.min(credit) < message
}

/// The sums of constants that programs see on a device
fn sums(rate: LineRate, model: &Model, risks: bool) -> Vec<(&'static str, u64)> {
    let t = &model.timing;
    let message = occupied(rate, model, 8);
    let way = t.doorbell_ns + message + t.propagation_ns + t.delivery_ns;
    let mut sums = vec![("jitter", u64::from(t.jitter_ns)), ("one way", way)];
    if risks && !is_wedged_before(model, 2) {
        sums.push(("unresolved RTR", t.unresolved_rtr_ns));
    }
    if takes_verb_time(model) {
        sums.extend([
            ("opening", t.open_ns),
            ("creation", t.create_ns),
            ("registration", t.register_ns),
            ("registration of a page", t.register_page_ns),
            ("transition", t.modify_ns),
            ("teardown", t.teardown_ns),
        ]);
    }
    let completes = match model.rules.send_completion {
        SendCompletion::HandOff => 0,
        _ => message + t.send_completion_ns,
    };
    sums.push(("send", t.doorbell_ns + completes));
    if model.caps.send_waits_for_receive {
        sums.extend([
            ("credit and send", t.propagation_ns + completes),
            ("credit and message", 2 * t.propagation_ns + message + t.delivery_ns),
        ]);
    }
    sums
}

/// Fails unless `found` says of each rule of `secret` what programs see, and of those that they do not see, and of the `hidden` ones, that
/// it is undecided; and of each sum of constants what it is, within 5 %
#[track_caller]
pub(crate) fn assert_found(seed: u64, secret: &Model, found: &Profile, hidden: &[&str], risks: bool) {
    let (text, rate) = (found.to_toml(), cables(seed).rate);
    let is_hidden = frame_and_message(rate, secret).is_none();
    for plan in PLAN {
        let decided = found.decided(plan.field);
        if !matches!(decided, Some(Decided::Measured | Decided::Sum)) {
            assert_eq!(
                found.value(plan.field),
                of(&Model::tb5()).value(plan.field),
                "seed {seed}: {}",
                plan.field
            );
        }
        // It takes several cables, which are judged by `assert_cables`, or messages that follow each other, which are judged below.
        if plan.field == OF_CABLES || (plan.field == "timing.frame_ns" && is_hidden) {
            continue;
        }
        // What the times are is judged below, by what programs see of them.
        if plan.field.starts_with("timing.") && is_time_visible(plan.field, rate, secret, risks) {
            let is_part = ONLY_IN_SUMS.contains(&plan.field) && !is_alone(plan.field, rate, secret);
            let expected = if is_part { Decided::Sum } else { Decided::Measured };
            assert_eq!(decided, Some(expected), "seed {seed}: {}\n{text}", plan.field);
            continue;
        }
        match visible(plan.field, rate, secret, risks).filter(|_| !hidden.contains(&plan.field)) {
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
    assert_eq!(found.model.timing.line_rate, takes_time(secret), "seed {seed}");
    assert_eq!(found.model.timing.verbs_take_time, takes_verb_time(secret), "seed {seed}");
    assert_eq!(found.model.timing.cpu, secret.timing.cpu, "seed {seed}");
    assert_processor(seed, secret, found);
    if is_time_visible("timing.turns", rate, secret, risks) {
        assert_eq!(found.model.timing.turns, secret.timing.turns, "seed {seed}");
    }
    let [frame, message] = [found.model.timing.frame_ns, found.model.timing.per_message_ns];
    let mut pairs = Vec::new();
    match frame_and_message(rate, secret) {
        Some(expected) => {
            if shows_message(rate, secret) {
                pairs.push(("per message", expected[1], message as f64));
            }
            if takes_time(secret) {
                // The constant is that of a cable of 80 Gb/s.
                let scale = rate.bits_per_second as f64 / LineRate::TB5.bits_per_second as f64;
                pairs.push(("a frame", expected[0] * scale, frame as f64));
            }
        }
        None => {
            let lens = [8, 1024, FRAME, 16 * FRAME].map(|len| len.min(secret.caps.max_message as usize));
            let taken = |len| [secret, &found.model].map(|model| occupied(rate, model, len) as f64);
            pairs.extend(lens.map(taken).map(|[truth, found]| ("a message behind others", truth, found)));
        }
    }
    let visible = sums(rate, secret, risks).into_iter().zip(sums(rate, &found.model, risks));
    pairs.extend(visible.map(|((what, truth), (_, found))| (what, truth as f64, found as f64)));
    for (what, truth, found) in pairs {
        let error = (found - truth).abs();
        // A nanosecond is the resolution of the clock.
        assert!(error <= (truth * 0.05).max(1.0), "seed {seed}: {what} is {truth}, found {found}\n{text}");
    }
}

/// The field that several cables show
const OF_CABLES: &str = "timing.mac_bytes_per_us";

/// Fails unless the rate of the cables is found, and the bound of all cables of a host is found, within 5 %, where there are several that streams keep busy
#[track_caller]
pub(crate) fn assert_cables(seed: u64, secret: &Model, found: &Findings) {
    let (field, Cables { count, rate }) = (OF_CABLES, cables(seed));
    let decided = found.profile.decided(field);
    assert_eq!(found.port.bits_per_second, rate.bits_per_second, "seed {seed}");
    let link = format!("Link of {} Gb/s", rate.bits_per_second / 1_000_000_000);
    assert!(found.page().contains(&link), "seed {seed}: {link}");
    if count < 2 {
        assert!(found.cables.is_empty(), "seed {seed}");
        assert!(found.profile.why(field).unwrap().starts_with("one cable"), "seed {seed}");
        let is_hidden = frame_and_message(rate, secret).is_none();
        assert_eq!(decided == Some(Decided::Measured), is_hidden, "seed {seed}");
    } else if !takes_time(secret) {
        assert_eq!(found.profile.why(field), Some("bytes take no time"), "seed {seed}");
    } else if found.cables.is_empty() {
        let why = found.profile.why(field).unwrap();
        // Queues or messages that are too short show in the table of goodput, too.
        let is_busy = |row: &Goodput| row.bytes >= 16 * FRAME && row.depth * row.bytes >= 512 << 10;
        assert!(!found.goodput.iter().any(is_busy), "seed {seed}: {why}");
        assert!(why.contains("no queue holds enough"), "seed {seed}: {why}");
        // What one cable shows of the bound is judged by the times of messages.
        let is_hidden = frame_and_message(rate, secret).is_none();
        assert_eq!(decided == Some(Decided::Measured), is_hidden, "seed {seed}: {why}");
    } else {
        assert_eq!(decided, Some(Decided::Measured), "seed {seed}");
        let cable = FRAME as f64 * 1000.0
            / [2 * FRAME, FRAME]
                .map(|len| occupied(rate, secret, len) as f64)
                .into_iter()
                .reduce(|two, one| two - one)
                .unwrap();
        let bound = secret.timing.mac_bytes_per_us;
        // A bound beyond what both carry does not show; one within 1 % of that threshold may be found or not, because the tool compares
        // measured rates, and either result predicts the rate of both within 5 %.
        let part = bound as f64 / (2.0 * cable);
        let truths = match part {
            _ if bound == 0 => &[0][..],
            ..0.94 => &[bound],
            ..0.96 => &[bound, 0],
            _ => &[0],
        };
        let found_bound = found.profile.model.timing.mac_bytes_per_us;
        let is_of = |truth: &u64| found_bound.abs_diff(*truth) as f64 <= *truth as f64 * 0.05;
        assert!(
            truths.iter().any(is_of),
            "seed {seed}: one of {truths:?}, found {found_bound}: {:?}",
            found.cables
        );
        let both: Vec<_> = found.cables.iter().map(|rates| rates.cables.len()).collect();
        assert_eq!(both, [1, 1, 2], "seed {seed}");
        assert!(found.page().contains("## Several cables in GB/s"), "seed {seed}");
    }
    if decided != Some(Decided::Measured) {
        assert_eq!(found.profile.model.timing.mac_bytes_per_us, 0, "seed {seed}");
    }
}

/// Fails unless the costs of the processor are those of `secret`, within 5 %
#[track_caller]
fn assert_processor(seed: u64, secret: &Model, profile: &Profile) {
    let (truth, found) = (&secret.timing, &profile.model.timing);
    if !truth.cpu {
        return;
    }
    assert_eq!(found.cores, truth.cores, "seed {seed}");
    assert_eq!(found.wake_tail_one_in == 0, truth.wake_tail_one_in == 0, "seed {seed}");
    // Wake-ups are late at random: the tolerance of their share is four standard errors of the number of those that were late.
    let drawn = match truth.wake_tail_one_in {
        0 => 0.0,
        one_in => {
            let error = standard_error(found);
            assert!(
                error < 0.1 && error * error * 40_000.0 < 3.0 * f64::from(one_in),
                "seed {seed}: {error}"
            );
            4.0 * error
        }
    };
    let mut costs = vec![
        ("post", truth.post_ns, found.post_ns, 0.05),
        ("poll", truth.poll_ns, found.poll_ns, 0.05),
        ("wake-up", truth.wake_ns, found.wake_ns, 0.05),
        ("copy", truth.copy_bytes_per_us, found.copy_bytes_per_us, 0.05),
        ("reduction", truth.reduce_bytes_per_us, found.reduce_bytes_per_us, 0.05),
        ("late", truth.wake_tail_one_in.into(), found.wake_tail_one_in.into(), drawn),
    ];
    if truth.wake_tail_one_in > 0 {
        costs.push(("tail", truth.wake_tail_ns.into(), found.wake_tail_ns.into(), 0.05));
    }
    for (what, truth, found, most) in costs {
        let error = truth.abs_diff(found) as f64;
        assert!(error <= (truth as f64 * most).max(1.0), "seed {seed}: {what} is {truth}, found {found}");
    }
}

/// The relative standard error of the share of late wake-ups in a calibration that found `timing`
fn standard_error(timing: &Timing) -> f64 {
    const WAKE_UPS: f64 = 40_000.0;
    // Delays are even up to the longest one; wake-ups within twice the usual time do not count as late.
    let counted = 1.0 - timing.wake_ns as f64 / f64::from(timing.wake_tail_ns);
    let late = WAKE_UPS * counted / f64::from(timing.wake_tail_one_in);
    1.0 / late.sqrt()
}

/// The rules that some devices of the judge do not show
const SOMETIMES_LEFT: &[&str] = &[
    "frame-mismatch-spill",
    "full-duplex",
    "queue-depth",
    "queue-space",
    "receive-access",
    "rtr-neighbour",
    "turns",
];

/// The rules about sends that wait for receives
const OF_WAITING: [&str; 2] = ["own-pace", "peer-readiness"];

/// Fails unless the device was found to follow each rule that no field switches
#[track_caller]
pub(crate) fn assert_rules_hold(found: &Findings) {
    let waits = found.profile.model.caps.send_waits_for_receive;
    for checked in &checked_rules() {
        let is_checked = found.rules.iter().any(|rule| rule.rule == *checked);
        let is_left = found.untested_rules.iter().any(|(rule, why)| rule == checked && !why.is_empty());
        let may_be_left = SOMETIMES_LEFT.contains(checked) || (!waits && OF_WAITING.contains(checked));
        assert!(is_checked || (is_left && may_be_left), "{checked}");
    }
    for (unchecked, _) in UNCHECKED_RULES {
        assert!(found.untested_rules.iter().any(|(rule, _)| rule == unchecked), "{unchecked}");
    }
    let broken: Vec<_> = found.rules.iter().filter(|rule| rule.instead.is_some()).collect();
    assert!(broken.is_empty(), "{broken:?}");
}
